"""A region as a torch.fx.GraphModule, for backends that the user gives.

Called by the core at the first run of a region, with the nodes that were recorded; see src/driver/backend_region.cpp.
"""

import operator
import sys

import torch

_UNARY = (operator.neg, operator.invert, operator.pos, operator.not_)
#: by CPython's NB_* number; the second half works in place
_BINARY = ("add", "and_", "floordiv", "lshift", "matmul", "mul", "mod", "or_", "pow", "rshift", "sub", "truediv", "xor")
_COMPARE = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)

#: constants that torch.fx can print
_PRINTED = (str, int, float, bool, complex, type(None), type(...), torch.Size)
_PRINTED += (torch.dtype, torch.device, torch.memory_format, torch.layout)


def _binary(n):
    name = _BINARY[n % 13]
    return getattr(operator, name) if n < 13 else getattr(operator, "i" + name.rstrip("_"))


def _find_printed(function):
    """What the name stands for that torch.fx prints for a function: `torch.split` is another one than the C function
    `split` that it calls."""
    try:
        path = torch.fx.node._get_qualified_name(function).split(".")
    except (AttributeError, RuntimeError):
        return None
    found = sys.modules.get(path[0])
    for name in path[1:]:
        found = getattr(found, name, None)
    return found


def _is_printed(value):
    if type(value) in (tuple, list):
        return all(map(_is_printed, value))
    if type(value) is slice:
        return all(map(_is_printed, (value.start, value.stop, value.step)))
    return isinstance(value, torch.fx.Node) or type(value) in _PRINTED


def _name_call(function, call):
    """Gives `call` a name of its own, for which torch.fx prints a global."""
    call.__name__ = call.__qualname__ = getattr(function, "__name__", "call")
    call.__wrapped__ = function
    return call


def _add_function(graph, function, args, kwargs):
    if not all(map(_is_printed, (*args, *kwargs.values()))):
        nodes = []
        torch.fx.node.map_arg((args, kwargs), nodes.append)

        def call_with_constants(*values):
            given, named = torch.fx.node.map_arg((args, kwargs), dict(zip(nodes, values)).get)
            return function(*given, **named)

        return graph.call_function(_name_call(function, call_with_constants), tuple(nodes))
    if _find_printed(function) is not function:

        def call(*args, **kwargs):
            return function(*args, **kwargs)

        return graph.call_function(_name_call(function, call), args, kwargs)
    return graph.call_function(function, args, kwargs)


def _add_call(graph, operands, kwnames):
    """A recorded call: operands[0] is the callable, the last ones are named by `kwnames`."""
    function, values = operands[0], operands[1:]
    count = len(values) - len(kwnames or ())
    args, kwargs = tuple(values[:count]), dict(zip(kwnames or (), values[count:]))
    name = getattr(function, "__name__", None)
    is_method = name is not None and getattr(torch.Tensor, name, None) is function
    if is_method and args and isinstance(args[0], torch.fx.Node):
        return graph.call_method(name, args, kwargs)
    return _add_function(graph, function, args, kwargs)


def _add_binary(graph, n, operands):
    # A number has nothing that could change in place, and torch.fx prints no `2 *= x`.
    in_place = n >= 13 and isinstance(operands[0], torch.fx.Node)
    return _add_function(graph, _binary(n if in_place else n % 13), operands, {})


#: by host::SizeRead
_SIZES = ("size", "stride", "numel", "storage_offset", "is_contiguous")


def _add_size(graph, n, tensor):
    name = _SIZES[n & 255]
    return graph.call_method(name, (tensor, n >> 8) if name in ("size", "stride") else (tensor,))


def _add_number(graph, kind, n, kwnames, operands):
    """What follows from sizes. Arithmetic on numbers gives new ones, in place or not."""
    if kind == "call":
        count = len(operands) - len(kwnames or ())
        return _add_function(graph, operands[0], tuple(operands[1:count]), dict(zip(kwnames or (), operands[count:])))
    if kind == "binary":
        return graph.call_function(_binary(n % 13), tuple(operands))
    function = {"unary": _UNARY, "compare": _COMPARE}[kind][n] if kind != "getitem" else operator.getitem
    return graph.call_function(function, tuple(operands))


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
            made = _add_function(graph, _UNARY[n], tuple(of), {})
        elif kind == "torch_binary":
            made = _add_binary(graph, n, tuple(of))
        elif kind == "torch_compare":
            made = _add_function(graph, _COMPARE[n], tuple(of), {})
        elif kind == "torch_getitem":
            made = _add_function(graph, operator.getitem, tuple(of), {})
        elif kind == "torch_getattr":
            made = graph.call_function(getattr, (of[0], object_))
        elif kind == "torch_setitem":
            made = _add_function(graph, operator.setitem, tuple(of), {})
        elif kind == "size":
            made = _add_size(graph, n, of[0])
        elif kind in ("unary", "binary", "compare", "getitem", "call"):
            made = _add_number(graph, kind, n, object_, of)
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
