"""Autograd inside and around compiled programs: Functions, checkpoint, hooks, higher derivatives, functorch."""

import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from twins import ONE_ENTRY, assert_same, call, check, check_function, compiled, outcome, rnd, vectors

LEAVES = [call(rnd(i, 3, grad=True), rnd(i + 9, 3)) for i in range(4)]


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.k + x * 0, None


class TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x + y, x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        a = torch.zeros_like(x) if a is None else a
        b = torch.zeros_like(x) if b is None else b
        return a + b * y, a + b * x


def test_gradients_flow_through_a_compiled_function():
    check_function(lambda x, y: (x * y).sin() + x.exp(), LEAVES, grads=True, promise=ONE_ENTRY)


def test_backward_inside_accumulates_into_the_leaves():
    def make():
        w = torch.ones(3, requires_grad=True)

        def f(x):
            loss = (x * w).pow(2).sum()
            loss.backward()
            return loss.detach(), w.grad

        f.w = w
        return f

    check(make, vectors(5), post=lambda f: f.w.grad)


def test_autograd_grad_inside():
    def make():
        w = torch.ones(3, requires_grad=True)

        def f(x):
            y = (x * w).sin()
            (g,) = torch.autograd.grad(y.sum(), w)
            return y.detach(), g, g * 2

        return f

    check(make, vectors(4), promise=ONE_ENTRY)


def test_unused_inputs_and_none_gradients():
    def f(x, y):
        u = torch.ones(3, requires_grad=True)
        return torch.autograd.grad((x * 2).sum(), [x, u], allow_unused=True)

    check_function(f, LEAVES)


def test_double_backward_and_gradient_penalty():
    def f(x, y):
        z = (x**3 * y).sum()
        (g,) = torch.autograd.grad(z, x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
        penalty = (g.norm() - 1) ** 2
        return g, h, penalty

    check_function(f, LEAVES, grads=True)


def test_double_backward_from_outside():
    def f(x, y):
        return (x**3 * y).sum()

    tested = compiled(f)
    for i in range(4):
        found = []
        for program in (f, tested):
            x, y = rnd(i, 3, grad=True), rnd(i + 9, 3)
            (g,) = torch.autograd.grad(program(x, y), x, create_graph=True)
            (h,) = torch.autograd.grad(g.sum(), x)
            found.append((g, h))
        assert_same(found[1], found[0], f"call {i}")


def test_custom_functions_inside_and_around():
    def make():
        w = torch.ones(3, requires_grad=True)

        def f(x):
            y = Scale.apply(x * w, 3.0)
            a, b = TwoOutputs.apply(y, w)
            (g,) = torch.autograd.grad(a.sum() + b.sum(), w, retain_graph=True)
            return y, a, b, g

        return f

    check(make, vectors(4), grads=True)


def test_custom_functions_are_differentiated_from_outside():
    check_function(lambda x, y: Scale.apply(x, 2.0) + TwoOutputs.apply(x, y)[1], LEAVES, grads=True)


def test_functions_that_count_and_print():
    def make():
        log = []

        class Counting(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                log.append("forward")
                return x * 2

            @staticmethod
            def backward(ctx, g):
                log.append("backward")
                print("backward")
                return g * 3

        def f(x, y):
            z = Counting.apply(x)
            (g,) = torch.autograd.grad(z.sum(), x)
            return z, g

        f.log = log
        return f

    check(make, LEAVES, post=lambda f: f.log)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint(use_reentrant):
    def make():
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(4, 3))

        def f(x):
            y = checkpoint(net, x, use_reentrant=use_reentrant)
            y.sum().backward()
            return y.detach(), [p.grad for p in net.parameters()]

        return f

    check(make, vectors(4, (2, 3), grad=True))


def test_checkpoint_differentiated_from_outside():
    def make():
        net = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(4)])
        return lambda x: checkpoint_sequential(net, 2, x, use_reentrant=False)

    check(make, vectors(4, (2, 3), grad=True), grads=True)


