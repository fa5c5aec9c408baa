# Two commands do all the set-up: `make demo` ends in the live screen, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Page tracking needs root. memtui asks sudo for it by itself, and goes on without where sudo says no; `make demo SUDO=`
# does not ask. What is measured by benchmarks is root as a whole.
SUDO ?= $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
PIP_OPTIONS ?=
PIP := $(BIN)/pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) -c constraints.txt
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)

ASKS = $(filter file,$(origin SUDO))
DEMO = $(if $(ASKS),$(BIN)/memtui demo,$(if $(SUDO),$(SUDO) $(BIN)/memtui demo,$(BIN)/memtui demo --no-sudo))

.PHONY: demo compiled test test-long lab-test lab-kernel bench bench-trackers bench-cost bench-known-truth bench-mappings bench-strangers bench-peers gpu-check soak stress mutants
.PHONY: lint types skeleton screenshot clean

demo: $(VENV)/installed $(VENV)/torch-asked
	$(DEMO)

# The demo trains with PyTorch where the package index offers its CPU build, which is small; the default build pulls
# gigabytes of CUDA, so without one the demo trains a numpy network of the same shape.
$(VENV)/torch-asked: | $(VENV)/installed
	$(PIP) --only-binary torch "torch==$(TORCH)+cpu" 2>/dev/null \
	  || echo "no CPU build of PyTorch here: the demo trains its numpy network (any torch you install is used)"
	touch $@

# Hundreds of processes start memtui: what they import is compiled first. So are the modules of tests, as pytest rewrites
# their asserts: all workers import all of them at the same time, and each would do it. What fails here is said below.
WORKERS ?= 5
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope
compiled: $(VENV)/dev
	$(BIN)/python -m compileall -q -j 0 memtui tests
	find tests -name "test_*.py" | sort \
	  | PYTHONDONTWRITEBYTECODE= PYTEST_ADDOPTS= xargs -n 220 -P 0 $(BIN)/python -m pytest --collect-only >/dev/null || true

test: compiled
	$(PYTEST) -m "not slow"

# All tests: also those that are long and of which others see the same in a shorter form. Takes more than an hour on 2 CPUs.
test-long: compiled
	MEMTUI_LONG=1 $(PYTEST)

# Boots other kernels in a virtual machine: the stock one of this Debian, or those in MEMTUI_LAB_KERNEL (tests/lab/machine.py
# says what it may name). Needs qemu-system-x86, busybox-static and kmod. Takes some ten minutes a kernel.
MEMTUI_LAB_KERNEL ?= debian
MEMTUI_LAB_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/memtui/kernels
lab-test: $(VENV)/dev
	$(PIP) virtme-ng
	MEMTUI_LAB_KERNEL=$(MEMTUI_LAB_KERNEL) MEMTUI_LAB_CACHE=$(MEMTUI_LAB_CACHE) $(BIN)/python -m pytest -s tests/lab

# One kernel with idle page tracking, DAMON and soft-dirty pages, from this distribution's source: MEMTUI_LAB_KERNEL=lab.
# Takes some 20 minutes on 2 CPUs and 2 GiB of disk.
lab-kernel:
	tests/lab/build_kernel.sh $(MEMTUI_LAB_CACHE)

bench: $(VENV)/dev
	$(SUDO) $(BIN)/python -m benchmarks

# These rewrite their tables in docs/. bench-known-truth needs masim and wss.pl, bench-peers wss-v2, each of which is looked
# for on PATH and in the folders that MEMTUI_PEERS names (build/peers); bench-peers boots the kernel in PEERS_KERNEL, an
# image with CONFIG_IDLE_PAGE_TRACKING, unless this machine has that itself.
bench-trackers: $(VENV)/dev
	$(SUDO) $(BIN)/python -m benchmarks trackers --into docs/internals/measurements.md

bench-known-truth: $(VENV)/dev
	$(SUDO) $(BIN)/python -m benchmarks known_truth --into docs/internals/measurements.md
	$(SUDO) $(BIN)/python -m benchmarks reuse_truth --into docs/internals/measurements.md

# Raises vm.max_map_count to a million while it runs.
bench-mappings: $(VENV)/dev
	$(SUDO) $(BIN)/python -m benchmarks many_mappings --into docs/internals/measurements.md

bench-strangers: $(VENV)/dev
	$(SUDO) $(BIN)/python -m benchmarks strangers --into docs/internals/measurements.md

bench-cost: $(VENV)/dev
	$(SUDO) $(BIN)/python -m benchmarks.cost --into docs/internals/cost.md

PEERS_KERNEL ?=
bench-peers: $(VENV)/dev
	$(SUDO) $(BIN)/python -m benchmarks.peers $(if $(PEERS_KERNEL),--kernel $(PEERS_KERNEL)) --into docs/internals/measurements.md

# Holds every GPU path against a second source: nvidia-smi, PyTorch's allocator and benchmark, Zeus where it is installed.
# Installs nothing: GPU_PYTHON is a Python with torch for CUDA and what memtui needs. GPU_CHECK="--only nvml,trace --budget
# 240s"; GPU_CHECK=--list names the stages. docs/internals/gpu-measurements.md has what machines showed so far.
GPU_PYTHON ?= $(or $(wildcard $(BIN)/python),$(PYTHON))
GPU_CHECK ?=
gpu-check:
	$(GPU_PYTHON) -m benchmarks.gpu_check --into docs/internals/gpu-measurements.md $(GPU_CHECK)

# Kills every part of memtui at random moments while its target is watched, for half an hour unless told otherwise; then
# watches a target that starts 20 children a second for an hour: no part may grow with them.
SOAK_SECONDS ?= 1800
GROWTH_SECONDS ?= 3600
soak: $(VENV)/dev
	$(SUDO) $(BIN)/python -m benchmarks.soak $(SOAK_SECONDS)
	$(SUDO) $(BIN)/python -m benchmarks.growth $(GROWTH_SECONDS)

# Changes the core in small ways, one at a time, and says which of them no test notices. Takes minutes for a module, and
# hours for those of page tables: MUTANTS="analysis/energy codec", MUTANTS="--sample 40 rearm", MUTANTS=--show.
MUTANTS ?=
mutants: $(VENV)/dev
	$(PIP) "mutmut==3.8.1"
	$(BIN)/python -m tests.mutants $(MUTANTS)

# Reads a process whose page tables come and go, and compares every window with what is known to be touched: ten minutes
# unless told otherwise. Needs root and a C compiler; khugepaged scans as fast as it can meanwhile.
STRESS_SECONDS ?= 600
stress: $(VENV)/dev
	$(SUDO) $(BIN)/python -m benchmarks.stress $(STRESS_SECONDS)

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/dev
	$(BIN)/mypy

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[dev,torch]"
	touch $@ $(VENV)/installed $(VENV)/torch-asked

# Needs clang, bpftool and the libbpf headers, and a kernel with BTF (Debian: clang bpftool libbpf-dev).
skeleton:
	$(MAKE) -f memtui/probes/pages/pagetable/bpf.mk skeleton

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
