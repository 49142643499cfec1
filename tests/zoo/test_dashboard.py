"""The dashboard in a real browser: it opens without errors and shows every table. Skipped where no browser is found."""

import html.parser
import json
import pathlib
import shutil
import subprocess

import pytest

from bench.harness import dashboard

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECTIONS = (
    "table-1", "table-2", "table-3", "table-4", "guards", "sizes", "recompiles-over-sizes", "failures", "models",
    "history",
)  # fmt: skip


class Tables(html.parser.HTMLParser):
    """Of a page's text: section id -> rows of cells, and what is said outside of tables."""

    def __init__(self):
        super().__init__()
        self.sections, self.cards, self.links, self.shapes = {}, 0, [], []
        self.section = self.is_cell = None

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "section":
            self.section = attributes["id"]
            self.sections[self.section] = []
        elif tag == "tr" and self.section:
            self.sections[self.section].append([])
        elif tag in ("td", "th") and self.section:
            self.sections[self.section][-1].append("")
            self.is_cell = True
        elif tag in ("circle", "rect") and self.section:
            self.shapes.append(self.section)
        elif tag == "a":
            self.links.append(attributes.get("href"))
        elif attributes.get("class") == "card":
            self.cards += 1

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.is_cell = False
        elif tag == "section":
            self.section = None

    def handle_data(self, data):
        if self.is_cell and self.section:
            self.sections[self.section][-1][-1] += data


def result(name, mode, *, status="pass", exits=0, ms=1.0):
    reasons = {
        "exits": [{"place": "a.py:3", "kind": "end", "reason": "an unknown <call>", "code": "opaque", "count": 2}]
    }
    ours = {
        "status": status, "error": None if status == "pass" else "call 1: </script> result: off by 1", "ms": ms,
        "min_ms": ms, "peak_mb": 1.5, "cold_s": 0.5, "guards_us": 3.0, "guards": 12, "kernels": 2, "library_calls": 1,
        "items": 40, "phases": {"record": 0.002, "aot <b>": 0.01},
        "steady": {"exits": exits, "recordings": 0, "opaque_calls": exits}, "total": {"entries": 1},
        "reasons": reasons if exits else {"exits": []},
    }  # fmt: skip
    eager = {"status": "pass", "ms": 2.0, "min_ms": 2.0, "peak_mb": 2.0}
    capture = {"operators": 10, "reprise": {"captured": 8, "graphs": 2, "is_whole": not exits},
               "torch": {"captured": 9, "graphs": 2}}  # fmt: skip
    return {
        "row": name, "suite": "own", "mode": mode, "status": "ok", "hard": "L",
        "columns": {
            "eager": eager, "eager-again": {**eager, "ms": 2.01}, "reprise": ours, "torch": eager,
            "torch-eager": eager, "reprise-without-fusion": {**ours, "ms": ms * 1.5},
        },
        "capture": capture if mode == "inference" else None,
    }  # fmt: skip


def questions():
    """What was asked of a model beside its speed."""
    base = {"row": "a", "suite": "own", "status": "ok", "hard": "L"}
    facts = {"status": "pass", "error": None, "recompiles": 1, "recompiles_again": 0, "recompiles_s": 0.5,
             "recompiles_again_s": 0.1}  # fmt: skip
    tracers = {"trace": {"status": "pass", "error": None}, "script": {"status": "raises", "error": "no"}}
    sizes = {"reprise": facts, "torch-eager": {**facts, "recompiles": 2}}
    return [{**base, "mode": "tracers", "columns": tracers}, {**base, "mode": "batches", "sizes": 16, "columns": sizes}]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with something in every table."""
    folder = tmp_path_factory.mktemp("dashboard")
    facts = {
        "run": True,
        "date": "2026-01-02",
        "commit": "abc",
        "machine": "a machine",
        "packages": {"torch": "2.14.1"},
    }
    rows = [result("a", "inference"), result("b", "inference", exits=2), result("a", "training", ms=4.0),
            result("c", "training", status="wrong"), *questions()]  # fmt: skip
    (folder / "results.jsonl").write_text("\n".join(json.dumps(line) for line in [facts, *rows]) + "\n")
    (folder / "history.csv").write_text("date,commit,rows,works\n2026-01-01,aaa,3,0.9\n2026-01-02,abc,4,0.75\n")
    path = folder / "page.html"
    dashboard.write_dashboard(folder / "results.jsonl", path, history=folder / "history.csv")
    return path


def test_the_page_loads_nothing_and_data_cannot_end_its_script(page):
    text = page.read_text()
    assert text.count("</script>") == 2
    assert "src=" not in text and "<link" not in text and "@import" not in text


def opened(page, folder, hash=""):
    """(what the browser's page is, once its script has run; what the console said)."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no browser")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--disable-dev-shm-usage",
        f"--user-data-dir={folder}", "--virtual-time-budget=5000", "--dump-dom", page.as_uri() + hash,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    tables = Tables()
    tables.feed(done.stdout.rpartition("</script>")[2] if "<section" not in done.stdout else done.stdout)
    return tables, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_a_browser_shows_every_table_without_errors(page, tmp_path):
    tables, console = opened(page, tmp_path)
    assert not console
    assert tables.cards >= 8
    assert [f"#{name}" in tables.links for name in SECTIONS] == [True] * len(SECTIONS)
    for name in SECTIONS:
        heads, *rows = tables.sections[name]
        assert rows and all(len(row) == len(heads) for row in rows), name
    assert len(tables.sections["models"]) == 1 + 4
    assert any("paper: TIMM" in row for row in tables.sections["table-1"])
    assert any("<call>" in cell for row in tables.sections["failures"] for cell in row)
    assert [tables.shapes.count(name) for name in ("table-3", "compile-time", "memory")] == [3, 4, 4]


def test_a_models_own_page_shows_its_columns_and_exits(page, tmp_path):
    tables, console = opened(page, tmp_path, "#model=b%20inference")
    assert not console
    cells = [cell for row in tables.sections["model"] for cell in row]
    assert "reprise" in cells and "a.py:3" in cells
    assert tables.shapes.count("model") == 2  # phases


def test_the_committed_results_make_a_page(tmp_path):
    """Every result file that is kept can still be read."""
    for path in sorted(pathlib.Path(dashboard.HISTORY).parent.glob("results/*.jsonl")):
        dashboard.write_dashboard(path, tmp_path / f"{path.stem}.html")
        assert (tmp_path / f"{path.stem}.html").stat().st_size > 10_000
