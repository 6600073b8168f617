#!/usr/bin/env python3
"""Calibrates the scores of a checkpoint folder with three numbers, folded into the weights of two layers.

    python calibrate.py --model runs/first/model --output runs/first/calibrated

In training, up to two thirds of the prompted names are in the image. With all names at once almost none are, and scores
are too high. Here the query logit q becomes c q and the presence logit p becomes a p + b. The a, b and c minimise the
cross-entropy between the product of the two probabilities and the IoU of each detection, with all names prompted in
every scene. The order of detections of one name in one image does not change.

The scenes are held-out ones, but with the backgrounds of training, so that nothing is learnt about the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Iterator

import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from checkpoints import write_folder
from coco import HEIGHT, WIDTH, family_of
from evaluate import Counts
from finish import FOLDER_FILES
from glyphs import load_glyphs
from reference import BUILTIN, ReferenceDetector
from scenes import Scene, held_out_random, held_out_scene
from vocabulary import NAMES

PURPOSE = "calibration"
# The families of backgrounds that training has, too.
FAMILIES = ("gradient", "stripes")
PRESENCE, QUERY = "detr_decoder.presence_head.layer3", "dot_product_scoring.query_proj"
# Detections with lower scores are ignored: there are hundreds for each true positive, and they would dominate.
LEAST_SCORE = 0.2
ROUNDS = 100


def calibration_scenes(count: int) -> Iterator[Scene]:
    """The first `count` scenes of this purpose with such backgrounds."""
    glyphs, index = load_glyphs(len(NAMES)), 0
    while count:
        if family_of(index, PURPOSE) in FAMILIES:
            yield held_out_scene(held_out_random(PURPOSE, index), glyphs, WIDTH, HEIGHT)
            count -= 1
        index += 1


def collect(detector: ReferenceDetector, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query logits, presence logits and IoU with the matched object, 0 if unmatched, of all detections [N]."""
    rows = []
    for scene in calibration_scenes(count):
        image = Image.fromarray(scene.image)
        candidates = detector.candidates(detector.pixels(image), NAMES)
        found = detector.select(candidates, image.width, image.height, LEAST_SCORE)
        for one, _, overlap in Counts().add(scene, found):
            # The query with this score: in practice no two of one name are equal.
            query = (candidates.scores[one.class_index] - one.score).abs().argmin()
            rows.append((float(candidates.logits[one.class_index, query]),
                         float(candidates.presence[one.class_index]), overlap))
    query, presence, overlap = torch.tensor(rows, dtype=torch.float64).T
    return query, presence, overlap


def log_score(query: Tensor, presence: Tensor, numbers: Tensor) -> Tensor:
    """The logarithm of the score, with the three numbers `c`, `a` (as logarithms) and `b`."""
    c, a, b = numbers
    return F.logsigmoid(c.exp() * query) + F.logsigmoid(a.exp() * presence + b)


def cross_entropy(query: Tensor, presence: Tensor, overlap: Tensor, numbers: Tensor) -> Tensor:
    """Mean cross-entropy of the scores with the IoU."""
    shown = log_score(query, presence, numbers).exp().clamp(1e-9, 1 - 1e-9)
    return F.binary_cross_entropy(shown, overlap)


def fit(query: Tensor, presence: Tensor, overlap: Tensor) -> Tensor:
    """The numbers that minimise the cross-entropy."""
    numbers = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([numbers], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(query, presence, overlap, numbers)
        value.backward()
        return value

    optimizer.step(loss)
    return numbers.detach()


def fold(weights: dict[str, Tensor], numbers: Tensor) -> dict[str, Tensor]:
    """The weights with the numbers folded in."""
    c, a = numbers[:2].exp().tolist()
    folded = dict(weights)
    for layer, factor in ((QUERY, c), (PRESENCE, a)):
        for name in (f"{layer}.weight", f"{layer}.bias"):
            folded[name] = (weights[name].double() * factor).to(weights[name].dtype)
    bias = f"{PRESENCE}.bias"
    folded[bias] = (weights[bias].double() * a + float(numbers[2])).to(weights[bias].dtype)
    return folded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=BUILTIN, help="checkpoint folder (default: the built-in model)")
    parser.add_argument("--output", type=Path, required=True, help="folder to write; created if missing")
    parser.add_argument("--count", type=int, default=200, help="number of scenes (default 200)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    query, presence, overlap = collect(ReferenceDetector(arguments.model), arguments.count)
    numbers = fit(query, presence, overlap)
    before, after = (float(cross_entropy(query, presence, overlap, one)) for one in (torch.zeros(3), numbers))

    def write(folder: Path) -> None:
        for name in FOLDER_FILES:
            (folder / name).write_bytes((arguments.model / name).read_bytes())
        file = folder / "model.safetensors"
        save_file(fold(load_file(file), numbers), file, metadata={"format": "pt"})

    write_folder(arguments.output, write)
    c, a = numbers[:2].exp().tolist()
    print(f"{len(overlap)} detections in {arguments.count} scenes: query logits times {c:.3f}, presence logits times "
          f"{a:.3f} and {float(numbers[2]):+.3f}; cross-entropy {before:.4f} before, {after:.4f} after")


if __name__ == "__main__":
    main()
