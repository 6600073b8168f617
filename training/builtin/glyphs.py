"""Pictograms as images, from the Noto Color Emoji font or, without the font, from a sheet drawn with it.

    python glyphs.py --output SHEET.png     draws the sheet: all glyphs for training and evaluation (about 5 MB)

The sheet is for machines without the font. Both give the same pixels.
"""

from __future__ import annotations

import argparse
import json
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from vocabulary import KNOWN, VOCABULARY

# The font's path in Debian's package `fonts-noto-color-emoji`.
FONT = Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
# The default path of the sheet.
SHEET = Path(__file__).resolve().parents[2] / "target" / "training" / "glyphs.png"

# The font has bitmaps of one size, 136x128 pixels; 109 is the only font size that selects them.
BITMAP_SIZE = 109
CELL_WIDTH, CELL_HEIGHT, COLUMNS = 140, 140, 25

SKIN_TONES = ("\U0001f3fb", "\U0001f3fc", "\U0001f3fd", "\U0001f3fe", "\U0001f3ff")
MAN, WOMAN = "\u200d\u2642\ufe0f", "\u200d\u2640\ufe0f"
# Variants of a pictogram, with the index of the name: used in training beside the usual one.
VARIANTS: dict[str, tuple[str, ...]] = {
    "person": tuple("🧍" + tone + kind for kind in ("", MAN, WOMAN) for tone in ("", *SKIN_TONES))[1:],
    "snowboard": tuple("🏂" + tone for tone in SKIN_TONES),
}

# People and parts of faces: too similar to "person" to be clutter.
PEOPLE = (range(0x1F385, 0x1F386), range(0x1F3C2, 0x1F3CD), range(0x1F464, 0x1F488), range(0x1F48F, 0x1F492),
          range(0x1F574, 0x1F57B), range(0x1F600, 0x1F650), range(0x1F6A3, 0x1F6A4), range(0x1F6B4, 0x1F6B7),
          range(0x1F6C0, 0x1F6C1), range(0x1F90C, 0x1F940), range(0x1F977, 0x1F978), range(0x1F9B5, 0x1F9BA),
          range(0x1F9CD, 0x1F9E0), range(0x1FAC0, 0x1FAC6), range(0x1FAF0, 0x1FAF9), range(0x26F7, 0x26FA))
# Words in a Unicode name that make a glyph too similar to one of the names.
NEAR_WORDS = frozenset(
    "cat dog bear cow ox bull buffalo ram sheep horse unicorn bird chick duck eagle owl parrot penguin rooster "
    "chicken turkey dove peacock flamingo swan dodo bus trolleybus car automobile taxi van truck lorry train "
    "railway tram metro locomotive bicycle motor scooter airplane boat ship ferry speedboat canoe clock watch "
    "timer book books notebook ledger phone telephone computer keyboard mouse television tree palm deciduous "
    "evergreen house houses home building hut heart hearts love star stars stars. moon sun flower blossom bouquet "
    "hibiscus tulip rose sunflower fish blowfish shark dolphin turtle butterfly hammer pick wrench key cup "
    "beverage tea coffee bowl glass beer wine sake cocktail tropical bottle fork knife dagger spoon apple orange "
    "cake shortcake bread pizza donut doughnut bagel sandwich burrito stuffed chair seat couch bed toilet bag "
    "handbag purse backpack satchel briefcase luggage umbrella kite ball basketball football baseball softball "
    "volleyball rugby soccer tennis racket robot rocket teddy toothbrush vase amphora scissors potted plant "
    "seedling herb stop octagonal sign traffic light extinguisher necktie shirt frisbee disc ski skis skateboard "
    "sled snowboarder carrot banana broccoli hot zebra giraffe elephant mammoth rat pony goat llama deer "
    "badminton vehicle minibus ambulance rickshaw snowman camera camel medal globe earth hourglass stopwatch lock "
    "rainbow sun clinking modifier component envelope drop teapot tiger leopard fox flag".split())
# The maximum number of glyphs for clutter; more would mainly add size.
OTHERS = 380


@dataclass(frozen=True)
class Glyph:
    """A pictogram: its image (RGBA, cropped) and the index of its name, -1 without one."""

    character: str
    label: int
    image: Image.Image


