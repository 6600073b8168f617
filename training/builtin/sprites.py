"""All sprites as tensors on the device, each at four sizes, so that small ones are drawn smoothly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glyphs import Glyph, all_glyphs
from shapes import draw_shapes

# Side of the largest size; glyphs have at most 128 pixels, which leaves a margin around each at every size.
SIDE = 144
LEVELS = 4


@dataclass(frozen=True)
class Sprites:
    """`levels[i]` [G, 4, SIDE / 2^i, SIDE / 2^i] u8, colour times opacity and opacity; the rest describes the G
    sprites.

    `sizes` [G, 2] width and height in pixels of level 0; `labels` [G], the index of the name or -1; `of_label` the
    sprites of each name, the usual one first; `clutter` glyphs without a name; `shapes` images to be tinted.
    """

    levels: tuple[Tensor, ...]
    sizes: np.ndarray
    labels: np.ndarray
    of_label: tuple[tuple[int, ...], ...]
    clutter: np.ndarray
    shapes: np.ndarray


def centred(image: np.ndarray) -> np.ndarray:
    """An image [h, w, 4] u8 centred in a square, colours multiplied by opacity, [4, SIDE, SIDE]."""
    out = np.zeros((SIDE, SIDE, 4), np.float32)
    height, width = image.shape[:2]
    top, left = (SIDE - height) // 2, (SIDE - width) // 2
    out[top:top + height, left:left + width] = image
    out[..., :3] *= out[..., 3:] / 255
    return out.round().astype(np.uint8).transpose(2, 0, 1)


def load_sprites(names: int, device: torch.device) -> Sprites:
    """All sprites for a model with the first `names` names; glyphs of other names are clutter."""
    glyphs: list[Glyph] = list(all_glyphs())
    images = [np.asarray(glyph.image) for glyph in glyphs]
    labels = [glyph.label if glyph.label < names else -1 for glyph in glyphs]
    for shape in draw_shapes():
        images.append(np.dstack([np.full_like(shape, 255)] * 3 + [shape]))
    full = torch.from_numpy(np.stack([centred(image) for image in images]))
    levels = [full.to(device)]
    for _ in range(LEVELS - 1):
        # In parts: all at once would take half a gigabyte as floats.
        halves = [F.avg_pool2d(part.float(), 2).round().to(torch.uint8) for part in levels[-1].split(64)]
        levels.append(torch.cat(halves))
    of_label = tuple(tuple(index for index, label in enumerate(labels) if label == name) for name in range(names))
    return Sprites(
        levels=tuple(levels), sizes=np.array([image.shape[1::-1] for image in images], np.float32),
        labels=np.array(labels + [-1] * (len(images) - len(labels))), of_label=of_label,
        clutter=np.array([index for index, label in enumerate(labels) if label < 0]),
        shapes=np.arange(len(glyphs), len(images)),
    )
