"""Sequences to track: objects that walk, cross and hide each other, seen by a detector that errs.

A seed and a kind are a sequence. Boxes are xyxy in pixels of 1280 x 720, rounded to a tenth.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

WIDTH, HEIGHT = 1280, 720


@dataclass(frozen=True)
class Kind:
    """What a sequence is like. Speeds are in heights of the object a frame, rates per object or frame and frame."""

    objects: int
    size: tuple[float, float]
    speed: float
    missed: float
    false_alarms: float
    jitter: float


KINDS: dict[str, Kind] = {
    # A street: a dozen objects, some crossing.
    "street": Kind(12, (60, 160), 0.025, 0.04, 0.25, 0.02),
    # Many in one place, hiding each other all the time.
    "crowd": Kind(26, (90, 180), 0.015, 0.05, 0.3, 0.02),
    # Ten frames a second: between two frames an object moves by a good part of its size.
    "fast": Kind(9, (60, 140), 0.11, 0.04, 0.25, 0.02),
    # A poor detector: low scores, boxes that shake, many misses and false alarms.
    "noisy": Kind(12, (50, 140), 0.03, 0.15, 1.2, 0.05),
}


@dataclass
class Sequence:
    """Truth and detections by frame: [n, 5] of id and box, [m, 5] of box and score."""

    name: str
    truth: list[np.ndarray]
    detections: list[np.ndarray]


def walk(rng: np.random.Generator, kind: Kind, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes [frames, xyxy] of one object, and in which frames it is there."""
    height = rng.uniform(*kind.size)
    width = height * rng.uniform(0.4, 1.1)
    grow = rng.normal(0, 0.0015)
    angle = rng.choice([0, np.pi]) + rng.normal(0, 0.4) if rng.random() < 0.8 else rng.uniform(0, 2 * np.pi)
    speed = kind.speed * height * rng.uniform(0.4, 1.6)
    start, length = int(rng.integers(-frames // 3, frames * 2 // 3)), int(rng.integers(frames // 3, frames))
    centre = np.array([rng.uniform(0.1, 0.9) * WIDTH, rng.uniform(0.25, 0.75) * HEIGHT])
    boxes, there = np.zeros((frames, 4)), np.zeros(frames, bool)
    turn = rng.normal(0, 0.01)
    rest = 0
    for frame in range(frames):
        angle += turn + rng.normal(0, 0.02)
        if rng.random() < 0.01:
            turn = rng.normal(0, 0.02)
        if rest == 0 and rng.random() < 0.004:
            rest = int(rng.integers(10, 40))
        rest = max(0, rest - 1)
        pace = 0.1 if rest else 1.0
        centre = centre + pace * speed * np.array([np.cos(angle), 0.5 * np.sin(angle)])
        # Turned back at the border, so that nobody is far outside for long.
        if not -0.05 * WIDTH < centre[0] < 1.05 * WIDTH or not 0.05 * HEIGHT < centre[1] < 0.95 * HEIGHT:
            angle += np.pi
            centre = centre.clip([-0.05 * WIDTH, 0.05 * HEIGHT], [1.05 * WIDTH, 0.95 * HEIGHT])
        height = float(np.clip(height * (1 + grow), 0.6 * kind.size[0], 1.4 * kind.size[1]))
        half = np.array([width / 2, height / 2])
        boxes[frame] = np.concatenate([centre - half, centre + half])
        there[frame] = start <= frame < start + length
    return boxes, there


def covered(box: np.ndarray, nearer: np.ndarray) -> float:
    """What share of `box` [4] boxes [n, 4] in front of it cover, on a grid of 12 x 12 points."""
    xs = np.linspace(box[0], box[2], 14)[1:-1]
    ys = np.linspace(box[1], box[3], 14)[1:-1]
    x, y = np.meshgrid(xs, ys)
    hidden = (x < 0) | (x > WIDTH) | (y < 0) | (y > HEIGHT)
    for other in nearer:
        hidden |= (x > other[0]) & (x < other[2]) & (y > other[1]) & (y < other[3])
    return float(hidden.mean())


def make_sequence(name: str, seed: int, frames: int = 200) -> Sequence:
    """The sequence of a kind and a seed. Things covered by four fifths and more are no part of the truth."""
    kind = KINDS[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    walks = [walk(rng, kind, frames) for _ in range(kind.objects)]
    sharpness = rng.uniform(0.72, 0.93, kind.objects) - (0.15 if name == "noisy" else 0)
    slump = np.zeros(kind.objects, int)
    truth, detections, ghosts = [], [], []
    for frame in range(frames):
        boxes = [(index, boxes[frame]) for index, (boxes, there) in enumerate(walks) if there[frame]]
        # Whose feet are lower is nearer.
        boxes.sort(key=lambda entry: -entry[1][3])
        rows, seen = [], []
        for place, (index, box) in enumerate(boxes):
            hidden = covered(box, np.array([other for _, other in boxes[:place]]).reshape(-1, 4))
            if hidden < 0.8:
                rows.append([index + 1, *box])
            # Misses come in runs: what makes an object hard to see lasts for some frames.
            if slump[index] == 0 and rng.random() < kind.missed / 3:
                slump[index] = rng.integers(1, 6)
            elif slump[index]:
                slump[index] -= 1
                if rng.random() < 0.6:
                    continue
            score = sharpness[index] * (1 - hidden) ** 0.7 - (0.3 if slump[index] else 0) + rng.normal(0, 0.06)
            if score < 0.08 or hidden > 0.85:
                continue
            shake = rng.normal(0, kind.jitter * (1 + 2 * hidden), 4) * np.tile(box[2:] - box[:2], 2)
            seen.append([*(box + shake), min(score, 0.99)])
        ghosts = [(box, life - 1) for box, life in ghosts if life > 1]
        for _ in range(rng.poisson(kind.false_alarms / 2)):
            side = rng.uniform(*kind.size) * np.array([rng.uniform(0.4, 1.1), 1])
            corner = rng.uniform([0, 0], [WIDTH - side[0], HEIGHT - side[1]])
            ghosts.append((np.concatenate([corner, corner + side]), int(rng.integers(1, 5))))
        for box, _ in ghosts:
            seen.append([*(box + rng.normal(0, 4, 4)), float(np.clip(rng.beta(2, 3), 0.08, 0.95))])
        truth.append(np.round(np.array(sorted(rows)).reshape(-1, 5), 1))
        detections.append(np.array(seen).reshape(-1, 5).round(3))
    detections = [np.concatenate([d[:, :4].round(1), d[:, 4:]], 1) for d in detections]
    return Sequence(f"{name}-{seed}", truth, detections)
