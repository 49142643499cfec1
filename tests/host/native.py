"""The extension module reprise._C without the package around it, which wants torch.

from tests.host.native import C
"""

import importlib.util
import pathlib
import sys


def load():
    """Load reprise/_C from the first folder of sys.path that has it (a build tree)."""
    if "reprise._C" in sys.modules:
        return sys.modules["reprise._C"]
    for folder in sys.path:
        for path in sorted(pathlib.Path(folder, "reprise").glob("_C.*.so")):
            spec = importlib.util.spec_from_file_location("reprise._C", path)
            module = importlib.util.module_from_spec(spec)
            sys.modules["reprise._C"] = module
            spec.loader.exec_module(module)
            return module
    raise ImportError(f"no reprise/_C.*.so on sys.path: {sys.path}")


C = load()
