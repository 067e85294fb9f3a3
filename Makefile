# What a person or a machine does with this repository. `make` alone lists it.

CARGO ?= cargo
BUILT := $(or $(CARGO_TARGET_DIR),target)/release/decode
# The built-in search answers at once; with a pause before each step a person can watch it.
DECODE_OFFLINE_PACE_MS ?= 700
export DECODE_OFFLINE_PACE_MS

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## install what is missing of tmux, git, python3, bubblewrap and rust-analyzer
	@.ci/setup

demo: setup ## build, then watch three agents read this repository; no key, no network
	$(CARGO) build --release --locked
	@printf '\nThree agents work in tmux windows. Watch them from a second terminal, in this directory:\n\n'
	@printf '    %s attach last\n\n' '$(BUILT)'
	@$(BUILT) fan --agent explore --model offline/explorer --from .ci/demo.md
	@printf '\nThat was the fold. Next: make install, then decode fan on code of your own.\n'

test: setup ## run all tests
	$(CARGO) test --locked

lint: ## check format and lints
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings

bench: ## measure what supervising costs
	$(CARGO) bench --locked

install: ## put decode into ~/.cargo/bin (replaces an older one)
	$(CARGO) install --path . --locked

clean: ## remove what was built
	$(CARGO) clean
