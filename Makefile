# `make demo` and `make test` do everything on a fresh machine; `make help` lists the rest.

# Profile of what is built; by default `quick` for the demo and `release` for the installation. `dev` is that of the tests.
PROFILE ?=
# A program that is built already, for the demo.
PROGRAM ?=
TARGET = $(or $(CARGO_TARGET_DIR),target)
BUILT = $(TARGET)/$(or $(PROFILE:dev=debug),release)
DEMO = $(TARGET)/$(or $(PROFILE:dev=debug),quick)
# What builds the programs that are installed.
CARGO_BUILD = cargo build
# Where `make install` installs; packagers set DESTDIR as well.
PREFIX ?= /usr/local
SHARE = $(DESTDIR)$(PREFIX)/share

.PHONY: help demo test setup video opencv tensorrt install install-programs install-c dist python web bench bench-full bench-programs check-all lint doc size

help:
	@echo "make demo        detect objects in drawn scenes with the built-in model: an image and a table; needs Rust alone"
	@echo "make test        run all tests"
	@echo "make install     install the programs, shell completions, man pages and the C library below PREFIX (/usr/local)"
	@echo "make install-c   install the C library, its headers, and what pkg-config and CMake find it by below PREFIX"
	@echo "make dist        build packages for other machines into target/dist: a tar, a Debian package and a wheel, for glibc 2.28"
	@echo "make python      build the Python wheel and test it in a fresh environment"
	@echo "make web         build the page that detects in the browser, and its npm package, into target/web"
	@echo "make setup       fetch the libraries of ONNX Runtime, its WebGPU provider and OpenVINO into ~/.local/share/ocelli,"
	@echo "                 and make tensorrt"
	@echo "make video       install FFmpeg from Debian's packages and build the video library: files, streams, cameras"
	@echo "make opencv      the same, with OpenCV and the library of windows"
	@echo "make tensorrt    build Ocelli's parts for TensorRT and TensorRT for RTX; needs a C++ compiler, neither of the two"
	@echo "make bench       measure the built-in model"
	@echo "make bench-full  measure a full-size model with random weights beside transformers (20 GB of disk)"
	@echo "make check-all   run the checks that need other projects or take long, and write tests/runs/DATE.md;"
	@echo "                 STEP=\"python c\" runs some, RESUME=1 those that have not passed on these files"
	@echo "make lint        formatting and lints; warnings are errors"
	@echo "make size        code lines by crate, long functions, circles of files, and whether they are within the limits"
	@echo "make doc         the API documentation; warnings are errors"

setup: tensorrt
	@bash engines/fetch-onnxruntime.sh
	@bash engines/fetch-openvino.sh
	@bash engines/fetch-webgpu.sh

NO_VIDEO = echo "warning: video files, cameras and windows cannot be used without the video library" >&2
opencv:
	@bash src/opencv/install.sh && bash src/opencv/build.sh || $(NO_VIDEO)
video:
	@bash src/opencv/install.sh video && bash src/opencv/build.sh || $(NO_VIDEO)

tensorrt:
	@bash engines/tensorrt/build.sh || \
	  echo "warning: TensorRT cannot be used without Ocelli's parts for it" >&2

demo:
	$(if $(PROGRAM),,cargo build --profile $(or $(PROFILE),quick) -p ocelli-cli --no-default-features)
	$(or $(PROGRAM),$(DEMO)/ocelli) detect --image demos/scenes/ \
	  --classes person dog cat car bus bicycle airplane boat "traffic light" bird kite tree house cup apple banana \
	            pizza cake couch tv clock book "teddy bear" "potted plant" rocket star moon robot butterfly turtle fish \
	  -o target/demo/ --sheet target/demo.png
	@echo "look at target/demo.png"

# Without the libraries of `make setup`, which come through pip, of `make opencv` and of `make tensorrt`, the tests that need them
# are ignored.
test: opencv
	@if ! $(MAKE) --no-print-directory setup; then \
	  echo "warning: tests that need the libraries of \`make setup\` are ignored" >&2; \
	  export RUSTFLAGS="$$RUSTFLAGS --cfg without_libraries"; \
	fi; \
	if ! bash src/opencv/build.sh >/dev/null 2>&1; then export RUSTFLAGS="$$RUSTFLAGS --cfg without_video"; fi; \
	if ! bash engines/tensorrt/build.sh >/dev/null 2>&1; then export RUSTFLAGS="$$RUSTFLAGS --cfg without_tensorrt"; fi; \
	export CARGO_INCREMENTAL=0; \
	cargo test --no-fail-fast --workspace --exclude ocelli-python --no-default-features --features "fonts hub serve"

install: opencv setup install-c install-programs
	if bash src/opencv/build.sh $(TARGET)/video; then \
	  install -d $(DESTDIR)$(PREFIX)/lib && install $(TARGET)/video/libocelli_*.* $(DESTDIR)$(PREFIX)/lib; \
	fi

install-programs:
	$(CARGO_BUILD) --profile $(or $(PROFILE),release) -p ocelli-cli --no-default-features --features "fonts hub serve"
	install -d $(DESTDIR)$(PREFIX)/bin $(SHARE)/man/man1 $(SHARE)/bash-completion/completions \
	  $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	install $(BUILT)/ocelli $(DESTDIR)$(PREFIX)/bin
	for program in demo-image demo-video; do ln -sf ocelli $(DESTDIR)$(PREFIX)/bin/$$program || exit 1; done
	$(BUILT)/ocelli man $(SHARE)/man/man1
	for program in ocelli demo-image demo-video; do \
	  $(BUILT)/ocelli completions bash --program $$program > $(SHARE)/bash-completion/completions/$$program && \
	  $(BUILT)/ocelli completions zsh --program $$program > $(SHARE)/zsh/site-functions/_$$program && \
	  $(BUILT)/ocelli completions fish --program $$program > $(SHARE)/fish/vendor_completions.d/$$program.fish || exit 1; \
	done

# Built alone, so that it has none of the features of the programs. With it comes what TensorRT needs.
install-c:
	$(CARGO_BUILD) --profile $(or $(PROFILE),release) -p ocelli-c --features hub
	bash bindings/c/install.sh $(BUILT)/libocelli_c.so $(PREFIX)
	if bash engines/tensorrt/build.sh $(TARGET)/tensorrt; then \
	  install -d $(DESTDIR)$(PREFIX)/lib && install $(TARGET)/tensorrt/libocelli_tensorrt*.so $(DESTDIR)$(PREFIX)/lib; \
	fi

dist:
	bash packaging/dist.sh

python:
	bash bindings/python/check.sh $(or $(PROFILE),dev)

web:
	@bash bindings/wasm/build.sh

bench-programs: opencv setup
	cargo build --release -p ocelli-cli
	cargo build --release --manifest-path benchmarks/Cargo.toml --target-dir $(TARGET)

bench: bench-programs
	target/release/bench detect --output benchmarks/runs/$(shell date +%F)-built-in
	target/release/bench video --output benchmarks/runs/$(shell date +%F)-built-in
	target/release/bench track --output benchmarks/runs/$(shell date +%F)-built-in

bench-full: bench-programs
	bash benchmarks/full_size/run.sh

check-all: opencv setup
	STEP="$(STEP)" RESUME="$(RESUME)" LIST="$(LIST)" bash tests/check-all.sh

lint: opencv setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	python3 tests/mutations/run.py check

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

size:
	@python3 tests/size.py
	@python3 tests/circles.py
