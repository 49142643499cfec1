"""nn.Module programs: module trees, hooks, buffers, modes, state, containers and recurrent layers."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from twins import (
    ONE_ENTRY,
    Call,
    assert_same,
    at_most,
    call,
    check,
    check_function,
    compiled,
    reprise_only,
    rnd,
    vectors,
)


class Block(nn.Module):
    def __init__(self, n_in, n_out, stride=1):
        super().__init__()
        self.c1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(n_out)
        self.c2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if n_in != n_out:
            self.down = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x):
        identity = x
        y = self.relu(self.b1(self.c1(x)))
        y = self.b2(self.c2(y))
        if self.down is not None:
            identity = self.down(x)
        y += identity
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.layers = nn.Sequential(Block(8, 8), Block(8, 16, 2), Block(16, 16))
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        x = self.layers(self.stem(x))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.counter = 0
        self.history = []
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        self.counter += 1
        self.history.append(self.counter)
        return self.lin(x) * self.counter


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("steps", torch.tensor(0), persistent=False)
        self.register_buffer("none", None)

    def forward(self, x):
        self.steps += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        if self.none is None:
            self.none = x.detach().sum(0)
        else:
            self.none = self.none + 1
        return x - self.mean


def test_an_mlp():
    def make():
        return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.0), nn.LayerNorm(8), nn.Linear(8, 2))

    check(make, vectors(4, (3, 4)), promise=ONE_ENTRY, grads=True)


@pytest.mark.parametrize("training", [False, True])
def test_a_resnet_with_batch_norm(training):
    check(lambda: ResNet().train(training), vectors(4, (2, 3, 16, 16)), promise=ONE_ENTRY, grads=True)


def test_a_counting_module_records_once():
    check(Counter, vectors(6, (2, 3)), post=lambda m: (m.counter, m.history), promise=ONE_ENTRY)


def test_a_fresh_counter_starts_where_it_was():
    def make():
        m = Counter()
        m.counter = 10
        return m

    check(make, vectors(4, (2, 3)), post=lambda m: (m.counter, m.history))


def test_buffers_are_written_in_place_and_rebound():
    check(Buffers, vectors(5, (2, 3)), post=lambda m: (m.steps, m.none))


def test_dropout_follows_train_and_eval():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(self.lin(x)), self.training

    plain, inner = M(), M()
    inner.load_state_dict(plain.state_dict())
    tested = compiled(inner)
    for i, training in enumerate([True, True, False, False, True, False]):
        for m in (plain, inner):
            m.train(training)
        torch.manual_seed(i)
        want = plain(rnd(i, 2, 3))
        torch.manual_seed(i)
        assert_same(tested(rnd(i, 2, 3)), want, f"call {i}")


def test_train_called_on_the_compiled_module_reaches_the_original():
    m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    tested = compiled(m)
    tested.eval()
    assert not m.training and not m[1].training
    tested.train()
    assert m.training


@pytest.mark.parametrize("kind", ["forward", "pre", "pre kwargs", "full", "global"])
def test_forward_hooks(kind):
    def make():
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 3)
                self.seen = []

            def forward(self, x, scale=1):
                return self.lin(x) * scale

        m = M()
        if kind == "forward":
            m.lin.register_forward_hook(lambda mod, args, out: m.seen.append(out.sum().item()) or out * 2)
        elif kind == "pre":
            m.lin.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
        elif kind == "pre kwargs":
            m.register_forward_pre_hook(lambda mod, args, kw: (args, {"scale": 3}), with_kwargs=True)
        elif kind == "full":
            m.lin.register_full_backward_hook(lambda mod, gin, gout: m.seen.append(gout[0].sum().item()))
        return m

    handle = None
    if kind == "global":
        handle = nn.modules.module.register_module_forward_hook(lambda mod, args, out: out + 1)
    try:
        check(make, vectors(4, (2, 3)), post=lambda m: m.seen, grads=True)
    finally:
        if handle is not None:
            handle.remove()


def test_hooks_added_and_removed_between_calls():
    def make():
        return nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    twins = [make(), make()]
    twins[1].load_state_dict(twins[0].state_dict())
    calls = [twins[0], compiled(twins[1])]
    handles = [[], []]
    for i in range(8):
        for side, m in enumerate(twins):
            if i == 2:
                handles[side].append(m[0].register_forward_hook(lambda mod, args, out: out * 3))
            if i == 4:
                handles[side].append(m.register_forward_pre_hook(lambda mod, args: args[0] + 1))
            if i == 6:
                handles[side][0].remove()
        assert_same(calls[1](rnd(i, 2, 3)), calls[0](rnd(i, 2, 3)), f"call {i}")


def test_module_lists_dicts_and_parameter_containers():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
            self.named = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
            self.scales = nn.ParameterList([torch.ones(3) * i for i in range(2)])
            self.table = nn.ParameterDict({"b": torch.zeros(3)})

        def forward(self, x, name):
            for i, layer in enumerate(self.layers):
                x = self.named[name](layer(x)) + i
            for s in self.scales[::-1]:
                x = x + s
            for key, value in self.table.items():
                x = x + value * len(key)
            return x, len(self.layers), "relu" in self.named, self.layers[-1] is self.layers[2]

    check(M, [call(rnd(i, 2, 3), n) for i, n in enumerate(["relu", "relu", "tanh", "relu", "tanh"])], grads=True)


def test_submodules_and_parameters_walked_by_the_program():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
            self.b = nn.BatchNorm1d(3)

        def forward(self, x):
            norm = sum(p.pow(2).sum() for p in self.parameters())
            names = (
                [n for n, _ in self.named_modules()],
                [n for n, _ in self.named_parameters()],
                [n for n, _ in self.named_buffers()],
            )
            kinds = [type(m).__name__ for m in self.children()]
            return (
                self.b(self.a(x)) * norm,
                names,
                kinds,
                sorted(self.state_dict()),
                self.get_submodule("a.0") is self.a[0],
            )

    check(M, vectors(4, (4, 3)))


def test_shared_and_reused_layers():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.again = self.lin
            self.stack = nn.Sequential(*[self.lin] * 2)

        def forward(self, x):
            return self.stack(self.again(self.lin(x)))

    check(M, vectors(4, (2, 3)), promise=ONE_ENTRY, grads=True)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = kind(3, 4, num_layers=2, batch_first=True)
            self.state = None

        def forward(self, x):
            out, state = self.rnn(x, self.state)
            self.state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
            return out, state

    check(M, vectors(4, (2, 5, 3)), grads=True)


def test_recurrent_cells_in_a_python_loop():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(3, 4)

        def forward(self, x):
            h = x.new_zeros(x.shape[1], 4)
            return torch.stack([h := self.cell(step, h) for step in x])

    check(M, vectors(4, (5, 2, 3)), promise=ONE_ENTRY, grads=True)


@pytest.mark.parametrize("training", [False, True])
def test_transformer_encoder_and_attention(training):
    def make():
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(training)

    mask = nn.Transformer.generate_square_subsequent_mask(4)
    check(make, [call(rnd(i, 2, 4, 8), mask=mask) for i in range(4)], grads=True)


def test_attention_with_weights_and_masks():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x, padding=None):
            return self.attention(x, x, x, key_padding_mask=padding, need_weights=padding is not None)

    padding = torch.tensor([[False, False, True], [False, True, True]])
    check(
        M,
        [call(rnd(0, 2, 3, 8)), call(rnd(1, 2, 3, 8), padding), call(rnd(2, 2, 3, 8)), call(rnd(3, 2, 3, 8), padding)],
    )


def test_embeddings_and_bags():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(10, 4, padding_idx=0)
            self.bag = nn.EmbeddingBag(10, 4, mode="mean")

        def forward(self, ids, offsets):
            return self.e(ids), self.bag(ids, offsets)

    check(M, [call(torch.tensor([i, 2, 0, 4]), torch.tensor([0, 2])) for i in range(4)], promise=ONE_ENTRY, grads=True)


def test_convolution_norm_and_pooling_families():
    def make():
        return nn.Sequential(
            nn.Conv2d(4, 8, 3, padding=1, groups=2),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
            nn.MaxPool2d(2),
            nn.ConvTranspose2d(8, 4, 2, stride=2),
            nn.InstanceNorm2d(4, affine=True),
            nn.AvgPool2d(2),
            nn.PixelShuffle(2),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Flatten(),
        )

    check(make, vectors(4, (2, 4, 8, 8)), promise=ONE_ENTRY, grads=True)


def test_batch_norm_in_both_modes_and_one_dimension():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(3, momentum=None)

        def forward(self, x, training):
            self.train(training)
            return self.bn(x)

    check(M, [call(rnd(i, 4, 3), t) for i, t in enumerate([True, True, False, True, False, False])])


def test_modules_made_lazily_in_forward():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = None
            self.lazy = nn.LazyLinear(4)

        def forward(self, x):
            x = self.lazy(x)
            if self.head is None:
                self.head = nn.Linear(x.shape[-1], 2)
            return self.head(x)

    check(M, vectors(4, (2, 3)))


def test_attributes_set_and_deleted_in_forward():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))
            self.last = None

        def forward(self, x):
            self.previous, self.last = self.last, x.detach()
            self.tmp = self.w * 2
            y = x * self.tmp
            del self.tmp
            if self.previous is not None:
                y = y + self.previous
            return y, hasattr(self, "tmp")

    check(M, vectors(5), post=lambda m: (m.last, m.previous, sorted(vars(m))))


def test_a_parameter_replaced_in_forward():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x, replace):
            if replace:
                self.w = nn.Parameter(self.w.detach() * 2)
            with torch.no_grad():
                self.w.add_(0.5)
            return x * self.w

    check(M, [call(rnd(i, 3), i % 3 == 2) for i in range(7)])


def test_custom_getattr_and_call_overrides():
    class M(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

        def __call__(self, x):
            return super().__call__(x * 2)

        def forward(self, x):
            return self.inner(x) + self.weight.sum() + self.in_features

    check(lambda: M(nn.Linear(3, 3)), vectors(4, (2, 3)), grads=True)


def test_parametrizations_and_weight_norm():
    class Symmetric(nn.Module):
        def forward(self, w):
            return w + w.T

    def make():
        lin = nn.Linear(3, 3)
        nn.utils.parametrize.register_parametrization(lin, "weight", Symmetric())
        return nn.Sequential(
            lin,
            nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
            nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)),
        )

    check(make, vectors(4, (2, 3)), grads=True)


def test_spectral_norm_updates_its_buffers():
    check(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)), vectors(4, (2, 3)))


def test_functional_call_with_other_parameters():
    def make():
        m = nn.Linear(3, 3)
        other = {"weight": torch.ones(3, 3), "bias": torch.zeros(3)}

        def f(x):
            return torch.func.functional_call(m, other, (x,)), m(x)

        return f

    check(make, vectors(4, (2, 3)))


def test_skip_connections_and_several_inputs_and_outputs():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Bilinear(3, 3, 3)

        def forward(self, x, y=None, *, return_all=False):
            h = self.a(x)
            z = self.b(h, x if y is None else y)
            return {"z": z, "h": h} if return_all else z

    calls = [
        call(rnd(0, 2, 3)),
        call(rnd(1, 2, 3), rnd(2, 2, 3)),
        call(rnd(3, 2, 3), return_all=True),
        call(rnd(4, 2, 3)),
        call(rnd(5, 2, 3), y=rnd(6, 2, 3)),
    ]
    check(M, calls, grads=True)


def test_losses():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.losses = nn.ModuleList(
                [nn.CrossEntropyLoss(label_smoothing=0.1), nn.MSELoss(), nn.SmoothL1Loss(), nn.NLLLoss()]
            )
            self.lin = nn.Linear(3, 4)

        def forward(self, x, labels):
            y = self.lin(x)
            return (
                self.losses[0](y, labels),
                self.losses[1](y, y.detach() + 1),
                self.losses[2](y, y * 0),
                self.losses[3](y.log_softmax(-1), labels),
            )

    check(M, [call(rnd(i, 2, 3), torch.tensor([i % 4, 1])) for i in range(4)], grads=True, promise=ONE_ENTRY)


def test_one_class_in_many_instances():
    class Layer(nn.Module):
        def __init__(self, k):
            super().__init__()
            self.k = k
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            return self.lin(x) * self.k if self.k % 2 else self.lin(x) + self.k

    check(lambda: nn.Sequential(*[Layer(k) for k in range(6)]), vectors(4, (2, 3)), promise=ONE_ENTRY, grads=True)


def test_two_compiled_instances_of_one_class_do_not_mix():
    models = [nn.Linear(3, 3) for _ in range(3)]
    tested = [compiled(m) for m in models]
    for i in range(4):
        for m, t in zip(models, tested):
            assert_same(t(rnd(i, 2, 3)), m(rnd(i, 2, 3)), f"call {i}")


def test_a_compiled_submodule_inside_an_eager_model():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    twin = copy.deepcopy(model)
    model[1] = compiled(model[1])
    for i in range(4):
        assert_same(model(rnd(i, 2, 3)), twin(rnd(i, 2, 3)), f"call {i}")
    assert list(model.state_dict()) == list(twin.state_dict())


def test_a_compiled_module_inside_a_compiled_module():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    twin = copy.deepcopy(model)
    model[0] = compiled(model[0])
    outer = compiled(model)
    for i in range(4):
        assert_same(outer(rnd(i, 2, 3)), twin(rnd(i, 2, 3)), f"call {i}")


@reprise_only
def test_a_compiled_module_is_the_original_to_everyone_else():
    m = Counter()
    tested = compiled(m)
    assert isinstance(tested, Counter) and isinstance(tested, nn.Module)
    assert list(tested.state_dict()) == list(m.state_dict())
    assert tested.lin is m.lin and tested.lin.weight is m.lin.weight
    tested.extra = 5
    assert m.extra == 5
    tested(rnd(0, 2, 3))
    assert m.counter == 1 and tested.counter == 1
    tested.load_state_dict({k: torch.zeros_like(v) for k, v in m.state_dict().items()})
    assert m.lin.weight.eq(0).all()
    tested.double()
    assert m.lin.weight.dtype == torch.float64


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "torch.save"])
def test_a_compiled_module_is_copied_like_the_original(how, tmp_path):
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    tested = compiled(m)
    x = rnd(0, 2, 3)
    want = tested(x)
    if how == "pickle":
        other = pickle.loads(pickle.dumps(tested))
    elif how == "deepcopy":
        other = copy.deepcopy(tested)
    else:
        torch.save(tested, tmp_path / "m.pt")
        other = torch.load(tmp_path / "m.pt", weights_only=False)
    for _ in range(3):
        assert_same(other(x), want, how)
    with torch.no_grad():
        other[0].weight.zero_()
    assert_same(tested(x), want, "the original after a change of the copy")


def test_forward_is_called_directly_and_other_methods_too():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            return self.lin(x)

        def encode(self, x):
            return self(x) * 2

    check(lambda: M().forward, vectors(3, (2, 3)))
    check(lambda: M().encode, vectors(3, (2, 3)), promise={"recordings": at_most(2)})


def test_half_precision_and_double_models():
    check(
        lambda: nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)).to(torch.bfloat16),
        [Call((rnd(i, 2, 3, dtype=torch.bfloat16),), {}) for i in range(4)],
        grads=True,
    )
    check(
        lambda: nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)).double(),
        [Call((rnd(i, 2, 3, dtype=torch.float64),), {}) for i in range(4)],
        grads=True,
    )


def test_modules_made_in_forward_once_torch_compile_has_patched_their_init(monkeypatch):
    """torch.compile notes every module that is made afterwards in a table of its own, under its id()."""
    from torch._dynamo import mutation_guard

    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(nn.Module, name, getattr(nn.Module, name))  # put back at the end
    monkeypatch.setattr(nn.Module, "___needs_generation_tag_patch", True, raising=False)
    mutation_guard.install_generation_tagging_init()
    kept = []

    def make():
        class Builds(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            def forward(self, x):
                return nn.ReLU()(x * self.weight)

        return Builds()

    check(make, vectors(5), promise=ONE_ENTRY)

    def keeps(x):
        act = nn.ReLU()
        kept.append(act)
        return act(x)

    check_function(keeps, vectors(5), promise=ONE_ENTRY)
    tracker = mutation_guard.GenerationTracker
    assert len(kept) == 10 and all(tracker.check(act) for act in kept)


def test_layers_are_taken_in_reverse():
    class Flow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

        def forward(self, x, is_reverse):
            first = None
            for layer in reversed(self.layers) if is_reverse else self.layers:
                x = layer(x).relu()
                if first is None:
                    first = layer.in_features
                    print(first)
            return x

    check(Flow, [call(rnd(i, 2, 3), i % 3 != 2) for i in range(8)])


def test_reversed_layers_replay_after_one_recording():
    class Flow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

        def forward(self, x):
            for i, layer in enumerate(reversed(self.layers)):
                x = layer(x) * i
            return x

    check(Flow, vectors(4, (2, 3)), promise=ONE_ENTRY)
