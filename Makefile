# Everything a checkout needs, from nothing but Rust, a supported CPython, pip and a C compiler.
# Each target installs what it uses into .venv, or .venv-3.12 with PYTHON=python3.12, or .venv-torch-2.15.0 with
# TORCH=2.15.0; torch (some 5 GB) is downloaded once for each.

PYTHON ?= python3.11
# What the interpreter says of itself: its name may be any.
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# Where they are listed: `SUPPORTED = [(3, 11), ...]`.
SUPPORTED := $(shell sed -n 's/^SUPPORTED = //p' python/stator/_interpreter.py | grep -oE '[0-9]+, [0-9]+' | sed 's/, /./')
ifeq ($(filter $(SUPPORTED),$(VERSION)),)
$(error Stator supports these versions of CPython: $(SUPPORTED); PYTHON=$(PYTHON) is $(or $(VERSION),not found))
endif
# Another PyTorch than the one Stator is developed with.
TORCH ?=
PLAIN := .venv$(if $(filter $(firstword $(SUPPORTED)),$(VERSION)),,-$(VERSION))
VENV := $(PLAIN)$(if $(TORCH),-torch-$(TORCH))
BIN := $(VENV)/bin
# PyO3 and the C shim are built against this interpreter, and tests written in Rust start it.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# maturin itself looks for .venv alone.
MATURIN := VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet
# Tests of another PyTorch than the one that was asked for would say nothing of it.
ifneq ($(TORCH),)
FOUND_TORCH = import importlib.metadata as m, sys; v = m.version("torch").partition("+")[0]; \
	v == "$(TORCH)" or sys.exit("$(VENV) has torch " + v + " instead of $(TORCH): remove $(VENV)/installed")
RIGHT_TORCH = $(BIN)/python -c '$(FOUND_TORCH)'
endif
# Crates built against one interpreter would be built again for the other.
ifneq ($(VERSION),$(firstword $(SUPPORTED)))
export CARGO_TARGET_DIR := $(CURDIR)/target/$(VERSION)
endif
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# Which of Stator's code programs run often: `tools/profile_build.py`.
PROFILE := $(TARGET)/profile/stator.profdata
SOURCES := Cargo.toml Cargo.lock pyproject.toml $(shell find crates -type f \
	\( -name '*.rs' -o -name '*.toml' -o -name '*.c' -o -name '*.h' \))
STYLED := python tests tools examples bench

.PHONY: demo demo-federated bench test test-rust test-cpython test-python fuzz check bless clean

demo: $(VENV)/built
	$(BIN)/python -m examples.demo

# The extension module as `make test` uses it.
.PHONY: build
build: $(VENV)/built

demo-federated: $(VENV)/built
	$(BIN)/python -m examples.federated_statistics
	$(BIN)/python -m examples.federated_linear_regression
	$(BIN)/python -m examples.federated_averaging
	$(BIN)/python -m examples.federated_learning
	$(BIN)/python -m examples.federated_analytics

# Measures what users install: built as wheels are.
bench: profiled
	$(BIN)/python -m bench
	$(BIN)/python -m bench.federated
	$(BIN)/python -m bench.cliff
	$(BIN)/python -m bench.steps

# Draws models at random: each time others, unless `--seed` says which.
.PHONY: bench-survey
bench-survey: $(VENV)/built
	$(BIN)/python -m bench.survey

# What calls wait for while Inductor compiles, beside `torch.compile`: some minutes of an idle machine.
.PHONY: bench-backends
bench-backends: profiled
	$(BIN)/python -m bench.backends

# Other simulators have an environment of their own, because they ask for other versions of what this checkout has.
# It is a layer on top of $(VENV): what isn't in it is found there, torch (5 GB) and Stator among them, and pip
# takes no other copy of what fits. So all systems are measured with one torch, one NumPy and one Ray.
PEERS := $(VENV)-peers
PURELIB = import sysconfig; print(sysconfig.get_path("purelib"))
$(PEERS)/installed: pyproject.toml $(VENV)/installed
	$(PYTHON) -m venv --clear --without-pip $(PEERS)
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PURELIB)')')" > "$$($(PEERS)/bin/python -c '$(PURELIB)')/below.pth"
	$(PEERS)/bin/python -m pip install --quiet --group peers
	touch $@

# Some minutes of an idle machine.
.PHONY: bench-federated-peers
bench-federated-peers: profiled $(PEERS)/installed
	$(PEERS)/bin/python -m bench.federated_peers

# pytest comes last: its closing lines are the ones a reader of the output looks for.
test: test-rust test-cpython-fast test-python

# What `make test` does a part of.
.PHONY: test-sweep
test-sweep: $(VENV)/built
	STATOR_SWEEP=all $(BIN)/python -m pytest -q tests/soundness/tensors/test_number_slots.py tests/soundness/tensors/test_determined.py tests/soundness/tensors/test_schema_samples.py
	STATOR_SWEEP=all $(BIN)/python -m pytest -q $(PARALLEL) tests/breaks/test_everywhere.py

