"""When results agree: bit for bit, or no further from the float64 result than eager is (the referee rule)."""

import torch

# The bound on our error: FACTOR * eager's error + SLACK[dtype] * the norm of the reference. The slack of a half type is
# half a unit of its last place; that of float64 is rounding, since there is no wider reference.
FACTOR = 1.1
SLACK = {
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float32: 1e-6,
    torch.complex64: 1e-6,
    torch.float64: 1e-13,
    torch.complex128: 1e-13,
}
WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
WIDE[torch.complex64] = torch.complex128


def describe_difference(ours, eager, reference=None, scale=0.0):
    """None where values agree, else what differs. Shapes and dtypes are equal already. `reference()` gives the tensor
    of a wider run of eager, or None: then the bound is on the difference from eager. `scale`: how large the terms are
    that may cancel out."""
    if ours.layout != torch.strided:
        return _describe_sparse(ours, eager)
    if is_equal(ours, eager):
        return None
    if ours.dtype not in SLACK:
        return _describe_first(ours, eager)
    a, b = _to_wide(ours), _to_wide(eager)
    finite = torch.isfinite(b)
    same = torch.isfinite(a) == finite
    same &= finite | (torch.isnan(a) & torch.isnan(b)) | (a == b)
    if a.is_complex():  # the place of nan and inf within a complex number is the compiler's, in eager too
        same |= ~torch.isfinite(a) & ~finite
    if not bool(same.all()):
        return "not finite elsewhere: " + _describe_first(ours, eager, ~same)
    a, b = a[finite], b[finite]
    wide = reference() if reference is not None else None
    c = None
    if wide is not None and wide.shape == ours.shape:
        c = _to_wide(wide)[finite]
        if not bool(torch.isfinite(c).all()):
            c = None
    slack = SLACK[ours.dtype]
    if c is not None:
        theirs, norm, error = _norm(b - c), max(_norm(c), scale), _norm(a - c)
        if error <= FACTOR * theirs + slack * norm:
            return None
        return f"error {error:.3g}, eager's {theirs:.3g}, norm {norm:.3g}: " + _describe_first(ours, eager)
    error, norm = _norm(a - b), max(_norm(b), scale)
    if error <= slack * norm:
        return None
    return f"differs from eager by {error:.3g}, norm {norm:.3g}: " + _describe_first(ours, eager)


def is_equal(a, b):
    """Bit for bit, but for what is in a NaN and how a conjugate or negative is kept."""
    if a.layout != torch.strided:
        return _describe_sparse(a, b) is None
    a, b = a.detach().resolve_conj().resolve_neg(), b.detach().resolve_conj().resolve_neg()
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    a, b = a.reshape(-1), b.reshape(-1)  # operations on elements take at most 64 dimensions
    if not a.is_floating_point():
        return torch.equal(a, b)
    same = (a == b) & (torch.signbit(a) == torch.signbit(b)) | (torch.isnan(a) & torch.isnan(b))
    return bool(same.all())


def _describe_sparse(ours, eager):
    try:
        parts = zip(*(_sparse_parts(x) for x in (ours.detach(), eager.detach())))
        return next((d for a, b in parts if (d := describe_difference(a, b))), None)
    except RuntimeError as error:
        return f"not comparable: {error}"


def _sparse_parts(x):
    if x.layout == torch.sparse_coo:
        x = x.coalesce()
        return x.indices(), x.values()
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return x.crow_indices(), x.col_indices(), x.values()
    return x.ccol_indices(), x.row_indices(), x.values()


def _to_wide(x):
    x = x.detach().resolve_conj().resolve_neg()
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def _norm(x):
    return float(torch.linalg.vector_norm(x.flatten())) if x.numel() else 0.0


def _describe_first(ours, eager, where=None):
    if where is None:
        where = (ours != eager) & ~((ours != ours) & (eager != eager))
    places = where.nonzero()
    if len(places) == 0:
        return "the sign of a zero"
    first = tuple(places[0].tolist())
    return f"{len(places)} of {ours.numel()}, {ours[first].item()} for {eager[first].item()} at {list(first)}"
