#!/usr/bin/env bash
# Builds both halves for the Python and torch of an environment, and lets that environment import the build tree.
#
#   tools/build.sh [PRESET] [VENV] [TARGET]
#
# The build tree holds the Python files as links, so a change to Python needs no build and a change to C++ only this.
set -eu
cd "$(dirname "$0")/.."
preset=${1:-release}
venv=${2:-.venv}
python=$(cd "$venv" && pwd)/bin/python
tree=$PWD/build/$preset
mkdir -p build

if [ ! -f "$tree/build.ninja" ] || ! grep -qx "Python_EXECUTABLE:[A-Z]*=$python" "$tree/CMakeCache.txt"; then
  echo "configuring build/$preset for $python"
  cmake --preset "$preset" -DPython_EXECUTABLE="$python" >"$tree.log" 2>&1 || { cat "$tree.log"; exit 1; }
fi
cmake --build --preset "$preset" ${3:+--target "$3"}

# An environment inside the checkout is ours: `import reprise` finds the newest build without PYTHONPATH.
case $python in "$PWD"/*)
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  [ "$(cat "$site/reprise-build-tree.pth" 2>/dev/null)" = "$tree" ] || echo "$tree" >"$site/reprise-build-tree.pth"
esac
