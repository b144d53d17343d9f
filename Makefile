# The entry points. CI calls the same ones.
#
#   make run     build what is missing, and start the server on 127.0.0.1:7300
#   make build   build the four programs into dist/
#   make fleet   start three nodes, etcd and an S3 server on this machine, to try a fleet (docs/fleet.md)
#   make test    install what the tests need, build, and run what one server can show
#   make test-all   what CI runs: lint, the same tests, and those that need a fleet, faults or other systems' programs
#   make test-series   repeat the tests until they have passed often enough, half of the runs beside a load
#   make clean-tests   remove what a killed run of the tests left on the machine
#   make soak    rare cases 100,000 times, and 20 minutes of random kills; takes an hour
#   make upgrade-test   upgrade busy sandboxes from the last commit with the same format
#   make bench   print tables of speed and memory, as ratios within one run
#   make bench snapshot   print those of snapshots on ext4, xfs and btrfs; takes 15 minutes
#   make bench fleet   print those of a fleet on this machine
#   make bench e2b   print the times of E2B's client beside those of the SDK
#   make bench attack   print what attacks cost a server with 512 MiB, and its other tenants
#   make bench scale   print what 200 nodes and 100,000 sandboxes need in etcd; takes 10 minutes
#   make compat  run E2B's own test suites from the checkouts that E2B and CODE_INTERPRETER name (docs/e2b.md)
#   make docs    build the documentation site into dist/docs
#   make recording   record the terminal session that the README shows
#   make lint    check the format, clippy and tests/tidy
#   make fmt     format the Rust code
#   make openapi write docs/openapi.json from the descriptions of the routes
#   make deb, tarball, image, sdk-packages   build what is published, into dist/
#   make package-test   install, upgrade, remove and purge the packages on clean systems

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

HOST := $(shell rustc -vV | sed -n 's/^host: //p')
PROGRAMS := isolet isolet-launcher isolet-agent isolet-egress-proxy

# Launcher and agent are static and small, because they run where none of the host's libraries exist.
# The flags apply to these builds only, so they do not rebuild the server's dependencies.
STATIC := --target $(HOST) --config 'target.$(HOST).rustflags=["-C","target-feature=+crt-static","-C","relocation-model=static"]'
INSIDE := -p isolet-agent -p isolet-jail --bins

# Debian packages with programs that the tests start inside sandboxes or beside them.
PACKAGES := bash bash-static btrfs-progs bubblewrap busybox-static ca-certificates chromium curl docker-registry e2fsprogs g++ git htop iproute2 less musl-tools nftables openssh-client openssl procps python3 python3-ipykernel python3-matplotlib python-is-python3 strace systemd tmux vim wget xfsprogs
# Installed only if the program is missing, since it may come from elsewhere.
PACKAGES += $(if $(shell command -v npm),,npm) $(if $(shell python3 -m pip --version 2>/dev/null),,python3-pip)
PACKAGES += $(if $(shell python3 -c 'import ensurepip' 2>/dev/null && echo yes),,python3-venv)

.PHONY: run build programs console console-if-can fleet test clean-tests compat fetched soak snapshot-soak fleet-soak kills upgrade-test bench docs docs-tools recording lint fmt packages tools clients openapi openapi-tools sdk python integrations browser prometheus reverse-proxies etcd ttyd xterm fetched-all test-all test-series test-binaries

run: build
	exec ./dist/isolet serve

build: console-if-can
	cargo build --release $(INSIDE) $(STATIC)
	cargo build --release -p isolet -p isolet-egress-proxy
	mkdir -p dist
	install target/release/isolet target/release/isolet-egress-proxy target/$(HOST)/release/isolet-launcher target/$(HOST)/release/isolet-agent dist/

# The console's files, which every build of the server embeds.
console: console/dist/index.html

console/dist/index.html: $(shell find console sdk/typescript/src \( -name node_modules -o -name dist \) -prune -o -type f -print) | console/node_modules/.fetched
	cd console && npx tsc --noEmit && npx vite build --logLevel warn

console/node_modules/.fetched: console/package.json console/package-lock.json
	cd console && npm install --no-save --ignore-scripts --loglevel=error
	touch $@

# Without npm the server is built without its console, and says so at `/`.
console-if-can:
	@if ! command -v npm >/dev/null; then echo "npm is not installed: the server is built without its console" >&2; \
	elif ! $(MAKE) --no-print-directory console; then echo "the console was not built (see above): the server is built without it" >&2; fi

