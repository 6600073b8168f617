"""Draws scenes in batches on the device: backgrounds, pasted sprites, their visible parts, boxes.

    python drawing.py --output SHEET.png     a sheet of training scenes with their boxes
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from degradation import degrade
from layout import SLOTS, Layout, draw_layout, patch_side
from sprites import LEVELS, SIDE, Sprites, load_sprites
from textures import KINDS, Numbers, draw_backgrounds

# The minimum opacity for a pixel of an object, and for its box.
OPAQUE, OUTLINE = 0.5, 0.39


@dataclass
class Drawn:
    """B scenes of side S: `pixels` [B, 3, S, S] in -1..1, `owner` [B, S, S] u8, the slot that is visible + 1 (0: none),
    `boxes` [B, K, 4] xyxy in 0..1, clipped to the image, of the slots without occlusion."""

    pixels: Tensor
    owner: Tensor
    boxes: Tensor


def warp_patches(levels: tuple[Tensor, ...], layout: Layout, rows: np.ndarray, slot: int, level: int,
                 side: int) -> tuple[Tensor, np.ndarray]:
    """The sprites of `rows` in a slot, warped, [n, 4, T, T] with T = `patch_side`, and the patches' corners [n, 2]."""
    device, patch = levels[0].device, patch_side(side, level)
    centre = layout.centre[rows, slot]
    corner = np.floor(centre - patch / 2).astype(int)
    inverse = np.linalg.inv(layout.warp[rows, slot])
    # From patch coordinates -1..1 through pixels to sprite coordinates -1..1.
    offset = (corner + patch / 2 - centre)[..., None]
    theta = np.concatenate([inverse * patch / SIDE, inverse @ offset * 2 / SIDE], -1)
    chosen = torch.from_numpy(layout.sprite[rows, slot]).to(device, non_blocking=True)
    grid = F.affine_grid(torch.from_numpy(theta).float().to(device, non_blocking=True), [len(rows), 4, patch, patch],
                         align_corners=False)
    source = levels[level].index_select(0, chosen).float() / 255
    patches = F.grid_sample(source, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    tint = torch.from_numpy(layout.tint[rows, slot]).to(device, non_blocking=True)[:, :, None, None]
    colour, share, alpha = tint[:, :3], tint[:, 3:], patches[:, 3:]
    return torch.cat([patches[:, :3] * (1 - share) + colour * alpha * share, alpha], 1), corner


def edges(covered: Tensor) -> tuple[Tensor, Tensor]:
    """First and one past the last true of [n, T]."""
    length = covered.shape[1]
    first = covered.int().argmax(1)
    return first, length - covered.flip(1).int().argmax(1)


def compose(sprites: Sprites, layout: Layout, backgrounds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pastes the slots in order; returns images [B, 3, S, S] in 0..1, owners and boxes as `Drawn` has them."""
    scenes, _, side, _ = backgrounds.shape
    device, margin = backgrounds.device, patch_side(side, 0)
    whole = side + 2 * margin
    # Pixels by rows, with a margin for patches that extend beyond the border.
    canvas = F.pad(backgrounds, [margin] * 4).permute(0, 2, 3, 1).reshape(-1, 3).contiguous()
    owner = torch.zeros(scenes * whole * whole, dtype=torch.uint8, device=device)
    boxes = torch.zeros(scenes, SLOTS, 4, device=device)
    for slot in range(SLOTS):
        for level in range(LEVELS):
            rows = np.flatnonzero((layout.sprite[:, slot] >= 0) & (layout.level[:, slot] == level))
            if not len(rows):
                continue
            patches, corner = warp_patches(sprites.levels, layout, rows, slot, level, side)
            patch = patches.shape[-1]
            start = (rows * whole + corner[:, 1] + margin) * whole + corner[:, 0] + margin
            line = torch.arange(patch, device=device)
            index = (torch.from_numpy(start).to(device, non_blocking=True).view(-1, 1, 1)
                     + line.view(1, -1, 1) * whole + line.view(1, 1, -1)).flatten()
            alpha = patches[:, 3]
            flat = patches.permute(0, 2, 3, 1).reshape(-1, 4)
            canvas[index] = canvas[index] * (1 - flat[:, 3:]) + flat[:, :3]
            owner[index] = torch.where(alpha.flatten() > OPAQUE, slot + 1, owner[index].int()).to(torch.uint8)
            outline = alpha > OUTLINE
            left, right = edges(outline.any(1))
            top, bottom = edges(outline.any(2))
            at = torch.from_numpy(corner).to(device, non_blocking=True)
            found = torch.stack([left + at[:, 0], top + at[:, 1], right + at[:, 0], bottom + at[:, 1]], 1)
            where = torch.from_numpy(rows).to(device, non_blocking=True)
            boxes[where, slot] = found.clamp(0, side).float() / side
    inside = slice(margin, margin + side)
    images = canvas.view(scenes, whole, whole, 3)[:, inside, inside].permute(0, 3, 1, 2)
    return images.contiguous(), owner.view(scenes, whole, whole)[:, inside, inside].contiguous(), boxes


@torch.no_grad()
def draw(sprites: Sprites, layout: Layout, kinds: list[str], seed: int, side: int) -> Drawn:
    """Draws a batch; `kinds` are the backgrounds of the scenes."""
    numbers = Numbers(seed, sprites.levels[0].device)
    images, owner, boxes = compose(sprites, layout, draw_backgrounds(numbers, kinds, side))
    return Drawn(pixels=degrade(numbers, images) * 2 - 1, owner=owner, boxes=boxes)


def choose_backgrounds(rng: np.random.Generator, scenes: int) -> list[str]:
    """A kind of background for each scene."""
    weights = np.array([weight for weight, _ in KINDS.values()])
    return [list(KINDS)[index] for index in rng.choice(len(KINDS), scenes, p=weights / weights.sum())]


def main() -> None:
    from PIL import Image, ImageDraw

    from vocabulary import KNOWN_NAMES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the sheet to write")
    parser.add_argument("--count", type=int, default=24, help="number of scenes (default 24)")
    parser.add_argument("--side", type=int, default=224, help="side in pixels (default 224)")
    parser.add_argument("--names", type=int, default=80, help="number of names (default 80)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bare", action="store_true", help="no boxes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng, side = np.random.default_rng(arguments.seed), arguments.side
    sprites = load_sprites(arguments.names, torch.device("cpu"))
    layout = draw_layout(rng, sprites, arguments.count, side)
    drawn = draw(sprites, layout, choose_backgrounds(rng, arguments.count), arguments.seed, side)
    columns = 6
    sheet = Image.new("RGB", (columns * (side + 4), -(-arguments.count // columns) * (side + 4)), "white")
    for index in range(arguments.count):
        pixels = ((drawn.pixels[index] + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
        image = Image.fromarray(pixels)
        pen = ImageDraw.Draw(image)
        for slot in range(0 if arguments.bare else SLOTS):
            if layout.label[index, slot] >= 0:
                seen = int((drawn.owner[index] == slot + 1).sum())
                box = (drawn.boxes[index, slot] * side).tolist()
                pen.rectangle([box[0], box[1], box[2] - 1, box[3] - 1], outline="red" if seen else "blue")
                pen.text((box[0] + 2, box[1]), KNOWN_NAMES[layout.label[index, slot]], fill="black", stroke_width=2,
                         stroke_fill="white", font_size=9)
        sheet.paste(image, (index % columns * (side + 4), index // columns * (side + 4)))
    sheet.save(arguments.output)


if __name__ == "__main__":
    main()
