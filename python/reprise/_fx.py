"""A region as a torch.fx.GraphModule, for backends that the user gives.

Called by the core at the first run of a region, with the nodes that were recorded; see src/driver/backend_region.cpp.
"""

import operator

import torch

_UNARY = (operator.neg, operator.invert, operator.pos, operator.not_)
#: by CPython's NB_* number; the second half works in place
_BINARY = ("add", "and_", "floordiv", "lshift", "matmul", "mul", "mod", "or_", "pow", "rshift", "sub", "truediv", "xor")
_COMPARE = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)


def _binary(n):
    name = _BINARY[n % 13]
    return getattr(operator, name) if n < 13 else getattr(operator, "i" + name.rstrip("_"))


def _add_call(graph, operands, kwnames):
    """A recorded call: operands[0] is the callable, the last ones are named by `kwnames`."""
    function, values = operands[0], operands[1:]
    count = len(values) - len(kwnames or ())
    args, kwargs = tuple(values[:count]), dict(zip(kwnames or (), values[count:]))
    owner, name = getattr(function, "__objclass__", None), getattr(function, "__name__", None)
    is_method = isinstance(owner, type) and issubclass(torch.Tensor, owner) and hasattr(torch.Tensor, name)
    if is_method and args and isinstance(args[0], torch.fx.Node):
        return graph.call_method(name, args, kwargs)
    return graph.call_function(function, args, kwargs)


def make_graph_module(nodes, constants, input_count, outputs):
    """The torch.fx.GraphModule of a region.

    nodes: tuples (kind, n, object, operands, slot) in order; operands and slots count inputs, constants, then values.
    Inputs are tensors; the graph returns a tuple of tensors, one for each slot in `outputs`.
    """
    graph = torch.fx.Graph()
    values = [graph.placeholder(f"input_{i}") for i in range(input_count)] + list(constants)
    for kind, n, object_, operands, slot in nodes:
        of = [values[i] for i in operands]
        if kind in ("torch", "state"):
            made = _add_call(graph, of, object_)
        elif kind == "torch_unary":
            made = graph.call_function(_UNARY[n], tuple(of))
        elif kind == "torch_binary":
            made = graph.call_function(_binary(n), tuple(of))
        elif kind == "torch_compare":
            made = graph.call_function(_COMPARE[n], tuple(of))
        elif kind == "torch_getitem":
            made = graph.call_function(operator.getitem, tuple(of))
        elif kind == "torch_setitem":
            made = graph.call_function(operator.setitem, tuple(of))
        elif kind == "element":
            made = graph.call_function(operator.getitem, (of[0], n))
        elif kind == "tuple":
            made = tuple(of)
        elif kind == "list":
            made = list(of)
        elif kind == "slice":
            made = slice(*of)
        else:
            raise NotImplementedError(f"a region holds a node of kind {kind!r}")
        assert slot == len(values)
        values.append(made)
    graph.output(tuple(values[slot] for slot in outputs))
    graph.lint()
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def compile_region(backend, nodes, constants, example_inputs, outputs):
    """What `backend` makes of the region: a callable on its tensors that returns a list or tuple of tensors."""
    module = make_graph_module(nodes, constants, len(example_inputs), outputs)
    compiled = backend(module, list(example_inputs))
    if not callable(compiled):
        raise TypeError(f"the backend returned a {type(compiled).__name__}; expected a callable")
    return compiled