def test_tensor_hooks():
    def make():
        log = []

        def f(x, y):
            z = x * y
            z.register_hook(lambda g: log.append(g.sum().item()) or g * 2)
            x.register_hook(lambda g: g + 1)
            z.sum().backward()
            return x.grad

        f.log = log
        return f

    check(make, LEAVES, post=lambda f: f.log)


def test_hooks_on_leaves_outlive_the_call():
    def make():
        w = torch.ones(3, requires_grad=True)
        log = []
        w.register_hook(lambda g: log.append(1) or g * 10)
        w.register_post_accumulate_grad_hook(lambda p: log.append(2))

        def f(x):
            (x * w).sum().backward()
            return w.grad.clone()

        f.log = log
        return f

    check(make, vectors(4), post=lambda f: f.log)


def test_retain_grad_retain_graph_and_accumulation():
    def f(x, y):
        z = x * y
        z.retain_grad()
        loss = z.sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return z.grad, x.grad, z.grad_fn is not None, x.is_leaf, z.is_leaf

    check_function(f, LEAVES)


def test_a_second_backward_raises_eagers_error():
    def f(x, y):
        loss = (x * y).sin().sum()
        loss.backward()
        loss.backward()

    check_function(f, LEAVES)


def test_saved_tensors_changed_in_place_raise_eagers_error():
    def f(x, y):
        a = x.exp()
        a.add_(1)
        return a.sum()

    tested = compiled(f)
    for _ in range(3):
        found = []
        for program in (f, tested):
            x, y = rnd(0, 3, grad=True), rnd(1, 3)
            found.append(outcome(lambda program=program, x=x, y=y: program(x, y).backward(), (), {}))
        assert type(found[1].error) is type(found[0].error) is RuntimeError
        assert str(found[1].error)[:80] == str(found[0].error)[:80]


def test_in_place_on_a_leaf_raises_and_under_no_grad_works():
    def f(x, y, guarded):
        if guarded:
            with torch.no_grad():
                x.add_(y)
        else:
            x.add_(y)
        return x * 2

    calls = [call(rnd(i, 3, grad=True), rnd(i + 1, 3), g) for i, g in enumerate([True, True, False, True, False])]
    check_function(f, calls, grads=True)


def test_detach_requires_grad_and_leaf_creation():
    def f(x, y):
        a = x.detach()
        b = (x * y).detach().requires_grad_()
        c = torch.zeros(3, requires_grad=True)
        (g,) = torch.autograd.grad((b * c + b).sum(), b)
        return a, b, g, a.requires_grad, b.is_leaf, x.detach() is x, torch.nn.Parameter(a)

    check_function(f, LEAVES)


def test_saved_tensor_hooks():
    def make():
        log = []

        def pack(t):
            log.append("pack")
            return t

        def unpack(t):
            log.append("unpack")
            return t

        def f(x, y):
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                z = x * x * y
            z.sum().backward()
            return x.grad

        f.log = log
        return f

    check(make, LEAVES, post=lambda f: f.log)


def test_vmap_grad_jacobians_and_jvp():
    def f(x, y):
        sine = torch.func.vmap(lambda t: t.sin() * 2)(x)
        g = torch.func.grad(lambda t: (t**2 * y).sum())(x)
        jacobian = torch.func.jacrev(lambda t: t * t)(x)
        forward = torch.func.jacfwd(lambda t: t.exp())(x)
        out, tangent = torch.func.jvp(lambda t: t.tanh(), (x,), (y,))
        hessian = torch.func.hessian(lambda t: (t**3).sum())(x)
        value, back = torch.func.vjp(lambda t: t * y, x)
        return sine, g, jacobian, forward, out, tangent, hessian, value, back(y)

    check_function(f, [call(rnd(i, 3), rnd(i + 9, 3)) for i in range(4)])


