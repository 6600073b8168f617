#!/usr/bin/env python3
"""Writes the evaluation scenes as a folder of images with COCO annotations.

    python write_scenes.py --count 500 --output DIR      DIR/0000.png … and DIR/annotations.json

These are the images that `evaluate.py` measures on, so that other programs can be measured on the same ones.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from PIL import Image

from coco import Annotations, evaluation_scenes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="number of scenes (default 500)")
    parser.add_argument("--purpose", default="evaluation",
                        help="evaluation (default), or validation: other scenes, for choices")
    parser.add_argument("--output", type=Path, required=True, help="folder to write; created if missing")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    annotations = Annotations()
    for index, scene in enumerate(evaluation_scenes(arguments.count, purpose=arguments.purpose)):
        name = f"{index:04}.png"
        annotations.add(scene, name)
        Image.fromarray(scene.image).save(arguments.output / name)
    path = arguments.output / "annotations.json"
    path.write_text(json.dumps(annotations.document(), ensure_ascii=False) + "\n")
    print(f"{arguments.count} scenes with {len(annotations.annotations)} instances in {arguments.output}")


if __name__ == "__main__":
    main()
