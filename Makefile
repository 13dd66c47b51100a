# make run: install into .venv when needed, then build what changed. Everything else is `.venv/bin/sesame --help`.
PYTHON ?= python3
SESAME = .venv/bin/sesame

install: .venv/installed

# one small model in two minutes
try: .venv/installed
	@$(SESAME) try

run: .venv/installed
	-@$(SESAME) up
	@$(SESAME) run

# three on two cores: tests of pipelines wait for servers half of the time
test: .venv/installed
	.venv/bin/pytest -n 3 --dist loadfile --no-loadscope-reorder

# whole pipelines under DVC, Prefect and MLflow, and what takes ten seconds or more
test-long: .venv/installed
	.venv/bin/pytest -n 3 --dist loadfile --no-loadscope-reorder -m 'long and not cluster'

# pools, torchrun: several machines, each a process here
test-cluster: .venv/installed
	.venv/bin/pytest -n 3 -m cluster

bench: .venv/installed
	.venv/bin/pytest tests/benchmarks -s -o python_files=bench_*.py

# a site that needs no net, in site/
docs: .venv/installed
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet
	@echo "site/index.html"

mistakes: .venv/installed
	.venv/bin/python -m tests.benchmarks.mistakes

up down status plan: .venv/installed
	$(SESAME) $@

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Sesame needs Python 3.11 or newer, $(PYTHON) is %d.%d; try: make PYTHON=python3.11" % sys.version_info[:2])'
	@$(PYTHON) pipelines/install.py
	@touch $@

.PHONY: install try run test test-long test-cluster docs bench mistakes up down status plan
