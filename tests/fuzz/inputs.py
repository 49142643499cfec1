"""Arguments of fuzzed programs, each made from a small description, so that a failure is text that can be repeated."""

import torch

DTYPES = {
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "float": torch.float32,
    "double": torch.float64,
    "complex": torch.complex64,
}
LAYOUTS = ["plain", "transposed", "expanded", "strided", "offset", "flipped", "overlapping"]


def numbers(seed, shape, dtype):
    """Quarters between -2 and 2: sums and products of few are exact, so that ties and comparisons mean the same."""
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0 if dtype == torch.uint8 else -3, 5, shape, generator=g).to(dtype)
    t = torch.randint(-8, 9, shape, generator=g).double() / 4
    if dtype.is_complex:
        return torch.complex(t, torch.randint(-8, 9, shape, generator=g).double() / 4).to(dtype)
    return t.to(dtype)


def lay_out(seed, shape, dtype, layout):
    """A tensor of this shape whose memory is as `layout` says."""
    if layout == "transposed" and len(shape) >= 2:
        return numbers(seed, (*shape[:-2], shape[-1], shape[-2]), dtype).transpose(-1, -2)
    if layout == "flipped":
        return numbers(seed, tuple(reversed(shape)), dtype).permute(*reversed(range(len(shape))))
    if layout == "expanded" and shape:
        return numbers(seed, (1, *shape[1:]), dtype).expand(shape)
    if layout == "strided" and shape:
        return numbers(seed, (*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
    if layout == "offset":
        count = 3
        for size in shape:
            count *= max(size, 1)
        size = count // 3
        whole = numbers(seed, (size + 5,), dtype)
        return whole[5:].view(tuple(max(s, 1) for s in shape))[tuple(slice(0, s) for s in shape)]
    if layout == "overlapping" and len(shape) >= 2 and min(shape) > 0:
        rows, columns = shape[-2:]
        flat = numbers(seed, (*shape[:-2], rows + columns - 1), dtype)
        return flat.unfold(-1, columns, 1)
    return numbers(seed, shape, dtype)


def make(spec, wide=False):
    """Arguments of one call. `spec`: a list of rows, a tensor each: (seed, shape, dtype, layout, grad), or
    ("alias", index, expression of `x`), or ("value", object). `wide`: halves and floats become double."""
    made = []
    for row in spec:
        if row[0] == "value":
            made.append(row[1])
        elif row[0] == "alias":
            try:
                made.append(eval(row[2], {"torch": torch, "x": made[row[1]]}))
            except (RuntimeError, IndexError, TypeError):  # not for these sizes
                made.append(made[row[1]])
        else:
            seed, shape, dtype, layout, grad = row
            dtype = DTYPES[dtype]
            if wide and dtype.is_floating_point:
                dtype = torch.float64
            if wide and dtype.is_complex:
                dtype = torch.complex128
            t = lay_out(seed, shape, dtype, layout)
            if grad and (dtype.is_floating_point or dtype.is_complex):
                t = t.detach().requires_grad_()
            made.append(t)
    return made
