"""Pictograms as pictures, from the Noto Color Emoji font."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from vocabulary import VOCABULARY

# Where Debian's package `fonts-noto-color-emoji` puts the font.
FONT = Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")

# The font holds bitmaps of one size, 136x128 pixels; 109 is the only size that selects them.
BITMAP_SIZE = 109


def draw_glyph(character: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    """One character as an RGBA picture, cropped to what is drawn."""
    canvas = Image.new("RGBA", (160, 160), (0, 0, 0, 0))
    ImageDraw.Draw(canvas).text((12, 16), character, font=font, embedded_color=True)
    box = canvas.getbbox()
    if box is None:
        raise ValueError(f"the font draws nothing for {character!r}; Noto Color Emoji 2.042 or later is needed")
    return canvas.crop(box)


@lru_cache(maxsize=1)
def load_glyphs(path: Path = FONT) -> tuple[Image.Image, ...]:
    """The pictograms in the order of the vocabulary.

    Raises `FileNotFoundError` when the font is missing (`apt-get install fonts-noto-color-emoji`).
    """
    if not path.exists():
        raise FileNotFoundError(f"no colour-emoji font at {path}: install the package fonts-noto-color-emoji")
    font = ImageFont.truetype(str(path), BITMAP_SIZE)
    return tuple(draw_glyph(pictogram.character, font) for pictogram in VOCABULARY)
