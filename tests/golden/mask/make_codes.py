"""Makes codes.json: random masks, pycocotools' code of each, and how much each overlaps the one before.

Run with numpy and pycocotools: python make_codes.py. Seed and versions are written into the file. A mask's pixels are
written row by row, eight to a byte, the first in the highest bit, as hexadecimal digits.
"""

import importlib.metadata
import json
import pathlib

import numpy
import pycocotools.mask

SEED = 20250614


def smooth(random, height, width):
    """A few blobs."""
    noise = random.normal(size=(height + 8, width + 8))
    for axis in (0, 1):
        noise = sum(numpy.roll(noise, shift, axis) for shift in range(-3, 4))
    return noise[4:-4, 4:-4] > 0


def main():
    random = numpy.random.default_rng(SEED)
    bitmaps = []
    for height, width in [(24, 31), (1, 9), (9, 1), (40, 7), (16, 16), (3, 120)]:
        for share in (0.03, 0.3, 0.5, 0.9):
            bitmaps.append(random.random((height, width)) < share)
        bitmaps.append(smooth(random, height, width))
        bitmaps.append(numpy.ones((height, width), bool))
        bitmaps.append(numpy.zeros((height, width), bool))
    # Runs so long that their code takes several letters.
    for size in (300, 700):
        rows, columns = numpy.mgrid[:size, :size]
        bitmaps.append((rows - size / 2) ** 2 + (columns - size / 3) ** 2 < (size / 4) ** 2)
    cases, before = [], None
    for bitmap in bitmaps:
        code = pycocotools.mask.encode(numpy.asfortranarray(bitmap.astype(numpy.uint8)))
        same_size = before is not None and before["size"] == code["size"]
        iou = pycocotools.mask.iou([before], [code], [0])[0, 0] if same_size else None
        cases.append({"size": code["size"], "pixels": numpy.packbits(bitmap).tobytes().hex() if bitmap.size < 9e4 else "",
                      "counts": code["counts"].decode(), "area": int(pycocotools.mask.area(code)),
                      "iou_with_the_one_before": None if iou is None else float(iou)})
        before = code
    golden = {"made_with": {"seed": SEED, "pycocotools": importlib.metadata.version("pycocotools")}, "cases": cases}
    path = pathlib.Path(__file__).with_name("codes.json")
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes,", len(cases), "masks")


if __name__ == "__main__":
    main()
