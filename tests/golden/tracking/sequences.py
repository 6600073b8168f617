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
    # How the camera moves: see `camera_path`.
    camera: str = "still"
    # Instances that stand still in front of everything.
    pillars: int = 0
    # The objects are pairs of the same size that meet, and pass each other or turn back.
    meet: bool = False
    # Only every nth frame is seen.
    every: int = 1


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


# Sequences that are harder in one way each.
HARDER: dict[str, Kind] = {
    "pan": Kind(16, (60, 160), 0.025, 0.04, 0.25, 0.02, camera="pan"),
    "shake": Kind(12, (60, 160), 0.025, 0.04, 0.25, 0.02, camera="shake"),
    "zoom": Kind(14, (50, 130), 0.025, 0.04, 0.25, 0.02, camera="zoom"),
    # Pillars hide each object for a second or two.
    "hidden": Kind(12, (80, 140), 0.03, 0.04, 0.25, 0.02, pillars=4),
    "meeting": Kind(12, (90, 150), 0.03, 0.04, 0.25, 0.02, meet=True),
    # Five frames a second.
    "slow": Kind(10, (60, 160), 0.02, 0.04, 0.25, 0.02, every=5),
    # A very poor detector.
    "flicker": Kind(12, (50, 140), 0.03, 0.3, 1.5, 0.07),
}


@dataclass
class Sequence:
    """Truth and detections by frame: [n, 5] of id and box, [m, 5] of box and score.

    `motion` is the motion of the camera since the frame before [2, 3], as an estimate from images would give it, or None
    for a camera that stands still.
    """

    name: str
    truth: list[np.ndarray]
    detections: list[np.ndarray]
    motion: list[np.ndarray] | None = None


def camera_path(rng: np.random.Generator, name: str, frames: int) -> np.ndarray:
    """Scale, x and y of the camera [frames, 3]: a point p is seen at scale · (p − middle) + middle + (x, y)."""
    time = np.arange(frames)
    wave = lambda least, most: np.sin(2 * np.pi * (time / rng.uniform(least, most) + rng.random()))
    path = np.zeros((frames, 3))
    if name == "pan":  # Up to 17 pixels a frame.
        path[:, 1] = 300 * wave(110, 160)
        path[:, 2] = 40 * wave(60, 120)
    if name == "shake":  # Carried by somebody who walks, with a jolt now and then.
        jolts = np.where(rng.random((frames, 2)) < 0.04, rng.normal(0, 35, (frames, 2)), 0)
        path[:, 1:] = rng.normal(0, 7, (frames, 2)) + jolts
        path[:, 2] += 18 * wave(10, 16)
    if name == "zoom":  # Up to 4.5 % a frame.
        path[:, 0] = 0.5 * wave(70, 110)
        path[:, 1] = 60 * wave(80, 140)
    path[:, 0] = np.exp(path[:, 0])
    return path


def as_matrix(place: np.ndarray) -> np.ndarray:
    """A place of the camera as a matrix [3, 3] of points."""
    scale, x, y = place
    middle = np.array([WIDTH / 2, HEIGHT / 2])
    matrix = np.diag([scale, scale, 1.0])
    matrix[:2, 2] = middle * (1 - scale) + [x, y]
    return matrix


def estimated_motion(rng: np.random.Generator, path: np.ndarray) -> list[np.ndarray]:
    """The motion from frame to frame [2, 3], half a pixel wrong, and not found in one frame of a hundred."""
    motion = [np.eye(3)[:2]]
    for before, now in zip(path, path[1:]):
        exact = as_matrix(now) @ np.linalg.inv(as_matrix(before))
        wrong = np.concatenate([rng.normal(0, 0.001, (2, 2)), rng.normal(0, 0.5, (2, 1))], 1)
        motion.append(np.eye(3)[:2] if rng.random() < 0.01 else exact[:2] + wrong)
    return motion


def meeting(rng: np.random.Generator, kind: Kind, frames: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two objects of one size that walk towards each other, again and again. Boxes and presence as by `walk`."""
    height = rng.uniform(*kind.size)
    half = np.array([height * rng.uniform(0.4, 0.7), height]) / 2
    speed = kind.speed * height * rng.uniform(0.6, 1.4)
    middle = np.array([rng.uniform(0.25, 0.75) * WIDTH, rng.uniform(0.2, 0.8) * HEIGHT])
    reach = rng.uniform(1.5, 3) * height
    side, away, rest = 1.0, reach * rng.uniform(0.3, 1), 0
    inwards = True
    places = np.zeros((2, frames, 2))
    for frame in range(frames):
        rest = max(0, rest - 1)
        away += 0 if rest else -speed if inwards else speed
        if inwards and away <= 0:
            # They pass each other, or stand together for a while and turn back.
            inwards = False
            if rng.random() < 0.5:
                side = -side
            else:
                rest = int(rng.integers(2, 15))
        elif not inwards and away >= reach:
            inwards = True
        shift = np.array([side * away, 0.08 * height])
        places[:, frame] = [middle - shift, middle + shift]
    everywhere = np.ones(frames, bool)
    return [(np.concatenate([place - half, place + half], 1), everywhere) for place in places]


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
    """The sequence of a kind and a seed. Instances covered by four fifths and more are no part of the truth."""
    kind = (KINDS | HARDER)[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if kind.meet:
        walks = [one for _ in range(kind.objects // 2) for one in meeting(rng, kind, frames)]
    else:
        walks = [walk(rng, kind, frames * kind.every) for _ in range(kind.objects)]
        walks = [(boxes[::kind.every], there[::kind.every]) for boxes, there in walks]
    motion = None
    if kind.camera != "still":
        path = camera_path(rng, kind.camera, frames)
        motion = estimated_motion(rng, path)
        seen_from = np.array([as_matrix(place) for place in path])
        for boxes, _ in walks:
            for corner in (boxes[:, :2], boxes[:, 2:]):
                corner[:] = seen_from[:, [0, 1], [0, 1]] * corner + seen_from[:, :2, 2]
    # Each in its own part of the image.
    pillars = np.array([[(n + rng.uniform(0.3, 0.6)) * WIDTH / kind.pillars, 0] for n in range(kind.pillars)]).reshape(-1, 2)
    pillars = np.concatenate([pillars, pillars + rng.uniform([90, HEIGHT], [170, HEIGHT + 1], pillars.shape)], 1)
    sharpness = rng.uniform(0.72, 0.93, kind.objects) - (0.15 if name == "noisy" else 0)
    slump = np.zeros(kind.objects, int)
    truth, detections, ghosts = [], [], []
    for frame in range(frames):
        boxes = [(index, boxes[frame]) for index, (boxes, there) in enumerate(walks) if there[frame]]
        # Whose feet are lower is nearer.
        boxes.sort(key=lambda entry: -entry[1][3])
        rows, seen = [], []
        for place, (index, box) in enumerate(boxes):
            hidden = covered(box, np.array([other for _, other in boxes[:place]] + [*pillars]).reshape(-1, 4))
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
    return Sequence(f"{name}-{seed}", truth, detections, motion)
