"""The worst scenes of a model, on one page: misses in blue, false positives in red."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from reference import Found
from vocabulary import KNOWN_NAMES

COLUMNS, ROWS, WIDTH, HEIGHT = 4, 5, 448, 336


@dataclass
class Failure:
    """A scene, the boxes and labels of missed objects, and the false positives."""

    image: np.ndarray
    missed: list[tuple[np.ndarray, int]]
    alarms: list[Found]


def label(pen: ImageDraw.ImageDraw, box: tuple[float, float, float, float], text: str, colour: str) -> None:
    """A box with its name at the upper left corner, inside the image."""
    pen.rectangle(box, outline=colour, width=3)
    corner = max(2, box[0] + 4), max(2, box[1] + 2)
    pen.text(corner, text, fill=colour, stroke_width=3, stroke_fill="white", font_size=16)


def draw_failures(failures: list[Failure], target: Path) -> None:
    """A sheet of the twenty worst scenes."""
    worst = sorted(failures, key=lambda one: -(len(one.alarms) + len(one.missed)))[:COLUMNS * ROWS]
    rows = max(1, -(-len(worst) // COLUMNS))
    sheet = Image.new("RGB", (COLUMNS * (WIDTH + 6), rows * (HEIGHT + 6)), "white")
    for index, failure in enumerate(worst):
        image = Image.fromarray(failure.image)
        pen = ImageDraw.Draw(image)
        for box, name in failure.missed:
            label(pen, tuple(box.tolist()), KNOWN_NAMES[name], "blue")
        for one in failure.alarms:
            label(pen, one.box, f"{KNOWN_NAMES[one.class_index]} {one.score:.2f}", "red")
        sheet.paste(image.resize((WIDTH, HEIGHT)), (index % COLUMNS * (WIDTH + 6), index // COLUMNS * (HEIGHT + 6)))
    sheet.save(target)
