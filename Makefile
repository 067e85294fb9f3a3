# What a person or a machine does with this repository. `make` alone lists it.

CARGO ?= cargo
BUILT := $(or $(CARGO_TARGET_DIR),target)/release/decode
# The offline model answers at once; so slow, a person can watch it.
DECODE_OFFLINE_PACE_MS ?= 700
export DECODE_OFFLINE_PACE_MS

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## install what is missing of tmux, git, python3 and bubblewrap
	@.ci/setup

demo: setup ## build, then watch three agents read this repository; no key, no network
	$(CARGO) build --release --locked
	@printf '\nThree agents work in tmux windows. Watch them from another terminal:\n\n'
	@printf '    %s attach last          or: tmux -L %s attach\n\n' '$(BUILT)' "$${DECODE_TMUX_SOCKET:-decode}"
	@$(BUILT) fan --agent explore --model offline/explorer \
	  'Where is the state of a child changed? Start at src/machine and report the function with path:line.' \
	  'How is the fold cut to its budget when reports are long? Report the functions with path:line.' \
	  'Where does a child claim its attempt, and who else can create the claim? Report the functions with path:line.'

test: setup ## run all tests
	$(CARGO) test --locked

lint: ## check format and lints
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings

bench: ## measure what supervising costs
	$(CARGO) bench --locked

install: ## put decode into ~/.cargo/bin
	$(CARGO) install --path . --locked

clean: ## remove what was built
	$(CARGO) clean
