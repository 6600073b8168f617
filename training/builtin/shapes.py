"""Shapes, scribbles and text: clutter without a name, in any colour, behind, between and in front of objects.

Each is a square alpha image, which is tinted, stretched and rotated when it is drawn. Rings, arcs, crosses, dots and
waves are for held-out scenes only (`backgrounds.draw_clutter`).
"""

from __future__ import annotations

import math
import random
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE = 128
SHAPES = 160
WORDS = ("open", "sale", "exit", "2026", "hello", "north", "no", "menu", "50%", "taxi", "bus", "cat", "zoo", "Aa", "R2",
         "stop", "www", "abc", "kg", "ok", "yes", "up", "tea", "&", "?", "42", "news", "cafe")


def polygon(rng: random.Random, draw: ImageDraw.ImageDraw) -> None:
    """A polygon of three to nine corners at different distances from the centre."""
    count, middle = rng.randint(3, 9), SIDE / 2
    start, uneven = rng.uniform(0, 6.3), rng.choice([0.0, 0.2, 0.6])
    corners = []
    for index in range(count):
        angle, radius = start + index * 2 * math.pi / count, middle * 0.95 * (1 - rng.uniform(0, uneven))
        corners.append((middle + radius * math.cos(angle), middle + radius * math.sin(angle)))
    if rng.random() < 0.75:
        draw.polygon(corners, fill=255)
    else:
        draw.line([*corners, corners[0]], fill=255, width=rng.randint(3, 14), joint="curve")


def rectangle(rng: random.Random, draw: ImageDraw.ImageDraw) -> None:
    """A box with square or round corners, full or empty."""
    height = rng.uniform(0.15, 1) * (SIDE - 8)
    box = [4, SIDE / 2 - height / 2, SIDE - 4, SIDE / 2 + height / 2]
    radius = rng.choice([0, 0.2, 0.5]) * height
    if rng.random() < 0.7:
        draw.rounded_rectangle(box, radius, fill=255)
    else:
        draw.rounded_rectangle(box, radius, outline=255, width=rng.randint(3, 12))


def ellipse(rng: random.Random, draw: ImageDraw.ImageDraw) -> None:
    """A disc, sometimes with a bite or an off-centre hole."""
    height = rng.uniform(0.3, 1) * (SIDE - 8)
    draw.ellipse([4, SIDE / 2 - height / 2, SIDE - 4, SIDE / 2 + height / 2], fill=255)
    if rng.random() < 0.4:
        x, y, radius = rng.uniform(0, SIDE), rng.uniform(0, SIDE), rng.uniform(0.1, 0.4) * SIDE
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=0)


def scribble(rng: random.Random, draw: ImageDraw.ImageDraw) -> None:
    """A random curve."""
    x, y, angle = rng.uniform(20, SIDE - 20), rng.uniform(20, SIDE - 20), rng.uniform(0, 6.3)
    points, bend, width = [(x, y)], rng.uniform(0.3, 2), rng.randint(2, 7)
    for _ in range(rng.randint(4, 40)):
        angle += rng.uniform(-bend, bend)
        x, y = x + 12 * math.cos(angle), y + 12 * math.sin(angle)
        if not 5 < x < SIDE - 5 or not 5 < y < SIDE - 5:
            x, y, angle = min(max(x, 5), SIDE - 5), min(max(y, 5), SIDE - 5), angle + math.pi * 0.7
        points.append((x, y))
    draw.line(points, fill=255, width=width, joint="curve")


def hatching(rng: random.Random, draw: ImageDraw.ImageDraw) -> None:
    """Parallel strokes, as of a fence or a comb."""
    step, width = rng.randint(9, 24), rng.randint(2, 7)
    for x in range(8, SIDE - 4, step):
        draw.line([x, rng.randint(4, 24), x + rng.randint(-3, 3), SIDE - rng.randint(4, 24)], fill=255, width=width)
    if rng.random() < 0.5:
        y = rng.randint(20, SIDE - 20)
        draw.line([4, y, SIDE - 4, y], fill=255, width=width)


def word(rng: random.Random, draw: ImageDraw.ImageDraw) -> None:
    """A word, or some lines of letters."""
    if rng.random() < 0.6:
        text = rng.choice(WORDS)
        font = ImageFont.load_default(min(100, 190 // max(1, len(text))))
        box = draw.textbbox((0, 0), text, font=font)
        draw.text(((SIDE - box[2] - box[0]) / 2, (SIDE - box[3] - box[1]) / 2), text, fill=255, font=font)
        return
    font = ImageFont.load_default(rng.randint(10, 24))
    for y in range(2, SIDE - 10, int(font.size * 1.3)):
        line = " ".join("".join(rng.choice("abcdefghilmnoprstuvw") for _ in range(rng.randint(2, 8))) for _ in range(6))
        draw.text((2, y), line, fill=255, font=font)


KINDS = (polygon, polygon, rectangle, rectangle, ellipse, scribble, scribble, hatching, word, word)


@lru_cache(maxsize=1)
def draw_shapes() -> np.ndarray:
    """All shapes, [SHAPES, SIDE, SIDE] u8; the same on every machine with the same Pillow."""
    rng = random.Random("shapes")
    shapes = []
    for _ in range(SHAPES):
        image = Image.new("L", (SIDE, SIDE), 0)
        rng.choice(KINDS)(rng, ImageDraw.Draw(image))
        shapes.append(np.asarray(image))
    return np.stack(shapes)
