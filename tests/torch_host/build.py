"""Build the module that the tests of this folder use, with g++, for the Python and torch that run this.

    build.py            builds if a source is newer, prints the module's path
    build.py --absent   the build without torch (torch need not be installed)

Objects and modules are kept in build/torch_host/, by Python and torch version.
"""

import concurrent.futures
import importlib.util
import pathlib
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
NAME = "torch_host_native"
FLAGS = ["-std=gnu++20", "-O2", "-g0", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing"]


def find_torch():
    """The directory of torch and its version, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        raise SystemExit("torch is not installed for " + sys.executable)
    directory = pathlib.Path(spec.origin).parent
    scope = {}
    exec((directory / "version.py").read_text(), scope)
    return directory, str(scope["__version__"])


def build(absent=False):
    """The path of the module, built if needed."""
    suffix = "_absent.cpp" if absent else "_torch.cpp"
    sources = [pathlib.Path(__file__).with_name("module.cpp"), *sorted((SOURCE / "host/torch").glob("*" + suffix))]
    include = ["-I", SOURCE, "-isystem", sysconfig.get_paths()["include"]]
    libraries = []
    key = "py" + sysconfig.get_config_var("py_version_nodot")
    if absent:
        key += "-absent"
    else:
        torch, version = find_torch()
        key += "-torch" + version
        include += ["-isystem", torch / "include", "-isystem", torch / "include/torch/csrc/api/include"]
        libraries = [torch / "lib" / f"lib{name}.so" for name in ("torch_python", "torch", "torch_cpu", "c10")]
    folder = ROOT / "build/torch_host" / key
    folder.mkdir(parents=True, exist_ok=True)
    headers = [*SOURCE.glob("base/*.h"), *(SOURCE / "host/torch").glob("*.h"), *(SOURCE / "host/torch").glob("*.def")]
    newest_header = max(path.stat().st_mtime for path in headers)

    def compile_one(source):
        target = folder / (source.stem + ".o")
        if not target.exists() or target.stat().st_mtime < max(newest_header, source.stat().st_mtime):
            run(["g++", *FLAGS, *include, "-c", source, "-o", target])
        return target

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, sources))
    module = folder / (NAME + sysconfig.get_config_var("EXT_SUFFIX"))
    if not module.exists() or module.stat().st_mtime < max(path.stat().st_mtime for path in objects):
        run(["g++", "-shared", *objects, "-o", module, *libraries])
    return module


def run(command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(" ".join(str(part) for part in command) + "\n" + result.stdout + result.stderr)
    if result.stderr:
        print(result.stderr, file=sys.stderr)


def load(absent=False):
    """The module, built if needed. Import torch first."""
    path = build(absent)
    spec = importlib.util.spec_from_file_location(NAME, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    print(build(absent="--absent" in sys.argv[1:]))
