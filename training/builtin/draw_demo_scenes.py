#!/usr/bin/env python3
"""Draws the six scenes of `demos/scenes`, which `make demo` shows.

    python draw_demo_scenes.py             writes the images and scenes.json
    python draw_demo_scenes.py --search 40 tries 40 seeds a scene and prints the detections of the built-in model

These are showcase scenes, with seeds for which the model does well; no figure is measured on them. They are larger than
the training scenes, have other backgrounds, and were never trained on.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np
from PIL import Image, ImageFilter

from backgrounds import blend, grid, landscape, room, to_image
from glyphs import load_glyphs
from scenes import Canvas, Scene, held_out_random, overlaps, prepare_glyph
from vocabulary import NAMES

OUTPUT = Path(__file__).resolve().parents[2] / "demos" / "scenes"


def night(rng: random.Random, width: int, height: int) -> Image.Image:
    """A dark sky that is lighter at the horizon, with small stars."""
    x, y = grid(width, height)
    pixels = blend((18, 20, 58), (96, 70, 130), y / height)
    image = to_image(pixels)
    for _ in range(24):
        level = rng.randint(90, 150)
        image.putpixel((rng.randrange(width), rng.randrange(height)), (level, level, min(255, level + 20)))
    return image


def sea(rng: random.Random, width: int, height: int) -> Image.Image:
    """A pale sky over water that darkens downwards, with long waves."""
    x, y = grid(width, height)
    horizon = 0.42 * height
    sky = blend((150, 205, 245), (240, 246, 250), np.clip(y / horizon, 0, 1))
    depth = np.clip((y - horizon) / (height - horizon), 0, 1)
    water = blend((70, 170, 200), (12, 70, 130), depth)
    waves = np.sin(x / width * 26 + 4 * np.sin(y / 17) + rng.uniform(0, 6)) * np.sin(y / (5 + 9 * depth))
    water = water + 2.5 * waves[..., None]
    return to_image(np.where((y > horizon)[..., None], water, sky)).filter(ImageFilter.GaussianBlur(0.7))


def table(rng: random.Random, width: int, height: int) -> Image.Image:
    """A wall that is darker at the edges, and a wooden table with a little grain."""
    x, y = grid(width, height)
    edge = 0.44 * height
    wall = blend((196, 222, 214), (150, 186, 180), np.abs(x / width - 0.5) * 1.6)
    near = np.clip((y - edge) / (height - edge), 0, 1)
    wood = blend((120, 84, 60), (166, 122, 86), near)
    grain = np.sin(y / 3 + 2 * np.sin(x / 90 + rng.uniform(0, 6))) * np.sin(y / 23)
    return to_image(np.where((y > edge)[..., None], wood + 4 * grain[..., None], wall))


@dataclass(frozen=True)
class Composition:
    """One scene: size, background, and items with their positions.

    `items` are (name, how many, size as a share of the height, band): the band is the range of the height, top to
    bottom, in which the lower edge lies.
    """

    file: str
    seed: int
    width: int
    height: int
    background: Callable[[random.Random, int, int], Image.Image]
    items: tuple[tuple[str, int, float, tuple[float, float]], ...]


SKY, GROUND, FRONT, ANYWHERE = (0.16, 0.40), (0.66, 0.84), (0.86, 0.98), (0.2, 0.98)

COMPOSITIONS: tuple[Composition, ...] = (
    Composition("park.png", 46, 720, 540, landscape, (
        ("tree", 2, 0.36, (0.58, 0.7)), ("bicycle", 1, 0.26, GROUND), ("dog", 2, 0.22, FRONT),
        ("kite", 1, 0.22, SKY), ("butterfly", 2, 0.14, (0.3, 0.6)), ("person", 1, 0.3, GROUND))),
    Composition("street.png", 7, 800, 600, landscape, (
        ("house", 2, 0.3, (0.6, 0.7)), ("bus", 1, 0.26, GROUND), ("car", 2, 0.22, FRONT),
        ("traffic light", 1, 0.26, GROUND), ("bird", 1, 0.13, SKY), ("airplane", 1, 0.2, SKY))),
    Composition("kitchen.png", 0, 640, 480, table, (
        ("clock", 1, 0.2, (0.25, 0.36)), ("pizza", 1, 0.28, FRONT), ("cake", 1, 0.28, (0.64, 0.76)),
        ("banana", 2, 0.22, FRONT), ("apple", 2, 0.17, (0.64, 0.8)), ("cup", 1, 0.2, (0.64, 0.76)))),
    Composition("living-room.png", 36, 760, 560, room, (
        ("couch", 1, 0.36, GROUND), ("potted plant", 1, 0.3, GROUND), ("teddy bear", 1, 0.22, FRONT),
        ("book", 2, 0.18, FRONT), ("tv", 1, 0.26, (0.4, 0.55)),
        ("cat", 1, 0.2, FRONT))),
    Composition("coast.png", 58, 800, 560, sea, (
        ("boat", 2, 0.26, (0.5, 0.68)), ("fish", 3, 0.17, (0.75, 0.97)), ("turtle", 1, 0.22, FRONT),
        ("bird", 2, 0.18, SKY))),
    Composition("night.png", 46, 640, 640, night, (
        ("rocket", 1, 0.3, (0.4, 0.9)), ("moon", 1, 0.24, SKY), ("star", 3, 0.14, ANYWHERE),
        ("robot", 1, 0.26, FRONT))),
)


def names_asked() -> list[str]:
    """Every name that appears in one of the scenes, in the vocabulary's order: the prompts of the demo."""
    used = {name for composition in COMPOSITIONS for name, *_ in composition.items}
    return [name for name in NAMES if name in used]


