#!/usr/bin/env python3
"""Images of every kind and what the reference makes of them: writes images/ and expected.safetensors here.

    python3 make.py     # torch 2.11.0, torchvision 0.26.0, transformers 5.23.0, Pillow 13.0.0, an x86 CPU with AVX2

expected.safetensors holds, with FILE a name in images/ and CASE = PATTERN-WIDTHxHEIGHT-SIDE,
  decoded/FILE     u8  [H, W, 3]  the pixels, EXIF orientation applied, as PIL has them (16-bit files: the high byte,
                                  where PIL clips grey at 255 and rounds PNM)
  processor/FILE   f32 [3, S, S]  pixel_values of Sam3ImageProcessor
  u8/CASE          u8  [3, S, S]  torchvision's resize on 8 bits
  float/CASE       f32 [3, S, S]  torchvision's resize in float, 0..255
and in its metadata the SHA-256 of u8/CASE for outputs too large to keep. PATTERN is a formula, see `pattern`.
"""

import hashlib
import pathlib

import numpy as np
import torch
import torchvision.transforms.v2.functional as F
from PIL import Image, ImageOps
from safetensors.numpy import save_file
from transformers import Sam3ImageProcessor

HERE = pathlib.Path(__file__).resolve().parent
IMAGES = HERE / "images"
SEED = 20
SIDE = 28
ORIENTATION = 0x0112

CASES = [
    (1, 1, 28),
    (1, 500, 28),
    (500, 1, 28),
    (2, 2, 56),
    (7, 9, 56),
    (7, 5000, 28),
    (5000, 7, 28),
    (28, 28, 28),
    (28, 91, 28),
    (91, 28, 28),
    (27, 29, 28),
    (57, 55, 56),
    (123, 45, 56),
    (640, 480, 56),
    (3840, 2160, 28),
]
HASHED_CASES = [(448, 336, 224), (640, 480, 1008), (1920, 1080, 1008), (3840, 2160, 1008)]


def pattern(name, width, height):
    """[H, W, 3]; the Rust test computes the same."""
    y, x, c = np.meshgrid(*(np.arange(n, dtype=np.uint32) for n in (height, width, 3)), indexing="ij")
    if name == "ramp":
        return ((x * 7 + y * 13 + c * 29) % 256).astype(np.uint8)
    v = (x * np.uint32(73856093)) ^ (y * np.uint32(19349663)) ^ (c * np.uint32(83492791))
    v = (v ^ (v >> np.uint32(13))) * np.uint32(0x5BD1E995)
    return (v >> np.uint32(24)).astype(np.uint8)


def resized(pixels, side):
    chw = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    in_u8 = F.resize(chw, [side, side], antialias=True)
    in_float = F.resize(chw.float(), [side, side], antialias=True)
    assert (in_u8.float() - in_float).abs().max() <= 1.02
    # Not every result is contiguous, and safetensors writes the memory as it lies.
    return np.ascontiguousarray(in_u8.numpy()), np.ascontiguousarray(in_float.numpy())


def exif(orientation):
    tags = Image.Exif()
    tags[ORIENTATION] = orientation
    return tags


