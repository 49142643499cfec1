#!/usr/bin/env bash
# Runs the tests with PyTorch in two processes side by side: one thread of torch each, a core each.
#
#   tools/test_python.sh PYTHON
#
# One process runs the programs that are compared with eager, and runs them once more under the default backend; the
# other runs everything else. The second one's text is shown live, the first one's when it ends.
set -u
cd "$(dirname "$0")/.."
python=$1
programs="tests/replay tests/train tests/exits"
log=build/test-programs.log
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

run_programs() {
  local status=0
  # shellcheck disable=SC2086
  "$python" -m pytest -q $programs || status=1
  # shellcheck disable=SC2086
  REPRISE_TEST_MODE=reprise "$python" -m pytest -q $programs || status=1
  return $status
}

mkdir -p build
run_programs >"$log" 2>&1 &
other=$!
trap 'kill $other 2>/dev/null' INT TERM
status=0
# shellcheck disable=SC2046
"$python" -m pytest -q tests $(printf -- '--ignore=%s ' $programs) || status=1
"$python" -m pytest -q tests/aot || status=1  # loads a second copy of the engine
wait $other || status=1
cat "$log"
exit $status
