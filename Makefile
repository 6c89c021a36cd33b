# `make demo` and `make test` are all a fresh machine needs: each makes .venv and installs what it uses.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: install demo test lint bench clean
install: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,parquet,flower]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/fedsofim demo --out demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf .venv demo runs .pytest_cache .ruff_cache
