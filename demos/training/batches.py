"""Endless training batches: scenes, prompts about them, and what the right answer is."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from glyphs import load_glyphs
from losses import BARE, COVERED, MASK_SIDE, Targets
from model import IMAGE_SIZE, PATCH_SIZE, Exemplars
from scenes import Scene, training_random, training_scene
from vocabulary import NAMES, VOCABULARY

# The share of batches whose prompts carry boxes.
EXEMPLAR_SHARE = 0.25


@dataclass
class Batch:
    """Pictures [B, 3, S, S], prompts [R, context] with `image_of` [R], exemplars for a quarter of the batches."""

    pixels: Tensor
    ids: Tensor
    mask: Tensor
    image_of: Tensor
    exemplars: Exemplars | None
    targets: Targets


def centre_form(boxes: np.ndarray) -> Tensor:
    """Boxes xyxy in pixels [..., 4] as cxcywh in 0..1."""
    scaled = torch.from_numpy(boxes) / IMAGE_SIZE
    return torch.cat([(scaled[..., :2] + scaled[..., 2:]) / 2, scaled[..., 2:] - scaled[..., :2]], -1)


def classify_tokens(scene: Scene) -> Tensor:
    """[P, P] i64: the thing that covers each token, 0 for none, -100 where it is undecided."""
    grid = IMAGE_SIZE // PATCH_SIZE
    if not len(scene.labels):
        return torch.zeros(grid, grid, dtype=torch.long)
    cover = F.avg_pool2d(torch.from_numpy(scene.masks.astype(np.float32))[:, None], PATCH_SIZE)[:, 0]
    most, which = cover.max(0)
    labels = torch.from_numpy(scene.labels)[which] + 1
    return torch.where(most > COVERED, labels, torch.where(most < BARE, 0, -100))


def choose_names(rng: random.Random, scene: Scene, count: int) -> list[int]:
    """Names to ask: present ones first, at least one that is absent."""
    present = sorted(set(scene.labels.tolist()))
    rng.shuffle(present)
    chosen = present[:max(1, count - 1)]
    while len(chosen) < count:
        label = rng.randrange(len(NAMES))
        if label not in present and label not in chosen:
            chosen.append(label)
    return chosen


def choose_exemplars(rng: random.Random, scene: Scene, label: int) -> tuple[Tensor, list[bool], list[int]]:
    """One wanted box, and at times an unwanted one of another name; none where the name is absent."""
    boxes, valid, labels = torch.zeros(2, 4), [False, False], [0, 0]
    if (scene.labels == label).any():
        boxes[0] = centre_form(scene.boxes[rng.choice(np.flatnonzero(scene.labels == label).tolist())])
        valid[0], labels[0] = True, 1
        others = np.flatnonzero(scene.labels != label).tolist()
        if others and rng.random() < 0.4:
            boxes[1] = centre_form(scene.boxes[rng.choice(others)])
            valid[1] = True
    return boxes, valid, labels


class Batches(IterableDataset):
    """`pictures` scenes a batch, `prompts` names each; a seed and a worker give the same batches again."""

    def __init__(self, tokenizer: Tokenizer, pictures: int, prompts: int, seed: int) -> None:
        super().__init__()
        self.tokenizer, self.pictures, self.prompts, self.seed = tokenizer, pictures, prompts, seed

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        rng = training_random(self.seed, worker.id if worker else 0)
        while True:
            yield self.draw(rng)

    def phrase(self, rng: random.Random, label: int, shown: bool) -> str:
        """The name, a synonym, or "visual" where a box says it all."""
        if shown and rng.random() < 0.5:
            return "visual"
        return rng.choice(VOCABULARY[label].phrases) if rng.random() < 0.5 else NAMES[label]

    def draw(self, rng: random.Random) -> Batch:
        """One batch."""
        with_exemplars = rng.random() < EXEMPLAR_SHARE
        pixels, image_of, encodings, exemplars, boxes, masks, coverage, token_classes = ([] for _ in range(8))
        for index in range(self.pictures):
            scene = training_scene(rng, load_glyphs(), IMAGE_SIZE)
            pixels.append(torch.from_numpy(scene.image).permute(2, 0, 1).float() / 127.5 - 1)
            token_classes.append(classify_tokens(scene))
            for label in choose_names(rng, scene, self.prompts):
                mine = scene.labels == label
                if with_exemplars:
                    exemplars.append(choose_exemplars(rng, scene, label))
                encodings.append(self.tokenizer.encode(self.phrase(rng, label, with_exemplars and bool(mine.any()))))
                image_of.append(index)
                boxes.append(centre_form(scene.boxes[mine]))
                mask = torch.from_numpy(scene.masks[mine]).float()
                masks.append(F.interpolate(mask[:, None], (MASK_SIDE, MASK_SIDE), mode="area")[:, 0]
                             if len(mask) else mask.new_zeros(0, MASK_SIDE, MASK_SIDE))
                union = mask.amax(0) if len(mask) else torch.zeros(IMAGE_SIZE, IMAGE_SIZE)
                coverage.append(F.avg_pool2d(union[None, None], PATCH_SIZE)[0, 0])
        shown = None
        if with_exemplars:
            all_boxes, valid, labels = zip(*exemplars)
            shown = Exemplars(torch.stack(all_boxes), torch.tensor(valid), torch.tensor(labels))
        return Batch(
            pixels=torch.stack(pixels), ids=torch.tensor([encoding.ids for encoding in encodings]),
            mask=torch.tensor([encoding.attention_mask for encoding in encodings]), image_of=torch.tensor(image_of),
            exemplars=shown, targets=Targets(boxes, masks, torch.stack(coverage), torch.stack(token_classes)),
        )
