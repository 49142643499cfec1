"""The texts that docs/tour shows are those that the phases print. BLESS=1 rewrites them in docs/tour/README.md.

A dump of the tour is the block behind a line `<!-- dump: name -->`. Those of lowering and fusion stand in
tests/ir/schedule/tour.gir, where a test of the core makes them; here their graph must be the one that was logged.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "tour" / "README.md"
CASES = ROOT / "tests" / "ir" / "schedule" / "tour.gir"
BLOCK = re.compile(r"<!-- dump: (\w+) -->\n```\w*\n(.*?)```\n", flags=re.DOTALL)
NAMES = [name for name, _ in BLOCK.findall(PAGE.read_text())]

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or not torch.__version__.startswith("2.13."),
    reason="units of traces are those of CPython 3.11, graphs those of torch 2.13",
)


def has_avx2():
    info = pathlib.Path("/proc/cpuinfo")
    return info.exists() and " avx2" in info.read_text()


def read_log(text):
    """Word to what was printed behind it."""
    words = {}
    for word, line in re.findall(r"^\[reprise:(\w+)\] (.*)\n", text, flags=re.MULTILINE):
        words[word] = words.get(word, "") + line.rstrip() + "\n"
    return words


def split(text, start):
    """Parts of a text, each from a line that begins with `start` to the next one."""
    return re.findall(rf"^{start}.*?(?=^{start}|\Z)", text, flags=re.DOTALL | re.MULTILINE)


def read_graphs(text):
    """Name of a pass to the graph behind it."""
    return dict(re.findall(r"^joint, after (\w+):\n(.*?^}\n)", text, flags=re.DOTALL | re.MULTILINE))


def read_cases():
    """Graph and what lowering and fusion make of it, forward and backward."""
    cases = CASES.read_text().split("====\n")[:2]
    return [re.search(r"(graph functional.*)----\n(.*)", case, flags=re.DOTALL).groups() for case in cases]


def find_vector_loop(text):
    """The first basic block that adds up vectors."""
    return re.search(r"^(\d+: [^\n]*\n +%\d+ = phi <\d+ x float>.*?\n)\n", text, flags=re.DOTALL | re.MULTILINE).group(
        1
    )


@pytest.fixture(scope="module")
def found():
    words = "trace,guards,entry,aot,graph,schedule,kernel,codegen"
    environment = dict(os.environ, REPRISE_LOG=words, OMP_NUM_THREADS="1", PYTHONHASHSEED="0", REPRISE_TEST_CPU="avx2")
    script = str(HERE / "program.py")
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    log = read_log(done.stderr)
    graphs = read_graphs(log["graph"])
    kernels = split(log["kernel"], "kernel\n")
    programs = split(re.sub(r"key \w+, 0 bytes \(\d+\)", "key ...", log["schedule"]), "program, ")
    forward, backward = (text for _, text in read_cases())
    source = re.compile(r"^def f\(.*?\n(?=\n)", flags=re.DOTALL | re.MULTILINE)
    writes = re.compile(r"^  \S+ = aten::(?:new_empty|copy_).*\n", flags=re.MULTILINE)
    return {
        "function": source.search((HERE / "program.py").read_text()).group(),
        "trace": log["trace"].split("\n", 1)[1],
        "guards": log["guards"].split("\n", 1)[1],
        "entry": log["entry"].split("\n", 1)[1],
        "recorded": log["aot"],
        "functional": "".join(writes.findall(graphs["functionalise"])),
        "simplified": graphs["drop_dead"],
        "lowered": "".join(line for line in forward.splitlines(keepends=True) if not line.startswith("group")),
        "groups": "".join(line for line in (forward + backward).splitlines(keepends=True) if line.startswith("group")),
        "kernel_forward": kernels[0],
        "kernel_backward": kernels[2],
        "llvm": find_vector_loop(log["codegen"]),
        "program_forward": programs[1],
        "program_backward": programs[2],
        "explain": re.sub(r"/\S*tests/", "tests/", done.stdout.split("counts:")[0]),
    }


def write(name, text):
    page = PAGE.read_text()
    old = next(match for match in BLOCK.finditer(page) if match.group(1) == name)
    PAGE.write_text(page[: old.start(2)] + text + page[old.end(2) :])


@pytest.mark.parametrize("name", NAMES)
def test_the_tour_shows(name, found):
    if name == "llvm" and not has_avx2():
        pytest.skip("the tour shows code for a CPU with AVX2")
    if os.environ.get("BLESS"):
        write(name, found[name])
    shown = dict(BLOCK.findall(PAGE.read_text()))
    assert shown[name] == found[name]


def test_every_dump_is_shown(found):
    assert sorted(NAMES) == sorted(found)


def test_lowering_and_fusion_are_shown_for_the_graph_that_was_logged(found):
    lines = found["simplified"].splitlines()
    middle = lines.index("  backward:")
    (forward, _), (backward, _) = read_cases()
    expected = [line for line in lines[:middle] if " = tangent" not in line] + ["  return %6", "}"]
    assert forward.splitlines() == expected
    nodes = [line for line in lines[middle:] if "= aten::" in line]
    assert nodes and set(nodes) <= set(backward.splitlines())