def test_vmap_over_models_and_with_randomness():
    def make():
        model = torch.nn.Linear(3, 2)

        def loss(params, x):
            return torch.func.functional_call(model, params, (x,)).pow(2).sum()

        def f(x):
            params = {k: v.detach() for k, v in model.named_parameters()}
            per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, x)
            noisy = torch.func.vmap(lambda t: t + torch.rand(3), randomness="different")(x)
            return per_sample, noisy, torch.func.vmap(torch.dot, in_dims=(0, None))(x, x[0])

        return f

    check(make, vectors(4, (5, 3)))


def test_a_compiled_function_under_functional_transforms():
    def f(x):
        return (x.sin() * x).sum()

    tested = compiled(f)
    for i in range(4):
        x = rnd(i, 4, 3)
        assert_same(tested(x), f(x), "plain")
        assert_same(torch.func.grad(tested)(x), torch.func.grad(f)(x), "grad")
        assert_same(torch.func.vmap(tested)(x), torch.func.vmap(f)(x), "vmap")


def test_forward_mode_dual_numbers():
    import torch.autograd.forward_ad as forward_ad

    def f(x, y):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, y)
            out = (dual * dual).sin()
            return forward_ad.unpack_dual(out).tangent

    check_function(f, [call(rnd(i, 3), rnd(i + 9, 3)) for i in range(4)])


def test_autograd_functional_and_anomaly_mode():
    def f(x):
        j = torch.autograd.functional.jacobian(lambda t: t**2, x)
        h = torch.autograd.functional.hvp(lambda t: (t**3).sum(), x, torch.ones(3))
        with torch.autograd.set_detect_anomaly(False):
            z = (x * 2).sum()
        return j, h, z

    check_function(f, vectors(4))


def test_gradients_with_views_and_in_place_updates():
    def f(x, y):
        z = x * 1
        z[0] = y[0] * 2
        z[1:].mul_(y[1:])
        v = z.view(3, 1)
        return v.sum() + z[0], z

    check_function(f, LEAVES, grads=True)


def test_requires_grad_of_arguments_varies():
    def f(x, y):
        return x * y + y

    kinds = [(True, False), (True, False), (False, False), (True, True), (False, True), (True, False)]
    check_function(f, [call(rnd(i, 3, grad=a), rnd(i + 1, 3, grad=b)) for i, (a, b) in enumerate(kinds)], grads=True)


def test_outputs_that_do_not_need_gradients():
    def f(x, y):
        return x * y, (x * y).argmax(), (x > 0), x.detach() * 2, y + 1

    check_function(f, LEAVES, grads=True, promise=ONE_ENTRY)


def test_a_training_loop_inside_one_call():
    def make():
        net = torch.nn.Linear(3, 1)

        def f(x, y):
            losses = []
            for _ in range(3):
                loss = (net(x) - y).pow(2).mean()
                grads = torch.autograd.grad(loss, list(net.parameters()))
                with torch.no_grad():
                    for p, g in zip(net.parameters(), grads):
                        p.sub_(g, alpha=0.1)
                losses.append(loss.detach())
            return losses

        f.net = net
        return f

    check(make, [call(rnd(i, 4, 3), rnd(i + 9, 4, 1)) for i in range(4)], post=lambda f: dict(f.net.state_dict()))


def test_an_input_may_be_written_between_forward_and_backward_where_eager_allows_it():
    def make():
        weight = torch.ones(3, 3, requires_grad=True)
        queue = torch.ones(3, 3)

        def f(x):
            y = (x @ weight) @ queue.clone().detach()  # the copy is saved for the backward, not the queue
            z = (x @ weight) @ (queue * 2)
            with torch.no_grad():
                queue[int(x.shape[0]) - 1].add_(x.sum())
            (y + z).sum().backward()
            gradient, weight.grad = weight.grad, None
            return y.detach(), gradient, queue

        return f

    check(make, [call(rnd(i, 2, 3)) for i in range(5)])


