# Every target sets up what it needs in .venv, from nothing but a Python 3.11 or later. ARGS reaches the command:
#   make simulate ARGS="--seed 7"
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
ARGS ?=
SERVING_ARGS ?=
HOUR_ARGS ?=

PYTHON ?= $(shell for candidate in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	"$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$candidate"; break; }; done)
ENVIRONMENT = @test -n "$(PYTHON)" || { echo "batonpass: found no Python 3.11 or later on the path; name one: make $@ PYTHON=/path/to/python3" >&2; exit 1; }; \
	"$(PYTHON)" .ci/environment.py

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS=$$'\t' read -r name text; do printf '  make %-15s %s\n' "$$name" "$$text"; done

.PHONY: run
run: ## start everything on this machine, with a broker and a job to look at (batonpass up)
	$(ENVIRONMENT) demo
	.venv/bin/batonpass up $(ARGS)

.PHONY: demo
demo: ## measure on a real broker what handovers cost (batonpass demo)
	$(ENVIRONMENT) demo
	.venv/bin/batonpass demo $(ARGS)

.PHONY: test
test: ## every check and every test; what CI runs
	$(ENVIRONMENT) test
	.venv/bin/python .ci/steps.py test

.PHONY: containers
containers: ## build every image, run docker-compose.yml in Podman, and try it (half an hour the first time; as root)
	$(ENVIRONMENT) containers
	.venv/bin/python -m pytest -x -s tests/containers/story.py $(ARGS)

.PHONY: check
check: ## lint, types, import rules, spelling, workflows: no tests
	$(ENVIRONMENT) dev
	.venv/bin/python .ci/steps.py check

.PHONY: bench
bench: ## time the decisions against their bars
	$(ENVIRONMENT) dev
	.venv/bin/python -m tests.benchmarks $(ARGS)
	.venv/bin/python -m tests.benchmarks.serving $(SERVING_ARGS)

.PHONY: audit
audit: ## audit a day of the log with Spark (ARGS="--day today --out audits" while make run runs)
	$(ENVIRONMENT) audit
	.venv/bin/batonpass audit $(ARGS)

.PHONY: bench-audit
bench-audit: ## time the nightly audit (ARGS="--records 100000")
	$(ENVIRONMENT) dev
	.venv/bin/python -m tests.benchmarks.audit $(ARGS)

.PHONY: compare-streams
compare-streams: ## a Kafka Streams job under Kafka's assignor and under Batonpass (an hour and a half; ARGS=--quick: eight minutes)
	$(ENVIRONMENT) streams
	.venv/bin/python -m tests.benchmarks.streams $(ARGS)

.PHONY: streams-faults
streams-faults: ## do the worst to a Kafka Streams job and its coordinator, and count every order (ARGS=NAME for one fault)
	$(ENVIRONMENT) streams
	.venv/bin/python -m tests.benchmarks.streams.faults $(ARGS)

.PHONY: simulate
simulate: ## run seeded worlds against the laws (batonpass simulate)
	$(ENVIRONMENT) run
	.venv/bin/batonpass simulate $(ARGS)

.PHONY: soak
soak: ## a million steps, every order of events, every made-up case, 2000 seeds of bad luck, 500 kills, 2000 late requests, every call that fails, every odd environment, then an hour of everything, plotted (soak.svg)
	$(ENVIRONMENT) dev
	.venv/bin/batonpass simulate --steps 1000000 $(ARGS)
	.venv/bin/python -m tests.explorer --all
	BATONPASS_CASES=all .venv/bin/python -m pytest -q -n auto tests/core tests/placement tests/simulate tests/worker/test_protocol_stateful.py tests/worker/test_member_under_fire.py tests/api/test_state_machine.py tests/audit/test_cluster.py
	BATONPASS_LUCK=2000 .venv/bin/python -m pytest -q tests/core/test_luck.py tests/core/test_streams_luck.py
	BATONPASS_LOADS=10 .venv/bin/python -m pytest -q tests/core/test_load_worlds.py
	BATONPASS_KILLS=500 .venv/bin/python -m pytest -q -s tests/proof/test_kills.py
	BATONPASS_TRANSACTIONS=2000 .venv/bin/python -m pytest -q -s tests/worker/kafka/test_late_requests.py
	BATONPASS_CALLS='*' .venv/bin/python -m pytest -q -s tests/worker/kafka/test_calls.py
	BATONPASS_ENVIRONMENTS='*' .venv/bin/python -m pytest -q tests/e2e/test_odd_environments.py
	.venv/bin/python -m tests.soak $(HOUR_ARGS)

.PHONY: kafka
kafka: ## run a Kafka broker on this machine, without Docker, until Ctrl-C (ARGS=FOLDER keeps its data)
	$(ENVIRONMENT) kafka
	.venv/bin/python -m batonpass.kafka $(ARGS)

.PHONY: release
release: ## make what is handed out, into dist/, of the last commit, and check it on each Python that is here (a few minutes; needs Maven and a JDK)
	$(ENVIRONMENT) release
	.venv/bin/python .ci/release.py

.PHONY: dev
dev: ## only prepare .venv for work on the code
	$(ENVIRONMENT) dev

.PHONY: lock
lock: ## write deploy/locks anew from pyproject.toml (ARGS=--upgrade for newer versions)
	$(ENVIRONMENT) lock $(ARGS)
