"""Training clips of the tracker: the scenes of `layout.py`, whose instances move, cross and pass behind each other.

    python clips.py --output SHEET.png     a sheet of clips, a row each; three objects are marked by a colour channel
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from degradation import degrade
from drawing import choose_backgrounds, compose
from layout import SLOTS, Layout, draw_layout
from sprites import Sprites, load_sprites
from textures import Numbers, draw_backgrounds

FRAMES = 8


@dataclass
class Clips:
    """C clips of `FRAMES` frames of side S: `pixels` [C, FRAMES, 3, S, S] in -1..1, `owner` [C, FRAMES, S, S] u8, the
    slot that is visible + 1 (0: none), `thing` [C, SLOTS], which slots have an object with a name."""

    pixels: Tensor
    owner: Tensor
    thing: np.ndarray

    def reversed(self) -> "Clips":
        """The same clips backward."""
        return Clips(self.pixels.flip(1), self.owner.flip(1), self.thing)


def meetings(rng: np.random.Generator, layout: Layout, speed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres at the moment of a meeting, and the speeds.

    Most of the moving instances pass behind a larger one at that moment, else meet any other one; half of them so fast
    that they come and go within the clip. Half of those that are met stand still.
    """
    centre, speed = layout.centre.copy(), speed.copy()
    for clip, sprites in enumerate(layout.sprite):
        everything = np.flatnonzero(sprites >= 0)
        for slot in everything[(speed[clip, everything] > 2) & (layout.label[clip, everything] >= 0)]:
            rest = everything[everything != slot]
            if rng.random() > 0.85 or not len(rest):
                continue
            hides = (rest > slot) & (layout.extent[clip, rest] > 0.8 * layout.extent[clip, slot]).all(-1)
            share = layout.extent[clip, rest].prod(-1) * np.where(hides, 100, 1)
            other = rng.choice(rest, p=share / share.sum())
            centre[clip, slot] = centre[clip, other] + rng.normal(0, 0.05, 2) * layout.extent[clip, other]
            if rng.random() < 0.5:
                way = layout.extent[clip, slot].mean() + layout.extent[clip, other].mean()
                speed[clip, slot] = max(speed[clip, slot], way / rng.uniform(2, 5))
            if rng.random() < 0.5:
                speed[clip, other] = 0
    return centre, speed


def move(rng: np.random.Generator, layout: Layout, side: int) -> list[Layout]:
    """The layouts of the frames. One of them is the given scene, but for the meetings; in the others instances have
    moved."""
    shape = layout.sprite.shape
    moment = rng.integers(0, FRAMES, (shape[0], 1))
    # Speeds in pixels a frame; of clutter most stands still.
    speed = np.exp(rng.uniform(0, np.log(0.06 * side), shape)) * np.exp(rng.uniform(-1, 0.3, (shape[0], 1)))
    speed[rng.random(shape) < np.where(layout.label >= 0, 0.15, 0.8)] = 0
    centre, speed = meetings(rng, layout, speed)
    angle = rng.uniform(0, 2 * np.pi, shape)
    velocity = np.stack([np.cos(angle), np.sin(angle)], -1) * speed[..., None]
    bend = rng.normal(0, 0.05, (*shape, 2)) * speed[..., None]
    growth, turn = (rng.normal(0, spread, shape) * (speed > 0) for spread in (0.03, 0.06))
    leaves = rng.random(shape) < 0.2
    frames = []
    for frame in range(FRAMES):
        elapsed = (frame - moment)[..., None]
        moved = centre + velocity * elapsed + 0.5 * bend * elapsed * np.abs(elapsed)
        # Most instances turn round at the border, rather than leave.
        low = 0.6 * layout.extent
        span = np.maximum(side - 2 * low, 1)
        moved = np.where(leaves[..., None], moved, low + span - np.abs((moved - low) % (2 * span) - span))
        angles = turn * elapsed[..., 0]
        rotation = np.stack([np.stack([np.cos(angles), -np.sin(angles)], -1),
                             np.stack([np.sin(angles), np.cos(angles)], -1)], -2)
        scale = np.exp(np.clip(growth * elapsed[..., 0], -0.25, 0.25))
        # Patches have a margin around the image: what is farther outside is not drawn.
        near = ((moved > -0.3 * side) & (moved < 1.3 * side)).all(-1)
        frames.append(replace(layout, sprite=np.where(near, layout.sprite, -1), centre=moved,
                              warp=rotation @ layout.warp * scale[..., None, None]))
    return frames


@torch.no_grad()
def draw_clips(rng: np.random.Generator, sprites: Sprites, clips: int, side: int) -> Clips:
    """Draws a batch of clips. The frames of a clip have one background, and are degraded alike."""
    device = sprites.levels[0].device
    layout = draw_layout(rng, sprites, clips, side)
    frames = move(rng, layout, side)
    together = Layout(*(np.concatenate([getattr(frame, field.name) for frame in frames]) for field in fields(Layout)))
    numbers = Numbers(int(rng.integers(1 << 31)), device)
    backgrounds = draw_backgrounds(numbers, choose_backgrounds(rng, clips), side)
    images, owner, _ = compose(sprites, together, backgrounds.repeat(FRAMES, 1, 1, 1))
    seed = int(rng.integers(1 << 31))
    degraded = [degrade(Numbers(seed, device), frame) for frame in images.split(clips)]
    owner = owner.view(FRAMES, clips, side, side).transpose(0, 1).contiguous()
    return Clips(torch.stack(degraded, 1) * 2 - 1, owner, layout.label >= 0)


def main() -> None:
    from PIL import Image

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the sheet to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    side, count = 224, 6
    clips = draw_clips(np.random.default_rng(arguments.seed), load_sprites(80, torch.device("cpu")), count, side)
    sheet = Image.new("RGB", (FRAMES * side // 2, count * side // 2))
    for clip in range(count):
        for frame in range(FRAMES):
            pixels = ((clips.pixels[clip, frame] + 1) * 127.5).round().byte().permute(1, 2, 0).numpy().copy()
            for channel, slot in enumerate(np.flatnonzero(clips.thing[clip])[:3]):
                pixels[clips.owner[clip, frame].numpy() == slot + 1, channel] = 255
            image = Image.fromarray(pixels).resize((side // 2, side // 2))
            sheet.paste(image, (frame * side // 2, clip * side // 2))
    sheet.save(arguments.output)


if __name__ == "__main__":
    main()
