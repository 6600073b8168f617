#!/usr/bin/env python3
"""Turns a training checkpoint into a checkpoint folder: `config.json`, `model.safetensors` (f16), `tokenizer.json`.

    python finish.py --run runs/first --output runs/first/model     from train.py's checkpoint
    python finish.py --folder DIR --output NEW                      from a checkpoint folder, rewritten by this version
    python finish.py --run runs/next --blend DIR --output NEW       the mean of both

The mean of the first and the last weights of a run is often better than either ("model soups", arXiv 2203.05482);
calibrate afterwards. The averaged weights are used, with `--last` those of the last step. Every stored number is
checked. `train.py` writes this folder at its end; this script is for interrupted runs and comparisons.
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
from vocabulary import VOCABULARY

PREFIX = "detector."
# The files of a checkpoint folder.
FOLDER_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def halves(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The values in f16; raises `SystemExit` if one exceeds its range."""
    stored = {name: value.half().contiguous() if value.is_floating_point() else value
              for name, value in values.items()}
    for name, value in stored.items():
        if not torch.isfinite(value).all():
            raise SystemExit(f"error: {name}: a weight is too large for f16 or no number; train with a lower rate")
    return stored


def write_model(model: TrainingModel, weights: dict[str, Tensor], words: Path, output: Path) -> None:
    """Writes the folder; raises `SystemExit` if a weight exceeds the range of f16."""
    detector = {name[len(PREFIX):]: value for name, value in weights.items() if name.startswith(PREFIX)}

    def write(folder: Path) -> None:
        whole = {name: value.float().cpu() for name, value in detector.items()}
        model.detector.save_pretrained(folder, state_dict=whole)
        file = folder / "model.safetensors"
        save_file(halves(load_file(file)), file, metadata={"format": "pt"})
        (folder / "tokenizer.json").write_bytes(words.read_bytes())

    write_folder(output, write)


def blend(weights: dict[str, Tensor], folder: Path, share: float) -> dict[str, Tensor]:
    """The weights, blended with those of a folder; raises `SystemExit` if they are of another model."""
    file = folder / "model.safetensors"
    if not file.exists():
        raise SystemExit(f"error: {file} does not exist: name a checkpoint folder")
    other = {PREFIX + name: value for name, value in load_file(file).items()}
    mine = {name: value for name, value in weights.items() if name in other}
    if len(mine) < len(other) or any(value.shape != other[name].shape for name, value in mine.items()):
        raise SystemExit(f"error: {folder}: another model: its weights have other names or sizes")
    return {name: torch.lerp(value.float().cpu(), other[name].float(), share) for name, value in mine.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--run", type=Path, help="folder of a run of train.py")
    source.add_argument("--folder", type=Path, help="checkpoint folder")
    parser.add_argument("--output", type=Path, required=True, help="folder to write; created if missing")
    parser.add_argument("--blend", type=Path, metavar="FOLDER",
                        help="checkpoint folder to blend with")
    parser.add_argument("--share", type=float, default=0.5, help="share of --blend, from 0 to 1 (default 0.5)")
    parser.add_argument("--last", action="store_true", help="the weights of the last step instead of the average")
    arguments = parser.parse_args()
    if not 0 <= arguments.share <= 1:
        parser.error("--share goes from 0 to 1")
    words = (arguments.run or arguments.folder) / "tokenizer.json"
    if arguments.run:
        settings = json.loads((arguments.run / "settings.json").read_text())
        saved = torch.load(arguments.run / "checkpoint.pt", weights_only=True, map_location="cpu")
        model = TrainingModel(load_tokenizer(words), settings["side"], settings["names"])
        weights = saved["model" if arguments.last else "average"]
    else:
        config = json.loads((arguments.folder / "config.json").read_text())
        side = config["vision_config"]["backbone_config"]["image_size"]
        model = TrainingModel(load_tokenizer(words), side, len(VOCABULARY))
        for note in model.start_from(arguments.folder):
            raise SystemExit(f"error: {note}")
        weights = model.state_dict()
    if arguments.blend:
        if load_tokenizer(words).get_vocab() != load_tokenizer(arguments.blend / "tokenizer.json").get_vocab():
            raise SystemExit(f"error: {arguments.blend}: it was trained with another tokeniser")
        weights = blend(weights, arguments.blend, arguments.share)
    write_model(model, weights, words, arguments.output)
    size = (arguments.output / "model.safetensors").stat().st_size
    print(f"{size / 1e6:.1f} MB in {arguments.output}")


if __name__ == "__main__":
    main()