def test_gradients_with_respect_to_what_the_program_has_computed():
    """A region has one autograd node: what is differentiated with respect to is not inside of it."""

    def make():
        weight = torch.ones(3, 2, requires_grad=True)

        def f(x):
            (g,) = torch.autograd.grad((x @ weight).pow(2).mean(), weight, create_graph=True)
            fast = weight - 0.1 * g
            twice = [fast * 2, fast.sin()]
            loss = (x @ fast + x @ twice[0] * twice[1].mean()).sin().mean()
            h, k = torch.autograd.grad(loss, [fast, twice[0]], create_graph=True)
            return (x @ (fast - 0.1 * h + k)).pow(2).mean()

        f.weight = weight
        return f

    check(make, vectors(5, (4, 3)), grads=True, promise=ONE_ENTRY)


@pytest.mark.parametrize("is_tied", [False, True])
def test_functional_call_and_steps_through_a_step(is_tied):
    def make():
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
        if is_tied:
            net[2].weight = net[0].weight

        def f(x):
            fast = dict(net.named_parameters())
            for _ in range(2):
                loss = torch.func.functional_call(net, fast, (x,)).pow(2).mean()
                gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), gradients)}
            return torch.func.functional_call(net, fast, (x,)).pow(2).mean()

        f.net = net
        return f

    check(make, vectors(4, (4, 3)), grads=True, post=lambda f: dict(f.net.state_dict()))


@pytest.mark.parametrize("is_statistic", [False, True])
def test_double_backward_through_an_input_that_was_written_to(is_statistic):
    def f(total, values):
        if is_statistic:
            total.mul_(0.9).add_(values.detach().mean())
            return (values**3).sum()
        total.scatter_add_(0, torch.tensor([[0], [1], [0]]), values.sin())
        return total.sum() + total.pow(3).sum()

    tested = compiled(f)
    for seed in range(4):
        found = []
        for program in (f, tested):
            total, values = rnd(seed, 2, 1), rnd(seed + 9, 3, 1, grad=True)
            (g,) = torch.autograd.grad(program(total, values), values, create_graph=True)
            g.pow(2).sum().backward()
            found.append((g.detach(), values.grad, total.detach()))
        for got, want in zip(found[1], found[0]):
            torch.testing.assert_close(got, want)


def between_regions(first, second):
    """Two regions: what the first one gives is held by nobody but the second one's node."""

    def f(x):
        y = first(x)
        if y.sum().item() > 1e9:
            y = y - 1
        return second(y)

    return f


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(
    "second",
    [
        lambda y: torch.where(y.detach() > 0, y.sin(), y * 2).sum(),
        lambda y: ((y.detach() * 3).cos() * (y + 1)).pow(2).sum(),
        lambda y: y.relu().pow(2).sum(),
        lambda y: (y - 1).square().sum(),
        lambda y: (y * (y.detach() < 0.5).float()).sigmoid().sum(),
        lambda y: (y * 2 + 1).sum(),  # no gradient depends on what is in `y`
        lambda y: (y[:, :2].relu() * y[:, 1:].exp()).mean(),
    ],
)
def test_double_backward_through_what_only_a_region_holds(second, is_packed):
    f = between_regions(lambda x: x**3 + x.cos(), second)
    tested = compiled(f)
    for seed in range(4):
        found = []
        for program in (f, tested):
            x = rnd(seed, 4, 3, grad=True)
            if is_packed:
                with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
                    loss = program(x)
                loss.backward()
                found.append((x.grad,))
                continue
            (g,) = torch.autograd.grad(program(x), x, create_graph=True)
            (h,) = torch.autograd.grad(g.pow(2).sum(), x)
            found.append((g.detach(), h))
        assert_same(found[1], found[0], f"call {seed}")


def test_double_backward_where_one_tensor_is_two_arguments():
    tested = compiled(lambda x, y: (x**2 * y.sin()).sum())
    for seed in range(4):
        found = []
        for program in (lambda x, y: (x**2 * y.sin()).sum(), tested):
            x = rnd(seed, 3, grad=True)
            for y in (x, x * 2):
                (g,) = torch.autograd.grad(program(y, y), y, create_graph=True)
                (h,) = torch.autograd.grad(g.pow(2).sum(), x)
                found.append((g.detach(), h))
        assert_same(found[2:], found[:2], f"call {seed}")


