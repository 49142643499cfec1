"""Matrix products: which library computes them, and that both are right."""

import re

import pytest
import reprise
import torch

ROWS, WIDTH = 64, 520  # 64 x 520 x 520 is large enough for oneDNN


def count_products(compiled, *args):
    """Library calls of oneDNN that `explain` names."""
    text = str(reprise.explain(compiled)(*args))
    return sum(int(n) for n in re.findall(r"\((\d+) of oneDNN\)", text))


def relative_error(found, exact):
    return ((found.double() - exact).norm() / exact.norm()).item()


def linears(x, w, b):
    y = torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b), approximate="tanh")
    return torch.nn.functional.linear(y, w, b) @ w


def make_arguments():
    torch.manual_seed(0)
    return torch.randn(ROWS, WIDTH), torch.randn(WIDTH, WIDTH) / WIDTH**0.5, torch.randn(WIDTH)


def test_onednn_is_as_exact_as_mkl():
    args = make_arguments()
    exact = linears(*(a.double() for a in args))
    errors = {}
    for library in ("mkl", "onednn"):
        compiled = reprise.compile(linears, options={"gemm": library})
        for _ in range(3):
            errors[library] = relative_error(compiled(*args), exact)
        assert count_products(compiled, *args) == (3 if library == "onednn" else 0)
    assert errors["onednn"] <= 1.1 * errors["mkl"] + 1e-6


def test_mkl_has_eagers_bits():
    x, w, b = make_arguments()
    compiled = reprise.compile(lambda x, w, b: torch.addmm(b, x, w).relu() @ w, options={"gemm": "mkl"})
    for _ in range(3):
        assert torch.equal(compiled(x, w, b), torch.addmm(b, x, w).relu() @ w)


def test_two_compiles_have_equal_bits():
    args = make_arguments()
    results = []
    for _ in range(2):
        compiled = reprise.compile(linears, options={"gemm": "onednn"})
        for _ in range(3):
            result = compiled(*args)
        results.append(result)
        reprise.reset()
    assert torch.equal(*results)


def test_gradients():
    args = make_arguments()
    exact = [a.double().requires_grad_() for a in args]
    wanted = torch.autograd.grad(linears(*exact).square().sum(), exact)
    given = [a.clone().requires_grad_() for a in args]
    eager = torch.autograd.grad(linears(*given).square().sum(), given)
    compiled = reprise.compile(linears, options={"gemm": "onednn"})
    for _ in range(3):
        found = torch.autograd.grad(compiled(*given).square().sum(), given)
    for got, want, best in zip(found, eager, wanted):
        assert got.stride() == want.stride()
        assert relative_error(got, best) <= 2 * relative_error(want, best) + 1e-6
    assert count_products(compiled, *given) > 3


@pytest.mark.parametrize("layout", ["rows", "columns", "gaps", "negative"])
def test_layouts_of_operands(layout):
    x, w, _ = make_arguments()
    if layout == "columns":
        x = x.t().contiguous().t()
    elif layout == "gaps":
        x = torch.randn(ROWS, 2 * WIDTH)[:, ::2]
    elif layout == "negative":
        x = torch.complex(torch.randn(ROWS, WIDTH), x).conj().imag
        assert x.is_neg()
    compiled = reprise.compile(lambda x, w: (x @ w).relu() + 1, options={"gemm": "onednn"})
    for _ in range(3):
        torch.testing.assert_close(compiled(x, w), (x @ w).relu() + 1, rtol=1e-4, atol=1e-4)


def test_small_double_and_switched_off_products_go_to_mkl():
    x, w, b = make_arguments()
    compiled = reprise.compile(linears, options={"gemm": "onednn"})
    small = x[:, :16].contiguous(), w[:16, :16].contiguous(), b[:16].contiguous()
    for _ in range(3):
        compiled(*small)
    assert count_products(compiled, *small) == 0
    double = [a.double() for a in (x, w, b)]
    for _ in range(3):
        compiled(*double)
    assert count_products(compiled, *double) == 0
    off = reprise.compile(linears, options={"gemm": "onednn"})
    with torch.backends.mkldnn.flags(enabled=False):
        for _ in range(3):
            assert torch.equal(off(x, w, b), reprise.compile(linears, options={"gemm": "mkl"})(x, w, b))
        assert count_products(off, x, w, b) == 0


def test_batched_products():
    x, w, b = make_arguments()
    x = torch.randn(64, 2 * WIDTH * ROWS // 2)
    f = lambda x: (x.view(64, 128, -1) @ x.view(64, 128, -1).transpose(1, 2)).softmax(-1) * 2  # noqa: E731
    compiled = reprise.compile(f, options={"gemm": "onednn"})
    for _ in range(3):
        torch.testing.assert_close(compiled(x), f(x), rtol=1e-4, atol=1e-4)
    assert count_products(compiled, x) == 1


def test_a_wrong_word_is_refused():
    with pytest.raises(ValueError, match="gemm"):
        reprise.compile(linears, options={"gemm": "openblas"})
