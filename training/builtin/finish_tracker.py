#!/usr/bin/env python3
"""Joins a trained tracker with the built-in detector: a checkpoint folder that `ocelli export` reads.

    python finish_tracker.py --run ../../target/training/tracker --output DIR

The folder has the layout of SAM 3: `detector_model.`, `tracker_model.` and `tracker_neck.`, which is the detector's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import weights
from checkpoints import write_folder
from finish import halves
from tracker import Tracker

NECK, TRACKER_NECK = "vision_encoder.neck.", "tracker_neck."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of train_tracker.py")
    parser.add_argument("--output", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--last", action="store_true", help="the weights of the last step instead of the average")
    arguments = parser.parse_args()
    saved = torch.load(arguments.run / "checkpoint.pt", weights_only=True, map_location="cpu")
    tracker = Tracker(saved["side"])
    tracker.load_state_dict(saved["model" if arguments.last else "average"])
    own = halves({f"tracker_model.{name}": value for name, value in tracker.modules_of.state_dict().items()})
    sizes = json.loads(tracker.modules_of.config.to_json_string(use_diff=True))
    sizes.pop("vision_config", None)
    builtin = weights.join().parent
    detector = load_file(builtin / "model.safetensors")
    neck = {TRACKER_NECK + name[len(NECK):]: value.clone() for name, value in detector.items() if name.startswith(NECK)}
    config = {"model_type": "sam3_video", "detector_config": json.loads((builtin / "config.json").read_text()),
              "tracker_config": sizes}

    def write(folder: Path) -> None:
        whole = {f"detector_model.{name}": value for name, value in detector.items()} | own | neck
        save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (folder / "tokenizer.json").write_bytes((builtin / "tokenizer.json").read_bytes())

    write_folder(arguments.output, write)
    print(f"{sum(value.numel() for value in own.values()) / 1e6:.2f} million parameters in {arguments.output}")


if __name__ == "__main__":
    main()
