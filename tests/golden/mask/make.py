"""Makes mask.json: logits on a grid, resized as transformers' Sam3ImageProcessor does, coded by pycocotools.

Run with torch and pycocotools: python make.py. Seed and versions are written into the file.
Logits are multiples of 1/64. Values within 1e-6 of the threshold are drawn again, so that rounding decides nothing.
"""

import importlib.metadata
import json
import pathlib

import numpy
import pycocotools.mask
import torch

SEED = 20250612


def smooth(height, width, generator):
    """A few blobs, as masks are."""
    coarse = torch.randn(1, 1, max(height // 5, 2), max(width // 5, 2), generator=generator) * 6
    return torch.nn.functional.interpolate(coarse, size=(height, width), mode="bicubic")[0, 0]


def noise(height, width, generator):
    return torch.randn(height, width, generator=generator) * 3


def constant(value):
    return lambda height, width, generator: torch.full((height, width), value)


def case(name, kind, grid, image, generator):
    while True:
        logits = (kind(*grid, generator) * 64).round() / 64
        resized = torch.nn.functional.interpolate(
            logits.sigmoid()[None, None], size=image, mode="bilinear", align_corners=False
        )[0, 0]
        if not bool(((resized - 0.5).abs() < 1e-6).any()):
            break
    bitmap = numpy.asfortranarray((resized > 0.5).numpy().astype(numpy.uint8))
    code = pycocotools.mask.encode(bitmap)
    return {
        "name": name,
        "grid": list(grid),
        "logits_64": (logits * 64).int().flatten().tolist(),
        "size": list(image),
        "counts": code["counts"].decode(),
        "area": int(pycocotools.mask.area(code)),
        "ltwh": pycocotools.mask.toBbox(code).tolist(),
    }


def main():
    g = torch.Generator().manual_seed(SEED)
    cases = [
        case("larger", smooth, (32, 32), (270, 480), g),
        case("larger, odd", smooth, (24, 24), (333, 101), g),
        case("4K", smooth, (16, 16), (2160, 3840), g),
        case("same size", smooth, (24, 24), (24, 24), g),
        case("smaller", smooth, (48, 48), (17, 31), g),
        case("one axis larger", smooth, (24, 24), (7, 500), g),
        case("a grid that is not square", smooth, (8, 20), (50, 77), g),
        case("noise", noise, (12, 12), (40, 60), g),
        case("noise, smaller", noise, (40, 40), (13, 9), g),
        case("one pixel, inside", constant(2.0), (8, 8), (1, 1), g),
        case("one pixel, outside", constant(-2.0), (8, 8), (1, 1), g),
        case("one place", constant(0.5), (1, 1), (3, 5), g),
        case("all", constant(9.0), (8, 8), (30, 20), g),
        case("none", constant(-9.0), (8, 8), (30, 20), g),
    ]
    golden = {
        "made_with": {
            "seed": SEED,
            "torch": torch.__version__,
            "pycocotools": importlib.metadata.version("pycocotools"),
        },
        "cases": cases,
    }
    path = pathlib.Path(__file__).with_name("mask.json")
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes;", [(c["name"], c["area"]) for c in cases])


if __name__ == "__main__":
    main()
