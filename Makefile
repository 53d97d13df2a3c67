# Go, Node and npm are all that is needed: `make dev` and `make test` fetch the
# rest from their registries.

# Flags of `make dev` and `make bench`, such as ARGS='--instances 4'.
ARGS =
# Where binaries go.
BIN = bin
# For each fuzz target: a time, or a number of executions such as 20000x.
FUZZTIME = 10s

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: dev build test race fuzz lint bench prices-check

dev: node_modules/.package-lock.json build
	@exec $(BIN)/tokenfuse dev $(ARGS)

build:
	@go build -o $(BIN)/ ./cmd/tokenfuse

# Not cached: the end-to-end tests build the binary themselves.
test: node_modules/.package-lock.json
	go vet ./... && go vet -tags curl ./e2e
	go test -count=1 ./...

race: node_modules/.package-lock.json
	go test -race ./...

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
	go vet ./... && go vet -tags curl ./e2e
	go run $(STATICCHECK) -tags curl ./...

bench: node_modules/.package-lock.json
	go run ./bench $(ARGS)

# Prices of tokenfuse.yaml and prices.yaml against those published in npm's
# @pydantic/genai-prices. ARGS='-meant small' for a price that is meant to differ.
prices-check: node_modules/.package-lock.json
	go run ./internal/policy/prices_check $(ARGS) tokenfuse.yaml prices.yaml

# The DynamoDB-compatible engine, and the client of the examples and tests. npm
# writes this file when it installs.
node_modules/.package-lock.json: package.json package-lock.json
	npm ci
	@touch $@
