#!/usr/bin/env bash
# Makes a virtual environment with torch and the development requirements, or brings one up to date.
#
#   tools/setup_env.sh [DIR]        DIR defaults to .venv
#
# TORCH   what to install as torch (torch==2.13.0); pip's own PIP_* variables choose where from
# PYTHON  the interpreter to use (a CPython 3.11 to 3.13 with headers; 3.11 is tried first)
set -eu
cd "$(dirname "$0")/.."
dir=${1:-.venv}
torch=${TORCH:-torch==2.13.0}

is_usable() {
  "$1" -c '
import os, sys, sysconfig
ok = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] <= (3, 13)
sys.exit(not (ok and os.path.isdir(os.path.join(sysconfig.get_path("include"), "internal"))))' 2>/dev/null
}

find_python() {
  if [ -n "${PYTHON:-}" ]; then echo "$PYTHON"; return; fi
  for minor in 3.11 3.12 3.13; do
    for python in "$(command -v python$minor || true)" "$HOME"/.pyenv/versions/$minor.*/bin/python \
                  "$(command -v python3 || true)"; do
      [ -n "$python" ] && [ -x "$python" ] || continue
      "$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$minor')" 2>/dev/null || continue
      if is_usable "$python"; then echo "$python"; return; fi
    done
  done
  echo "no CPython 3.11 to 3.13 with its headers was found; install one (Debian: python3.11-dev python3.11-venv)," \
       "or set PYTHON" >&2
  return 1
}

# Prints what is missing, one a line: "name wanted found".
list_missing() {
  "$dir/bin/python" - requirements-dev.txt "$torch" <<'PY'
import importlib.metadata as metadata
import re
import sys

lines = [line.split("#")[0].strip() for line in open(sys.argv[1])] + [sys.argv[2]]
for line in filter(None, lines):
    name, _, wanted = line.partition("==")
    try:
        found = metadata.version(re.split(r"[<>=\[]", name)[0])
    except metadata.PackageNotFoundError:
        found = "nothing"
    if found == "nothing" or (wanted and found.split("+")[0] != wanted.split("+")[0]):
        print(f"  {name}: expected {wanted or 'any'}, found {found}")
PY
}

mkdir -p build
if [ ! -x "$dir/bin/python" ]; then
  python=$(find_python)
  echo "making $dir with $("$python" --version) of $python"
  "$python" -m venv "$dir"
  "$dir/bin/python" -m pip install --quiet --upgrade pip
fi
missing=$(list_missing)
[ -n "$missing" ] || exit 0
printf 'installing into %s (once; torch is large):\n%s\n' "$dir" "$missing"
"$dir/bin/python" -m pip install "$torch"
"$dir/bin/python" -m pip install -r requirements-dev.txt
