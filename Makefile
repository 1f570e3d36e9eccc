# Gatehouse: the targets everybody knows. `make help` lists them.
# Nothing here needs more than Go and, for sandboxes, bubblewrap; setup sees to it.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
BIN     := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
PKGS    := ./...

# The race detector needs cgo and doubles build times: `make check` goes without.
export CGO_ENABLED ?= 0

.PHONY: help setup build demo check test soak lint soak-crash bench dist verifyjs verifyjs-check policies policies-check sdk-test fuzz clean cross test-race test-ui test-agents screenshots pages

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

setup: ## install what is missing (root on Debian or Ubuntu), else print exactly what to install
	@scripts/setup

build: ## build the binaries into bin/
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

demo: ## a signed event, a hostile agent in a real sandbox, receipts verified
	@scripts/setup demo
	@$(MAKE) --no-print-directory build
	@$(BIN)/gatehouse demo $(DEMO_ARGS)

lint: ## gofmt, vet (copylocks included), staticcheck
	@files=$$(git ls-files '*.go' | xargs -r gofmt -l); if [ -n "$$files" ]; then echo "not gofmt-ed:"; echo "$$files"; exit 1; fi
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)

check: lint ## vet, lint and short tests: the gate before every commit (<= 5 min warm)
	$(GO) test -short -timeout 5m $(PKGS)

test: setup lint build cross test-race demo ## everything CI runs (<= 40 min cold on 2 cores)

test-race:
	CGO_ENABLED=1 $(GO) test -race -timeout 30m $(PKGS)

test-ui: setup ## the pages in Chromium: every page and state, two people from would-block to hard mode (part of test)
	$(GO) test -count=1 -timeout 40m ./ui/...
	$(GO) test -count=1 -timeout 20m -run '^(TestJourney|TestTwoPeopleLive)$$' ./cmd/gatehouse

test-agents: ## opt-in: the real Claude Code, Codex, Gemini CLI and OpenCode, from npm, against models that follow a script
	@scripts/setup
	@scripts/agents/install
	GATEHOUSE_TEST_AGENTS=1 $(GO) test -count=1 -timeout 30m -run TestRealAgents -v ./cmd/gatehouse

screenshots: setup ## every page and state into docs/screenshots
	rm -rf docs/screenshots && mkdir -p docs/screenshots
	SCREENSHOTS="$(CURDIR)/docs/screenshots" $(GO) test -count=1 -timeout 40m -run 'TestUI|TestLiveTail|TestStates' ./ui/e2e

pages: ## generate the pages' code from ui/*.templ; check fails when it differs
	$(GO) tool templ generate -path ui

cross: ## the auditor's verifier for three systems
	@for os in linux darwin windows; do echo "build gatehouse-verify for $$os"; GOOS=$$os CGO_ENABLED=0 $(GO) build -trimpath -o /dev/null ./cmd/gatehouse-verify; done

# What an auditor needs, and nothing of the node. Same sources, same toolchain: same bytes (-trimpath, no build ids).
dist: verifyjs-check ## the auditor's verifiers for release, with their digests, into dist/
	@rm -rf dist && mkdir dist
	@for t in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do \
	  out=dist/gatehouse-verify-$${t%/*}-$${t#*/}; [ $${t%/*} = windows ] && out=$$out.exe; \
	  echo "build $$out"; \
	  GOOS=$${t%/*} GOARCH=$${t#*/} CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o $$out ./cmd/gatehouse-verify; \
	done
	@cp receipts/verifyjs/verify.html receipts/verifyjs/verify.mjs dist/
	@cd dist && sha256sum -- * > SHA256SUMS && cat SHA256SUMS

soak: setup build ## the full counts written in the issues; takes hours
	GATEHOUSE_SOAK=1 CGO_ENABLED=1 $(GO) test -race -timeout 6h $(PKGS)

soak-crash: setup build ## the soak of kill -9 alone, SOAK_TIME (50m) at a time; bin/soak-crash counts its 100 rounds over several runs
	GATEHOUSE_SOAK=1 GATEHOUSE_SOAK_TIME=$${SOAK_TIME:-50m} GATEHOUSE_SOAK_COUNT=$(CURDIR)/bin/soak-crash CGO_ENABLED=1 $(GO) test -race -count=1 -run '^TestCrash$$' -v -timeout 6h ./cmd/gatehouse

bench: ## JSON lines {"name","ours","base","ratio","unit"}
	@scripts/bench

policies: ## rebuild the embedded std.wasm and its SHA256SUMS
	$(GO) run ./wasm/policies/build

policies-check: ## fail if a rebuild of std.wasm differs from the one checked in
	$(GO) run ./wasm/policies/build -check

verifyjs: ## rebuild verify.html, the verifier that is a page
	$(GO) run ./receipts/verifyjs/build

verifyjs-check: ## fail if a rebuild of verify.html differs from the one checked in
	$(GO) run ./receipts/verifyjs/build -check

sdk-test: ## the example enforcer in C, Rust and AssemblyScript against the vectors; opt-in, the script names its tools
	@GO='$(GO)' wasm/sdk/test.sh

FUZZTIME ?= 20s
fuzz: ## run every fuzz target for FUZZTIME
	@scripts/fuzz $(FUZZTIME)

clean: ## remove what the targets made
	rm -rf $(BIN) dist
