# Every target sets up what it needs in .venv and is quick the second time.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadgroup
KERNELS := $(wildcard src/camu/learning/native/*.h src/camu/learning/native/*.cc) src/camu/learning/native/build.py
# Wheels only: no code of a package runs before its hash has been checked.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -c constraints.txt
CHECK_HASHES := $(PYTHON) -I scripts/check-hashes

.PHONY: demo quick test check audit docs bench torture soak validate-links dist clean

demo: .venv/.base
	$(BIN)/camu demo

quick: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(PYTEST) -x -m "not slow"

test: check .venv/.browser
	$(PYTEST)

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/bandit --quiet --recursive -c pyproject.toml src scripts hatch_build.py

# Known weaknesses of the pinned versions, from PyPI; it needs the network, so it is not part of `check`.
audit: .venv/.audit
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r constraints.hashes.txt

docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "docs: open site/index.html"

bench: .venv/.base
	$(BIN)/camu bench

torture: .venv/.dev
	cd tests && ../$(BIN)/python -m torture --hostile --at-once 3

# Twenty nodes; each is two processes of 140 and 430 MB.
soak: .venv/.dev
	cd tests && ../$(BIN)/python -m torture --inputs 0 --flips 0 --kills 0 --limits 0 --deployments 0 --soak

# Link formulas against ns-3 (libns3-dev) and Sionna (the extra `sionna`); about five minutes.
validate-links: .venv/.base
	scripts/validate_links/run $(BIN)/python

dist:
	scripts/try-wheels $(PYTHON)

clean:
	rm -rf .venv site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/.base: pyproject.toml constraints.txt constraints.hashes.txt hatch_build.py $(KERNELS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "camu needs Python 3.11 or newer; name one with: make PYTHON=python3.11"; exit 1; }
	@echo "setting up .venv (a few minutes the first time)"
	$(PYTHON) -m venv .venv
	$(PIP) --report .venv/build.json hatchling editables
	$(CHECK_HASHES) .venv/build.json
	$(PIP) --report .venv/base.json --no-build-isolation -e .
	$(CHECK_HASHES) .venv/base.json
	@touch $@

.venv/.dev: .venv/.base
	$(PIP) --report .venv/dev.json --no-build-isolation -e '.[dev,tracking,onnx,flower,live,ray,hf,privacy,tune]'
	$(CHECK_HASHES) .venv/dev.json
	@touch $@

.venv/.audit: .venv/.dev
	$(PIP) --report .venv/audit.json --no-build-isolation -e '.[audit]'
	$(CHECK_HASHES) .venv/audit.json
	@touch $@

.venv/.browser: .venv/.dev scripts/install-browser tests/axe/package-lock.json
	scripts/install-browser
	@test ! -x /usr/bin/chromium || touch $@
