# Fenceline's commands. Each sets up what it needs; `make help` lists them.

SHELL := /bin/sh
PYTHON_BIN := .venv/bin/python
# Settings are read by the linters too; nothing is signed with this, and no database is opened.
LINT_ENV := SECRET_KEY=lint FENCELINE_CONFIG= DATABASE_URL=sqlite://:memory:

# Set in many containers: each process would compile Django and all else again, half the time of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up url test test-fast coverage durations screenshots bench soak test-matrix lint lock release clean spark-zip wheel venv venv-up chromium postgresql kerberos nginx prometheus helm

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'make up takes PORT=8000 BOOTSTRAP=host:port CONFIG=fenceline.toml DEMO=1|quiet|lite|0 SHARDS=1 SMALL= BROKERS=1 DATABASE_URL= REDIS_URL= REDIS_PORT='
	@echo 'and FENCELINE_DATA=.data FENCELINE_ADMIN_PASSWORD= PYTHON='

up: venv-up ## start a whole deployment and print its URL and a sign-in; Ctrl-C stops it
	@exec $(PYTHON_BIN) -m sandbox.up

url: venv-up ## print the URL and the sign-in of the running stack again
	@exec $(PYTHON_BIN) -m sandbox.stack

# Brokers and browsers make tests wait: four workers, each with brokers of its own, fill two cores.
# With DATABASE_URL=postgres://… all of it runs on that server, in databases that are made for it and dropped.
test: venv chromium postgresql ## every test: real Kafka, Spark, Redis, PostgreSQL and browser
	@exec $(PYTHON_BIN) -m pytest -n 4 $(ARGS)

test-fast: venv ## in a minute: the short tests that need no broker and no PostgreSQL
	@exec $(PYTHON_BIN) -m pytest -n 2 --only-short -m 'not soak and not matrix and not postgresql' \
		tests/unit tests/web tests/db $(ARGS)

# Measuring takes as long again, so that the gate does not: Python measures cheaply from 3.14 on.
coverage: venv ## print how many branches of the core and of the stores tests/unit and tests/db run
	@$(PYTHON_BIN) -m coverage run --branch --source=fenceline,dashboard -m pytest -q tests/unit tests/db \
		-m 'not soak and not matrix and not postgresql' $(ARGS)
	@for part in 'fenceline/*' 'fenceline/decode/*' 'fenceline/kafka/*' 'fenceline/plans/*' 'dashboard/*/*store.py'; do \
		echo "$$part $$($(PYTHON_BIN) -m coverage report --format=total --precision=1 --include="$$part") %"; done

durations: venv chromium postgresql ## measure how long each test takes, for the order of `make test`
	@exec $(PYTHON_BIN) -m pytest -n 4 --record-durations $(ARGS)

screenshots: venv chromium ## take the pictures of the README: docs/screenshots
	@exec $(PYTHON_BIN) -m tests.browser.screenshots

bench: venv ## measure; results in benchmarks/results/latest.json
	@exec $(PYTHON_BIN) -m benchmarks $(ARGS)

