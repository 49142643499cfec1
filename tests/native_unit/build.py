"""The extension module entry_tests: traces built by hand, guards, entries and exits; made with g++ for this Python.

    from tests.native_unit.build import load
    entry_tests = load()

With the torch of this Python if it has one, else without. Objects are kept in build/entry-tests/ and made again when a
source or a header that they include is newer.
"""

import concurrent.futures
import importlib.util
import os
import pathlib
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["-std=gnu++20", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-Wall", "-Wextra"]
FOLDERS = (
    "src/base",
    "src/host/cpython",
    "src/host/torch",
    "src/trace",
    "src/guards",
    "src/entry",
    "tests/native_unit",
)
RUNTIME = ("execute.cpp", "exit.cpp", "run_node.cpp")


def find_torch():
    spec = importlib.util.find_spec("torch")
    return pathlib.Path(spec.origin).parent if spec is not None else None


def list_sources(torch):
    sources = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.cpp"))]
    sources += [ROOT / "src/runtime" / name for name in RUNTIME]
    unwanted = "_absent.cpp" if torch else "_torch.cpp"
    return [path for path in sources if not path.name.endswith(unwanted)]


def is_current(target, depfile):
    """Whether the target is newer than all that its dependency file names."""
    if not target.exists() or not depfile.exists():
        return False
    names = depfile.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    built = target.stat().st_mtime
    return all(os.path.exists(name) and os.path.getmtime(name) <= built for name in names)


def run(command):
    subprocess.run([str(part) for part in command], check=True)


def compile_source(source, folder, torch):
    target = folder / (source.parent.name + "_" + source.stem + ".o")
    depfile = target.with_suffix(".d")
    if not is_current(target, depfile):
        command = [os.environ.get("CXX", "g++"), *FLAGS, "-MD", "-MF", depfile, "-I", ROOT / "src"]
        command += ["-isystem", sysconfig.get_path("include")]
        if source.name.endswith("_torch.cpp"):
            command += ["-isystem", torch / "include", "-isystem", torch / "include/torch/csrc/api/include"]
        run([*command, "-c", source, "-o", target])
    return target


def build():
    """Return the path of the module, made if it is missing or not up to date."""
    torch = find_torch()
    version = "{}.{}.{}".format(*sys.version_info)
    folder = ROOT / "build" / "entry-tests" / (version if torch else version + "-absent")
    folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        objects = list(executor.map(lambda source: compile_source(source, folder, torch), list_sources(torch)))
    module = folder / ("entry_tests" + sysconfig.get_config_var("EXT_SUFFIX"))
    if not module.exists() or any(path.stat().st_mtime > module.stat().st_mtime for path in objects):
        names = ("torch_python", "torch", "torch_cpu", "c10") if torch else ()
        run(
            [os.environ.get("CXX", "g++"), "-shared", *objects, "-o", module]
            + [torch / "lib" / f"lib{name}.so" for name in names]
        )
    return module


def load():
    """Import entry_tests, built first."""
    if "entry_tests" not in sys.modules:
        path = build()
        if find_torch():
            import torch  # noqa: F401  its libraries must be there first
        spec = importlib.util.spec_from_file_location("entry_tests", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["entry_tests"] = module
        spec.loader.exec_module(module)
    return sys.modules["entry_tests"]


if __name__ == "__main__":
    print(build())