def draw_glyph(character: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    """One character as an RGBA image, cropped to its visible part."""
    canvas = Image.new("RGBA", (160, 160), (0, 0, 0, 0))
    ImageDraw.Draw(canvas).text((12, 16), character, font=font, embedded_color=True)
    box = canvas.getbbox()
    if box is None:
        raise ValueError(f"the font draws nothing for {character!r}; Noto Color Emoji 2.042 or later is needed")
    return canvas.crop(box)


def font_of(path: Path = FONT) -> ImageFont.FreeTypeFont:
    """The font; raises `FileNotFoundError` if it is missing (`apt-get install fonts-noto-color-emoji`)."""
    if not path.exists():
        raise FileNotFoundError(f"no colour-emoji font at {path}: install the package fonts-noto-color-emoji")
    return ImageFont.truetype(str(path), BITMAP_SIZE)


def others() -> list[str]:
    """Characters unlike any named object, chosen evenly from the range of the font."""
    known = {pictogram.character for pictogram in KNOWN}
    ranges = (range(0x231A, 0x2400), range(0x2600, 0x27C0), range(0x1F300, 0x1F700), range(0x1F900, 0x1FAFF))
    found = []
    for code in (code for span in ranges for code in span):
        words = unicodedata.name(chr(code), "").lower().replace("-", " ").split()
        if not words or chr(code) in known or any(code in span for span in PEOPLE) or NEAR_WORDS & set(words):
            continue
        found.append(chr(code))
    return found


@lru_cache(maxsize=1)
def draw_all() -> tuple[Glyph, ...]:
    """The named glyphs in order, then their variants, then the others, drawn with the font."""
    font = font_of()
    names = {pictogram.name: index for index, pictogram in enumerate(KNOWN)}
    glyphs = [Glyph(pictogram.character, index, draw_glyph(pictogram.character, font))
              for index, pictogram in enumerate(KNOWN)]
    glyphs += [Glyph(character, names[name], draw_glyph(character, font))
               for name, characters in VARIANTS.items() for character in characters]
    extra = []
    for character in others():
        try:
            image = draw_glyph(character, font)
        except ValueError:
            continue
        # Characters that the font lacks are drawn in one colour, as text.
        if len(image.convert("RGB").getcolors(1 << 16) or range(99)) > 8:
            extra.append(Glyph(character, -1, image))
    step = max(1.0, len(extra) / OTHERS)
    return tuple(glyphs + [extra[int(index * step)] for index in range(min(OTHERS, len(extra)))])


def write_sheet(path: Path) -> None:
    """Writes all glyphs as one image, with characters, names and sizes in its metadata."""
    glyphs = draw_all()
    rows = -(-len(glyphs) // COLUMNS)
    sheet = Image.new("RGBA", (COLUMNS * CELL_WIDTH, rows * CELL_HEIGHT), (0, 0, 0, 0))
    table = []
    for index, glyph in enumerate(glyphs):
        sheet.paste(glyph.image, (index % COLUMNS * CELL_WIDTH, index // COLUMNS * CELL_HEIGHT))
        table.append([glyph.character, glyph.label, *glyph.image.size])
    text = PngInfo()
    text.add_text("glyphs", json.dumps(table))
    text.add_text("Copyright", "Noto Color Emoji, (c) Google, SIL Open Font License 1.1")
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, pnginfo=text, optimize=True)
    print(f"{len(glyphs)} glyphs, {sum(glyph.label < 0 for glyph in glyphs)} without a name, "
          f"{path.stat().st_size / 1e6:.1f} MB in {path}")


@lru_cache(maxsize=2)
def read_sheet(path: Path = SHEET) -> tuple[Glyph, ...]:
    """Reads a sheet of `write_sheet`; raises `FileNotFoundError` if it is missing, too."""
    if not path.exists():
        raise FileNotFoundError(f"neither a font at {FONT} nor a sheet at {path}: install fonts-noto-color-emoji, or "
                                "bring a sheet drawn by glyphs.py")
    with Image.open(path) as file:
        sheet, table = file.convert("RGBA"), json.loads(file.text["glyphs"])
    glyphs = []
    for index, (character, label, width, height) in enumerate(table):
        x, y = index % COLUMNS * CELL_WIDTH, index // COLUMNS * CELL_HEIGHT
        glyphs.append(Glyph(character, label, sheet.crop((x, y, x + width, y + height))))
    return tuple(glyphs)


def all_glyphs() -> tuple[Glyph, ...]:
    """All glyphs, from the font if it is installed, else from the sheet."""
    return draw_all() if FONT.exists() else read_sheet()


@lru_cache(maxsize=2)
def load_glyphs(count: int = len(VOCABULARY)) -> tuple[Image.Image, ...]:
    """The images of the first `count` names, in the order of the vocabulary."""
    return tuple(glyph.image for glyph in all_glyphs()[:count])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=SHEET, help=f"the sheet to write (default {SHEET})")
    write_sheet(parser.parse_args().output)


if __name__ == "__main__":
    main()
