"""Random numbers in native regions: eager's, one for one, and its generator afterwards."""

import random

import pytest
import reprise
import torch
import torch.nn.functional as F
from reprise import _C


def check(function, *args):
    """Values and the generator's state are eager's, bit for bit, in every call."""
    compiled = reprise.compile(function)
    for i in range(6):
        torch.manual_seed(i)
        torch.rand(i * 17)  # begins somewhere in the generator's words
        state = torch.get_rng_state()
        want = function(*args)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        got = compiled(*args)
        assert torch.equal(torch.get_rng_state(), after)
        for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (want, got)), strict=True):
            assert a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    report = reprise.explain(compiled)(*args)
    assert report.counters["recordings"] == 1 and report.counters["side_exits"] == 0
    assert "native code" in str(report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.1, 0.5, 1 - 2**-40])
def test_dropout(dtype, p):
    def program(x):
        return F.dropout(x + 1, p) * 2, F.dropout(x.relu(), p)

    check(program, torch.randn(13, 101).to(dtype))


def test_masks_of_other_dtypes_and_layouts():
    def program(x):
        kept = torch.empty(x.shape, dtype=torch.bool).bernoulli_(0.7)
        counts = torch.empty(x.shape, dtype=torch.int64).bernoulli_(0.25)
        return torch.where(kept, x, 0.0), counts + 1, torch.empty_like(x).bernoulli_(0.5) - x

    check(program, torch.randn(2, 5, 6, 7).contiguous(memory_format=torch.channels_last))


def test_certain_draws_move_the_generator_too():
    def program(x):
        return x * torch.empty_like(x).bernoulli_(1.0) + torch.empty_like(x).bernoulli_(0.0)

    check(program, torch.randn(33))


def test_many_kinds_of_random_numbers_in_a_row():
    def program(x):
        y = F.dropout(x, 0.3) + torch.rand_like(x)
        y = y + torch.randn(x.shape)
        return F.dropout(y, 0.3), torch.rand(3) * 2

    check(program, torch.randn(7, 9))


def test_the_gradient_sees_the_mask_of_the_forward_pass():
    torch.manual_seed(0)
    weight = torch.randn(31, 31, requires_grad=True)

    def program(x):
        loss = F.dropout(x @ weight, 0.4).square().sum()
        return torch.autograd.grad(loss, weight)

    compiled = reprise.compile(program)
    x = torch.randn(12, 31)
    for i in range(5):
        torch.manual_seed(i)
        (want,) = program(x)
        torch.manual_seed(i)
        torch.testing.assert_close(compiled(x)[0], want)


RANDOM = [
    lambda x: torch.poisson(x.exp()),
    lambda x: torch.binomial(x * 0 + 10, x.sigmoid()),
    lambda x: torch._sample_dirichlet(x.exp()),
    lambda x: F.dropout(x * 2, 0.5),
    lambda x: F.rrelu(x, training=True),
    lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
]


@pytest.mark.parametrize("draw", RANDOM)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_operators_without_a_row_of_ours_draw_once_each(draw, mode):
    def program(x):
        draw(x)  # nobody asks for it
        return draw(x) + 0, draw(x) + 0

    compiled = reprise.compile(program)
    for i in range(4):
        with mode():
            x = torch.randn(8, 8, generator=torch.Generator().manual_seed(i))
            torch.manual_seed(i)
            want, state = program(x), torch.get_rng_state()
            torch.manual_seed(i)
            got = compiled(x)
            assert torch.equal(torch.get_rng_state(), state)
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(b, a)


def test_numbers_are_drawn_by_our_code_where_pytorch_draws_them_one_by_one():
    """A draw takes two numbers of a generator that the standard library has too: 21 bits of the first on top."""
    torch.manual_seed(3)
    state = torch.get_rng_state()  # seed, counts, next; 624 words of 8 bytes
    words = state[24 : 24 + 624 * 8].view(torch.int64).tolist()
    twin = random.Random()
    twin.setstate((3, (*words, 624), None))
    draws = [((twin.getrandbits(32) & 0x1FFFFF) << 32 | twin.getrandbits(32)) * 2.0**-53 for _ in range(700)]
    eager = torch.empty(700).bernoulli_(0.3)
    assert _C.draws_many_at_a_time() == (eager.tolist() == [float(draw < 0.3) for draw in draws])


@torch.library.custom_op("reprise_tests::noise", mutates_args=())
def noise(x: torch.Tensor) -> torch.Tensor:
    """Draws, and has no tag that says so."""
    return torch.rand_like(x)


@noise.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.parametrize(
    "draw",
    [
        torch._standard_gamma,
        torch._sample_dirichlet,
        torch.poisson,
        lambda x: torch.binomial(x.round(), x * 0 + 0.3),
        lambda x: F.rrelu(x - 2, training=True),
        noise,
    ],
)
def test_operators_without_a_row_that_draw(draw):
    def program(x):
        y = x * 2
        draw(y)  # nobody needs it, but it moves the generator
        return draw(y) - draw(y), torch.rand(3) + 1

    check(program, torch.rand(4, 3) + 0.5)


def test_a_region_that_cannot_go_on_draws_once():
    """An in-place write to a row of an expanded tensor ends the region behind the first draw."""

    def program(x):
        F.dropout(x, 0.5)
        y = x.clone()
        y.expand(2)[0].add_(1)
        return torch.normal(y, 1.0)

    compiled = reprise.compile(program)
    for i in range(4):
        x = torch.tensor(2.0)
        torch.manual_seed(i)
        want, state = program(x), torch.get_rng_state()
        torch.manual_seed(i)
        assert torch.equal(compiled(x), want) and torch.equal(torch.get_rng_state(), state)
