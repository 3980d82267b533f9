# The commands of a day. `make help` lists them.
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
# Any Python 3.11 of the machine; PYTHON=… names another.
PYTHON ?= $(shell for p in python3.11 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
ONCE ?=
PYTEST_WORKERS ?= 2
PYTEST_ARGS ?=
LONG ?=
QUICK ?=
MINUTES ?=
DRILL_ARGS ?=
BENCH_ARGS ?=

export PYTHONDONTWRITEBYTECODE ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo up test check bench drill fmt lock install install-dev venv

help: ## what there is
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: install ## the whole product with one workflow, start to finish (ONCE=1: then stop)
	@TASK_EVENTS="$${TASK_EVENTS:-1}" ONCE="$(ONCE)" exec $(PY) manage.py demo

up: install ## the whole product, until Ctrl-C
	@TASK_EVENTS="$${TASK_EVENTS:-1}" exec $(PY) manage.py stack

test: check ## every check, then every test
	@echo "Tests: $(PYTEST_WORKERS) workers, random order"
	exec $(PY) -m pytest -q -n $(PYTEST_WORKERS) $(if $(CI),--cov --cov-report=term) $(PYTEST_ARGS)

check: install-dev ## format, lint, types, layers, migrations, deployment, known holes
	@$(PY) tools/check.py

bench: install-dev ## the figures, against plain Celery on the same machine; QUICK=1: fewer samples
	@TASK_EVENTS=0 exec $(PY) -m bench $(if $(QUICK),--quick) $(BENCH_ARGS)

drill: install-dev ## every failure we know, on purpose: ≤ 10 min; QUICK=1 ≤ 3 min; LONG=1 MINUTES=30
	@exec $(PY) -m tests.drill --size $(if $(LONG),long,$(if $(QUICK),quick,short)) \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(DRILL_ARGS)

fmt: install-dev ## rewrite the code in the one format
	@$(VENV)/bin/ruff format -q .
	$(VENV)/bin/ruff check -q --fix .

lock: install-dev ## pin requirements.in and requirements-dev.in anew, with hashes
	@for name in requirements requirements-dev; do
	  $(VENV)/bin/uv pip compile $$name.in -o $$name.txt --generate-hashes --no-header -q \
	    --no-emit-index-url --no-emit-find-links --python-version 3.11 $(LOCK_ARGS)
	done

install: venv ## the virtualenv with what the product needs, when the pins have changed
	@$(call pinned,requirements.txt)

install-dev: install ## the same with what checks and tests need
	@$(call pinned,requirements-dev.txt)

# A copy of the pins that were installed tells whether they have changed since.
define pinned
if ! cmp -s $(1) $(VENV)/.$(1); then
  echo "Installing $(1) …"
  $(PY) -m pip install -qq --require-hashes -r $(1)
  cp $(1) $(VENV)/.$(1)
fi
endef

venv:
	@if [ ! -x $(PY) ]; then
	  if [ -z "$(PYTHON)" ]; then
	    echo "Python 3.11 is needed and not on the PATH: install it, or say make PYTHON=/path/to/python3.11" >&2
	    exit 1
	  fi
	  echo "Making $(VENV) with $$($(PYTHON) --version) …"
	  $(PYTHON) -m venv $(VENV) || {
	    rm -rf $(VENV)
	    echo "This Python cannot make a virtualenv (on Debian: apt-get install python3-venv)" >&2
	    exit 1
	  }
	fi
