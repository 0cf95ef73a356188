# Every target sets itself up: only Python >= 3.11 and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0

.PHONY: demo test test-full lint bench bench-accuracy bench-advise bench-encoding bench-measure bench-predict bench-traffic bench-wire clean

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

demo: $(VENV)/.installed  ## train a CNN on digits with 4 workers under four strategies and compare them
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed  ## the suite, under 8 minutes on 2 cores
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "not full and not timed"
	$(BIN)/python -m pytest -m "timed and not full"

test-full: $(VENV)/.installed  ## every cell of every matrix (long)
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "not timed"
	$(BIN)/python -m pytest -m timed

lint: $(VENV)/.installed  ## style, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-predict: $(VENV)/.installed  ## simulated against real runs, about 15 minutes; ARGS="--seed 7", see ARGS=--help
	$(BIN)/python benchmarks/predict.py $(ARGS)

bench-measure: $(VENV)/.installed  ## paceline measure in four network namespaces (root, iproute2), about 3 minutes
	$(BIN)/python benchmarks/measure.py $(ARGS)

bench: $(VENV)/.installed  ## speed and size against peers, about 10 minutes; ARGS="--only B --quick", see ARGS=--help
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-wire: $(VENV)/.installed  ## the same between hosts at 1 Gb/s (root, iproute2), about 10 minutes
	$(BIN)/python benchmarks/wire.py $(ARGS)

bench-encoding: $(VENV)/.installed  ## what encoding gradients costs, every codec; a minute
	$(BIN)/python benchmarks/encoding.py $(ARGS)

bench-accuracy: $(VENV)/.installed  ## what ssp and async lose under recipe="stable"; hours in all, goes on where it was, see ARGS=--help
	$(BIN)/python benchmarks/accuracy_recipe.py $(ARGS)

bench-traffic: $(VENV)/.installed  ## what compression and fewer exchanges do to accuracy; hours in all, goes on where it was, see ARGS=--help
	$(BIN)/python benchmarks/less_traffic.py $(ARGS)

bench-advise: $(VENV)/.installed  ## is the advice right on eight clusters from a seed? An hour; goes on where it was, see ARGS=--help
	$(BIN)/python benchmarks/advise.py $(ARGS)

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