# Crates above crates/cpython start the interpreter that PYO3_PYTHON names, without torch.
# A shared libpython needn't stand where the loader looks.
LIBPYTHON = $(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
test-rust: $(VENV)/installed
	LD_LIBRARY_PATH="$(LIBPYTHON)$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}" cargo test --workspace

test-cpython: $(VENV)/built
	$(BIN)/python tools/test_cpython.py

# On a machine with a GPU: docs/gpu.md. Elsewhere a part of it is skipped, and the rest is a dry run.
.PHONY: test-cuda bench-cuda
test-cuda: $(VENV)/built
	$(BIN)/python -m pytest -q tests/cuda tests/soundness/reads/test_accelerator.py

bench-cuda: $(VENV)/built
	$(BIN)/python -m bench.gpu

.PHONY: test-cpython-fast
test-cpython-fast: $(VENV)/built
	$(BIN)/python tools/test_cpython.py --fast

# A file's tests share a process, and what forks comes first in it.
PARALLEL := --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

test-python: $(VENV)/built
	$(BIN)/python -m pytest -q $(PARALLEL)

# What continuous integration runs of the versions that it doesn't run in full, built without the optimizer's
# last passes: the evaluator, programs of each kind recorded and replayed, guards, watchers, federated programs.
# Environments of one CPython share what is built.
SMOKE := tests/test_evaluator.py tests/differential tests/guards tests/breaks/test_breaks.py \
	tests/soundness/reads tests/soundness/steps tests/dynamic/test_programs.py tests/test_watched.py tests/federated/test_tracing_differential.py
# The longest of these, with compilers and with random loops: other versions run what both are made of.
NOT_SMOKE := tests/soundness/steps/test_parts_for_backends.py tests/soundness/steps/test_random_decisions.py
.PHONY: smoke
smoke: $(VENV)/installed $(SOURCES)
	$(MATURIN)
	$(RIGHT_TORCH)
	rm -f $(PLAIN)/built $(PLAIN)-torch-*/built
	$(BIN)/python -m pytest -q $(PARALLEL) $(SMOKE) $(NOT_SMOKE:%=--ignore=%)

# Ten minutes of programs that nobody wrote, from anywhere: a failure prints its seed and its smallest form.
fuzz: $(VENV)/built
	STATOR_FUZZ_SEED=random STATOR_FUZZ_SECONDS=120 $(BIN)/python -m pytest -q -s tests/fuzz -k random
	STATOR_WITNESS_WRITES=1000000 $(BIN)/python -m pytest -q tests/guards/test_witnesses.py

check: $(VENV)/built
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check $(STYLED)
	$(BIN)/ruff check $(STYLED)
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_docs.py tests/test_metadata.py

# A wheel for each supported CPython that is at hand, and the source distribution, in dist/; each is tried in a
# virtual environment of its own. PyTorch is taken from .venv and .venv-3.x, where they are. Code is laid out by the
# profile of one version: most of it is the same for all.
.PHONY: wheels
wheels: $(PROFILE)
	$(BIN)/python -m tools.build_wheels --profile $(PROFILE)
	$(BIN)/python -m tools.try_wheels

# Compiles for aarch64 Linux and macOS, from any machine; it can't run there. Needs rustup, for their standard library.
.PHONY: fetch-targets check-targets
fetch-targets: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --group targets
	$(BIN)/python -m tools.check_targets --fetch

check-targets: fetch-targets
	$(BIN)/python -m tools.check_targets

# Rewrites every expected output that a test compares with. Read the diff before committing it.
bless: $(VENV)/built
	INSTA_UPDATE=always cargo test --workspace
	STATOR_BLESS=1 $(BIN)/python -m pytest -q

# The virtual environments stay, because torch is in them; remove them by hand.
clean:
	cargo clean
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis $(VENV)/built
	find python tests tools examples bench -name __pycache__ -prune -exec rm -rf {} +
	rm -rf python/stator/_stator*.so dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group checkout
ifneq ($(TORCH),)
	$(BIN)/python -m pip install --quiet torch==$(TORCH) torchvision
endif
	touch $@

# What is counted serves the compiler; it takes another build, and a minute of programs.
$(PROFILE): $(VENV)/installed $(SOURCES) tools/profile_build.py tools/profiled_programs.py
	$(BIN)/python -m tools.profile_build --out $@

.PHONY: profiled
profiled: $(PROFILE)
	CARGO_ENCODED_RUSTFLAGS="-Cprofile-use=$(PROFILE)" CARGO_TARGET_DIR=$(TARGET)/profiled $(MATURIN) --release
	touch $(VENV)/built

$(VENV)/built: $(VENV)/installed $(SOURCES)
	$(MATURIN) --release
	$(RIGHT_TORCH)
	touch $@