# The four programs where the tests find them, unless ISOLET_PROGRAMS names another directory. They are those of
# `make build`, so that the tests try what users run, and nothing is compiled twice. `make programs DEV=1` installs
# debug builds instead, which are built sooner after a change. The image of the host's programs, which the tests
# share, is made again when a program has changed.
FROM := $(if $(DEV),target/dev-programs,dist)
programs: $(if $(DEV),dev-programs,build)
	@mkdir -p target/programs
	@for program in $(PROGRAMS); do cmp -s $(FROM)/$$program target/programs/$$program || rm -rf target/programs/image; done
	@install $(addprefix $(FROM)/,$(PROGRAMS)) target/programs/

.PHONY: dev-programs
dev-programs: console-if-can
	cargo build $(INSIDE) $(STATIC)
	cargo build -p isolet -p isolet-egress-proxy
	mkdir -p target/dev-programs
	install target/debug/isolet target/debug/isolet-egress-proxy target/$(HOST)/debug/isolet-launcher target/$(HOST)/debug/isolet-agent target/dev-programs/

# The tests themselves.
test-binaries: console
	cargo nextest run --workspace --no-run

# xterm.js, the console's terminal, without a browser.
XTERM := crates/vt/tests/xterm/node_modules/.fetched

# What everyone runs: every promise that one server can show. ARGS passes arguments to the runner:
# `make test ARGS='--only browser'`, `make test ARGS=--help`.
ARGS ?=
test: test-needs
	tests/runner/run.py test $(ARGS)

# What CI runs: lint, `make test`, and what needs several nodes, injected faults, long waits, other systems'
# clients or servers of third parties.
test-all: test-needs
	$(MAKE) all-needs
	tests/runner/run.py all $(ARGS)

# The same again and again, until this commit has passed as often as the aim says; `target/test-runs.jsonl` counts.
test-series: PACKAGES += stress-ng
test-series: test-needs
	$(MAKE) all-needs
	tests/runner/run.py test --times 10 --loaded 5
	tests/runner/run.py rest --times 5 --loaded 2

.PHONY: test-needs all-needs
test-needs: packages tools console clean-tests
	$(MAKE) -j3 built fetched

.PHONY: built
built:
	$(MAKE) programs
	$(MAKE) test-binaries

all-needs: packages
	$(MAKE) -j2 fetched-all

# Ends and removes what test runs that were killed have left: processes, mounts, control groups, network, directories.
# A run that is still going is not touched.
clean-tests:
	python3 tests/runner/cleanup.py

# Dependencies of tests that cargo does not build; fetched while cargo builds.
fetched: sdk browser python openapi-tools docs-tools etcd $(XTERM) target/clients/mcp/.fetched target/clients/idna-3.20.tar.gz
fetched-all: clients prometheus reverse-proxies

soak: packages tools programs
	$(MAKE) upgrade-test
	cargo nextest run -p isolet-cluster -p isolet-fleet --profile soak --run-ignored only -E 'test(soak_model) | test(soak_many)'
	ISOLET_SOAK=1 cargo nextest run -p isolet-tenants -p isolet-escape -p isolet-promises -p isolet-agent -p isolet-vt -p isolet-faults -p isolet-clients --profile soak \
	  -E 'test(heavy_i4) | test(interrupts_at_any) | test(interrupts_among) | test(a_cancel_ends_whatever) | test(a_snapshot_gives_the_same_screen_for_any_stream) | test(f43_a_launcher_that_dies_over) | test(heavy_f44) | test(reverse_proxies)'
	$(MAKE) snapshot-soak kills fleet-soak

# 170 faults of nodes, of etcd, of the object store and of the network under 30 busy sandboxes of a fleet. A run
# continues where the last one of this commit stopped: target/soak/fleet-both.json says what has passed.
# ISOLET_SOAK_FAULTS sets the number of faults of this run, ISOLET_SOAK_CLASS (node, store) the class of all
# sandboxes, ISOLET_SOAK_KIND a part of the names of the faults.
fleet-soak: packages tools programs etcd target/clients/moto/.fetched
	cargo nextest run -p isolet-fleet-tests --profile soak --run-ignored only --no-capture -E 'test(soak_fleet)'

# Snapshots of 50 sandboxes under writes on each file system, full disks, and 300 kills during snapshots.
# ISOLET_SOAK_KILLS sets another number, ISOLET_SOAK_SEED repeats an earlier run.
snapshot-soak: PACKAGES += podman
snapshot-soak: packages tools programs
	ISOLET_SOAK=1 cargo nextest run -p isolet-promises -p isolet-faults -p isolet-escape -p isolet-repository --profile soak -j1 --no-capture --run-ignored all \
	  -E 'test(soak_moments) | test(soak_a_snapshot) | test(soak_kills_during) | test(soak_podman) | test(soak_paused) | test(files_that_a_tenant_made) | test(soak_10_mb_changed) | test(the_end_of_the_lifetime_does_not_wait_forever)'

