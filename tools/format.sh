#!/usr/bin/env bash
# Formats the C and C++ sources with clang-format, or with --check only reports what is not formatted.
# Tables (.def) are left alone: their rows are lined up by hand.
set -eu
cd "$(dirname "$0")/.."
list_files() {
  find src tests -name cases -prune -o \( -name '*.cpp' -o -name '*.h' -o -name '*.c' \) -print0 | sort -z
}
if [ "${1:-}" = --check ]; then
  # shellcheck disable=SC2016
  bad=$(list_files | xargs -0 -n 1 -P 2 sh -c 'clang-format --dry-run -Werror "$0" 2>/dev/null || echo "$0:1: not formatted"')
  [ -z "$bad" ] || { sort <<<"$bad"; echo "format: $(wc -l <<<"$bad") problems; run make fmt"; exit 1; }
  echo "format: 0 problems"
else
  list_files | xargs -0 clang-format -i
fi