def test_double_backward_where_one_input_is_computed_from_another():
    def f(x, y):
        return (x**2 * y.sin()).sum()

    tested = compiled(f)
    for seed in range(4):
        found = []
        for program in (f, tested):
            x = rnd(seed, 3, grad=True)
            (g,) = torch.autograd.grad(program(x, x.exp()), x, create_graph=True)
            (h,) = torch.autograd.grad(g.pow(2).sum(), x)
            found.append((g.detach(), h))
        assert_same(found[1], found[0], f"call {seed}")


def test_an_input_that_is_written_to_later_is_freed():
    tested = compiled(lambda y: y.relu() * 2)
    for seed in range(4):
        y = rnd(seed, 4, grad=True) * 2
        y.mul_(tested(y))  # its history now leads to the node that took it
        dead = weakref.ref(y)
        del y
        assert dead() is None


def test_gradients_behind_an_exit_follow_from_the_graph_in_front_of_it():
    def f(a, b):
        loss = a.sum() if a.sum() > b.sum() else (b * 2).sum()
        print(loss.shape)
        loss.backward()
        return a.grad, b.grad

    def inputs(i):
        return lambda: call(rnd(i, 3, grad=True), rnd(i + 50, 3, grad=True))

    check_function(f, [inputs(i) for i in range(8)])


def test_gradients_that_a_backward_in_the_trace_did_not_write():
    # Whether a leaf has a gradient is a fact about the entry where no backward of the trace reached it.
    def penalty(w, x):
        a = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((a * w).tanh().sum(), a, create_graph=True)
        loss = (g**2).mean()
        if w.grad is not None:
            w.grad = None
        loss.backward()
        return w.grad.clone()

    def untouched(p, x, q):
        y = (q * x).sum().detach()
        (p * x).sum().backward()
        return y, None if q.grad is None else q.grad + 1, p.grad.clone()

    def leaves(i, has_first, has_second):
        p, q = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        p.grad = rnd(i, 3) if has_first else None
        q.grad = rnd(i + 1, 3) if has_second else None
        return p, rnd(i + 2, 3), q

    def two_leaves(i, has_first, has_second):
        return call(*leaves(i, has_first, has_second))

    check_function(penalty, [call(*leaves(i, i > 1 and i != 4, False)[:2]) for i in range(6)])
    for first in range(2):
        states = [(0, first), (0, first), (0, 1 - first), (1, first), (1, 1 - first), (0, first), (1, 1 - first)]
        check_function(untouched, [two_leaves(i, *state) for i, state in enumerate(states)])


def test_gradients_of_batches_of_tangents():
    def f(x, y):
        z = (x * y).sin()
        (g,) = torch.autograd.grad(z, x, torch.eye(3), is_grads_batched=True)
        return g

    check_function(f, LEAVES)

    def g(x, y):
        return torch.autograd.functional.jacobian(lambda a: (a * y).exp(), x, vectorize=True)

    check_function(g, LEAVES)


def test_a_view_has_the_history_of_a_later_write_to_its_base():
    def whole(x):
        z = torch.zeros(3, 3)
        v = z[0]
        z.add_(x)
        return v

    def part(x):
        z = torch.zeros(3, 3)
        v, w = z[0], z[1]
        v.add_(x)
        return w * 2, z

    def both(x):
        z = torch.zeros(3, 3)
        w = z[1]
        z[1] = x
        return w, w.requires_grad, w.is_leaf, w.grad_fn is None

    def of_argument(x, y):
        v = y[0]
        y.add_(x)
        return v.sin()

    for f in (whole, part, both):
        check_function(f, vectors(4, grad=True), grads=True)
    check_function(of_argument, [call(rnd(i, 3, grad=True), rnd(i + 9, 3, 3)) for i in range(4)], grads=True)
