#!/usr/bin/env bash
# Checks that need other projects' libraries or take long; the gate runs a part of them. Run after `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %(%T)T %s\n' -1 "$*"; }

# The tests' features, so that nothing is built twice.
features=(--no-default-features --features "fonts serve")

step "exported files in other readers"
python3 -m venv target/checkers
target/checkers/bin/pip install -q "onnx==1.23.2"
cargo build --workspace --exclude ocelli-python "${features[@]}"
bash tests/golden/parity/check_exports.sh target/debug/ocelli target/checkers/bin/python --readers
step "the tests without the libraries of make setup"
python3 tests/without_libraries.py cargo test --workspace --exclude ocelli-python "${features[@]}"
bash engines/fetch-nvidia.sh target/nvidia
. target/nvidia/environment
step "outputs of every level of mixed precision"
cargo test --workspace --exclude ocelli-python "${features[@]}" --test all -- --ignored outputs_of_every_setting
step "plans of every level of mixed precision"
cargo test --workspace --exclude ocelli-python "${features[@]}" --test all -- --ignored tensorrt_plan::every_
step "WebGPU, on a software GPU"
bash tests/fetch-software-gpu.sh target/software-gpu
# The library path is for the tests alone: build scripts that see another one run again, and everything after them.
(
  . target/software-gpu/environment
  libraries=$LD_LIBRARY_PATH
  unset LD_LIBRARY_PATH
  CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="env LD_LIBRARY_PATH=$libraries" \
    cargo test --workspace --exclude ocelli-python "${features[@]}" --test all -- --ignored webgpu
)
step "letters of the system's fonts"
rm -rf target/fonts
mkdir -p target/fonts
chmod 777 target/fonts
(cd target/fonts && apt-get download -q fonts-wqy-microhei && dpkg-deb -x fonts-wqy-microhei_*.deb .)
OCELLI_TEST_FONT=$PWD/target/fonts/usr/share/fonts/truetype/wqy/wqy-microhei.ttc \
  cargo test --workspace --exclude ocelli-python "${features[@]}" --test all -- --ignored the_fonts_of_the_system
step "figures of videos, beside the evaluations of others"
python3 -m venv target/video-eval
target/video-eval/bin/pip install -q --no-deps "trackeval==1.3.0" "sam3==0.1.4"
target/video-eval/bin/pip install -q "numpy==2.4.6" "scipy==1.17.1" "pycocotools==2.0.11" pillow opencv-python-headless \
  scikit-image tqdm typing_extensions
target/video-eval/bin/python tests/golden/video_eval/make.py --check target/debug/ocelli --seeds 20
step "the Python package"
bash bindings/python/check.sh
step "the Python package, as released, on a machine with Python alone"
bash bindings/python/check.sh --wheel-only release
bash bindings/python/clean_root.sh target/python-package/wheel/ocelli-*.whl target/clean-root
step "Meta's video predictor, beside its interface in the Python package"
bash tests/meta/check.sh target/python-package/wheel/ocelli-*.whl target/meta
step "distillation and the training of the built-in model"
OCELLI=$PWD/target/debug/ocelli bash training/check.sh
step "the C library"
bash bindings/c/check.sh
step "the page in the browser"
bash bindings/wasm/check.sh
step "the library in another workspace"
cargo run --manifest-path tests/embed/Cargo.toml --target-dir target
step "the nodes for robots, beside other implementations of ROS 2's protocols"
OCELLI=$PWD/target/debug/ocelli bash integrations/check.sh
step "faults"
command -v faketime >/dev/null || apt-get install -y -q faketime
python3 tests/faults/run.py target/debug/ocelli --require-all >target/faults.md
step "power loss"
command -v strace >/dev/null || apt-get install -y -q strace
python3 tests/faults/power_loss.py target/debug/ocelli --runs 60
step "the parsers, fuzzed with coverage"
bash tests/fuzz/guided/run.sh 10
step "the page, Label Studio and the metrics of ocelli serve"
for pair in chromium=chromium npm=npm promtool=prometheus; do
  command -v "${pair%=*}" >/dev/null || apt-get install -y -q --no-install-recommends "${pair#*=}"
done
bash tests/serve/check.sh target/debug/ocelli target/serve
step "the tests notice faults"
python3 tests/mutations/run.py behaviour
step "every crate can be packaged"
cargo package --workspace --no-verify --allow-dirty --exclude ocelli-tests --exclude ocelli-demos --exclude ocelli-benchmarks --exclude ocelli-c --exclude ocelli-python
step done
