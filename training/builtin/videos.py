#!/usr/bin/env python3
"""Held-out videos with ground truth: pictograms that wander over a held-out background, and pass behind each other and
behind pillars.

    python videos.py --output DIR --count 24     DIR/000/frames/*.jpg, DIR/000/truth.json

A frame of `truth.json` lists its objects: `id`, `label`, `box` of the whole pictogram inside the image, `seen` the box
of its visible part, both xyxy in pixels, and `visible`, the visible share.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from backgrounds import held_out_background, random_colour
from glyphs import load_glyphs
from scenes import OPAQUE, held_out_random
from vocabulary import VOCABULARY

WIDTH, HEIGHT, FRAMES = 448, 336, 60


@dataclass
class Actor:
    """A pictogram on its way: two swings for each axis and one for the angle, as (reach, frames, phase)."""

    label: int
    glyph: Image.Image
    middle: tuple[float, float]
    swings: list[tuple[float, float, float]]
    turn: tuple[float, float, float]

    def at(self, frame: int) -> tuple[float, float, float]:
        """Centre in pixels and angle in degrees."""
        def swing(reach: float, period: float, phase: float) -> float:
            return reach * math.sin(2 * math.pi * frame / period + phase)

        x = self.middle[0] + swing(*self.swings[0]) + swing(*self.swings[1])
        y = self.middle[1] + swing(*self.swings[2]) + swing(*self.swings[3])
        return x, y, swing(*self.turn)


def actor(rng: random.Random, label: int, glyph: Image.Image) -> Actor:
    """A pictogram that crosses much of the image within the video."""
    side = math.exp(rng.uniform(math.log(0.17), math.log(0.36))) * HEIGHT
    scale = side / max(glyph.size)
    glyph = glyph.resize((int(glyph.width * scale), int(glyph.height * scale)), Image.Resampling.BILINEAR)
    if rng.random() < 0.5:
        glyph = glyph.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    def swing(reach: float, low: float, high: float) -> tuple[float, float, float]:
        return reach, rng.uniform(low, high), rng.uniform(0, 2 * math.pi)

    swings = [swing(rng.uniform(0.15, 0.36) * WIDTH, 60, 160), swing(0.04 * WIDTH, 25, 50),
              swing(rng.uniform(0.05, 0.28) * HEIGHT, 60, 160), swing(0.03 * HEIGHT, 25, 50)]
    middle = rng.uniform(0.4, 0.6) * WIDTH, rng.uniform(0.35, 0.65) * HEIGHT
    return Actor(label, glyph, middle, swings, swing(12, 40, 120))


def layer_of(one: Actor, frame: int) -> np.ndarray:
    """The pictogram alone, [H, W, 4]."""
    x, y, angle = one.at(frame)
    turned = one.glyph.rotate(angle, resample=Image.Resampling.BILINEAR, expand=True)
    layer = Image.new("RGBA", (WIDTH, HEIGHT), (0, 0, 0, 0))
    layer.paste(turned, (round(x - turned.width / 2), round(y - turned.height / 2)))
    return np.asarray(layer)


def box_of(mask: np.ndarray) -> list[int]:
    """The box of a mask, which has a pixel."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]


def draw_video(rng: random.Random, glyphs, output: Path) -> None:
    """Draws one video into a folder."""
    background = np.asarray(held_out_background(rng, WIDTH, HEIGHT, None).convert("RGB")).astype(np.float32)
    kinds = rng.sample(range(len(glyphs)), rng.randint(1, 3))
    actors = [actor(rng, label, glyphs[label]) for label in (rng.choice(kinds) for _ in range(rng.randint(3, 6)))]
    pillars = []
    for _ in range(rng.randint(0, 2)):
        wide = rng.uniform(0.1, 0.22) * WIDTH
        left = rng.uniform(0.15 * WIDTH, 0.85 * WIDTH - wide)
        pillars.append((int(left), int(left + wide), random_colour(rng)))
    (output / "frames").mkdir(parents=True, exist_ok=True)
    frames = []
    for frame in range(FRAMES):
        pixels, owner = background.copy(), np.full((HEIGHT, WIDTH), -1)
        whole = []
        for index, one in enumerate(actors):
            layer = layer_of(one, frame)
            alpha = layer[..., 3:].astype(np.float32) / 255
            pixels = pixels * (1 - alpha) + layer[..., :3] * alpha
            mask = layer[..., 3] > OPAQUE
            owner[mask] = index
            whole.append(mask)
        for left, right, colour in pillars:
            pixels[:, left:right] = colour
            owner[:, left:right] = -1
        objects = []
        for index, mask in enumerate(whole):
            seen = owner == index
            if mask.any():
                objects.append({"id": index, "label": VOCABULARY[actors[index].label].name, "box": box_of(mask),
                                "seen": box_of(seen) if seen.any() else None,
                                "visible": round(float(seen.sum() / mask.sum()), 3)})
        frames.append(objects)
        Image.fromarray(pixels.astype(np.uint8)).save(output / "frames" / f"{frame:03}.jpg", quality=92)
    labels = sorted({VOCABULARY[one.label].name for one in actors})
    (output / "truth.json").write_text(json.dumps({"classes": labels, "frames": frames}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    parser.add_argument("--count", type=int, default=24, help="number of videos (default 24)")
    parser.add_argument("--purpose", default="video", help="another word gives other videos (default video)")
    arguments = parser.parse_args()
    glyphs = load_glyphs()
    for index in range(arguments.count):
        draw_video(held_out_random(arguments.purpose, index), glyphs, arguments.output / f"{index:03}")
    print(f"{arguments.count} videos of {FRAMES} frames in {arguments.output}")


if __name__ == "__main__":
    main()
