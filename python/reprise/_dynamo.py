"""`torch.compile(model, backend="reprise")`: our compiler under PyTorch's own capture."""


def compile_graph(graph_module, example_inputs):
    """A backend of torch.compile: takes a torch.fx.GraphModule, returns a callable of the same signature.

    The graph is recorded at its first call like any other program. Found by name through the entry point
    `torch_dynamo_backends` of the package.
    """
    from . import compile  # noqa: A004, PLC0415

    forward = getattr(graph_module, "_lazy_forward", None)
    if forward is not None:  # its code is made when first asked for
        graph_module.real_recompile()
    return compile(graph_module.forward)
