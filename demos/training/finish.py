#!/usr/bin/env python3
"""Turns a training checkpoint into a checkpoint folder: `config.json`, `model.safetensors` (f16), `tokenizer.json`.

    python finish.py --run runs/first --output runs/first/model

The averaged weights are taken; `--last` takes those of the last step instead. Every stored number is checked. `train.py`
writes the folder of the average itself at its end; this is for a run that was cut short, or to compare.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from checkpoints import write_folder
from model import TrainingModel
from tokenizer import load_tokenizer

PREFIX = "detector."


def write_model(model: TrainingModel, weights: dict[str, Tensor], words: Path, output: Path) -> None:
    """Writes the folder; raises `SystemExit` where a weight does not fit into f16."""
    detector = {name[len(PREFIX):]: value for name, value in weights.items() if name.startswith(PREFIX)}

    def write(folder: Path) -> None:
        model.detector.save_pretrained(folder, state_dict={name: value.float().cpu() for name, value in detector.items()})
        file = folder / "model.safetensors"
        stored = {name: value.half() if value.is_floating_point() else value for name, value in load_file(file).items()}
        for name, value in stored.items():
            if not torch.isfinite(value).all():
                raise SystemExit(f"error: {name}: a weight is too large for f16 or no number; train with a lower rate")
        save_file(stored, file, metadata={"format": "pt"})
        (folder / "tokenizer.json").write_bytes(words.read_bytes())

    write_folder(output, write)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder that train.py wrote")
    parser.add_argument("--output", type=Path, required=True, help="folder to write; made if missing")
    parser.add_argument("--last", action="store_true", help="the last step's weights in place of the average")
    arguments = parser.parse_args()
    words = arguments.run / "tokenizer.json"
    settings = json.loads((arguments.run / "settings.json").read_text())
    saved = torch.load(arguments.run / "checkpoint.pt", weights_only=True, map_location="cpu")
    model = TrainingModel(load_tokenizer(words), settings["side"], settings["names"])
    write_model(model, saved["model" if arguments.last else "average"], words, arguments.output)
    size = (arguments.output / "model.safetensors").stat().st_size
    print(f"step {saved['state']['step']}, {size / 1e6:.1f} MB in {arguments.output}")


if __name__ == "__main__":
    main()
