#!/usr/bin/env bash
# Installs the training package into an environment of its own and tests it there; half of the time is starting PyTorch.
# OCELLI is the program [default: target/debug/ocelli]: `ocelli export` must take what a distillation saves.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd .. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/training
export OCELLI=${OCELLI:-$target/debug/ocelli}
if [ ! -x "$OCELLI" ]; then
  echo "error: $OCELLI is missing: build it, or set OCELLI" >&2
  exit 1
fi
OCELLI=$(realpath "$OCELLI")

step() { printf '\n-- %(%T)T %s\n' -1 "$*"; }

step "the package"
[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q -r requirements-tests.txt
"$work/venv/bin/pip" install -q --no-deps -e .

step "distillation"
OMP_NUM_THREADS=1 "$work/venv/bin/python" -m pytest -q -p no:cacheprovider tests
step "the drawing and training of the built-in model"
# The pictograms are drawn with this font.
[ -f /usr/share/fonts/truetype/noto/NotoColorEmoji.ttf ] || apt-get install -y -q fonts-noto-color-emoji
(cd builtin && "$work/venv/bin/python" checks.py)
