"""The extension module aot_tests: aot, graph, passes and host/torch with a Python callable as the region.

    from tests.aot.build import load
    aot_tests = load()

Objects are kept in build/aot-tests/ and made again when a source or a header that they include is newer.
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
FOLDERS = ("src/base", "src/types", "src/sym", "src/graph", "src/graph/rules", "src/passes", "src/aot", "tests/aot")
HOST = (
    "boxed_call_torch.cpp",
    "dtypes_torch.cpp",
    "op_info_torch.cpp",
    "region_node_torch.cpp",
    "sym_scalar_torch.cpp",
    "trace_engine_torch.cpp",
    "trace_fallback_torch.cpp",
    "trace_metadata_torch.cpp",
    "trace_tensor_torch.cpp",
)
NAME = "aot_tests"


def find_torch():
    """The directory of torch, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        raise SystemExit("torch is not installed for " + sys.executable)
    return pathlib.Path(spec.origin).parent


def list_sources():
    sources = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.cpp"))]
    return sources + [ROOT / "src/host/torch" / name for name in HOST if (ROOT / "src/host/torch" / name).exists()]


def is_current(target, depfile):
    """Whether the target is newer than all that its dependency file names."""
    if not target.exists() or not depfile.exists():
        return False
    names = depfile.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    built = target.stat().st_mtime
    return all(os.path.exists(name) and os.path.getmtime(name) <= built for name in names)


def run(command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(" ".join(str(part) for part in command) + "\n" + result.stdout + result.stderr)
    if result.stderr:
        print(result.stderr, file=sys.stderr)


def compile_source(source, folder, torch):
    target = folder / ("_".join(source.relative_to(ROOT).parts[:-1]) + "_" + source.stem + ".o")
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
    folder = ROOT / "build" / "aot-tests" / "{}.{}.{}".format(*sys.version_info)
    folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        objects = list(executor.map(lambda source: compile_source(source, folder, torch), list_sources()))
    module = folder / (NAME + sysconfig.get_config_var("EXT_SUFFIX"))
    if not module.exists() or any(path.stat().st_mtime > module.stat().st_mtime for path in objects):
        libraries = [torch / "lib" / f"lib{name}.so" for name in ("torch_python", "torch", "torch_cpu", "c10")]
        run([os.environ.get("CXX", "g++"), "-shared", *objects, "-o", module, *libraries])
    return module


def load():
    """Import aot_tests, built first."""
    if NAME not in sys.modules:
        path = build()
        import torch  # noqa: F401  its libraries must be there first

        spec = importlib.util.spec_from_file_location(NAME, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[NAME] = module
        spec.loader.exec_module(module)
    return sys.modules[NAME]


if __name__ == "__main__":
    print(build())
