"""The backgrounds of the scenes that figures are measured on.

A background depends on a `random.Random` only, so that a seed always gives the same image. Training has other gradients
and stripes (`textures.py`); it never sees checkerboards, landscapes, mosaics, rooms, or the clutter drawn here.
"""

from __future__ import annotations

import math
import random
from typing import Callable

import numpy as np
from PIL import Image, ImageDraw

Colour = tuple[int, int, int]


def random_colour(rng: random.Random, low: int = 0, high: int = 255) -> Colour:
    """Three independent channels in `low..=high`."""
    return rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)


def blend(a: Colour, b: Colour, share: np.ndarray) -> np.ndarray:
    """`a` where `share` [H, W] is 0, `b` where it is 1, as floats [H, W, 3]."""
    share = share[..., None]
    return np.asarray(a, float) * (1 - share) + np.asarray(b, float) * share


def to_image(pixels: np.ndarray) -> Image.Image:
    """Floats [H, W, 3] in 0..255 as an image."""
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def grid(width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixel coordinates x and y, [H, W] each."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    return x, y


def gradient(rng: random.Random, width: int, height: int) -> Image.Image:
    """A linear or radial gradient between two colours."""
    x, y = grid(width, height)
    if rng.random() < 0.5:
        angle = rng.uniform(0, 2 * math.pi)
        share = x / width * math.cos(angle) + y / height * math.sin(angle)
    else:
        share = np.hypot(x - rng.uniform(0, width), y - rng.uniform(0, height))
    share = (share - share.min()) / (share.max() - share.min())
    return to_image(blend(random_colour(rng), random_colour(rng), share))


def stripes(rng: random.Random, width: int, height: int) -> Image.Image:
    """Soft or sharp stripes at any angle."""
    x, y = grid(width, height)
    angle, period = rng.uniform(0, math.pi), rng.uniform(0.06, 0.35) * min(width, height)
    share = 0.5 + 0.5 * np.sin((x * math.cos(angle) + y * math.sin(angle)) * 2 * math.pi / period)
    if rng.random() < 0.5:
        share = (share > 0.5).astype(float)
    return to_image(blend(random_colour(rng), random_colour(rng), share))


def checkerboard(rng: random.Random, width: int, height: int) -> Image.Image:
    """A checkerboard of two colours."""
    x, y = grid(width, height)
    side = rng.uniform(0.06, 0.3) * min(width, height)
    return to_image(blend(random_colour(rng), random_colour(rng), ((x // side + y // side) % 2)))


def landscape(rng: random.Random, width: int, height: int) -> Image.Image:
    """A sky, two or three ranges of hills, sometimes a disc in the sky."""
    x, y = grid(width, height)
    sky, haze = (rng.randint(90, 190), rng.randint(150, 220), rng.randint(200, 255)), random_colour(rng, 170, 255)
    pixels = blend(sky, haze, y / height)
    if rng.random() < 0.4:
        radius = rng.uniform(0.05, 0.12) * min(width, height)
        disc = np.hypot(x - rng.uniform(0, width), y - rng.uniform(0, height * 0.35)) < radius
        pixels[disc] = random_colour(rng, 200, 255)
    level = rng.uniform(0.4, 0.6)
    for _ in range(rng.randint(2, 3)):
        across = x[0] / width * 2 * math.pi
        wave = sum(rng.uniform(0.01, 0.06) * np.sin(across * rng.uniform(0.5, 4) + rng.uniform(0, 6))
                   for _ in range(3))
        colour = np.array([rng.randint(30, 140), rng.randint(90, 190), rng.randint(20, 120)], float)
        below = y / height > (level + wave)[None]
        pixels[below] = (colour * (0.85 + 0.3 * y[..., None] / height))[below]
        level += rng.uniform(0.12, 0.2)
    return to_image(pixels)


def mosaic(rng: random.Random, width: int, height: int) -> Image.Image:
    """Cells around random points, each of one colour."""
    x, y = grid(width, height)
    nearest, pixels = np.full((height, width), np.inf), np.zeros((height, width, 3))
    base = random_colour(rng)
    spread = rng.randint(15, 90)
    for _ in range(rng.randint(6, 30)):
        distance = np.hypot(x - rng.uniform(0, width), y - rng.uniform(0, height))
        colour = [min(255, max(0, channel + rng.randint(-spread, spread))) for channel in base]
        closer = distance < nearest
        nearest[closer], pixels[closer] = distance[closer], colour
    return to_image(pixels)


def room(rng: random.Random, width: int, height: int) -> Image.Image:
    """A wall and a floor of boards."""
    image = Image.new("RGB", (width, height), random_colour(rng, 120, 245))
    draw = ImageDraw.Draw(image)
    horizon = int(height * rng.uniform(0.5, 0.75))
    floor = (rng.randint(90, 190), rng.randint(60, 140), rng.randint(30, 100))
    draw.rectangle([0, horizon, width, height], fill=floor)
    dark = tuple(int(channel * 0.8) for channel in floor)
    for board in range(-12, 13):
        draw.line([width / 2 + board * width / 14, horizon, width / 2 + board * width / 5, height], fill=dark, width=2)
    draw.rectangle([0, horizon - max(2, height // 60), width, horizon], fill=random_colour(rng, 180, 255))
    return image


HELD_OUT_FAMILIES: dict[str, Callable[[random.Random, int, int], Image.Image]] = {
    "gradient": gradient, "stripes": stripes, "checkerboard": checkerboard, "landscape": landscape,
    "mosaic": mosaic, "room": room,
}


def draw_clutter(rng: random.Random, image: Image.Image) -> None:
    """Clutter without a class: triangles, rings, arcs, crosses, dots and wavy lines."""
    width, height = image.size
    draw = ImageDraw.Draw(image)
    for _ in range(rng.randint(1, 7)):
        radius = rng.uniform(0.02, 0.14) * min(width, height)
        x, y, colour = rng.uniform(0, width), rng.uniform(0, height), random_colour(rng)
        box, stroke = [x - radius, y - radius, x + radius, y + radius], max(1, int(radius * rng.uniform(0.1, 0.4)))
        kind = rng.choice(["triangle", "ring", "arc", "cross", "dots", "wave"])
        if kind == "triangle":
            start = rng.uniform(0, 2 * math.pi)
            corners = [start + corner * 2 * math.pi / 3 for corner in range(3)]
            draw.polygon([(x + radius * math.cos(a), y + radius * math.sin(a)) for a in corners], fill=colour)
        elif kind == "ring":
            draw.ellipse(box, outline=colour, width=stroke)
        elif kind == "arc":
            start = rng.uniform(0, 360)
            draw.arc(box, start, start + rng.uniform(60, 250), fill=colour, width=stroke)
        elif kind == "cross":
            draw.line([x - radius, y, x + radius, y], fill=colour, width=stroke)
            draw.line([x, y - radius, x, y + radius], fill=colour, width=stroke)
        elif kind == "dots":
            for _ in range(rng.randint(3, 9)):
                u, v, r = x + rng.gauss(0, radius), y + rng.gauss(0, radius), rng.uniform(1, 4)
                draw.ellipse([u - r, v - r, u + r, v + r], fill=colour)
        else:
            points = [(x + t * radius / 4, y + radius / 3 * math.sin(t)) for t in range(-8, 9)]
            draw.line(points, fill=colour, width=max(1, stroke // 2), joint="curve")


def held_out_background(rng: random.Random, width: int, height: int, family: str | None = None) -> Image.Image:
    """A background of one of `HELD_OUT_FAMILIES`, two in three with clutter."""
    chosen = family if family is not None else rng.choice(sorted(HELD_OUT_FAMILIES))
    image = HELD_OUT_FAMILIES[chosen](rng, width, height)
    if rng.random() < 2 / 3:
        draw_clutter(rng, image)
    return image
