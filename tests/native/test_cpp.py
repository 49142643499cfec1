"""cpu_codegen=cpp: kernels printed as C++ and built by the system's compiler give what eager gives."""

import os
import shutil
import subprocess
import sys

import pytest
import reprise
import torch
import torch.nn.functional as F

HAS_COMPILER = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler")


def pointwise(x, y):
    a = torch.where(x > 0.25, torch.exp(x) * 1.5, y - x)
    return torch.sigmoid(a) + torch.tanh(y) * torch.erf(x), (a.to(torch.bfloat16) * y.to(torch.bfloat16)).abs()


def integers(x, y):
    a, b = (x * 100).to(torch.int32), (y * 10).to(torch.int64)
    return a // (b + 50), a % 7, (a ^ 3) << 2, torch.clamp(b, -5, 5).to(torch.uint8)


def reductions(x, y):
    return x.sum(-1), (x * y).mean(0), x.amax(), y.argmin(-1), (x > 0).any(-1), torch.var(x, -1), x.cumsum(-1) + 1


def softmax(x, y):
    return torch.softmax(x, -1), torch.log_softmax(y.double(), 0) * 2


def layer_norm(x, y):
    return F.gelu(F.layer_norm(x, (x.shape[-1],), y[0], y[1])), F.rms_norm(y, (y.shape[-1],)) * x


def embedding(x, y):
    index = (x.abs() * 10).long() % y.shape[0]
    return F.embedding(index, y).sum(1), y[index[0]] * 2, torch.gather(y, 0, index[:3])


def scalars(x, y):
    return torch.pow(x.abs(), 1.7) + torch.atan2(x, y), torch.hypot(x, y) / 3, torch.fmod(x, 0.3), torch.log1p(x.abs())


PROGRAMS = [pointwise, integers, reductions, softmax, layer_norm, embedding, scalars]


def make_inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(33, 65, generator=generator), torch.randn(33, 65, generator=generator)


def get_counters(compiled, *args):
    return reprise.explain(compiled)(*args).counters


def check_native(counts):
    assert counts["checked_regions"] >= 1 and counts["compiled_kernels"] >= 1
    assert counts["failed_kernels"] == 0 and counts["failed_checks"] == 0 and counts["dissolved_regions"] == 0


@needs_compiler
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_equal_eager(program):
    compiled = reprise.compile(program, options={"cpu_codegen": "cpp"})
    for seed in range(4):
        for got, want in zip(compiled(*make_inputs(seed)), program(*make_inputs(seed))):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)
    check_native(get_counters(compiled, *make_inputs(0)))


@needs_compiler
def test_training_equals_eager():
    def run(compile_options):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(65, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 5)
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x, target):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = step if compile_options is None else reprise.compile(step, options=compile_options)
        losses = []
        for seed in range(5):
            x, _ = make_inputs(seed)
            losses.append(compiled(x, torch.arange(33) % 5))
        if compile_options is not None:
            check_native(get_counters(compiled, x, torch.arange(33) % 5))
        return losses

    torch.testing.assert_close(run({"cpu_codegen": "cpp"}), run(None))


@needs_compiler
def test_threads_are_those_of_the_host():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x, y = torch.randn(700, 901), torch.randn(700, 901)
        compiled = reprise.compile(pointwise, options={"cpu_codegen": "cpp"})
        for _ in range(3):
            for got, want in zip(compiled(x, y), pointwise(x, y)):
                torch.testing.assert_close(got, want)
        check_native(get_counters(compiled, x, y))
    finally:
        torch.set_num_threads(threads)


@needs_compiler
def test_both_generators_in_one_process():
    x, y = make_inputs(0)
    results = []
    for generator in ("cpp", "llvm", "cpp"):
        compiled = reprise.compile(softmax, options={"cpu_codegen": generator})
        for _ in range(3):
            result = compiled(x, y)
        results.append(result)
    for result in results:
        torch.testing.assert_close(result, softmax(x, y))


def test_a_compiler_that_fails_is_told_once(monkeypatch, capfd):
    monkeypatch.setenv("CXX", "/bin/false")
    compiled = reprise.compile(pointwise, options={"cpu_codegen": "cpp"})
    for seed in range(3):
        for got, want in zip(compiled(*make_inputs(seed)), pointwise(*make_inputs(seed))):
            torch.testing.assert_close(got, want)
    x, y = (value.requires_grad_() for value in make_inputs(0))
    for _ in range(2):  # other entries, whose kernels are not compiled either
        compiled(x, y)[0].sum().backward()
    counts = get_counters(compiled, *make_inputs(0))
    assert counts["failed_kernels"] >= 2 and counts["compiled_kernels"] == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if "could not be compiled" in line]
    assert len(lines) == 1 and "/bin/false ended with status 1" in lines[0]


@needs_compiler
def test_nothing_stays_in_the_temporary_directory(tmp_path):
    code = (
        "import reprise, torch\n"
        "compiled = reprise.compile(lambda x: torch.softmax(x, -1) * 2)\n"
        "for _ in range(3): compiled(torch.ones(8, 8))\n"
        "print(reprise.explain(compiled)(torch.ones(8, 8)).counters['compiled_kernels'])\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "REPRISE_CPU_CODEGEN": "cpp"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 1 and not done.stderr
    assert list(tmp_path.iterdir()) == []
