#!/usr/bin/env bash
# Regenerates everything that depends on the weights of the built-in model.
#
#   training/builtin/remake.sh MODEL     installs the checkpoint folder MODEL (train.py's model/) as the built-in model first
#   training/builtin/remake.sh           with the current built-in model
#
# PYTHON is an interpreter with the packages of requirements.txt. Most of the time is for measuring. STEPS selects some of:
# model goldens figures demo tests (default: all).
set -euo pipefail
cd "$(dirname "$0")/../.."

python="${PYTHON:-python3}"
steps="${STEPS:-model goldens figures demo tests}"
out=target/training/evaluation
here=training/builtin
want() { [[ " $steps " == *" $1 "* ]]; }

if want model && [ $# -gt 0 ]; then
  for file in config.json model.safetensors tokenizer.json; do
    if [ ! -s "$1/$file" ]; then
      echo "error: no $file in $1: name a checkpoint folder, such as train.py's model/" >&2
      exit 1
    fi
  done
  # Rewritten from the weights, so that the file does not depend on the version of transformers that trained it.
  "$python" $here/finish.py --folder "$1" --output target/training/model
  install -m 644 target/training/model/{config.json,model.safetensors,tokenizer.json} src/builtin/
  "$python" $here/weights.py split
fi

if want goldens; then
  "$python" tests/golden/scenes/make.py
  "$python" tests/golden/scenes/make.py --check
  # Its ids depend on the tokeniser only.
  "$python" tests/golden/tokenizer/make.py
fi

if want figures; then
  "$python" $here/evaluate.py --count "${COUNT:-500}" --output "$out" --threads "${THREADS:-2}"
  "$python" $here/card.py --figures "$out/figures.json"
  mkdir -p $here/figures
  "$python" - "$out" $here/figures <<'END'
import shutil, sys
from pathlib import Path
from PIL import Image
source, target = map(Path, sys.argv[1:])
for name in ("classes.md", "reliability.png"):
    shutil.copy(source / name, target / name)
sheet = Image.open(source / "failures.png")
smaller = sheet.resize((sheet.width * 2 // 3, sheet.height * 2 // 3), Image.Resampling.LANCZOS)
smaller.save(target / "failures.jpg", quality=82)
END
fi

if want demo; then
  make demo
  install -m 644 target/demo.png demos/found.png
fi

if want tests; then
  cargo test -p ocelli-tests end_to_end -- --nocapture
  cargo test -p ocelli-tests tokenizer_golden
  cargo test -p ocelli-cli
  git status --short src/builtin tests/golden demos
  echo "Figures in README.md, docs/accuracy.md and demos/scenes/README.md are written by hand: see $out/figures.json and the lines above."
fi
