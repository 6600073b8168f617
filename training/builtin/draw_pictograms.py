#!/usr/bin/env python3
"""Draws the 80 pictograms into one sheet, from which the programs draw scenes without a font.

    python draw_pictograms.py      src/builtin/pictograms.webp and src/builtin/vocabulary.txt

The sheet is a lossless WebP of the font's own bitmaps, 10 cells a row, 128 pixels a side, each pictogram in the upper
left of its cell. The text file has their names in the same order, one a line.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

from glyphs import load_glyphs
from vocabulary import NAMES

BUILTIN = Path(__file__).resolve().parents[2] / "src" / "builtin"
COLUMNS, CELL = 10, 128


def draw_sheet() -> Image.Image:
    """All pictograms as one RGBA image."""
    glyphs = load_glyphs()
    sheet = Image.new("RGBA", (COLUMNS * CELL, -(-len(glyphs) // COLUMNS) * CELL), (0, 0, 0, 0))
    for index, glyph in enumerate(glyphs):
        if max(glyph.size) > CELL:
            raise ValueError(f"{NAMES[index]} is {glyph.size}, larger than a cell of {CELL}")
        sheet.paste(glyph, (index % COLUMNS * CELL, index // COLUMNS * CELL))
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=BUILTIN, help="folder to write to (default src/builtin)")
    arguments = parser.parse_args()
    path = arguments.output / "pictograms.webp"
    # Without `exact`, the colours of transparent pixels are not stored.
    draw_sheet().save(path, "WEBP", lossless=True, quality=100, method=6)
    (arguments.output / "vocabulary.txt").write_text("".join(f"{name}\n" for name in NAMES))
    print(f"{len(NAMES)} pictograms, {path.stat().st_size / 1000:.0f} kB in {path}")


if __name__ == "__main__":
    main()
