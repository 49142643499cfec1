"""The extension module aot_tests: aot, graph, passes and host/torch with a Python callable as the region.

from tests.aot.build import load
aot_tests = load()
"""

import sys

from tests import extension

FOLDERS = ("src/base", "src/types", "src/sym", "src/graph", "src/graph/rules", "src/passes", "src/aot", "tests/aot")
HOST = (
    "argument_loader_torch.cpp",
    "boxed_call_torch.cpp",
    "dtypes_torch.cpp",
    "leaves_torch.cpp",
    "op_info_torch.cpp",
    "region_node_torch.cpp",
    "result_node_torch.cpp",
    "result_order_torch.cpp",
    "scalar_values_torch.cpp",
    "state_modes_torch.cpp",
    "state_word_torch.cpp",
    "sym_scalar_torch.cpp",
    "trace_engine_torch.cpp",
    "trace_fallback_torch.cpp",
    "trace_metadata_torch.cpp",
    "trace_tensor_torch.cpp",
)


def build():
    """The path of the module, made if it is missing or not up to date."""
    torch = extension.find_torch()
    if torch is None:
        raise SystemExit("torch is not installed for " + sys.executable)
    sources = extension.list_sources(FOLDERS) + [extension.ROOT / "src/host/torch" / name for name in HOST]
    return extension.build("aot_tests", "aot-tests", sources, torch)


def load():
    """Import aot_tests, built first."""
    path = build()
    import torch  # noqa: F401  its libraries must be there first

    return extension.load("aot_tests", path)


if __name__ == "__main__":
    print(build())
