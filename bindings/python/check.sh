#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh environment, and checks it there: types, tests, examples.
#   check.sh [--wheel-only] [PROFILE]   dev (default), quick or release
set -euo pipefail
cd "$(dirname "$0")"
wheel_only=
if [ "${1:-}" = --wheel-only ]; then
  wheel_only=1
  shift
fi
profile=${1:-dev}
root=$(cd ../.. && pwd)
work=${CARGO_TARGET_DIR:-$root/target}/python-package

step() { printf '\n== %(%T)T %s\n' -1 "$*"; }

step wheel
rm -rf "$work/wheel" "$work/fresh"
python3 -m venv "$work/build"
"$work/build/bin/pip" install -q "maturin==1.16.0"
# The wheel carries Ocelli's parts for TensorRT, where there is one; the programs find them in the package.
trap 'rm -f python/ocelli/libocelli_tensorrt*.so' EXIT
if [ "$(uname -s)" = Linux ]; then
  bash "$root/engines/tensorrt/build.sh" "$work/tensorrt"
  cp "$work"/tensorrt/libocelli_tensorrt*.so python/ocelli/
fi
"$work/build/bin/maturin" build --quiet --profile "$profile" --out "$work/wheel"
wheel=$(echo "$work"/wheel/ocelli_vision-*.whl)
ls -l "$wheel"
[ -z "$wheel_only" ] || exit 0

step "a fresh environment without engines"
python3 -m venv "$work/fresh"
"$work/fresh/bin/pip" install -q "$wheel"
(cd / && "$work/fresh/bin/python" -c 'import ocelli; print(ocelli.__version__, ocelli.Detector().engine)')
(cd / && "$work/fresh/bin/ocelli" --version && "$work/fresh/bin/demo-image" --version && "$work/fresh/bin/demo-video" --version)

step "with extras"
"$work/fresh/bin/pip" install -q "$wheel[cpu,video,supervision,ray,rerun]" "rerun-sdk[catalog]>=0.41" pytest pillow pycocotools mypy pyright nbclient ipykernel
"$work/fresh/bin/mypy" python/ocelli
# The types as a user of the wheel sees them.
"$work/fresh/bin/mypy" --python-executable "$work/fresh/bin/python" examples overhead.py
"$work/fresh/bin/python" -m mypy.stubtest ocelli._ocelli --ignore-missing-stub
# Fetches Node.js if there is none.
"$work/fresh/bin/pyright" --pythonpath "$work/fresh/bin/python" || { echo "pyright failed"; exit 1; }
"$work/fresh/bin/pytest" -q

step examples
(
  cd "$work"
  "$work/fresh/bin/python" "$root/bindings/python/examples/detect.py"
  "$work/fresh/bin/python" "$root/bindings/python/examples/video.py" "$root/demos/scenes" dog tree
  "$work/fresh/bin/python" "$root/bindings/python/examples/own_loop.py"
  "$work/fresh/bin/jupyter-execute" "$root/bindings/python/examples/tour.ipynb"
  "$work/fresh/bin/python" "$root/bindings/python/overhead.py"
)
step done
