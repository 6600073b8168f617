#!/usr/bin/env python3
"""Turns a training checkpoint into a checkpoint folder: `config.json`, `model.safetensors` (f16), `tokenizer.json`.

    python finish.py --run runs/first --output runs/first/model

The averaged weights are taken; `--last` takes those of the last step instead. Every stored number is checked.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model import TrainingModel
from tokenizer import load_tokenizer


def write_folder(run: Path, output: Path, which: str) -> None:
    """Writes the folder; raises `SystemExit` where a weight does not fit into f16."""
    words = run / "tokenizer.json"
    model = TrainingModel(load_tokenizer(words))
    saved = torch.load(run / "checkpoint.pt", weights_only=True)
    model.load_state_dict(saved[which])
    model.detector.save_pretrained(output)
    file = output / "model.safetensors"
    weights = {name: value.half() if value.is_floating_point() else value for name, value in load_file(file).items()}
    for name, value in weights.items():
        if not torch.isfinite(value).all():
            raise SystemExit(f"error: {name}: a weight is too large for f16 or no number; train with a lower rate")
    save_file(weights, file, metadata={"format": "pt"})
    shutil.copy(words, output / "tokenizer.json")
    print(f"step {saved['state']['step']}, {file.stat().st_size / 1e6:.1f} MB in {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder that train.py wrote")
    parser.add_argument("--output", type=Path, required=True, help="folder to write; made if missing")
    parser.add_argument("--last", action="store_true", help="the last step's weights in place of the average")
    arguments = parser.parse_args()
    write_folder(arguments.run, arguments.output, "model" if arguments.last else "average")


if __name__ == "__main__":
    main()
