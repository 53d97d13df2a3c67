# Go, Node and npm are all that is needed: `make dev` and `make test` fetch the
# rest from their registries. `make help` names the targets.

# Flags of `make dev`, `make bench` and `make prices-check`, such as
# ARGS='--instances 4'.
ARGS =
# Where binaries go.
BIN = bin
# For each fuzz target: a time, or a number of executions such as 20000x; and how many of
# these targets of whole requests on a real store get, which are slower.
FUZZTIME = 10s
FUZZTIME_WHOLE = $(FUZZTIME)
FUZZ_WHOLE = ./e2e/lambda|./functions/clearlimit/admin|./internal/auth

# All packages but the end-to-end tests.
INSIDE = $$(go list ./... | grep -v /e2e)

# A program of the tests that needs what the product does not: a module of its own,
# which ./... leaves out.
SDK = internal/provider/anthropicsdk

# Of tests that need more: curl, a command of Python's, clients, Lambda's emulator.
TAGS = curl,moto,awscli,sam,clients,rie,docker

GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: dev help build test race fuzz mutation vet systems lint vuln modules ci bench prices-check schema pictures build-Generate build-ClearLimit build-SpendAlarm

dev: node_modules/.package-lock.json build ## run everything on this machine
	@exec $(BIN)/tokenfuse dev $(ARGS)

help: ## name the targets
	@awk -F ':.* ## ' '/^[a-z-]+:.* ## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the command tokenfuse
	@go build -o $(BIN)/ ./cmd/tokenfuse

# Not cached: the end-to-end tests build the programs themselves. These come last and
# one after the other: a starved program rightly answers that its store is too slow.
test: node_modules/.package-lock.json vet ## run all tests that need no more than Go and Node
	go test -count=1 $(INSIDE)
	go test -count=1 ./functions/generate/chatapi -served
	go test -count=1 -p 1 ./e2e/...

race: node_modules/.package-lock.json ## the same with the race detector
	go test -race $(INSIDE)
	go test -race -p 1 ./e2e/...

# go test fuzzes one target of one package at a time. It would try for a minute to make an
# input smaller that it finds interesting.
fuzz: node_modules/.package-lock.json ## fuzz each target for FUZZTIME
	@mkdir -p build; grep -r --include='*_test.go' --exclude-dir=node_modules '^func Fuzz' . | \
	sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*).*|\1 \2|' | sort | \
	while read -r dir name; do \
		time=$(FUZZTIME); echo "$$dir" | grep -qxE '$(FUZZ_WHOLE)' && time=$(FUZZTIME_WHOLE); \
		echo "fuzz $$dir $$name $$time"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $$time -fuzzminimizetime 20x -vet=off "$$dir" >build/fuzz.log 2>&1 || { cat build/fuzz.log; exit 1; }; \
	done

mutation: node_modules/.package-lock.json ## plant bugs that the tests must see: make mutation ARGS='-package pkg/bucket'
	@go run ./testkit/mutation $(ARGS)

vet: ## go vet, with and without the tags of tests
	go vet ./... && go vet -tags $(TAGS) ./... && go vet -C $(SDK) ./...

# The end-to-end tests need process groups and a shell, which Windows has not.
systems: ## go vet for each system that dev runs on
	@for arch in amd64 arm64; do \
		for os in darwin linux windows; do \
			packages=./...; [ $$os = windows ] && packages="$(INSIDE)"; \
			echo "vet $$os/$$arch"; GOOS=$$os GOARCH=$$arch CGO_ENABLED=0 go vet $$packages || exit 1; \
		done; \
	done

lint: vet ## gofmt, vet and golangci-lint with what .golangci.yml lists
	@unformatted=$$(gofmt -l .) && test -z "$$unformatted" || \
		{ echo "lint: not as gofmt writes it: $$unformatted" >&2; exit 1; }
	go run $(GOLANGCI) run --build-tags $(TAGS) ./...
	cd $(SDK) && go run $(GOLANGCI) run ./...

vuln: ## look for known vulnerabilities; needs vuln.go.dev
	go run $(GOVULNCHECK) ./...
	cd $(SDK) && go run $(GOVULNCHECK) ./...

modules: ## check that go.mod and go.sum are as go writes them
	go mod tidy -diff && go mod verify
	cd $(SDK) && go mod tidy -diff && go mod verify

ci: ## run all checks; needs curl, gcc, git and Python too
	bash .ci/run

bench: node_modules/.package-lock.json ## measure, and compare with the goals
	go run ./bench $(ARGS)

# ARGS='--meant small' for a price that is meant to differ.
prices-check: node_modules/.package-lock.json ## compare prices with those that npm's @pydantic/genai-prices publishes
	go run ./cmd/tokenfuse prices $(ARGS) tokenfuse.yaml prices.yaml

schema: ## write the JSON Schema of tokenfuse.yaml anew
	go run ./cmd/tokenfuse schema >tokenfuse.schema.json

pictures: node_modules/.package-lock.json ## take the pictures of docs/images; needs what .ci/run installs
	TOKENFUSE_PICTURES=$(CURDIR)/docs/images go test -count=1 -tags clients -run ClientsDemo ./e2e

# The DynamoDB-compatible engine, and the client of the examples and tests. npm
# writes this file when it installs.
node_modules/.package-lock.json: package.json package-lock.json
	npm ci
	@touch $@

# What `sam build` runs for each function. CONFIG=prod.yaml sam build takes another
# configuration; one with mistakes ends the build. Beside it goes what YAML makes of it,
# which saves a start the reading of YAML. Two builds give the same bytes.
CONFIG ?= tokenfuse.yaml

build-Generate: FUNCTION = generate
build-ClearLimit: FUNCTION = clearlimit
build-SpendAlarm: FUNCTION = spendalarm
build-Generate build-ClearLimit build-SpendAlarm:
	@mkdir -p $(ARTIFACTS_DIR)
	go run ./cmd/tokenfuse check --config $(CONFIG) --tree $(ARTIFACTS_DIR)/tokenfuse.yaml.tree
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -buildvcs=false -tags lambda.norpc -ldflags '-s -w' \
		-o $(ARTIFACTS_DIR)/bootstrap ./functions/$(FUNCTION)
	cp $(CONFIG) $(ARTIFACTS_DIR)/tokenfuse.yaml
