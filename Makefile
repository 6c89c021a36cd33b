# `make demo` and `make test` are all a fresh machine needs: each makes .venv and installs what it uses.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SMALL := .venv/.installed
FULL := .venv/.installed-with-tools

# make install LOCKED=1: the versions that were tested together (requirements-dev.lock, remade by make lock)
VERSIONS := $(if $(LOCKED),-c requirements-dev.lock)

.PHONY: install demo docs test test-fast lint format bench fuzz mutate soak results release check-release lock clean
install: $(FULL)

$(SMALL): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $(SMALL)

$(FULL): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) $(VERSIONS) -e ".[dev,parquet,flower,docs,mlflow,onnx,sklearn,tensorboard,flax,equinox,keras]"
	touch $(SMALL) $(FULL)

demo: $(SMALL)
	$(BIN)/fedsofim demo --out demo

# site/, to be opened as files: warnings are errors, every link is looked up
docs: $(FULL)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	$(BIN)/python scripts/site/check.py site

# Three workers on two cores: one of them mostly waits for a federation. A file's tests go to one worker, since they
# share what is compiled; files go in our order, the longest first.
# Python's bytecode is kept, whatever the shell says: tests start a hundred processes.
test test-fast: export PYTHONDONTWRITEBYTECODE :=
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder
test: $(FULL)
	$(BIN)/python -m pytest $(WORKERS)

# for daily work: without the tests marked slow
test-fast: $(FULL)
	$(BIN)/python -m pytest $(WORKERS) -m "not slow"

lint: $(FULL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(FULL)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(FULL)
	$(BIN)/python benchmarks/run.py

# 100,000 garbled messages, a minute; 20,000 client programs, judged by running them, a quarter of an hour, goes on where
# it was; 5,000 combinations of the commands' options, an hour (docs/fuzzing.md)
fuzz: $(FULL)
	$(BIN)/python scripts/fuzz_wire.py --messages 100000 --seed 0
	$(BIN)/python scripts/fuzz.py --programs 20000 --seed 0 --jobs 2 --out runs/fuzz --page
	$(BIN)/python scripts/fuzz_commands.py --draws 5000 --seed 0

# bugs planted in core/ and deploy/, and whether the tests notice (docs/mutation.md); an hour or two, goes on where it was
mutate: $(FULL)
	$(BIN)/python scripts/mutate.py --jobs 2 --out runs/mutate --page docs/mutation.md

# a federation of real processes under kills, full disks and lost messages (docs/soak.md); half an hour
soak: $(FULL)
	$(BIN)/python scripts/soak.py --minutes 20 --page docs/soak.md

# every table, figure and number of the docs that came from a run, from experiment files; goes on where it was. Data that is not
# part of the project: make results DATA="--features FOLDER --tables FOLDER --published FOLDER"
results: $(FULL)
	$(BIN)/python scripts/make_results.py $(DATA)

# wheel with compiled passes, sdist, checksums, bill of materials and the changelog's section, in dist/
release: $(FULL)
	$(BIN)/python scripts/release.py

# what is in dist/, installed without compiler and used without network; the whole demo too
check-release: $(FULL)
	$(BIN)/python scripts/check_wheel.py --dist dist --demo

lock: $(FULL)
	$(BIN)/python scripts/lock.py

clean:
	rm -rf .venv demo dist runs site .pytest_cache .ruff_cache .import_linter_cache
