# Thin targets over the CMake presets and tools/. `make help` lists them.
PRESET ?= release
JOBS ?= $(shell nproc)
BUILD = build/$(PRESET)
CONFIGURE = $(if $(TESON_TORCH_DIR),-DTESON_TORCH_DIR=$(TESON_TORCH_DIR)) $(CMAKE_ARGS)
.PHONY: help setup configure build programs train test check format bench bench-actors soak fuzz clean
.DEFAULT_GOAL := help

help: ## lists these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## installs what is missing: Debian packages, the torch wheel under build/venv
	@tools/setup

configure: setup
	@cmake --preset $(PRESET) $(CONFIGURE) >build/configure.log || { cat build/configure.log; exit 1; }

build: configure ## builds everything into build/release, tests and benchmarks too
	@cmake --build $(BUILD) -j $(JOBS)

programs: configure ## builds teson and teson-worker alone
	@cmake --build $(BUILD) -j $(JOBS) --target teson teson-worker

train: programs ## trains a small model on English text, kills one of its own workers, goes on; ARGS="…" for teson train
	@tools/corpus build/corpus
	@$(BUILD)/bin/teson train configs/first_light.toml --inject kill:replica=1,step=150 $(ARGS)

test: build ## builds and runs every quick test
	@ctest --test-dir $(BUILD) -LE soak -j $(JOBS) --output-on-failure --no-tests=error

check: build ## format, clang-tidy, headers alone, sanitizers: the long check before a change lands
	@tools/check $(PRESET)

format: ## formats all C++ in place
	@tools/setup --check-tools
	@git ls-files -co --exclude-standard '*.h' '*.cpp' | xargs build/venv/bin/clang-format -i

bench: build ## runs every benchmark, with PEERS=1 beside torchft and Monarch, with QUICK=1 a short form; keeps build/bench/*.jsonl
	@tools/bench $(BUILD)/bin build/bench $(if $(PEERS),--peers) $(if $(QUICK),--quick)

bench-actors: build ## runs the benchmark of the actor runtime beside Monarch
	@tools/bench $(BUILD)/bin build/bench --peers $(if $(QUICK),--quick) bench_actor

soak: build ## runs the long tests: many injected failures
	@ctest --test-dir $(BUILD) -L soak --output-on-failure --no-tests=error

fuzz: ## searches with libFuzzer for inputs that break a decoder, SECONDS=60 each
	@tools/fuzz $(or $(SECONDS),60)

clean: ## removes builds; keeps the virtual environments and the corpus
	@mkdir -p build && find build -mindepth 1 -maxdepth 1 ! -name venv ! -name peers ! -name corpus -exec rm -rf {} +