# Random kills of every process under busy sandboxes. ISOLET_SOAK_S sets the duration in seconds,
# ISOLET_SOAK_SEED repeats an earlier run.
kills: packages tools programs
	cargo nextest run -p isolet-faults --profile soak --run-ignored only --no-capture -E 'test(soak_random_kills)'

# E2B's own test suites, unmodified. SUITES limits the run: `make compat SUITES="python-sync js"`.
compat: export E2B ?=
compat: export CODE_INTERPRETER ?=
compat: export SUITES ?=
compat: PACKAGES += python3-pandas python3-pil r-cran-irkernel
compat: packages target/clients/e2b/.fetched $(if $(ISOLET_PROGRAMS)$(wildcard target/programs/isolet),,programs)
	python3 tests/compat/run.py

# Writes docs/openapi.json. A unit test fails when it is not what the routes describe.
openapi:
	ISOLET_WRITE_OPENAPI=1 cargo test -q -p isolet-http --lib -- openapi::tests

# Upgrades a server of the last commit with the same format, with busy sandboxes, to the programs under test.
# BASELINE names another commit, ISOLET_OLD_PROGRAMS a directory of programs (tests/baseline/old-programs).
upgrade-test: packages tools programs
	old=$$(tests/baseline/old-programs $(BASELINE)) && if [ -n "$$old" ]; then \
	  ISOLET_OLD_PROGRAMS=$$old cargo nextest run -p isolet-baseline --profile soak --run-ignored only -E 'test(upgrade::)'; fi

# `make bench snapshot`, `make bench fleet`, `make bench scale`, `make bench attack` and `make bench e2b` print only that table, which is
# not among the others.
BENCH_TABLE := $(filter snapshot fleet scale attack e2b,$(MAKECMDGOALS))
BENCH_NEEDS_snapshot := build snapshot-packages
BENCH_NEEDS_fleet := build etcd target/clients/moto/.fetched
BENCH_NEEDS_scale := etcd
BENCH_NEEDS_attack := build
BENCH_NEEDS_e2b := $(if $(ISOLET_PROGRAMS),,build) target/clients/e2b-bench/.fetched
bench: packages $(or $(foreach table,$(BENCH_TABLE),$(BENCH_NEEDS_$(table))),build ttyd)
	$(if $(filter e2b,$(BENCH_TABLE)),ISOLET_PROGRAMS=$(or $(ISOLET_PROGRAMS),dist) target/clients/e2b-bench/bin/python bench/e2b/table.py,cargo run --release -p isolet-bench -- $(BENCH_TABLE))

.PHONY: snapshot scale attack e2b snapshot-packages
snapshot scale attack e2b:
	@:

ifeq ($(filter bench,$(MAKECMDGOALS)),)
# A fleet on this machine until Ctrl-C. FLEET passes flags: `make fleet FLEET=--help`.
fleet: export ISOLET_PROGRAMS ?= $(CURDIR)/dist
fleet: packages build etcd target/clients/moto/.fetched
	@cargo build -q --release -p isolet-fleet-tests --bin isolet-local-fleet
	@exec target/release/isolet-local-fleet $(FLEET)
else
fleet:
	@:
endif

snapshot-packages:
	$(MAKE) packages PACKAGES=podman

# The site needs a built program, whose help is the reference of the commands.
docs: docs-tools $(if $(ISOLET_PROGRAMS)$(wildcard dist/isolet target/programs/isolet),,build)
	NO_MKDOCS_2_WARNING=1 target/docs/bin/mkdocs build --quiet --strict
	@echo "open dist/docs/index.html"

# MkDocs with its theme, the script that draws the diagrams, and the one that searches in pages opened as files.
MERMAID := mermaid-11.17.2.tgz
MERMAID_SHA256 := 6ad2f42c3fc26bbf9e45cbb6d11898972573ea52b33a5f4ff51952899f950ffd
SEARCH_WORKER := iframe-worker-1.0.4.tgz
SEARCH_WORKER_SHA256 := e8c5d12d87829c503afba01d67772ea9f4aba5b7ae57a0c98e1917711030efbb

docs-tools: target/docs/.fetched

