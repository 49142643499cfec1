"""What the harness asks beside speed: sizes that vary, bfloat16, older tracers, parts left out, other devices."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from bench import zoo
from bench.harness import columns, driver, sizes, summary, tables
from bench.harness.programs import MODES, make_program, modes_of
from bench.zoo import rows

ROOT = pathlib.Path(__file__).parents[2]


def work(name, mode, *arguments):
    """What the worker says of one row."""
    command = [sys.executable, "-m", "bench.harness.worker", name, mode, "--threads", "1", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-2000:]
    return json.loads(lines[-1][len("RESULT ") :])


def make_row(inputs, flags=""):
    return zoo.Row("own", "row", "torch", ("torch",), "nn.Linear(4, 4)", inputs, "", frozenset(flags.split()), "")


def test_input_makers_take_other_sizes_all_at_once():
    row = make_row("tokens(2, 64, labels=ids(2, 32))")
    assert rows.can_vary(row, "batch") and rows.can_vary(row, "length")
    _, own = rows.make_inputs(row)
    assert own["input_ids"].shape == (2, 64) and own["labels"].shape == (2, 32)
    _, larger = rows.make_inputs(dataclasses.replace(row, resize=("batch", lambda own: own + 3)))
    assert larger["attention_mask"].shape == (5, 64) and larger["labels"].shape == (5, 32)
    _, longer = rows.make_inputs(dataclasses.replace(row, resize=("length", lambda own: 2 * own)))
    assert longer["input_ids"].shape == (2, 128) and longer["labels"].shape == (2, 64)


def test_a_bare_shape_begins_with_the_batch_and_other_inputs_do_not_vary():
    row = make_row("normal(3, 4)")
    assert rows.can_vary(row, "batch") and not rows.can_vary(row, "length")
    (x,), _ = rows.make_inputs(dataclasses.replace(row, resize=("batch", lambda own: 7)))
    assert x.shape == (7, 4)
    assert not rows.can_vary(make_row("(torch.randn(2, 4),)"), "batch")


def test_every_row_is_asked_what_it_can_answer():
    assert modes_of(make_row("normal(3, 4)")) == (*MODES, "tracers", "warm", "batches")
    assert modes_of(make_row("normal(3, 4)", "no-train")) == ("inference", "bfloat16", "tracers", "warm", "batches")
    assert {mode for row in zoo.all_rows() for mode in modes_of(row)} == {*MODES, *summary.QUESTIONS}
    assert modes_of(make_row("normal(3, 4)", "step")) == ("training",)
    assert set(sizes.CHANGES) == set(rows.SIZES) and [len(c) for c in sizes.CHANGES.values()] == [16, 64]


def test_bfloat16_is_autocast_for_the_program_and_not_for_its_referee():
    row = make_row("normal(3, 4)")
    (x,), _ = rows.make_inputs(row)
    assert make_program(row, "inference").call(x).dtype == torch.float32
    assert make_program(row, "bfloat16").call(x).dtype == torch.bfloat16
    assert make_program(row, "bfloat16", double=True).call(x.double()).dtype == torch.float64


def test_a_row_runs_in_bfloat16():
    found = work("retention", "bfloat16")
    assert found["status"] == "ok" and found["columns"]["reprise"]["status"] == "pass", found
    assert found["columns"]["reprise"]["steady"]["runs"] and not found["columns"]["reprise"]["steady"]["exits"]


def test_recompiles_are_counted_over_batch_sizes():
    found = work("deep_recommender", "batches", "--columns", "eager-again,reprise,torch-eager,torch")
    assert set(found["columns"]) == {"reprise", "torch-eager"}
    ours, theirs = found["columns"]["reprise"], found["columns"]["torch-eager"]
    assert found["status"] == "ok" and found["sizes"] == 16, found
    assert ours["status"] == theirs["status"] == "pass"
    assert ours["recompiles"] == 1 and ours["recompiles_at"] == [1]  # it settled at size 0
    assert ours["recompiles_again"] == theirs["recompiles_again"] == 0
    assert theirs["recompiles"] >= 1


def test_a_row_that_eager_runs_at_its_own_size_only_says_so():
    row = make_row("(*normal(3, 4), torch.ones(3, 4))")
    row = dataclasses.replace(row, construct="nn.Bilinear(4, 4, 2)")
    found = sizes.measure(row, "batches", ["reprise"])
    assert found["status"] == "fixed" and "batch dimensions" in found["error"] and not found["columns"]


def test_older_tracers_pass_raise_or_are_wrong():
    found = work("deep_recommender", "tracers")
    assert found["status"] == "ok" and set(found["columns"]) == {"trace", "script", "fx"}
    assert found["columns"]["trace"]["status"] == "pass"
    assert {facts["status"] for facts in found["columns"].values()} <= {"pass", "raises", "wrong"}


def test_a_warm_start_takes_kernels_from_the_cache():
    found = work("retention", "warm")["columns"]["reprise"]
    assert found["status"] == "pass" and found["cold_s"] > 0 and found["cache_mb"] > 0
    assert found["kernels"]["cached_kernels"] > 0


def test_a_column_may_leave_parts_out():
    found = work("retention", "inference", "--columns", "reprise,reprise-without-fusion")["columns"]
    assert found["reprise"]["status"] == found["reprise-without-fusion"]["status"] == "pass"
    assert found["reprise-without-fusion"]["kernels"] > found["reprise"]["kernels"]


def test_every_ablation_can_be_compiled_and_an_unknown_column_is_refused():
    for words in columns.ABLATIONS:
        compiled = columns.wrapper(columns.WITHOUT + words)(lambda x: torch.sin(x) + 1)
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(3)), torch.sin(torch.ones(3)) + 1)
    with pytest.raises(ValueError, match="unknown column 'reprize'"):
        columns.find_column("reprize")


def test_a_column_whose_package_is_missing_is_said_to_be(monkeypatch):
    monkeypatch.setattr(columns, "is_installed", lambda name: False)
    assert columns.find_column("openvino").missing() == ["openvino"]
    assert not columns.find_column("torch").missing()


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_nothing_is_run_and_the_reason_said(tmp_path):
    command = [sys.executable, "-m", "bench", "run", "--device", "cuda", "--rows", "dlrm", "--file", tmp_path / "x"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("skipped: no CUDA device"), done.stderr
    assert not (tmp_path / "x").exists()


def timed(name, mode, **milliseconds):
    found = {column.replace("_", "-"): {"status": "pass", "ms": ms} for column, ms in milliseconds.items()}
    return {"row": name, "suite": "own", "mode": mode, "status": "ok", "columns": found}


def test_table_2_is_steady_state_over_eager():
    results = [timed("a", "inference", eager=1.0, reprise_eager=1.1, torch_eager=1.5),
               timed("b", "inference", eager=2.0, reprise_eager=2.2, torch_eager=2.0),
               timed("a", "training", eager=1.0, reprise_eager=1.0)]  # fmt: skip
    ours, theirs, *paper = tables.cost_rows(results)
    assert (ours["inference"], ours["training"], ours["models"]) == ("10.0 %", "0.0 %", 2)
    assert theirs["inference"] == "22.5 %" and "training" not in theirs
    assert paper[0]["inference"] == "5 %"


def test_table_4_counts_rows_where_every_column_works():
    less = {"reprise-without-fusion": {"status": "pass", "ms": 2.0}}
    whole = timed("a", "inference", eager=4.0, reprise=1.0)
    whole["columns"].update(less)
    results = [whole, timed("b", "inference", eager=4.0, reprise=4.0)]
    assert not tables.ablation_rows(results[1:])
    whole, fusion = tables.ablation_rows(results)[:2]
    assert (whole["who"], whole["inference"], whole["inference_models"]) == ("all", 4.0, 1)
    assert (fusion["who"], fusion["inference"], fusion["inference_less"]) == ("without fusion", 2.0, -2.0)


def test_a_row_that_records_while_it_is_timed_says_so():
    from bench.harness.worker import measure_times

    row = make_row("normal(3, 4)")
    programs = {column: make_program(row, "inference", column) for column in ("eager", "reprise")}
    times, recordings = measure_times(row, programs, 5, 1)
    assert recordings == {"eager": None, "reprise": 0} and len(times["eager"]) == len(times["reprise"]) >= 5
    results = [timed("a", "inference", eager=1.0, reprise=1.0), timed("b", "inference", eager=1.0, reprise=1.0)]
    results[0]["columns"]["reprise"]["timed_recordings"] = 3
    results[1]["columns"]["reprise"]["timed_recordings"] = 0
    assert [line["notes"] for line in tables.row_lines(results)] == ["recorded 3 x while timed", None]


def test_tracers_and_sizes_stay_out_of_the_tables_of_programs():
    tracers = {**timed("a", "tracers"), "columns": {"trace": {"status": "pass"}, "script": {"status": "raises"}}}
    facts = {"status": "pass", "recompiles": 3, "recompiles_again": 1, "recompiles_s": 0.5, "recompiles_again_s": 0.5}
    varied = {**timed("a", "lengths"), "columns": {"reprise": facts}, "sizes": 64}
    crashed = {**timed("b", "lengths"), "status": "crash"}
    fixed = {**timed("c", "lengths"), "status": "fixed"}
    results = [tracers, varied, crashed, fixed]
    assert not tables.row_lines(results) and not tables.speed_rows(results)
    assert summary.headline({}, results)["rows"] == 0
    assert summary.tracer_facts(results, "trace") == (1, 1) and summary.tracer_facts(results, "fx") == (0, 1)
    found = summary.size_facts(results, "lengths", "reprise")
    assert (found["models"], found["works"], found["recompiles"], found["again"]) == (2, 1, 3, 1)
    assert summary.size_facts(results, "batches", "reprise") is None
    line = tables.capture_rows(results)[-4]
    assert (line["suite"], line["trace"], line["script"]) == ("all", "1/1", "0/1")


def make_timed(name, eager, again, reprise):
    times = {"eager": eager, "eager-again": again, "reprise": reprise}
    found = {column: {"status": "pass", "ms": ms} for column, ms in times.items()}
    return {"row": name, "suite": "own", "mode": "inference", "status": "ok", "columns": found}


def test_two_runs_agree_row_by_row(tmp_path):
    first = [
        make_timed("a", 10, 10, 5),
        make_timed("b", 10, 10, 5),
        make_timed("c", 10, 12, 5),
        make_timed("alone", 1, 1, 1),
    ]
    second = [make_timed("a", 20, 20, 9.8), make_timed("b", 10, 10, 4.5), make_timed("c", 10, 10, 9)]
    found = {row["model"]: row for row in summary.agreement(first, second)}
    assert {name: row["verdict"] for name, row in found.items()} == {"a": "agree", "b": "apart", "c": "flagged"}
    assert found["b"]["first"] == 2 and found["b"]["ratio"] == pytest.approx(10 / 9)

    files = []
    for name, rows_of_it in (("one", first), ("two", second)):
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("\n".join(json.dumps(row) for row in [{"run": True}, *rows_of_it]))
    command = [sys.executable, "-m", "bench", "agree", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "1 agree, 1 flagged, 1 apart" in done.stdout, done.stderr
    same = subprocess.run([*command[:-1], str(files[0])], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert same.returncode == 0 and "3 agree, 1 flagged, 0 apart" in same.stdout, same.stdout


def test_timed_workers_stay_on_cores_of_their_own():
    allowed = os.sched_getaffinity(0)
    assert driver.cores_for(len(allowed)) == []  # no choice
    cores = driver.cores_for(1)
    assert set(cores) < allowed and len(cores) == (1 if cores else 0)


def test_times_of_two_processes_are_joined_and_flag_a_row_that_differs():
    def result_of(eager, reprise, status="pass"):
        found = make_timed("a", eager, eager, reprise)
        for column in found["columns"].values():
            column.update(min_ms=column["ms"] - 1, times_ms=[column["ms"]], speedups=[eager / column["ms"]])
        found["columns"]["reprise"].update(status=status, error="x" if status != "pass" else None)
        return found

    joined = driver.with_times(result_of(10, 5), result_of(40, 19.8))
    assert joined["columns"]["eager"]["ms"] == pytest.approx(20) and joined["columns"]["eager"]["times_ms"] == [10, 40]
    assert joined["columns"]["reprise"]["min_ms"] == 4 and not summary.is_noisy(joined)
    assert summary.speedup(joined) == pytest.approx((2 * 40 / 19.8) ** 0.5)
    assert summary.is_noisy(driver.with_times(result_of(10, 5), result_of(10, 4)))
    assert driver.with_times(result_of(10, 5), result_of(10, 5, "wrong"))["columns"]["reprise"]["status"] == "wrong"


def test_quick_programs_fill_half_of_the_budget_and_slow_ones_end_with_it():
    from bench.harness.worker import rounds_for

    assert [rounds_for(s, 20, 5) for s in (0.0001, 0.01, 0.2, 0.5, 9)] == [400, 250, 20, 10, 5]


def test_a_machine_that_slows_down_on_the_way_does_not_move_a_ratio():
    from bench.timing import paired_ratio

    others = [1.0, 1.0, 1.0, 3.0, 3.1]
    assert paired_ratio([2 * t for t in others], others) == 2


def test_second_processes_run_behind_first_ones_and_a_stopped_run_goes_on(tmp_path, monkeypatch):
    seen = []

    def run_job(job, arguments, threads, timeout_s, is_alone=False):
        seen.append(job.row.name)
        if len(seen) == 4:
            raise KeyboardInterrupt
        found = timed(job.row.name, job.mode, eager=2.0, reprise=1.0)
        for facts in found["columns"].values():
            facts.update(min_ms=1.0, times_ms=[1.0], speedups=[1.0])
        return found if job.row.name != "bad" else {**found, "status": "eager-fails", "columns": {}, "error": "x"}

    monkeypatch.setattr(driver, "run_job", run_job)
    jobs = [
        driver.Job(dataclasses.replace(make_row("normal(3, 4)"), name=name), "inference") for name in ("a", "bad", "b")
    ]
    path = tmp_path / "results.jsonl"
    with pytest.raises(KeyboardInterrupt):
        driver.run_jobs(jobs, path, [], processes=2)
    found = {row["row"]: row for row in driver.run_jobs(jobs, path, [], processes=2)}
    assert seen == ["a", "bad", "b", "a", "a", "b"]
    assert [len(found[name]["columns"]["reprise"]["speedups"]) for name in ("a", "b")] == [2, 2]
    assert found["a"]["processes"] == 2 and "processes" not in found["bad"]
