#!/usr/bin/env python3
"""Writes training scenes without annotations as a tar file of webdataset: images for a distillation.

    python write_training_scenes.py --count 4000 --output scenes.tar

The scenes are those of training, squashed into the square; none is one of the held-out ones that figures are measured on.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from drawing import choose_backgrounds, draw
from layout import draw_layout
from sprites import load_sprites
from vocabulary import NAMES

BATCH = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="tar file to write")
    parser.add_argument("--count", type=int, default=4000, help="number of scenes (default 4000)")
    parser.add_argument("--side", type=int, default=224, help="side in pixels (default 224)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng, sprites = np.random.default_rng([arguments.seed, 1]), load_sprites(len(NAMES), torch.device("cpu"))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(arguments.output, "w") as archive:
        for start in range(0, arguments.count, BATCH):
            layout = draw_layout(rng, sprites, BATCH, arguments.side)
            drawn = draw(sprites, layout, choose_backgrounds(rng, BATCH), int(rng.integers(1 << 40)), arguments.side)
            pixels = ((drawn.pixels + 1) * 127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
            for index in range(min(BATCH, arguments.count - start)):
                file = io.BytesIO()
                Image.fromarray(pixels[index]).save(file, "png")
                member = tarfile.TarInfo(f"{start + index:06}.png")
                member.size = file.tell()
                file.seek(0)
                archive.addfile(member, file)
    print(f"{arguments.count} scenes, {arguments.output.stat().st_size / 1e6:.0f} MB in {arguments.output}")


if __name__ == "__main__":
    main()