target/docs/.fetched: docs/site/requirements.txt | packages
	python3 -m venv --clear $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check -r $<
	cd $(@D) && npm pack --silent $(MERMAID:mermaid-%.tgz=mermaid@%) $(SEARCH_WORKER:iframe-worker-%.tgz=iframe-worker@%)
	cd $(@D) && printf '%s  %s\n' $(MERMAID_SHA256) $(MERMAID) $(SEARCH_WORKER_SHA256) $(SEARCH_WORKER) | sha256sum -c --quiet -
	mkdir $(@D)/scripts
	tar xzf $(@D)/$(MERMAID) -C $(@D)/scripts --strip-components=2 package/dist/mermaid.min.js
	tar xzf $(@D)/$(SEARCH_WORKER) -C $(@D)/scripts --strip-components=1 package/shim/index.js
	mv $(@D)/scripts/shim/index.js $(@D)/scripts/iframe-worker.js
	rmdir $(@D)/scripts/shim
	touch $@

# Types a first session into a real server, and draws it for the README.
recording: build
	docs/recordings/record.py

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	tests/tidy/check
	python3 tests/tidy/imports.py
	python3 tests/tidy/phrases.py
	cd tests/tidy && python3 -m unittest -q test_imports test_promises test_phrases

fmt:
	cargo fmt --all

# Installs only missing packages, so a machine that has all of them needs no network.
packages:
	@missing=; for p in $(PACKAGES); do \
	  dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  [ "$$(id -u)" = 0 ] || { echo "make test needs root, to make sandboxes and to install:$$missing" >&2; exit 1; }; \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing; fi

tools:
	@cargo nextest --version >/dev/null 2>&1 || cargo install --locked cargo-nextest

# Dependencies for building and testing the TypeScript SDK. `npm ci` does not work here: it requires
# the packages of every other platform in the lock file.
sdk: sdk/typescript/node_modules/.fetched

sdk/typescript/node_modules/.fetched: sdk/typescript/package.json sdk/typescript/package-lock.json | packages
	cd sdk/typescript && npm install --no-save --loglevel=error
	touch $@

# Tools for checking and testing the Python SDK, which is installed as an editable package.
PYTHON := $(CURDIR)/target/python/bin
PYTHON_REQUIREMENTS := $(patsubst %,tests/%/requirements.txt,openapi packages metrics traces kubernetes)

python: target/python/.fetched

target/python/.fetched: sdk/python/pyproject.toml $(PYTHON_REQUIREMENTS) | packages
	python3 -m venv --clear $(@D)
	$(PYTHON)/pip install -q --disable-pip-version-check -e 'sdk/python[test]' $(addprefix -r ,$(PYTHON_REQUIREMENTS))
	touch $@

# Suites that frameworks have for their sandbox providers. Their packages are many, so they are not part of `make test`.
INTEGRATIONS := $(CURDIR)/target/integrations/bin
integrations: packages $(if $(ISOLET_PROGRAMS)$(wildcard target/programs/isolet),,programs) target/integrations/.fetched
	for package in inspect deepagents; do cd $(CURDIR)/integrations/$$package && $(INTEGRATIONS)/ruff check -q . && $(INTEGRATIONS)/ruff format -q --check . && $(INTEGRATIONS)/mypy && timeout -s INT 300 $(INTEGRATIONS)/pytest || exit 1; done

compat: integrations

target/integrations/.fetched: integrations/requirements.txt integrations/inspect/pyproject.toml integrations/deepagents/pyproject.toml sdk/python/pyproject.toml | packages
	python3 -m venv --clear $(@D)
	$(INTEGRATIONS)/pip install -q --disable-pip-version-check -r $< -e sdk/python -e integrations/inspect -e integrations/deepagents
	touch $@

# What generates a TypeScript client from the OpenAPI document.
openapi-tools: tests/openapi/node_modules/.fetched

tests/openapi/node_modules/.fetched: tests/openapi/package.json tests/openapi/package-lock.json | packages
	cd tests/openapi && npm install --no-save --ignore-scripts --loglevel=error
	touch $@

# Compares the screens of isolet-vt and xterm.js for the same output.
xterm: $(XTERM)
	rm -rf target/xterm
	mkdir -p target/xterm
	ISOLET_XTERM_CASES=$(CURDIR)/target/xterm cargo test -q -p isolet-vt --lib -- --ignored cases_for_xterm_js
	node crates/vt/tests/xterm/compare.mjs target/xterm

$(XTERM): crates/vt/tests/xterm/package.json crates/vt/tests/xterm/package-lock.json | packages
	cd crates/vt/tests/xterm && npm install --no-save --loglevel=error
	touch $@

# Uses Debian's Chromium, so no browser is downloaded. The pages load the SDK as users get it.
browser: tests/browser/node_modules/.fetched sdk
	cd sdk/typescript && npm run --silent build

