# Holdfast: one command each. `make help` lists them.

# Where `make install` puts the files; DESTDIR is put in front of every path.
PREFIX     ?= /usr
sbindir     = $(PREFIX)/sbin
bindir      = $(PREFIX)/bin
libdir      = $(PREFIX)/lib
mandir      = $(PREFIX)/share/man
docdir      = $(PREFIX)/share/doc/holdfast
datadir     = $(PREFIX)/share
# The units, wherever the host's systemd looks for them.
UNITDIR    ?= $(libdir)/systemd/system
# The command that removes the symbols of an installed program; empty when a package keeps them separately.
STRIP      ?= --strip

SWIFT ?= swift
export SWIFT

# The release is one file per program: the Swift runtime is linked in, and unused code is left out, for which each function
# has a section. It needs only glibc (2.36 or later, for the short form of relocations), libsystemd and libsqlite3 from the
# host. Nothing is loaded into the programs, so their symbols are not exported; the rest of them is removed when they are
# installed. Documentation/Throughput.md says what each of these flags saves.
RELEASE_SCRATCH = .build-release
RELEASE_FLAGS   = --configuration release --static-swift-stdlib --scratch-path $(RELEASE_SCRATCH) \
                  -Xswiftc -Xfrontend -Xswiftc -function-sections -Xswiftc -use-ld=lld -Xlinker --gc-sections \
                  -Xlinker --no-export-dynamic -Xlinker -z -Xlinker pack-relative-relocs -Xlinker -z -Xlinker now
RELEASE         = $(RELEASE_SCRATCH)/release

# The tests and the programs that they run, and no other product of the packages. The index is only for editors.
TESTS       = --product holdfastPackageTests --disable-index-store
BUILD_TESTS = $(SWIFT) build $(TESTS)

SCRIPTS = scripts/setup scripts/test scripts/docs scripts/demo scripts/simulate-mutants scripts/check-imports \
          scripts/check-manuals scripts/package scripts/apt-repository .ci/run
