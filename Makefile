# GridMPI. `make` builds, `make demo` shows it, `make test` checks it; each does its own set-up.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
OUT := out
# Seeds of the simulator in `make sim`; seconds for each target of `make fuzz`.
SEEDS ?= 100000
SECONDS_EACH ?= 60

.PHONY: all build setup test unit e2e demo lint deny sim fuzz bench install clean

all: build

# Cargo cannot put a hyphen into a library's name, so the libraries get their names here.
build:
	$(CARGO) build --release --workspace
	@mkdir -p $(OUT)/bin $(OUT)/lib
	@install -m 755 $(TARGET)/release/gridmpi $(OUT)/bin/gridmpi
	@install -m 644 $(TARGET)/release/libgridmpi_mpich.so $(OUT)/lib/libgridmpi-mpich.so
	@install -m 644 $(TARGET)/release/libgridmpi_openmpi.so $(OUT)/lib/libgridmpi-openmpi.so

setup:
	@tools/setup

# Everything that a change must pass: unit tests, then every program through every way of the quick matrix.
test: setup unit e2e

unit: setup
	$(CARGO) test --workspace

e2e: setup build
	tests/run

demo: setup build
	demo/run

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# Licences, sources and advisories of the dependencies. Installs cargo-deny under .vendors/ the first time, which takes minutes.
deny:
	@tools/deny

sim:
	$(CARGO) run --release -p gridmpi-sim -- --seeds 0..$(SEEDS)

fuzz:
	tools/fuzz $(SECONDS_EACH)

# What messages cost, what pacing gains, an allocation of rates; each tells which of its bounds are met.
bench: setup build
	$(OUT)/bin/gridmpi bench p2p
	$(OUT)/bin/gridmpi bench rates --quick
	$(CARGO) bench -p gridmpi-rate

install: build
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/doc/gridmpi
	install -m 644 include/gridmpi.h include/gridmpif.h $(DESTDIR)$(PREFIX)/include/
	install -m 755 $(OUT)/bin/gridmpi $(DESTDIR)$(PREFIX)/bin/gridmpi
	install -m 644 $(OUT)/lib/libgridmpi-mpich.so $(OUT)/lib/libgridmpi-openmpi.so $(DESTDIR)$(PREFIX)/lib/
	install -m 644 docs/*.md $(DESTDIR)$(PREFIX)/share/doc/gridmpi/
	sed 's,/usr/local/,$(PREFIX)/,' tools/gridmpi-relay.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/gridmpi-relay.service

clean:
	$(CARGO) clean
	rm -rf $(OUT)
