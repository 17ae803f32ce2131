# All the set-up there is: a machine with Python 3.11 or newer and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# Without bytecode every process that a test or a measurement starts would compile all of dohle anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: start demo cluster-demo test test-fast test-versions explore test-long test-isolation test-jvm test-mixed test-node oracle-record check format bench bench-versus bench-cluster bench-spark clean

start: $(VENV)/.installed  ## Run a broker on 127.0.0.1:9092 with its data in ./data
	$(BIN)/dohle start

demo: $(VENV)/.installed-spark  ## Run a broker, live orders and clicks, and a pipeline on Spark; Ctrl-C stops all
	$(BIN)/python examples/shop/demo.py

cluster-demo: $(VENV)/.installed  ## Run three nodes under load, watch them, kill some by a key and see them heal
	$(BIN)/python examples/cluster/demo.py

# They wait for processes, Spark's above all, more than they compute: three workers for two cores.
WORKERS := $(shell echo $$((($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2)))
test: $(VENV)/.installed-test  ## Run all tests but the long ones: about 20 minutes on two cores, which shall be ten
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations=10

# Pure rooms: no sockets, no Spark, no process but our own. Arrow's codec is not of the base install.
FAST_TESTS := $(addprefix tests/,core protocol records coordination groups txn metadata metrics replication storage tools) $(wildcard tests/raft/test_*.py)
test-fast: $(VENV)/.installed-test  ## Run the tests of the pure rooms, with fewer examples, in under a minute
	DOHLE_FAST=1 $(BIN)/python -m pytest -q -n auto -m 'not long and not slow and not isolation' --ignore tests/records/columnar $(FAST_TESTS)

VERSIONS :=
test-versions: $(VENV)/.installed-test  ## Run the fast tests and clients on every supported Python there is, and without uvloop
	$(BIN)/python tools/versions.py $(VERSIONS)

SECONDS := 180
explore: $(VENV)/.installed-test  ## Look for failures with new examples and seeds: make explore SECONDS=600
	$(BIN)/python tools/explore.py --seconds $(SECONDS)

SHARE := 1

test-long: $(VENV)/.installed-test  ## Run what takes minutes: 1,000 seeds of a node, 2,000 of clusters and of quorums in the simulator (SHARE=0.1: a tenth of them), mutants; pipelines and exactly once on Spark, with everything killed
	DOHLE_SHARE_OF_SEEDS=$(SHARE) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m long

WAIT_MS := 50
ATTACKS := tests/isolation
test-isolation: $(VENV)/.installed-test  ## Attack a broker while another client measures its waits; run it while nothing else runs
	DOHLE_WAIT_MS_MAX=$(WAIT_MS) $(BIN)/python -m pytest -m isolation $(ATTACKS)

test-jvm: $(VENV)/.installed-test  ## Test beside Apache Kafka, its tools and its clients; needs Java 17 and Maven
	$(BIN)/python -m pytest tests/jvm

test-mixed: $(VENV)/.installed-test  ## Test clusters whose nodes are Apache Kafka's and dohle's, and docs/migrate.md (about 10 minutes); needs Java 17 and Maven
	$(BIN)/python -m pytest tests/mixed

test-node: $(VENV)/.installed-test  ## Test Node's clients beside Apache Kafka; needs Node, npm, a C++ compiler, Java 17 and Maven
	$(BIN)/python -m tests.node.packages
	$(BIN)/python -m pytest tests/node

oracle-record: $(VENV)/.installed-test  ## Ask Apache Kafka what tests/oracle compares dohle with; needs Java 17 and Maven
	$(BIN)/python -m tests.oracle.record

check: $(VENV)/.installed-test  ## Lint, format, types, the directions of imports, what nothing uses and names that stand twice; under a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/unused.py
	$(BIN)/python tools/twice.py

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-test  ## Measure codecs, the log, the broker, coordinators and controllers beside their peers (about 10 minutes)
	$(BIN)/python -m bench

bench-versus: $(VENV)/.installed-test  ## Measure dohle beside Apache Kafka, into bench/results (1.5 to 3 hours); needs Java 17 and Maven
	$(BIN)/python -m bench.versus

bench-cluster: $(VENV)/.installed-test  ## Measure three nodes of dohle beside three of Apache Kafka, into bench/results (2 to 4 hours); needs Java 17 and Maven
	$(BIN)/python -m bench.cluster

bench-spark: $(VENV)/.installed-test  ## Measure dohle on Spark beside Spark's own connector, into bench/results (about 13 minutes); needs Java 17 and Maven
	$(BIN)/python -m bench.spark

clean:
	rm -rf $(VENV) $(VENV)-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache tests/jvm/.cache tests/node/.cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dohle needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-spark: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[spark]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $(VENV)/.installed $(VENV)/.installed-spark $@
