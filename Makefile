# Go, Node and npm are all that is needed: `make dev` and `make test` fetch the
# rest from their registries.

# Flags of `make dev` and `make bench`, such as ARGS='--instances 4'.
ARGS =
# Where binaries go.
BIN = bin
# For each fuzz target: a time, or a number of executions such as 20000x.
FUZZTIME = 10s

# All packages but the end-to-end tests.
INSIDE = $$(go list ./... | grep -v /e2e)

# Of tests that need more: curl, a command of Python's, Lambda's emulator.
TAGS = curl,moto,awscli,sam,rie

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: dev build test race fuzz lint bench prices-check build-Generate build-ClearLimit build-SpendAlarm

dev: node_modules/.package-lock.json build
	@exec $(BIN)/tokenfuse dev $(ARGS)

build:
	@go build -o $(BIN)/ ./cmd/tokenfuse

# Not cached: the end-to-end tests build the programs themselves. These come last and
# one after the other: a starved program rightly answers that its store is too slow.
test: node_modules/.package-lock.json
	go vet ./... && go vet -tags $(TAGS) ./...
	go test -count=1 $(INSIDE)
	go test -count=1 -p 1 ./e2e/...

race: node_modules/.package-lock.json
	go test -race $(INSIDE)
	go test -race -p 1 ./e2e/...

# go test fuzzes one target of one package at a time.
fuzz: node_modules/.package-lock.json
	@grep -r --include='*_test.go' --exclude-dir=node_modules '^func Fuzz' . | \
	sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*).*|\1 \2|' | sort | \
	while read -r dir name; do \
		echo "fuzz $$dir $$name"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$dir" || exit 1; \
	done

lint:
	@unformatted=$$(gofmt -l .) && test -z "$$unformatted" || \
		{ echo "lint: not as gofmt writes it: $$unformatted" >&2; exit 1; }
	go vet ./... && go vet -tags $(TAGS) ./...
	go run $(STATICCHECK) -tags $(TAGS) ./...

bench: node_modules/.package-lock.json
	go run ./bench $(ARGS)

# Prices of tokenfuse.yaml and prices.yaml against those published in npm's
# @pydantic/genai-prices. ARGS='--meant small' for a price that is meant to differ.
prices-check: node_modules/.package-lock.json
	go run ./cmd/tokenfuse prices $(ARGS) tokenfuse.yaml prices.yaml

# The DynamoDB-compatible engine, and the client of the examples and tests. npm
# writes this file when it installs.
node_modules/.package-lock.json: package.json package-lock.json
	npm ci
	@touch $@

# What `sam build` runs for each function. CONFIG=prod.yaml sam build takes another
# configuration; one with mistakes ends the build. Two builds give the same bytes.
CONFIG ?= tokenfuse.yaml

build-Generate: FUNCTION = generate
build-ClearLimit: FUNCTION = clearlimit
build-SpendAlarm: FUNCTION = spendalarm
build-Generate build-ClearLimit build-SpendAlarm:
	go run ./cmd/tokenfuse check --config $(CONFIG)
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -buildvcs=false -tags lambda.norpc -ldflags '-s -w' \
		-o $(ARTIFACTS_DIR)/bootstrap ./functions/$(FUNCTION)
	cp $(CONFIG) $(ARTIFACTS_DIR)/tokenfuse.yaml
