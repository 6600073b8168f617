#!/usr/bin/env python3
"""Makes square.ttf: a font whose only letter, U+10F5F0 of a private area, is a square as high as a capital.

    pip install fonttools==4.68.0
    python make.py
"""

from pathlib import Path

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

UNITS = 1000
LETTER = 0x10F5F0


def square(left: int, side: int) -> object:
    pen = TTGlyphPen(None)
    pen.moveTo((left, 0))
    for point in ((left, side), (left + side, side), (left + side, 0)):
        pen.lineTo(point)
    pen.closePath()
    return pen.glyph()


def main() -> None:
    font = FontBuilder(UNITS, isTTF=True)
    font.setupGlyphOrder([".notdef", "square"])
    font.setupCharacterMap({LETTER: "square"})
    font.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "square": square(50, 700)})
    font.setupHorizontalMetrics({".notdef": (500, 0), "square": (800, 50)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Ocelli Square", "styleName": "Regular"})
    font.setupOS2(sTypoAscender=800, sTypoDescender=-200, usWinAscent=800, usWinDescent=200)
    font.setupPost()
    font.updateHead(created=0, modified=0)
    font.font.recalcTimestamp = False
    font.save(Path(__file__).with_name("square.ttf"))


if __name__ == "__main__":
    main()
