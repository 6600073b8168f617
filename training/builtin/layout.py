"""The contents and positions of a batch of scenes, chosen on the CPU before drawing.

A scene has `SLOTS` slots, drawn in order. A slot has an object (a sprite with a name), clutter (a sprite without one,
or a tinted shape), or nothing. Positions are in the square input of the model: the scene has an aspect ratio and is
squashed into the square, as in preprocessing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sprites import LEVELS, SIDE, Sprites

INSTANCES, CLUTTER = 10, 10
SLOTS = INSTANCES + CLUTTER
# At most this many objects of one name in a scene, so that targets have a fixed shape.
OF_ONE_NAME = 8
ATTEMPTS = 10


@dataclass
class Layout:
    """B scenes of K slots in a square of side S.

    `sprite` [B, K] (-1: empty), `label` [B, K] (-1: no name), `centre` [B, K, 2] in pixels, `warp` [B, K, 2, 2] from
    sprite pixels (of level 0, from its middle) to pixels, `extent` [B, K, 2] half sides of the warped sprite in pixels,
    `level` [B, K] the sprite size to draw from, `tint` [B, K, 4] colour 0..1 and its share.
    """

    sprite: np.ndarray
    label: np.ndarray
    centre: np.ndarray
    warp: np.ndarray
    extent: np.ndarray
    level: np.ndarray
    tint: np.ndarray

    def present(self, scene: int) -> list[int]:
        """The names in a scene, in order."""
        return sorted(set(self.label[scene][self.label[scene] >= 0].tolist()))


def choose_sprites(rng: np.random.Generator, sprites: Sprites, scenes: int,
                   often: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Sprite and kind for each slot; kind 0 nothing, 1 an object, 2 a glyph without a name, 3 a shape.

    `often` [names] are the weights of the names (`None`: equal).
    """
    sprite, kind = np.full((scenes, SLOTS), -1), np.zeros((scenes, SLOTS), int)
    share = None if often is None else often / often.sum()
    for scene in range(scenes):
        names = rng.choice(len(sprites.of_label), rng.integers(1, 7), replace=False, p=share)
        chosen = []
        count = 0 if rng.random() < 0.04 else rng.integers(1, INSTANCES + 1)
        weights = rng.dirichlet(np.full(len(names), 2.0))
        for name in rng.choice(names, count, p=weights):
            if sum(other == name for other, _ in chosen) < OF_ONE_NAME:
                drawings = sprites.of_label[name]
                usual = len(drawings) == 1 or rng.random() < 0.5
                chosen.append((name, drawings[0 if usual else rng.integers(1, len(drawings))]))
        entries = [(1, one) for _, one in chosen]
        if rng.random() < 0.45:
            entries += [(2, one) for one in rng.choice(sprites.clutter, rng.integers(1, 5))]
        entries = [entries[index] for index in rng.permutation(len(entries))]
        if rng.random() < 0.6:
            shapes = [(3, one) for one in rng.choice(sprites.shapes, rng.integers(1, 6))]
            # Most shapes are behind the objects, every eighth between or in front of them.
            for shape in shapes:
                entries.insert(0 if rng.random() < 0.87 else rng.integers(0, len(entries) + 1), shape)
        if rng.random() < 0.06:
            # A mosaic of glyphs behind everything.
            room = SLOTS - len(entries)
            entries = [(2, one) for one in rng.choice(sprites.clutter, min(room, 10))] + entries
        entries = entries[:SLOTS]
        for slot, (what, which) in enumerate(entries):
            kind[scene, slot], sprite[scene, slot] = what, which
    return sprite, kind