soak: venv ## the long runs, with a printed seed
	@FENCELINE_SEED=$${FENCELINE_SEED:-$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')} exec $(PYTHON_BIN) -m pytest -m soak -o faulthandler_timeout=3600 $(ARGS)

test-matrix: venv chromium postgresql kerberos nginx prometheus helm ## Kafka 3.9 to 4.3, Spark 3.5, 4.0 and 4.1, PostgreSQL, HDFS, Kerberos, Prometheus, Helm; each page in each state
	@exec $(PYTHON_BIN) -m pytest -m 'matrix and not soak' $(ARGS)

lint: venv ## style, types, imports, templates, migrations, the compose file
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(LINT_ENV) .venv/bin/mypy
	.venv/bin/lint-imports
	find templates -name '*.html' -exec .venv/bin/djade --check {} +
	.venv/bin/check-jsonschema --quiet --builtin-schema vendor.compose-spec docker-compose.yml compose/stores.yml compose/external/stores.yml
	$(LINT_ENV) $(PYTHON_BIN) manage.py makemigrations --check --dry-run

# Gssapi has no wheels for Linux, so only its own file asks for it.
LOCK := $(PYTHON_BIN) -m uv pip compile -q --universal --generate-hashes --no-annotate --no-header \
	--no-emit-index-url --no-emit-find-links --python-version 3.11 pyproject.toml

lock: venv ## lock the dependencies of pyproject.toml in requirements.txt; ARGS=--upgrade renews all
	$(LOCK) --extra cli --extra dashboard --extra dev --extra msk --extra pkcs12 --extra s3 --extra sandbox --extra spark \
		-o requirements.txt $(ARGS)
	$(LOCK) --extra kerberos -o requirements-kerberos.txt $(ARGS)

spark-zip: venv ## the --py-files archive for Spark: dist/fenceline-spark.zip
	@exec $(PYTHON_BIN) -m sandbox.spark_zip $(ARGS)

wheel: venv ## the wheel for users' Spark ([spark]) and the command line ([cli]): dist/fenceline-*.whl
	@# What setuptools has kept of a build before would be in the wheel, also what is no module any more.
	@rm -rf build && $(PYTHON_BIN) -m uv build -q --wheel --out-dir dist . && rm -rf build

release: wheel helm ## the wheel, the chart, an SBOM of requirements.txt and checksums: dist/; images need Docker
	@PATH="$(CURDIR)/.venv/bin:$$PATH" helm package deploy/chart --destination dist
	@$(PYTHON_BIN) -m uv tool run --quiet --from cyclonedx-bom==7.* \
		cyclonedx-py requirements requirements.txt --output-file dist/fenceline-sbom.cdx.json
	@if docker info >/dev/null 2>&1; then docker build --tag "fenceline:$$(sh compose/tag.sh)" .; \
		else echo 'make: no image was built: no Docker runs here' >&2; fi
	@cd dist && rm -f SHA256SUMS && sha256sum * > SHA256SUMS && cat SHA256SUMS

clean: ## remove .venv and .data
	@[ ! -e .data/stack.json ] || { echo 'make: a stack runs on .data: stop it first (or remove .data/stack.json)' >&2; exit 1; }
	rm -rf .venv .data

venv:
	@sandbox/bootstrap.sh dev

venv-up:
	@sandbox/bootstrap.sh

# The headless shell is the same browser without windows: it takes half the time.
chromium:
	@command -v chromium-headless-shell >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo 'setup: installing chromium-headless-shell for the browser tests'; \
			apt-get update -q && apt-get install -qy --no-install-recommends chromium-headless-shell; \
		fi; } || true
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		echo 'make: the browser tests need chromium-headless-shell, chromium or google-chrome on PATH: install one' >&2; exit 1; }

postgresql:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo 'setup: installing PostgreSQL for the database tests'; \
			apt-get update -q && apt-get install -qy --no-install-recommends postgresql; \
		else \
			echo 'make: the database tests need PostgreSQL: install it (Debian: apt install postgresql)' >&2; exit 1; \
		fi; }

# A proxy in front, for the tests of a base path.
nginx:
	@command -v nginx >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo 'setup: installing nginx for the tests of a base path'; \
			apt-get update -q && apt-get install -qy --no-install-recommends nginx-light; \
		else \
			echo 'make: the tests behind nginx are skipped: install it' >&2; \
		fi; }

# A KDC, and kafka-python's side of it, which is built here: its package has no wheel for Linux.
kerberos: venv
	@[ -x /usr/sbin/krb5kdc ] || command -v krb5kdc >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo 'setup: installing a Kerberos KDC for its tests'; \
			apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends krb5-kdc krb5-admin-server libkrb5-dev gcc; \
		else \
			echo 'make: the Kerberos tests are skipped: they need krb5-kdc, krb5-admin-server, libkrb5-dev and gcc' >&2; \
		fi; }
	@$(PYTHON_BIN) -c 'import gssapi' 2>/dev/null || .venv/bin/uv pip install --quiet --python $(PYTHON_BIN) --require-hashes -r requirements-kerberos.txt || \
		echo 'make: the Kerberos tests are skipped: gssapi cannot be built here' >&2

# Alert rules and panels are tested by Prometheus itself; Debian's package has promtool, too.
prometheus:
	@{ command -v prometheus && command -v promtool; } >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo 'setup: installing Prometheus for the tests of dashboards and alert rules'; \
			apt-get update -q && apt-get install -qy --no-install-recommends prometheus; \
		else \
			echo 'make: the tests of dashboards and alert rules are skipped: they need prometheus and promtool on PATH' >&2; \
		fi; }

# Neither PyPI nor Debian has Helm: Go builds it, once, in three minutes.
helm: venv
	@command -v helm >/dev/null || [ -x .venv/bin/helm ] || { \
		if command -v go >/dev/null; then \
			echo 'setup: building Helm for the tests of the chart'; \
			GOBIN="$(CURDIR)/.venv/bin" go install -ldflags '-s -w' helm.sh/helm/v3/cmd/helm@v3.22.0; \
		else \
			echo 'make: the tests of the chart are skipped: they need helm on PATH, or Go to build it' >&2; \
		fi; }
