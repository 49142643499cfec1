"""Extension modules of the tests: made with g++ from sources of the tree, for the Python (and torch) that runs this.

Objects of the build tree on sys.path are taken where they are up to date and made for the same Python and torch. Others
are kept in build/<folder>/<versions> and made again when a source or a header that they include is newer. Sources named
*_torch.cpp see torch's headers. One process builds a module at a time.
"""

import concurrent.futures
import fcntl
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLAGS = ["-std=gnu++20", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-Wall", "-Wextra"]
_loaded = {}  # by path: one name may have a build with torch and one without
TORCH_LIBRARIES = ("torch_python", "torch", "torch_cpu", "c10")


def list_sources(folders):
    """The *.cpp files of folders of the repository."""
    return [path for folder in folders for path in sorted((ROOT / folder).glob("*.cpp"))]


def find_torch():
    """The directory of torch, without importing it, or None."""
    spec = importlib.util.find_spec("torch")
    return pathlib.Path(spec.origin).parent if spec is not None else None


def _version_of(torch):
    scope = {}
    exec((torch / "version.py").read_text(), scope)
    return str(scope["__version__"])


def _run(command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(" ".join(str(part) for part in command) + "\n" + result.stdout + result.stderr)
    if result.stderr:
        print(result.stderr, file=sys.stderr)


def _is_current(target, depfile):
    """Whether the target is newer than all that its dependency file names."""
    if not target.exists() or not depfile.exists():
        return False
    names = depfile.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    built = target.stat().st_mtime
    return all(os.path.exists(name) and os.path.getmtime(name) <= built for name in names)


def _find_tree(torch):
    """The build tree on sys.path if it is for this Python and this torch (None: without torch), or None."""
    for folder in map(pathlib.Path, sys.path):
        cache = folder / "CMakeCache.txt"
        if (folder / "reprise" / ("_C" + sysconfig.get_config_var("EXT_SUFFIX"))).exists() and cache.exists():
            found = re.search(
                r"^REPRISE_TORCH:BOOL=ON$[\s\S]*^REPRISE_TORCH_DIR:INTERNAL=(.*)$", cache.read_text(), re.M
            )
            return folder if (pathlib.Path(found[1]) if found else None) == torch else None
    return None


def _list_current_objects(tree):
    """{source: object} of the build tree, those that are newer than all that they were made from."""
    ninja = shutil.which("ninja") or shutil.which("ninja", path=os.path.dirname(sys.executable))
    if ninja is None or not (tree / "build.ninja").exists():
        return {}
    log = subprocess.run([ninja, "-C", str(tree), "-t", "deps"], capture_output=True, text=True).stdout
    changed, current = {}, {}
    for block in log.split("\n\n"):
        head, *names = block.strip().splitlines() or [""]
        target = re.match(r"(CMakeFiles/\w+\.dir/(src/.*)\.o): .*\(VALID\)", head)
        if target is None or not (tree / target[1]).exists():
            continue
        for name in names:
            if name not in changed:
                path = tree / name.strip()
                changed[name] = path.stat().st_mtime if path.exists() else float("inf")
        if max(changed[name] for name in names) <= (tree / target[1]).stat().st_mtime:
            current[ROOT / target[2]] = tree / target[1]
    return current


def _compile_source(source, folder, torch):
    target = folder / ("_".join(source.relative_to(ROOT).parts[:-1]) + "_" + source.stem + ".o")
    depfile = target.with_suffix(".d")
    if not _is_current(target, depfile):
        command = [os.environ.get("CXX", "g++"), *FLAGS, "-MD", "-MF", depfile, "-I", ROOT / "src"]
        command += ["-isystem", sysconfig.get_path("include")]
        if source.name.endswith("_torch.cpp"):
            command += ["-isystem", torch / "include", "-isystem", torch / "include/torch/csrc/api/include"]
        _run([*command, "-c", source, "-o", target])
    return target


def build(name, folder, sources, torch=None):
    """The path of the module `name`, made if it is missing or not up to date. `torch`: its directory, to link it."""
    version = "{}.{}.{}".format(*sys.version_info) + (f"-torch{_version_of(torch)}" if torch else "-absent")
    place = ROOT / "build" / folder / version
    place.mkdir(parents=True, exist_ok=True)
    tree = _find_tree(torch)
    built = _list_current_objects(tree) if tree else {}
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor:
            make = lambda source: built.get(source) or _compile_source(source, place, torch)  # noqa: E731
            objects = list(executor.map(make, sources))
        module = place / (name + sysconfig.get_config_var("EXT_SUFFIX"))
        if not module.exists() or any(path.stat().st_mtime > module.stat().st_mtime for path in objects):
            libraries = [torch / "lib" / f"lib{library}.so" for library in TORCH_LIBRARIES] if torch else []
            _run([os.environ.get("CXX", "g++"), "-shared", *objects, "-o", module, *libraries])
    return module


def load(name, path):
    """The module at a path, once. One that links torch needs torch imported before."""
    if str(path) not in _loaded:
        spec = importlib.util.spec_from_file_location(name, path)
        _loaded[str(path)] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_loaded[str(path)])
    return _loaded[str(path)]