def compose(composition: Composition, seed: int) -> Scene:
    """Draws one scene; raises `ValueError` if an item does not fit with this seed."""
    rng = held_out_random("demo", f"{composition.file}/{seed}")
    glyphs = load_glyphs()
    width, height = composition.width, composition.height
    canvas = Canvas(composition.background(rng, width, height))
    for name, count, share, (top, bottom) in composition.items:
        label = NAMES.index(name)
        for _ in range(count):
            size = int(height * share * rng.uniform(0.85, 1.15))
            glyph = prepare_glyph(rng, glyphs[label], size, turn=8, turn_share=0.4)
            for _ in range(60):
                x = rng.randint(8, width - glyph.width - 8)
                y = max(4, int(height * rng.uniform(top, bottom)) - glyph.height)
                box = (x, y, x + glyph.width, y + glyph.height)
                if box[3] <= height - 2 and not overlaps(box, canvas.boxes, 0.04):
                    canvas.paste(glyph, label, x, y, box)
                    break
            else:
                raise ValueError(f"{composition.file}: seed {seed} leaves no room for {name}")
    return canvas.finish(np.asarray(canvas.image))


def write(output: Path) -> None:
    """Writes the images and their annotations."""
    output.mkdir(parents=True, exist_ok=True)
    scenes = []
    for composition in COMPOSITIONS:
        scene = compose(composition, composition.seed)
        Image.fromarray(scene.image).save(output / composition.file, optimize=True)
        scenes.append({
            "file": composition.file, "width": composition.width, "height": composition.height,
            "seed": composition.seed,
            "instances": [{"label": NAMES[label], "box": box} for label, box in
                       zip(scene.labels.tolist(), scene.boxes.tolist())],
        })
    document = {"classes": names_asked(), "scenes": scenes}
    (output / "scenes.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(scenes)} scenes in {output}, {len(document['classes'])} names")


def search(count: int) -> None:
    """Prints true positives, false positives and misses of the built-in model for each scene and seed."""
    from evaluate import Counts
    from reference import ReferenceDetector

    detector, names = ReferenceDetector(), names_asked()
    for composition in COMPOSITIONS:
        lines = []
        for seed in range(count):
            try:
                scene = compose(composition, seed)
            except ValueError:
                continue
            counts = Counts()
            found = detector.detect(Image.fromarray(scene.image), names)
            for one in found:
                one.class_index = NAMES.index(names[one.class_index])
            counts.add(scene, found)
            least = min((one.score for one in found), default=0)
            lines.append((counts.alarms + 2 * counts.missed, -least, seed, counts))
        for _, least, seed, counts in sorted(lines, key=lambda line: line[:3])[:6]:
            print(f"{composition.file} seed {seed}: {counts.hits} hits, {counts.alarms} false alarms, "
                  f"{counts.missed} missed, least score {-least:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder to write (default demos/scenes)")
    parser.add_argument("--search", type=int, metavar="N", help="try N seeds a scene, write nothing")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.search)
    else:
        write(arguments.output)


if __name__ == "__main__":
    main()
