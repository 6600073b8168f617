# `make demo` and `make test` do everything on a fresh machine; `make help` lists the rest.

# What cargo is told where OpenCV is not there and could not be installed: everything but video files and cameras.
OPENCV_OR_NOT = $$(bash demos/install-opencv.sh --check || echo --no-default-features --features ocelli/cli,ocelli/cuda)
# What else is built: make test FEATURES=tensorrt-rtx
FEATURES ?=
MORE = $(if $(FEATURES),--features $(addprefix ocelli/,$(FEATURES)))
# What the demo is built with. Who has just built the tests saves minutes with dev, which is slower to run.
PROFILE ?= release
BUILT = $(or $(CARGO_TARGET_DIR),target)/$(PROFILE:dev=debug)
# Where `make install` puts things; packagers set DESTDIR as well.
PREFIX ?= /usr/local
SHARE = $(DESTDIR)$(PREFIX)/share

.PHONY: help demo install test setup bench bench-full lint doc

help:
	@echo "make demo        find things in drawn scenes with the built-in model: a picture and a table"
	@echo "make install     install ocelli, demo-image and demo-video with completions and man pages [PREFIX=/usr/local]"
	@echo "make test        all tests"
	@echo "make setup       fetch ONNX Runtime's library into ~/.local/share/ocelli, install OpenCV where it is missing"
	@echo "make bench       measure the built-in model"
	@echo "make bench-full  measure a full-size model with random weights beside transformers (needs 12 GB of disk)"
	@echo "make lint        formatting and lints, warnings are errors"

setup:
	@bash engines/fetch-onnxruntime.sh
	@bash demos/install-opencv.sh

demo: setup
	cargo build --profile $(PROFILE) -p ocelli -p ocelli-demos $(OPENCV_OR_NOT) $(MORE)
	$(BUILT)/demo-image --image demos/scenes/ \
	  --classes person dog cat car bus bicycle airplane boat "traffic light" bird kite tree house cup apple banana \
	            pizza cake couch tv clock book "teddy bear" "potted plant" rocket star moon robot butterfly turtle fish \
	  -o target/demo/ --sheet target/demo.png
	@echo "look at target/demo.png"

install: setup
	cargo build --profile $(PROFILE) -p ocelli-cli -p ocelli-demos \
	  $$(bash demos/install-opencv.sh --check || echo --no-default-features --features ocelli-cli/cuda) \
	  $(if $(FEATURES),--features $(addprefix ocelli-cli/,$(FEATURES)))
	install -d $(DESTDIR)$(PREFIX)/bin $(SHARE)/man/man1 $(SHARE)/bash-completion/completions \
	  $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	install $(BUILT)/ocelli $(BUILT)/demo-image $(BUILT)/demo-video $(DESTDIR)$(PREFIX)/bin
	$(BUILT)/ocelli man $(SHARE)/man/man1
	for program in ocelli demo-image demo-video; do \
	  $(BUILT)/ocelli completions bash --program $$program > $(SHARE)/bash-completion/completions/$$program && \
	  $(BUILT)/ocelli completions zsh --program $$program > $(SHARE)/zsh/site-functions/_$$program && \
	  $(BUILT)/ocelli completions fish --program $$program > $(SHARE)/fish/vendor_completions.d/$$program.fish || exit 1; \
	done

test: setup
	cargo test --workspace $(OPENCV_OR_NOT) $(MORE)

bench: setup
	cargo build --release --workspace
	target/release/bench-detect --output benchmarks/runs/$(shell date +%F)-built-in
	target/release/bench-video --output benchmarks/runs/$(shell date +%F)-built-in
	target/release/bench-track --output benchmarks/runs/$(shell date +%F)-built-in

bench-full: setup
	cargo build --release --workspace
	bash benchmarks/full_size/run.sh

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(MORE) -- -D warnings
	cargo clippy -p ocelli --lib --tests --no-default-features -- -D warnings

doc: setup
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps $(MORE)
