"""The extension module frame_tests, built with g++ from the sources for the Python that runs this.

    from tests.host.build import load
    frame_tests = load()

Objects are kept in build/frame-tests/<version> and made again when a source or a header that they include is newer.
"""

import concurrent.futures
import fcntl
import importlib.util
import os
import pathlib
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["-std=gnu++20", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-Wall", "-Wextra"]


def list_sources():
    folders = ("src/host/cpython", "src/interp", "tests/host/native")
    return [path for folder in folders for path in sorted((ROOT / folder).glob("*.cpp"))]


def is_current(target, depfile):
    """Whether the target is newer than all that its dependency file names."""
    if not target.exists() or not depfile.exists():
        return False
    names = depfile.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    built = target.stat().st_mtime
    return all(os.path.exists(name) and os.path.getmtime(name) <= built for name in names)


def compile_source(source, folder):
    target = folder / (source.parent.name + "_" + source.stem + ".o")
    depfile = target.with_suffix(".d")
    if not is_current(target, depfile):
        include = sysconfig.get_path("include")
        command = [os.environ.get("CXX", "g++"), *FLAGS, "-MD", "-MF", depfile, "-I", ROOT / "src"]
        command += ["-isystem", include, "-c", source, "-o", target]
        subprocess.run(command, check=True)
    return target


def build():
    """Return the path of the module, made if it is missing or not up to date."""
    folder = ROOT / "build" / "frame-tests" / "{}.{}.{}".format(*sys.version_info)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_in(folder)


def build_in(folder):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor:
        objects = list(executor.map(lambda source: compile_source(source, folder), list_sources()))
    module = folder / ("frame_tests" + sysconfig.get_config_var("EXT_SUFFIX"))
    if not module.exists() or any(path.stat().st_mtime > module.stat().st_mtime for path in objects):
        subprocess.run([os.environ.get("CXX", "g++"), "-shared", *objects, "-o", module], check=True)
    return module


def load():
    """Import frame_tests, built first; child processes take what their parent has built."""
    if "frame_tests" not in sys.modules:
        path = os.environ.get("REPRISE_FRAME_TESTS") or str(build())
        os.environ["REPRISE_FRAME_TESTS"] = path
        spec = importlib.util.spec_from_file_location("frame_tests", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["frame_tests"] = module
        spec.loader.exec_module(module)
    return sys.modules["frame_tests"]


if __name__ == "__main__":
    print(build())