PYTHON = scripts/test-summary scripts/check-whole-modules $(wildcard Examples/Python/*.py) $(wildcard Benchmarks/*/bench-*) $(wildcard Benchmarks/*/*.py)
MAN1 = man/holdfastctl.1
MAN5 = man/holdfast.toml.5 man/holdfast-session.5
MAN7 = man/holdfast-rpc.7
MAN8 = man/holdfastd.8
# The completions of bash, zsh and fish, below $(datadir). Debian has a folder of its own for packages' functions of zsh.
ZSH_FOLDER  = $(if $(and $(filter /usr,$(PREFIX)),$(wildcard /etc/debian_version)),vendor-completions,site-functions)
COMPLETIONS = bash-completion/completions/holdfastctl zsh/$(ZSH_FOLDER)/_holdfastctl \
              fish/vendor_completions.d/holdfastctl.fish
UNITS = systemd/holdfast.service systemd/holdfast.socket systemd/holdfast-wait-online.service \
        systemd/holdfast-online.target

.DEFAULT_GOAL = help
.PHONY: help demo test scenarios statements test-servers soak-kills soak sanitize fuzz simulate simulate-mutants mutants \
        bench-recovery bench-fairness bench-throughput bench-idle bench-sessions docs lint build install uninstall image wheel deb \
        apt-repo test-package clean

help: ## list these targets
	@echo 'Holdfast. Targets:'
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | sort | awk -F '\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'
	@echo 'Variables of install: PREFIX ($(PREFIX)), DESTDIR.'

demo: ## set up, build a release, and show a session survive its server being killed
	scripts/setup build demo
	@$(MAKE) --no-print-directory build
	scripts/demo $(RELEASE)

test: ## set up, and run every test; HOLDFAST_REQUIRE_ALL=1 makes a skipped test fail
	scripts/setup build test container package wheel
	scripts/simulate-mutants --check
	$(BUILD_TESTS)
	scripts/check-whole-modules
	scripts/test

scenarios: ## what LiveKit, Nexconn, Agora and ZEGO document, story by story, in virtual time
	scripts/setup build
	$(BUILD_TESTS)
	scripts/test --filter ScenarioTests

statements: ## write the page of MQTT's statements again, and check that each has a test
	scripts/setup build
	$(BUILD_TESTS)
	HOLDFAST_WRITE_PAGES=1 scripts/test --filter StatementPageTests

test-servers: ## run the same cases at every make of server, and a cluster whose node is killed
	scripts/setup build test servers
	$(BUILD_TESTS)
	HOLDFAST_REQUIRE_ALL=1 HOLDFAST_SERVERS=all scripts/test --filter EndToEnd/Servers

# How often the daemon and the server are killed, and the seed that chooses the moments.
DAEMON ?= 1000
SERVER ?= 200
SEED   ?= 1

soak-kills: ## kill the daemon DAEMON times and the server SERVER times in mid-stream, and count; about 30 minutes
	scripts/setup build test
	$(BUILD_TESTS)
	HOLDFAST_REQUIRE_ALL=1 HOLDFAST_KILLS='$(DAEMON) $(SERVER) $(SEED)' \
	    scripts/test --filter EndToEnd/Kills

# How long, and the seed that chooses the faults.
MINUTES   ?= 60
SOAK_SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

soak: ## everything that can happen to network, server and daemon, at random, MINUTES long, and count; SOAK_SEED repeats a run
	scripts/setup build test
	@$(MAKE) --no-print-directory build
	$(BUILD_TESTS)
	HOLDFAST_REQUIRE_ALL=1 HOLDFAST_BIN_DIR='$(abspath $(RELEASE))' HOLDFAST_SOAK='$(MINUTES) $(SOAK_SEED)' \
	    scripts/test --filter EndToEnd/Soak

DOCS = .build/docs

docs: ## the documentation of the modules as web pages, in .build/docs
	scripts/setup build
	$(SWIFT) build
	scripts/docs $(DOCS)

# What is fuzzed (mqtt-decoder, client-machine, json-rpc, netlink, configuration), and for how long.
TARGET  ?= mqtt-decoder
SECONDS ?= 60
FUZZ_SCRATCH = .build-fuzz

fuzz: ## feed TARGET with bytes for SECONDS, with libFuzzer and the address sanitizer; a finding is a file in the work directory
	scripts/setup build
	HOLDFAST_FUZZER=1 $(SWIFT) build --configuration release --scratch-path $(FUZZ_SCRATCH) --product fuzz
	mkdir -p $(FUZZ_SCRATCH)/corpus/$(TARGET)
	SWIFT_BACKTRACE=enable=no $(FUZZ_SCRATCH)/release/fuzz $(TARGET) -max_total_time=$(SECONDS) -timeout=10 \
	    -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 $(FUZZ_SCRATCH)/corpus/$(TARGET) Tests/Fuzz/Corpus/$(TARGET)

# Which sanitizers, each with a build of its own. C code of dependencies is not instrumented. Everything takes many times as
# long, so fewer tests run at once; one may still miss a time limit on a busy machine. A report is always a fault. Leaks are
# not looked for: Swift stores shifted pointers, which the leak sanitizer does not find. The soak test measures memory.
SANITIZERS ?= address thread

sanitize: ## every test under the address and the thread sanitizer, each with a build of its own; SANITIZERS=thread runs one of them
	scripts/setup build test container
	for sanitizer in $(SANITIZERS); do \
	    $(BUILD_TESTS) --scratch-path .build-$$sanitizer -Xswiftc -sanitize=$$sanitizer && \
	    HOLDFAST_SANITIZER=$$sanitizer SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=8 ASAN_OPTIONS=detect_leaks=0 \
	        TSAN_OPTIONS='suppressions=$(CURDIR)/Tests/Sanitizers/thread.txt' \
	        TEST_PROGRAM=.build-$$sanitizer/debug/holdfastPackageTests.xctest scripts/test --apart || exit 1; \
	done

# The simulator is a release build that uses declarations which only tests may see.
SIMULATE_SCRATCH = .build-simulate
SIMULATE_FLAGS   = --configuration release --scratch-path $(SIMULATE_SCRATCH) -Xswiftc -enable-testing
# Which runs, how many steps each has, and how many run at once (JOBS). For ARGUMENTS, see `simulate --help`.
SEEDS     ?= 0..<1000
STEPS     ?= 1000
JOBS      ?= 2
ARGUMENTS ?=

simulate: ## run SEEDS (A..<B) of STEPS steps each of daemons in a simulated world, and check every invariant
	scripts/setup build
	$(SWIFT) build $(SIMULATE_FLAGS) --product simulate
	$(SIMULATE_SCRATCH)/release/simulate --seeds '$(SEEDS)' --steps $(STEPS) --jobs $(JOBS) $(ARGUMENTS)

simulate-mutants: ## build the simulator with known mistakes, one by one, and show how soon each is found
	scripts/setup build
	scripts/simulate-mutants

# How many mistakes, and which: another MUTANT_SEED chooses others, ARGUMENTS=--survivors those that survived the last time.
MUTANTS         ?= 400
MUTANT_SEED     ?= 1
MUTANTS_SCRATCH  = .build-mutants/mechanical

mutants: ## make MUTANTS mechanical mistakes in the pure modules, one by one, and show which are found
	scripts/setup build
	$(SWIFT) build --package-path Tests/Simulation/MechanicalMutants --scratch-path $(MUTANTS_SCRATCH)/tool --disable-index-store
	$(MUTANTS_SCRATCH)/tool/debug/mutants --count $(MUTANTS) --seed $(MUTANT_SEED) --jobs $(JOBS) \
	    --scratch $(MUTANTS_SCRATCH) $(ARGUMENTS)

bench-recovery: ## how long after a fault a session is back, beside its peers; as root, 40 minutes, or 2 with OUTAGES=2 REPEAT=1
	scripts/setup build bench
	@$(MAKE) --no-print-directory build
	Benchmarks/Recovery/bench-recovery $(RELEASE)

bench-fairness: ## how long one program's publishes take while 128 connections misuse the control socket; 5 minutes
	scripts/setup build bench
	@$(MAKE) --no-print-directory build
	Benchmarks/Fairness/bench-fairness $(RELEASE)

bench-throughput: ## messages per second and what each costs, beside its peers; PARTS='outbound inbound', COUNT and REPEAT measure less
	scripts/setup build bench
	@$(MAKE) --no-print-directory build
	Benchmarks/Throughput/bench-throughput $(RELEASE)

bench-idle: ## what a session costs while nothing happens, beside its peers; LEFT_ALONE=120 HEARTBEAT=60
	scripts/setup build bench
	@$(MAKE) --no-print-directory build
	Benchmarks/Idle/bench-idle $(RELEASE)

bench-sessions: ## what many sessions cost, beside a bare client; COUNTS='100 1000 4000 10000'
	scripts/setup build bench
	@$(MAKE) --no-print-directory build
	Benchmarks/Sessions/bench-sessions $(RELEASE)

lint: ## check the format, the imports, the scripts, the manuals and that the mutants still apply
	$(SWIFT) format lint --strict --parallel --recursive Sources Tests Examples Package.swift
	scripts/check-imports
	scripts/simulate-mutants --check
	for script in $(SCRIPTS); do bash -n $$script || exit 1; done
	python3 -c 'import ast, sys; [ast.parse(open(file).read(), file) for file in sys.argv[1:]]' $(PYTHON)
	scripts/check-manuals $(MAN1) $(MAN5) $(MAN7) $(MAN8)
	$(SWIFT) build --explicit-target-dependency-import-check error

build: ## build the release
	$(SWIFT) build $(RELEASE_FLAGS) --product holdfastd
	$(SWIFT) build $(RELEASE_FLAGS) --product holdfastctl
	@cd $(RELEASE) && for program in holdfastd holdfastctl; do \
	    strip -o $$program.stripped $$program && \
	    printf '%s: %s bytes without symbols\n' $$program $$(stat --format %s $$program.stripped) && \
	    rm $$program.stripped || exit 1; \
	done

# Nothing is built here, so that `sudo make install` leaves no files of root in the build directory.
install: ## install the release under DESTDIR; configuration that is there stays as it is
	@test -x $(RELEASE)/holdfastd -a -x $(RELEASE)/holdfastctl || { echo 'run "make build" first' >&2; exit 1; }
	install -D -m 755 $(STRIP) $(RELEASE)/holdfastd $(DESTDIR)$(sbindir)/holdfastd
	install -D -m 755 $(STRIP) $(RELEASE)/holdfastctl $(DESTDIR)$(bindir)/holdfastctl
	install -d $(DESTDIR)$(UNITDIR)
	for unit in $(UNITS); do \
	    sed -e 's,/usr/sbin/,$(sbindir)/,' -e 's,/usr/bin/,$(bindir)/,' $$unit \
	        > $(DESTDIR)$(UNITDIR)/$$(basename $$unit) && \
	    chmod 644 $(DESTDIR)$(UNITDIR)/$$(basename $$unit) || exit 1; \
	done
	install -D -m 644 systemd/holdfast.sysusers $(DESTDIR)$(libdir)/sysusers.d/holdfast.conf
	install -D -m 644 systemd/holdfast.tmpfiles $(DESTDIR)$(libdir)/tmpfiles.d/holdfast.conf
	install -D -m 644 systemd/holdfast.catalog $(DESTDIR)$(libdir)/systemd/catalog/holdfast.catalog
	install -d $(foreach file,$(COMPLETIONS),$(DESTDIR)$(datadir)/$(dir $(file)))
	for shell in bash zsh fish; do \
	    $(RELEASE)/holdfastctl completion $$shell > $(DESTDIR)$(datadir)/completion.$$shell || exit 1; \
	done
	cd $(DESTDIR)$(datadir) && mv completion.bash $(word 1,$(COMPLETIONS)) && mv completion.zsh $(word 2,$(COMPLETIONS)) && \
	    mv completion.fish $(word 3,$(COMPLETIONS)) && chmod 644 $(COMPLETIONS)
	install -D -m 644 -t $(DESTDIR)$(mandir)/man1 $(MAN1)
	install -D -m 644 -t $(DESTDIR)$(mandir)/man5 $(MAN5)
	install -D -m 644 -t $(DESTDIR)$(mandir)/man7 $(MAN7)
	install -D -m 644 -t $(DESTDIR)$(mandir)/man8 $(MAN8)
	install -D -m 644 -t $(DESTDIR)$(docdir) README.md CHANGELOG.md CONTRIBUTING.md LICENSE
	install -D -m 644 -t $(DESTDIR)$(docdir)/Documentation Documentation/*.md
	install -D -m 644 -t $(DESTDIR)$(docdir)/Documentation/decisions Documentation/decisions/*.md
	find Examples -type f | while read -r file; do \
	    install -D -m 644 "$$file" "$(DESTDIR)$(docdir)/$$file" || exit 1; \
	done
	install -d $(DESTDIR)/etc/holdfast/sessions.d
	find etc/holdfast -type f | while read -r file; do \
	    test -e "$(DESTDIR)/$$file" || install -m 644 "$$file" "$(DESTDIR)/$$file" || exit 1; \
	done
	@test -n '$(DESTDIR)' || { echo; echo 'Then, as root:'; \
	    echo '  systemd-sysusers'; echo '  systemd-tmpfiles --create holdfast.conf'; \
	    echo '  journalctl --update-catalog'; echo '  systemctl daemon-reload'; \
	    echo '  systemctl enable --now holdfast'; \
	    echo 'After an upgrade, besides:'; echo '  systemctl restart holdfast'; }

uninstall: ## remove what install installed, but not configuration and state
	rm -f $(DESTDIR)$(sbindir)/holdfastd $(DESTDIR)$(bindir)/holdfastctl
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(UNITS)))
	rm -f $(DESTDIR)$(libdir)/sysusers.d/holdfast.conf $(DESTDIR)$(libdir)/tmpfiles.d/holdfast.conf
	rm -f $(DESTDIR)$(libdir)/systemd/catalog/holdfast.catalog
	rm -f $(foreach page,$(MAN1) $(MAN5) $(MAN7) $(MAN8),\
	    $(DESTDIR)$(mandir)/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))
	rm -f $(addprefix $(DESTDIR)$(datadir)/,$(COMPLETIONS))
	rm -rf $(DESTDIR)$(docdir)
	@test -n '$(DESTDIR)' || { echo 'Then, as root:'; \
	    echo '  journalctl --update-catalog'; echo '  systemctl daemon-reload'; }
	@echo 'Kept: $(DESTDIR)/etc/holdfast, $(DESTDIR)/var/lib/holdfast, the user and the groups.'

IMAGE = .build-image
# podman or docker, and the name of the image.
ENGINE     ?= $(or $(shell command -v podman),docker)
IMAGE_NAME ?= holdfast

# In its default format, podman omits the health check.
image: build ## make an image for containers of the release, with podman or docker; Examples/Container says how to run it
	install -D -m 755 --strip --target-directory $(IMAGE) $(RELEASE)/holdfastd $(RELEASE)/holdfastctl
	$(ENGINE) build $(if $(findstring podman,$(ENGINE)),--format docker) --file Examples/Container/Containerfile \
	    --tag '$(IMAGE_NAME)' $(IMAGE)

WHEEL = .build-wheel

# Debian's Python, for which scripts/setup installs what this needs; there may be others in $PATH.
wheel: ## make a wheel of the client for Python, in .build-wheel: pip install .build-wheel/*.whl
	scripts/setup wheel
	rm -rf $(WHEEL)
	install -D -m 644 --target-directory $(WHEEL)/source $(addprefix Examples/Python/,holdfast.py pyproject.toml setup.py)
	/usr/bin/python3 -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir $(WHEEL) $(WHEEL)/source
	@ls -l $(WHEEL)/*.whl

DEB      = .build-deb
APT_REPO = .build-apt

deb: ## build the Debian package, and its debug symbols, in .build-deb, and check it with lintian
	scripts/setup build package
	@$(MAKE) --no-print-directory build
	rm -rf $(DEB)
	scripts/package $(RELEASE) $(DEB)
	lintian --fail-on error,warning --info $(DEB)/*.changes
	@ls -l $(DEB)/*.deb

apt-repo: ## make a repository for apt in .build-apt, signed with your key of gpg, or the one that HOLDFAST_KEY names
	scripts/apt-repository --check-key
	@$(MAKE) --no-print-directory deb
	scripts/apt-repository $(DEB) $(APT_REPO)

test-package: deb ## the package of the release, installed, upgraded, downgraded, removed and purged on a booted Debian
	scripts/setup test container
	$(BUILD_TESTS)
	HOLDFAST_REQUIRE_ALL=1 HOLDFAST_PACKAGE='$(abspath $(DEB))' scripts/test --filter EndToEnd/Package

clean: ## remove everything that was built
	rm -rf .build .build-servers .build-container $(RELEASE_SCRATCH) $(FUZZ_SCRATCH) $(SIMULATE_SCRATCH) .build-mutants \
	    .build-address .build-thread $(IMAGE) $(WHEEL) $(DEB) $(APT_REPO)
