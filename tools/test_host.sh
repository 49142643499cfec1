#!/usr/bin/env bash
# Builds the host half without torch for every CPython 3.11, 3.12 and 3.13 found, and runs tests/host on it.
#
#   tools/test_host.sh [VENV] [TEST]...      VENV gives nanobind's sources; TEST is a part of a test's name
#
# One build serves all patch releases of a minor, as in the wheels: it is made with the first interpreter that has
# headers, and the tests run on each. Looks at PATH and ~/.pyenv/versions. Names what it skipped and why.
# PYTHONS="3.11 3.13" restricts the minors. CORE names a libreprise_core.so to take; else each tree builds its own. Two
# interpreters are tested at a time; their texts are shown when they end.
set -u
cd "$(dirname "$0")/.."
venv=${1:-.venv}
[ $# -gt 0 ] && shift
nanobind=$("$venv/bin/python" -m nanobind --cmake_dir) || exit 1
status=0
skipped=
runs=()

# Distinct interpreters of a minor, as "path version has_headers".
list_interpreters() {
  for python in $(type -ap "python$1") "$HOME"/.pyenv/versions/"$1".*/bin/python; do
    [ -x "$python" ] || continue
    (cd / && "$python" -c "
import os, sys, sysconfig
if '%d.%d' % sys.version_info[:2] == '$1' and sys.implementation.name == 'cpython' and sys.prefix == sys.base_prefix \
        and not sysconfig.get_config_var('Py_GIL_DISABLED'):
    headers = os.path.isdir(os.path.join(sysconfig.get_path('include'), 'internal'))
    print(os.path.realpath(sys.executable), '%d.%d.%d' % sys.version_info[:3], int(headers))" 2>/dev/null)
  done | awk '!seen[$1]++'
}

for minor in ${PYTHONS:-3.11 3.12 3.13}; do
  interpreters=$(list_interpreters "$minor")
  if [ -z "$interpreters" ]; then
    skipped="$skipped $minor (not found)"
    continue
  fi
  builder=$(echo "$interpreters" | awk '$3 == 1 { print $1; exit }')
  if [ -z "$builder" ]; then
    skipped="$skipped $minor (no headers)"
    continue
  fi
  tree=build/host-$minor
  mkdir -p build
  echo "host $minor: building with $builder"
  if ! { cmake -S . -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 \
           -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DREPRISE_TORCH=OFF -DREPRISE_TESTS=OFF -DREPRISE_LLVM=OFF \
           -DREPRISE_CORE_LIBRARY="${CORE:+$PWD/$CORE}" -DPython_EXECUTABLE="$builder" \
           -DREPRISE_NANOBIND_DIR="$nanobind" \
         && cmake --build "$tree"; } >"$tree.log" 2>&1; then
    tail -n 60 "$tree.log"
    echo "FAILED host $minor: does not build (log: $tree.log)"
    status=1
    continue
  fi
  while read -r python version _; do
    runs+=("$tree $python $version")
  done <<<"$interpreters"
done

run_one() {
  local tree=$1 python=$2 version=$3
  shift 3
  local log=build/host-tests-$version-$(echo "$python" | cksum | cut -d' ' -f1).log
  PYTHONPATH=$tree "$python" -m tests.host "$@" >"$log" 2>&1 || echo "FAILED host $version: $python" >>"$log"
  cat "$log"
  ! grep -q "^FAILED host $version: $python" "$log"
}

for run in ${runs[@]+"${runs[@]}"}; do
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do
    wait -n || status=1
  done
  # shellcheck disable=SC2086
  run_one $run "$@" &
done
while [ -n "$(jobs -p)" ]; do
  wait -n || status=1
done
[ -z "$skipped" ] || echo "host: skipped$skipped"
exit $status