def warps(rng: np.random.Generator, sizes: np.ndarray, kind: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Warp [B, K, 2, 2] and scale [B, K]: mirrored, rotated, scaled, then squashed with the image."""
    scenes, slots = kind.shape
    aspect = np.exp(np.where(rng.random(scenes) < 0.25, 0, rng.uniform(-0.65, 0.65, scenes)))
    # An image of aspect a and smaller side S: its width becomes S, its height S.
    squash = np.stack([1 / np.maximum(aspect, 1), np.minimum(aspect, 1)], -1)[:, None]
    small = np.where(rng.random(scenes) < 0.15, 0.05, 0.1)
    longest = np.exp(rng.uniform(np.log(small)[:, None], math.log(0.55), (scenes, slots))) * side
    longest = np.where(kind == 3, longest * 1.3, longest)
    scale = longest / np.maximum(sizes.max(-1), 1)
    turn = np.where(rng.random((scenes, slots)) < 0.6, np.radians(rng.uniform(-25, 25, (scenes, slots))), 0)
    whirl = rng.uniform(-math.pi, math.pi, (scenes, slots)) * (rng.random((scenes, slots)) < 0.6)
    turn = np.where(kind >= 2, whirl, turn)
    mirror = np.where(rng.random((scenes, slots)) < 0.5, -1.0, 1.0)
    stretch = np.exp(np.where(kind == 3, rng.uniform(-0.8, 0.8, (scenes, slots)), rng.normal(0, 0.04, (scenes, slots))))
    warp = np.empty((scenes, slots, 2, 2))
    warp[..., 0, 0] = np.cos(turn) * mirror * stretch
    warp[..., 0, 1] = -np.sin(turn)
    warp[..., 1, 0] = np.sin(turn) * mirror * stretch
    warp[..., 1, 1] = np.cos(turn)
    warp = warp * scale[..., None, None] * squash[..., :, None]
    return warp, scale * np.sqrt(squash.prod(-1))


def place(rng: np.random.Generator, kind: np.ndarray, extent: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres [B, K, 2], and which slots have been placed: later slots occlude an object only in part."""
    scenes, slots = kind.shape
    centre, found = np.zeros((scenes, slots, 2)), np.zeros((scenes, slots), bool)
    # The maximum overlap of two boxes, as a share of the smaller; every fifth scene is crowded.
    limit = np.where(rng.random(scenes) < 0.2, 0.4, 0.12)[:, None]
    outside = 1 / rng.uniform(4, 12, scenes)
    everywhere = np.arange(scenes)
    # Largest first, not in drawing order: small ones fit between.
    order = np.argsort(-extent.prod(-1), axis=1)
    for slot in order.T:
        what, half = kind[everywhere, slot], extent[everywhere, slot]
        low, high = half * (1 - 2 * outside[:, None]), side - half * (1 - 2 * outside[:, None])
        middle = side / 2
        low, high = np.minimum(low, middle), np.maximum(high, middle)
        tries = rng.uniform(low[:, None], high[:, None], (scenes, ATTEMPTS, 2))
        # The intersection with every placed object: [B, attempts, K].
        a_low, a_high = tries[:, :, None] - half[:, None, None], tries[:, :, None] + half[:, None, None]
        b_low, b_high = (centre - extent)[:, None], (centre + extent)[:, None]
        common = np.clip(np.minimum(a_high, b_high) - np.maximum(a_low, b_low), 0, None).prod(-1)
        smaller = np.minimum(half.prod(-1)[:, None], extent.prod(-1))[:, None] * 4
        # Only slots in front can occlude: shapes and glyphs behind an object are ignored.
        behind = np.arange(slots) < slot[:, None]
        hides = found & np.where(what[:, None] == 1, (kind == 1) | ~behind, (kind == 1) & behind)
        bad = ((common > limit[:, :, None] * smaller) & hides[:, None]).any(-1)
        good = (~bad).any(-1)
        centre[everywhere, slot] = tries[everywhere, np.argmax(~bad, 1)]
        found[everywhere, slot] = good & (what > 0)
    return centre, found


def draw_layout(rng: np.random.Generator, sprites: Sprites, scenes: int, side: int,
                often: np.ndarray | None = None) -> Layout:
    """A batch of scenes; `often` as `choose_sprites` has it."""
    sprite, kind = choose_sprites(rng, sprites, scenes, often)
    sizes = sprites.sizes[np.maximum(sprite, 0)]
    warp, scale = warps(rng, sizes, kind, side)
    extent = (np.abs(warp) * (sizes / 2)[..., None, :]).sum(-1)
    # Slots are moved into the image.
    shrink = np.minimum(1, 0.45 * side / np.maximum(extent.max(-1), 1e-6))
    warp, scale, extent = warp * shrink[..., None, None], scale * shrink, extent * shrink[..., None]
    # A hardly visible object would not be prompted, so it is not drawn.
    kind = np.where((kind == 1) & (extent.min(-1) < 2.5), 0, kind)
    centre, found = place(rng, kind, extent, side)
    sprite = np.where(found, sprite, -1)
    level = np.clip(np.round(-np.log2(np.maximum(scale, 1e-3)) - rng.uniform(0, 0.5, scale.shape)), 0, LEVELS - 1)
    # Sprites that exceed the square of their level are drawn in a larger one.
    for coarse in range(LEVELS - 1, 0, -1):
        level = np.where((level == coarse) & (2 * extent.max(-1) + 2 > patch_side(side, coarse)), coarse - 1, level)
    tint = np.concatenate([rng.random((*kind.shape, 3)), np.ones((*kind.shape, 1))], -1)
    tint[..., 3] = np.where(kind == 3, 1, np.where(rng.random(kind.shape) < 0.15, rng.uniform(0, 0.18, kind.shape), 0))
    return Layout(
        sprite=sprite, label=np.where(found & (kind == 1), sprites.labels[np.maximum(sprite, 0)], -1),
        centre=centre, warp=warp, extent=extent, level=level.astype(int), tint=tint.astype(np.float32),
    )


def patch_side(side: int, level: int) -> int:
    """The side of the square in which sprites of a level are drawn, a multiple of 8."""
    largest = 0.9 * side + 4 if level == 0 else min(0.9 * side + 4, 1.45 * SIDE * 2 ** (0.5 - level))
    return -(-int(largest) // 8) * 8
