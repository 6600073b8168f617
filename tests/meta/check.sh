#!/usr/bin/env bash
# Compares `ocelli.sam3` with Meta's own video predictor on a CPU: check.sh WHEEL WORK. Downloads PyTorch and Meta's package, 3 GB.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
wheel=$(realpath "$1") work=$(realpath -m "$2")
mkdir -p "$work"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q "$wheel" -r "$here/requirements.txt"
# Its own cache, which goes with it.
XDG_CACHE_HOME=$work/cache "$work/venv/bin/python" "$here/compare.py" "$work"
