# The commands of this checkout. `make run` and `make test` are the two to know; each sets up what it needs.
# The work is done in ext/build (environment, modules), vendor/llama.cpp (llama.cpp, model) and tests/tools (linters,
# sanitizers).

PYTHON ?= python3
MODEL ?=
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
BUILD := ext/build
RECIPE := vendor/llama.cpp
EXTRAS :=

# In the checkout the modules are compiled for this machine's CPU, as llama.cpp's are.
export LLAMAD_NATIVE ?= 1

MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
.PHONY: help run build wheel sdist test lint format asan tsan bench peer soak fuzz clean python venv test-packages

help:
	@echo 'make run     build, fetch the default model and serve it on 127.0.0.1:8080'
	@echo '             MODEL=/path/x.gguf serves another; ARGS="-np 4 -c 8192" passes flags on'
	@echo 'make test    build, lint and run all tests, on all cores (ARGS goes to pytest: ARGS="tests/http -x")'
	@echo 'make build   the environment, llama.cpp and the compiled modules; .venv/bin/llamad is the program'
	@echo 'make wheel   a wheel for other machines, in dist/; make sdist: a source distribution'
	@echo 'make lint    ruff, mypy, cython-lint, pycodestyle, clang-format; part of make test'
	@echo 'make format  rewrite Python, C and C++ as the formatters want them'
	@echo 'make asan    the tests of the engine under AddressSanitizer and UBSan (ARGS goes to pytest)'
	@echo 'make tsan    the same under ThreadSanitizer'
	@echo 'make bench   measure (LLAMA_SERVER=/path/llama-server to compare; ARGS goes to the benchmark)'
	@echo 'make peer    build llama-server from the same sources and print its path'
	@echo 'make soak    the tests that take long'
	@echo 'make fuzz    the fuzz targets'
	@echo 'make clean   remove what was built here'
	@echo
	@echo 'Variables: PYTHON, LLAMAD_CACHE, LLAMAD_LLAMA_CPP, LLAMAD_WHEELS, LLAMAD_CMAKE_ARGS, LLAMAD_JOBS,'
	@echo 'LLAMAD_DEBUG_BUILD; $(RECIPE)/README.md explains them.'

# The checks that must work on any Python, before anything here is run with it.
python:
	@command -v $(PYTHON) >/dev/null || { echo "llamad: there is no $(PYTHON): install Python 3.11 or newer, or\
	 set PYTHON to one" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "llamad: $$($(PYTHON) --version 2>&1)\
	 is too old: install Python 3.11 or newer and name it: make PYTHON=python3.11" >&2; exit 1; }

venv: python
	@$(PYTHON) $(BUILD) venv

test-packages: python
	@$(PYTHON) $(BUILD) venv --extras test

build: python
	@$(PYTHON) $(BUILD) $(if $(EXTRAS),--extras $(EXTRAS)) $(FETCH)

wheel sdist: python
	@$(PYTHON) $(BUILD) $@

run: FETCH := $(if $(MODEL),,--model)
run: build
	@model='$(MODEL)'; [ -n "$$model" ] || model=$$($(PY) $(RECIPE) model) || exit 1; \
	exec $(VENV)/bin/llamad --model "$$model" --host 127.0.0.1 --port 8080 $(ARGS)

test soak fuzz asan tsan: EXTRAS := test
test soak fuzz: FETCH := --model

# On all cores and one more, for many tests wait for a program that starts or ends; unless ARGS names tests: then
# starting workers would take longer than most of them.
N_WORKERS = $$(n=$$(nproc); echo $$((n < 8 ? n + 1 : 8)))
WORKERS = $(if $(filter tests%,$(ARGS)),,-n $(N_WORKERS) --dist worksteal)

# The tests' bytecode is kept, whatever the environment says: compiling it takes each worker as long as 200 tests.
test: build lint
	@model=$$($(PY) $(RECIPE) model) || exit 1; \
	PYTHONDONTWRITEBYTECODE= LLAMAD_TEST_MODEL="$$model" exec $(PY) -m pytest $(WORKERS) $(ARGS)

soak: build test-packages
	@model=$$($(PY) $(RECIPE) model) || exit 1; \
	LLAMAD_TEST_MODEL="$$model" exec $(PY) -m pytest -m soak $(ARGS)

fuzz: build test-packages
	@[ -n "$(wildcard fuzz/*.py)" ] || { echo 'llamad: fuzz/ holds no targets yet' >&2; exit 1; }
	@model=$$($(PY) $(RECIPE) model) || exit 1; \
	LLAMAD_TEST_MODEL="$$model" exec $(PY) -m pytest $(if $(filter fuzz%,$(ARGS)),,fuzz) $(ARGS)

bench: FETCH := $(if $(MODEL),,--model)
bench: build
	@model='$(MODEL)'; [ -n "$$model" ] || model=$$($(PY) $(RECIPE) model) || exit 1; \
	LLAMAD_TEST_MODEL="$$model" exec $(PY) -m bench $(ARGS)

peer: venv
	@$(PY) $(RECIPE) peer

lint: test-packages
	@$(PY) tests/tools/lint.py

format: test-packages
	@$(PY) tests/tools/lint.py --fix ruff ruff-format clang-format

# The modules under a sanitizer, in build/asan or build/tsan, and the tests that need no model; the checkout's own
# modules stay.
asan tsan: python
	@LLAMAD_SANITIZE=$(if $(filter asan,$@),address,thread) $(PYTHON) $(BUILD) --extras test --beside
	@exec $(PY) tests/tools/sanitize.py $@ $(ARGS)

clean:
	rm -rf build dist llamad.egg-info llamad/lib llamad/bin llamad/_build_info.json
	find llamad -name '*.so' -delete
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis $(VENV)/llamad-installed
	@echo "left alone: $(VENV), and the cache in $${LLAMAD_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/llamad}"