tests/browser/node_modules/.fetched: tests/browser/package.json tests/browser/package-lock.json | packages
	cd tests/browser && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --no-save --ignore-scripts --loglevel=error
	touch $@

# Public clients and packages that tests use against a server, fetched once.
clients: target/clients/isorun/.fetched target/clients/mcp/.fetched target/clients/openai-agents/.fetched target/clients/e2b/.fetched target/clients/e2b-python/.fetched target/clients/e2b-interpreter/.fetched target/clients/swe-rex/.fetched target/clients/moto/.fetched target/clients/idna-3.20.tar.gz

target/clients/%/.fetched: tests/clients/%/package.json tests/clients/%/package-lock.json | packages
	mkdir -p $(@D)
	cp $^ tests/clients/$*/.npmrc $(@D)/
	cd $(@D) && npm ci --loglevel=error
	touch $@

target/clients/openai-agents/.fetched target/clients/e2b-python/.fetched target/clients/e2b-interpreter/.fetched target/clients/swe-rex/.fetched: target/clients/%/.fetched: tests/clients/%/requirements.txt | packages
	python3 -m venv --clear $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

# E2B's client and what the SDK needs, for `make bench e2b`.
target/clients/e2b-bench/.fetched: bench/e2b/requirements.txt | packages
	python3 -m venv --clear $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

# An S3 server for the tests of the store of snapshots.
target/clients/moto/.fetched: tests/faults/requirements.txt | packages
	python3 -m venv --clear $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

target/clients/idna-3.20.tar.gz: | packages
	python3 -m pip download -q --no-deps --no-binary :all: idna==3.20 -d $(@D)

# Prometheus and promtool of Debian. The package is unpacked and not installed, because installing it would start
# a service that listens on all addresses.
prometheus: target/clients/prometheus/usr/bin/promtool

target/clients/prometheus/usr/bin/promtool: | packages
	rm -rf target/clients/prometheus
	mkdir -p target/clients/prometheus
	cd target/clients/prometheus && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; }
	cd target/clients/prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb
	touch $@

# nginx and Caddy, which the tests of docs/tls.md start. They are unpacked and not installed, because an
# installation would start them on all addresses.
reverse-proxies: target/clients/proxies/usr/sbin/nginx

target/clients/proxies/usr/sbin/nginx: | packages
	rm -rf target/clients/proxies
	mkdir -p target/clients/proxies
	cd target/clients/proxies && { apt-get download -q nginx caddy || { apt-get update -q && apt-get download -q nginx caddy; }; }
	cd target/clients/proxies && for p in *.deb; do dpkg-deb -x $$p . && rm $$p; done
	touch $@

# etcd and etcdctl, which the tests of isolet-cluster start. They are unpacked and not installed, because an
# installation would start a service.
etcd: target/clients/etcd/usr/bin/etcd

target/clients/etcd/usr/bin/etcd: | packages
	rm -rf target/clients/etcd
	mkdir -p target/clients/etcd
	cd target/clients/etcd && { apt-get download -q etcd-server etcd-client || { apt-get update -q && apt-get download -q etcd-server etcd-client; }; }
	cd target/clients/etcd && for p in *.deb; do dpkg-deb -x $$p . && rm $$p; done
	touch $@

# ttyd, which the benchmark compares terminals with. Debian 12 has no package, so this builds the source
# of a later Debian package from the mirror that this machine uses.
TTYD := ttyd_1.7.7.orig.tar.xz
TTYD_SHA256 := 48eba3f76af237f4c09cceb5ddbe0f845832557819f7e5c60c88285f8822af88
TTYD_PACKAGES := cmake gcc libjson-c-dev libuv1-dev libwebsockets-dev libwebsockets-evlib-uv xxd zlib1g-dev

ttyd: target/clients/ttyd/ttyd

target/clients/ttyd/ttyd: | packages
	$(MAKE) packages PACKAGES="$(TTYD_PACKAGES)"
	mkdir -p $(@D)/build
	pool=$$(apt-get indextargets --format '$$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | grep -v security | sort -u | head -1); \
	  curl -fsS -m 120 -o $(@D)/$(TTYD) "$${pool}pool/main/t/ttyd/$(TTYD)"
	echo "$(TTYD_SHA256)  $(@D)/$(TTYD)" | sha256sum -c -
	tar xJf $(@D)/$(TTYD) -C $(@D) --strip-components=1
	cmake -S $(@D) -B $(@D)/build -DCMAKE_BUILD_TYPE=Release >/dev/null
	$(MAKE) -C $(@D)/build
	install $(@D)/build/ttyd $@

include packaging/packages.mk
