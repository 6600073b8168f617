"""Drawn scenes with ground truth, for figures, goldens and demos: pictograms pasted on backgrounds.

Training draws other scenes, in batches and on the device (`drawing.py`), with other code, other backgrounds and other
random numbers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Sequence

import numpy as np
from PIL import Image

from backgrounds import held_out_background

# The minimum opacity for a pixel of a pictogram.
OPAQUE = 127


@dataclass
class Scene:
    """An image and its annotations.

    `image` [H, W, 3] u8; `boxes` [n, 4] f32 xyxy in pixels, clipped to the image; `labels` [n] i64, indices of
    the vocabulary; `masks` [n, H, W] bool, the visible parts.
    """

    image: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    masks: np.ndarray


def held_out_random(purpose: str, index: int | str) -> random.Random:
    """The random numbers of one scene for `purpose` ("evaluation", "validation", "golden", "demo")."""
    return random.Random(f"{purpose}/{index}")


def prepare_glyph(rng: random.Random, glyph: Image.Image, size: int, turn: float,
                  turn_share: float) -> Image.Image | None:
    """A pictogram scaled to `size`, perhaps mirrored and rotated, cropped to its visible part."""
    ratio = size / max(glyph.size)
    scaled = glyph.resize((max(6, int(glyph.size[0] * ratio)), max(6, int(glyph.size[1] * ratio))),
                          Image.Resampling.BILINEAR)
    if rng.random() < 0.5:
        scaled = scaled.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if rng.random() < turn_share:
        scaled = scaled.rotate(rng.uniform(-turn, turn), resample=Image.Resampling.BILINEAR, expand=True)
    visible = scaled.getchannel("A").point(lambda alpha: 255 if alpha > 100 else 0).getbbox()
    return None if visible is None else scaled.crop(visible)


def overlaps(box: tuple[int, int, int, int], others: Sequence[tuple[int, int, int, int]], limit: float) -> bool:
    """Whether `box` shares more than `limit` of the smaller area with any of `others`."""
    for other in others:
        width = max(0, min(box[2], other[2]) - max(box[0], other[0]))
        height = max(0, min(box[3], other[3]) - max(box[1], other[1]))
        smaller = min((box[2] - box[0]) * (box[3] - box[1]), (other[2] - other[0]) * (other[3] - other[1]))
        if width * height > limit * smaller:
            return True
    return False


class Canvas:
    """An image that records what was pasted on it."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image
        self.boxes: list[tuple[int, int, int, int]] = []
        self.labels: list[int] = []
        self.masks: list[np.ndarray] = []

    def place(self, rng: random.Random, glyph: Image.Image, label: int, outside: int, limit: float,
              attempts: int = 12) -> bool:
        """Pastes where it covers little of the others; up to 1/`outside` of it may leave the image (0: nothing)."""
        width, height = self.image.size
        w, h = glyph.size
        # Rounded down on the left and on the right: changing this would change the images of all seeds.
        left, right = (-w // outside, w // outside) if outside else (0, 0)
        above, below = (-h // outside, h // outside) if outside else (0, 0)
        if left > width - w + right or above > height - h + below:
            return False
        for _ in range(attempts):
            x, y = rng.randint(left, width - w + right), rng.randint(above, height - h + below)
            box = (max(0, x), max(0, y), min(width, x + w), min(height, y + h))
            if not overlaps(box, self.boxes, limit):
                self.paste(glyph, label, x, y, box)
                return True
        return False

    def paste(self, glyph: Image.Image, label: int, x: int, y: int, box: tuple[int, int, int, int]) -> None:
        """Pastes at a position and removes what it occludes from the other masks."""
        self.image.paste(glyph, (x, y), glyph)
        layer = Image.new("L", self.image.size, 0)
        layer.paste(glyph.getchannel("A"), (x, y))
        mask = np.asarray(layer) > OPAQUE
        for other in self.masks:
            other &= ~mask
        self.boxes.append(box)
        self.labels.append(label)
        self.masks.append(mask.copy())

    def finish(self, pixels: np.ndarray) -> Scene:
        """The scene, with the final pixels."""
        width, height = self.image.size
        return Scene(
            image=pixels, boxes=np.array(self.boxes, np.float32).reshape(-1, 4), labels=np.array(self.labels, np.int64),
            masks=np.array(self.masks, bool).reshape(-1, height, width),
        )


def held_out_scene(rng: random.Random, glyphs: Sequence[Image.Image], width: int = 448, height: int = 336,
                   family: str | None = None, count: int | None = None, noisy: float = 0.3) -> Scene:
    """One to eight pictograms of one to five kinds on a held-out background.

    A share `noisy` of the scenes is dimmed or brightened and gets noise.
    """
    canvas = Canvas(held_out_background(rng, width, height, family))
    kinds = rng.sample(range(len(glyphs)), rng.randint(1, 5))
    side = min(width, height)
    for _ in range(count if count is not None else rng.randint(1, 8)):
        label = rng.choice(kinds)
        size = int(np.exp(rng.uniform(np.log(side * 0.14), np.log(side * 0.5))))
        glyph = prepare_glyph(rng, glyphs[label], size, turn=20, turn_share=0.5)
        if glyph is not None:
            canvas.place(rng, glyph, label, outside=8, limit=0.1)
    pixels = np.asarray(canvas.image).astype(np.float32)
    if rng.random() < noisy:
        pixels = pixels * rng.uniform(0.7, 1.15)
        pixels = pixels + np.random.default_rng(rng.getrandbits(32)).normal(0, rng.uniform(0, 6), pixels.shape)
    return canvas.finish(np.clip(pixels, 0, 255).astype(np.uint8))