def write_images(rng):
    """Every image that the loader must get right, at most a few kB each."""
    IMAGES.mkdir(exist_ok=True)
    for old in IMAGES.iterdir():
        old.unlink()
    height, width = 33, 47

    def noise(*shape):
        return rng.integers(0, 256, shape, dtype=np.uint8)

    rgb = Image.fromarray(noise(height, width, 3))
    rgb.save(IMAGES / "rgb.png")
    Image.fromarray(noise(height, width)).save(IMAGES / "grey.png")
    Image.fromarray(noise(height, width, 2), "LA").save(IMAGES / "grey_alpha.png")
    Image.fromarray(noise(height, width, 4), "RGBA").save(IMAGES / "rgba.png")
    Image.fromarray(noise(height, width) > 127).save(IMAGES / "one_bit.png")
    palette = rgb.quantize(13)
    palette.save(IMAGES / "palette.png")
    palette.save(IMAGES / "palette_transparent.png", transparency=3)
    palette.save(IMAGES / "palette.gif")
    palette.save(IMAGES / "palette.bmp")
    grey16 = rng.integers(0, 65536, (height, width), dtype=np.uint16)
    Image.fromarray(grey16).save(IMAGES / "grey16.png")
    Image.fromarray(grey16).save(IMAGES / "grey16.tiff")
    rgb16 = rng.integers(0, 65536, (5, 6, 3), dtype=np.uint16)
    (IMAGES / "rgb16.ppm").write_bytes(b"P6\n6 5\n65535\n" + rgb16.astype(">u2").tobytes())
    rgb.save(IMAGES / "rgb.ppm")
    rgb.save(IMAGES / "rgb.bmp")
    rgb.save(IMAGES / "rgb.tiff")
    rgb.save(IMAGES / "rgb_lzw.tiff", compression="tiff_lzw")
    rgb.save(IMAGES / "rgb_lossless.webp", lossless=True, exact=True)
    small = Image.fromarray(noise(5, 8, 3))
    for orientation in range(1, 9):
        small.save(IMAGES / f"exif_{orientation}.png", exif=exif(orientation))
    small.save(IMAGES / "exif_9.png", exif=exif(9))
    small.save(IMAGES / "exif_6.webp", lossless=True, exact=True, exif=exif(6))
    small.save(IMAGES / "exif_8.tiff", exif=exif(8))
    # Smooth, as photographs are: JPEG decoders differ by a level or two, more on noise.
    y, x = np.mgrid[0:48, 0:64]
    photo = np.stack([x * 4, y * 5, 255 - x * 2 - y], axis=2).astype(np.uint8)
    Image.fromarray(photo).save(IMAGES / "rgb.jpg", quality=95)
    Image.fromarray(photo).save(IMAGES / "progressive.jpg", quality=95, progressive=True)
    Image.fromarray(photo).save(IMAGES / "exif_5.jpg", quality=95, subsampling=0, exif=exif(5))
    Image.fromarray(photo).convert("L").save(IMAGES / "grey.jpg", quality=95)
    Image.fromarray(photo).convert("CMYK").save(IMAGES / "cmyk.jpg", quality=95)
    grey_high = np.repeat((grey16 >> 8).astype(np.uint8)[..., None], 3, axis=2)
    return {"grey16.png": grey_high, "grey16.tiff": grey_high, "rgb16.ppm": (rgb16 >> 8).astype(np.uint8)}


def main():
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"), "the resize would round otherwise"
    rng = np.random.default_rng(SEED)
    by_hand = write_images(rng)
    processor = Sam3ImageProcessor(size={"height": SIDE, "width": SIDE})
    tensors, metadata = {}, {}
    for path in sorted(IMAGES.iterdir()):
        with Image.open(path) as image:
            pixels = np.array(ImageOps.exif_transpose(image).convert("RGB"))
        pixels = by_hand.get(path.name, pixels)
        tensors[f"decoded/{path.name}"] = np.ascontiguousarray(pixels)
        values = processor(images=Image.fromarray(pixels), return_tensors="pt")["pixel_values"][0]
        tensors[f"processor/{path.name}"] = np.ascontiguousarray(values.numpy())
    for width, height, side in CASES:
        for name in ("ramp", "noise"):
            in_u8, in_float = resized(pattern(name, width, height), side)
            tensors[f"u8/{name}-{width}x{height}-{side}"] = in_u8
            tensors[f"float/{name}-{width}x{height}-{side}"] = in_float
    for width, height, side in HASHED_CASES:
        in_u8, _ = resized(pattern("noise", width, height), side)
        metadata[f"u8/noise-{width}x{height}-{side}"] = hashlib.sha256(in_u8.tobytes()).hexdigest()
    save_file(tensors, HERE / "expected.safetensors", metadata)


if __name__ == "__main__":
    main()
