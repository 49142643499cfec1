"""cache=<directory>: code outlives the process; what is damaged is made again."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
import reprise
import torch

PROGRAM = pathlib.Path(__file__).with_name("cache_program.py")
PATIENCE_S = 120


def start(folder, generator, **environment):
    command = [sys.executable, str(PROGRAM), str(folder), generator]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return json.loads(out), err


def run(folder, generator, **environment):
    return finish(start(folder, generator, **environment))


def list_files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture(params=["llvm", "cpp"])
def generator(request):
    if request.param == "cpp" and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("no C++ compiler")
    return request.param


def test_a_second_process_compiles_nothing(tmp_path, generator):
    folder = tmp_path / "made" / "by" / "reprise"
    first, _ = run(folder, generator)
    assert first["compiled_kernels"] == first["cache_misses"] > 0 and first["cached_kernels"] == 0
    files = list_files(folder)
    second, _ = run(folder, generator)
    assert second["compiled_kernels"] == second["cache_misses"] == second["damaged_cache_files"] == 0
    assert second["cached_kernels"] == first["cache_misses"]
    assert list_files(folder) == files and all(path.suffix == ".code" for path in files)


def test_damaged_files_are_made_again(tmp_path, generator):
    first, _ = run(tmp_path, generator)
    files = list_files(tmp_path)
    for i, path in enumerate(files):
        data = bytearray(path.read_bytes())
        if i % 3 == 0:
            data[len(data) // 2] ^= 1
        elif i % 3 == 1:
            del data[len(data) // 2 :]
        else:
            data = b"something else"
        path.write_bytes(data)
    second, err = run(tmp_path, generator)
    assert second["damaged_cache_files"] == len(files) and not err
    assert second["compiled_kernels"] == first["compiled_kernels"]
    third, _ = run(tmp_path, generator)
    assert third["compiled_kernels"] == third["damaged_cache_files"] == 0


def test_a_directory_that_cannot_be_written_is_told_once(tmp_path, generator):
    (tmp_path / "file").write_text("")
    counts, err = run(tmp_path / "file" / "below", generator)
    assert counts["compiled_kernels"] > 0 and counts["cached_kernels"] == counts["cache_misses"] == 0
    assert err.count("cannot write to") == 1 == len(err.splitlines())


def test_two_processes_at_once(tmp_path, generator):
    processes = [start(tmp_path, generator) for _ in range(2)]
    counts = [finish(process)[0] for process in processes]
    assert all(count["damaged_cache_files"] == 0 for count in counts)
    last, _ = run(tmp_path, generator)
    assert last["compiled_kernels"] == 0


def test_generators_do_not_share_files(tmp_path, generator):
    run(tmp_path, "llvm")
    if generator == "cpp":
        counts, _ = run(tmp_path, "cpp")
        assert counts["cached_kernels"] == 0


def test_code_from_the_cache_is_full_code(tmp_path):
    """The second context of a process finds what is loaded; the cache is asked for nothing then."""

    def f(x):
        return torch.softmax(x * 1.0625, -1) + 0.375

    x = torch.randn(16, 33)
    options = {"cache": str(tmp_path)}
    compiled = reprise.compile(f, options=options)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), f(x))
    end = time.monotonic() + PATIENCE_S
    while not list(tmp_path.rglob("*.code")) and time.monotonic() < end:
        time.sleep(0.01)
    again = reprise.compile(lambda x: f(x), options=options)
    for _ in range(3):
        torch.testing.assert_close(again(x), f(x))
    counts = reprise.explain(again)(x).counters
    assert counts["compiled_kernels"] == counts["cache_misses"] == 0
