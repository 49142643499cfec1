# Every command is run from the root of the repository. `make help` lists them.
#
# VENV    the environment; made when missing (.venv)
# PRESET  the build: release (default) or dev
# JOBS    parallel jobs of the cases
# BACKEND of test-ops and fuzz
# KIND    tensor, python or use, SEEDS first:behind: of fuzz

VENV ?= .venv
PRESET ?= release
JOBS ?= 2
BACKEND ?= native
KIND ?= tensor
SEEDS ?= 0:2000

PY := $(VENV)/bin/python
BUILD := build/$(PRESET)
export PATH := $(abspath $(VENV))/bin:$(PATH)
export PYTHONPATH := $(abspath $(BUILD))

.DEFAULT_GOAL := help
.PHONY: help env build test test-core test-python test-host test-asan test-ops fuzz check fmt demo bench bench-small bench-gate \
  bench-capture cases clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

env:  ## make the environment (VENV) if it is missing or not up to date
	@tools/setup_env.sh $(VENV)

build: env  ## build both halves for the environment's Python and torch
	@tools/build.sh $(PRESET) $(VENV)

test: test-core test-python test-host  ## everything that a change needs

test-core: env  ## tests of the C++ core, without Python and torch
	@tools/build.sh $(PRESET) $(VENV) reprise_core_tests
	$(BUILD)/tests/reprise_core_tests

test-python: build  ## tests with PyTorch
	@tools/test_python.sh $(PY)

test-host: env  ## host half without torch, on every CPython 3.11 to 3.13 found
	@tools/build.sh $(PRESET) $(VENV) reprise_core_without_llvm
	@CORE=$(BUILD)/without_llvm/libreprise_core.so tools/test_host.sh $(VENV)

test-asan: env  ## tests of the core under address and undefined-behaviour sanitizers
	cmake --preset asan
	cmake --build --preset asan
	build/asan/tests/reprise_core_tests

test-ops: build  ## every operator of PyTorch's table against eager (BACKEND; half an hour)
	$(PY) -m tests.ops.run --backend $(BACKEND)

fuzz: build  ## random programs against eager (KIND, SEEDS, BACKEND)
	$(PY) tests/fuzz/drive.py $(KIND) --seeds $(SEEDS) --backend $(BACKEND)

check: env  ## formatter, linter, layers, sizes, tables
	@status=0; \
	tools/format.sh --check || status=1; \
	ruff check --quiet . && echo "lint: 0 problems" || { echo "lint: problems"; status=1; }; \
	for tool in layers sizes tables; do $(PY) tools/check_$$tool.py || status=1; done; \
	exit $$status

fmt: env  ## format the C++ sources and sort the Python imports
	@tools/format.sh
	ruff check --fix-only --quiet .

demo: build  ## one program, eager and compiled, with the report
	$(PY) -m bench.demo

bench: build  ## overhead of calls against eager and torch.compile
	$(PY) -m bench.overhead

bench-small: build  ## the zoo's small tier, inference and training, against eager (15 minutes)
	@rm -f build/bench/run-small.jsonl
	$(PY) -m bench run --tier small

bench-gate: build  ## counts of the small tier against bench/expectations.json (BLESS=1 writes them)
	$(PY) -m bench gate

bench-capture: build  ## what is captured of every model of the zoo, torch.compile beside it (an hour)
	$(PY) -m bench capture --peers --parallel $(JOBS)

cases: build  ## programs that are hard to compile, each in its own process
	@failed=0; for dir in torture pain; do \
	  $(PY) tests/cases/run_all.py tests/cases/$$dir reprise -j $(JOBS) || failed=1; \
	done; exit $$failed

clean:  ## remove the build trees (not the environment)
	rm -rf build
