# Targets: test (what CI runs), lint, race, unit, kafka, bench, fuzz, clean.
# See CONTRIBUTING.md.

GO          ?= go
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
MODULES      = . cmd/fronta

# Packages whose tests need Apache Kafka; they skip themselves without Java.
KAFKA        = ./test/kafka/...
PACKAGES     = $$($(GO) list ./... | grep -v /test/kafka)

.PHONY: test lint unit race kafka command bench fuzz clean

# Everything, in the order in which it fails fastest.
test: lint unit race command kafka
	@echo "make test: all of it passed"

lint:
	@out=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	if [ -n "$$out" ]; then echo "not gofmt-ed:"; echo "$$out"; exit 1; fi
	@for m in $(MODULES); do (cd $$m && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...) || exit 1; done
	@cd cmd/fronta && GOWORK=off $(GO) build -o /dev/null .

# The random histories of the core run here, without the race detector.
unit:
	$(GO) test -count=1 $(PACKAGES)

race:
	$(GO) test -race -short -count=1 $(PACKAGES)

command:
	cd cmd/fronta && $(GO) test -count=1 ./...

# Apache Kafka 4.4, fetched by Maven into .kafka/ and started by the tests.
kafka:
	$(GO) test -count=1 -timeout 20m $(KAFKA)

bench:
	$(GO) run ./cmd/fronta bench noop
	$(GO) run ./cmd/fronta bench sleep
	$(GO) run ./cmd/fronta bench inflight
	$(GO) run ./cmd/fronta bench settle
	$(GO) run ./cmd/fronta bench keys
	$(GO) run ./cmd/fronta bench progress

# Each fuzz target for FUZZTIME.
FUZZTIME ?= 30s
fuzz:
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; \
	done

clean:
	rm -rf .kafka bin
