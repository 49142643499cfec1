"""The columns of a result: what can be wrapped around a program. `wrapper(column, row)` is the compiler of one.

`reprise-without-WORDS` are columns of the ablation (table 4): WORDS are those of the option `without`
(docs/options.md), joined by `+`; `onednn` stands for matrix products by MKL alone. Other compilers need packages that
are none of ours; how they are installed, and why some of the paper's are not here, says README.md.
"""

import dataclasses
import importlib.metadata

#: words that `--ablation` leaves out, one column each
ABLATIONS = (
    "fusion", "decompose", "simplify", "merge_equal", "fold_views", "min_cut", "reuse_memory", "write_inputs", "onednn",
    "fusion+decompose+simplify+merge_equal+fold_views+min_cut+reuse_memory+write_inputs+onednn",
)  # fmt: skip
WITHOUT = "reprise-without-"


@dataclasses.dataclass(frozen=True)
class Column:
    """wrap(program, options) is what is called instead. modes: None, or the only ones that it can do."""

    doc: str
    wrap: object
    packages: tuple = ()
    modes: tuple | None = None

    def missing(self):
        return [name for name in self.packages if not is_installed(name)]


def is_installed(package):
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def compile_reprise(program, options):
    import reprise

    from bench.stats import require_reprise

    require_reprise()
    return reprise.compile(program, **options)


def compile_torch(**fixed):
    def wrap(program, options):
        import torch

        return torch.compile(program, **{**fixed, **options})

    return wrap


def compile_openvino(program, options):
    import openvino.torch  # noqa: F401 (registers the backend)

    float32 = {"config": {"INFERENCE_PRECISION_HINT": "f32"}}  # else it rounds to bfloat16 where the processor can
    return compile_torch(backend="openvino", options=float32)(program, options)


class OnnxRuntime:
    """A module as an ONNX program, exported with the first call's inputs and run by ONNX Runtime."""

    def __init__(self, module):
        self.module = module
        self.exported = None

    def __call__(self, *args, **kwargs):
        import torch
        from torch.utils import _pytree

        if self.exported is None:
            self.exported = torch.onnx.export(self.module, args, kwargs=kwargs, dynamo=True, verbose=False)
        flat = self.exported(*args, **kwargs)
        return _pytree.tree_unflatten(list(flat), self.exported.exported_program.call_spec.out_spec)


INFERENCE_ONLY = ("inference",)
COLUMNS = {
    "eager": Column("PyTorch", lambda program, options: program),
    "eager-again": Column("PyTorch once more: the noise of the machine", lambda program, options: program),
    "reprise": Column("reprise.compile", compile_reprise),
    "reprise-eager": Column(
        'reprise.compile(backend="eager"): our capture alone',
        lambda program, options: compile_reprise(program, {"backend": "eager", **options}),
    ),
    "torch": Column("torch.compile", compile_torch()),
    "torch-overhead": Column('torch.compile(mode="reduce-overhead")', compile_torch(mode="reduce-overhead")),
    "torch-eager": Column(
        'torch.compile(backend="eager"): the capture of torch.compile alone', compile_torch(backend="eager")
    ),
    "onnxruntime": Column(
        "torch.onnx.export and ONNX Runtime", lambda program, options: OnnxRuntime(program),
        ("onnxruntime", "onnxscript", "onnx"), INFERENCE_ONLY,
    ),
    "openvino": Column('torch.compile(backend="openvino")', compile_openvino, ("openvino",), INFERENCE_ONLY),
    "tvm": Column('torch.compile(backend="tvm")', compile_torch(backend="tvm"), ("apache-tvm",), INFERENCE_ONLY),
}  # fmt: skip
#: what `--peers` adds: capture alone, of both, and torch.compile
PEERS = ("reprise-eager", "torch", "torch-overhead", "torch-eager")


def is_reprise(column):
    return column.startswith("reprise")


def find_column(name):
    """ValueError for an unknown one."""
    if name in COLUMNS:
        return COLUMNS[name]
    if not name.startswith(WITHOUT):
        raise ValueError(f"unknown column {name!r}: expected one of {', '.join(COLUMNS)}, {WITHOUT}WORDS")
    words = name.removeprefix(WITHOUT).split("+")
    fixed = {"without": ",".join(w for w in words if w != "onednn") or "none"}
    if "onednn" in words:
        fixed["gemm"] = "mkl"

    def wrap(program, options):
        return compile_reprise(program, {**options, "options": {**fixed, **options.get("options", {})}})

    return Column(f"reprise.compile without {', '.join(words)}", wrap)


def wrapper(name, **options):
    """The compiler of a column, as a function of what it compiles."""
    column = find_column(name)
    return lambda program: column.wrap(program, options)
