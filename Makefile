# `make demo` and `make test` are all a fresh machine needs: each makes .venv and installs what it uses.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SMALL := .venv/.installed
FULL := .venv/.installed-with-tools

.PHONY: install demo test lint bench clean
install: $(FULL)

$(SMALL): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $(SMALL)

$(FULL): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e ".[dev,parquet,flower]"
	touch $(SMALL) $(FULL)

demo: $(SMALL)
	$(BIN)/fedsofim demo --out demo

test: $(FULL)
	$(BIN)/python -m pytest -n 2

lint: $(FULL)
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(FULL)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf .venv demo runs .pytest_cache .ruff_cache
