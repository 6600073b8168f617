"""Endless training batches: scenes, prompts and targets.

A `Plan` is made on the CPU, optionally by worker processes, and has small arrays only; `realise` draws it on the device
and computes the targets there, without synchronisation.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from drawing import choose_backgrounds, draw
from layout import OF_ONE_NAME, SLOTS, Layout, draw_layout
from phrases import phrase_for
from sprites import Sprites
from tokenizer import CONTEXT
from vocabulary import KNOWN

# The share of scenes with example boxes, and how often the text of a positive box is "visual".
EXEMPLAR_SHARE, VISUAL_SHARE = 0.25, 0.5
# Half of the absent names are ones that the model confuses with something in the scene.
HARD_SHARE = 0.5
# An object that covers more than the first share of a token is its class; below the second, the token is background.
COVERED, BARE = 0.4, 0.1


@dataclass
class Plan:
    """B scenes with R prompts.

    `ids`, `mask` [R, context]; `image_of` [R]; `asked` [R] the index of the name; `instances` [R, N] slots of the objects
    to find (-1: none); `shown_rows` [E] the prompts with example boxes, with `wanted` and `unwanted` [E] their slots
    (-1: none); `mask_rows` [M] the prompts with a mask loss; `backgrounds` a kind for each scene.
    """

    layout: Layout
    backgrounds: list[str]
    seed: int
    ids: np.ndarray
    mask: np.ndarray
    image_of: np.ndarray
    asked: np.ndarray
    instances: np.ndarray
    shown_rows: np.ndarray
    wanted: np.ndarray
    unwanted: np.ndarray
    mask_rows: np.ndarray


@dataclass
class Exemplars:
    """Example boxes beside a phrase, for the prompts `rows` [E].

    `boxes` [E, 2, 4] cxcywh in 0..1, `valid` [E, 2] bool, `labels` [E, 2] (1 wanted, 0 unwanted).
    """

    rows: Tensor
    boxes: Tensor
    valid: Tensor
    labels: Tensor


@dataclass
class Targets:
    """The ground truth of R prompts on B images, with N slots for objects and P the side of the token grid.

    `boxes` [R, N, 4] cxcywh in 0..1, `valid` [R, N]; `coverage` [R, P, P], the share of each token that the prompt's
    objects cover; `token_classes` [B, P, P] i64, 0 nothing, 1.. the name's index + 1, -100 undecided; `cell_classes`
    [B, 4P, 4P] the same of the middles of the masks' cells, always decided; `mask_rows` [M] and `masks`
    [M, N, 4P, 4P], the share of each cell that is covered.
    """

    boxes: Tensor
    valid: Tensor
    coverage: Tensor
    token_classes: Tensor
    cell_classes: Tensor
    mask_rows: Tensor
    masks: Tensor


@dataclass
class Batch:
    """Images [B, 3, S, S] in -1..1, prompts [R, context] with `image_of` [R], exemplars, and the targets."""

    pixels: Tensor
    ids: Tensor
    mask: Tensor
    image_of: Tensor
    exemplars: Exemplars | None
    targets: Targets


class Planner(IterableDataset):
    """Plans batches of `images` scenes with `prompts` names each; a seed and a worker give the same plans again.

    `confusion` [names, names], in shared memory, is how often the model detects the second name where the first is
    shown; `missed` [names] is the share of each that it misses. Such names are drawn more often. The trainer updates
    both.
    """

    def __init__(self, tokenizer: Tokenizer, sprites: Sprites, images: int, prompts: int, side: int, mask_rows: int,
                 seed: int, confusion: Tensor, missed: Tensor) -> None:
        super().__init__()
        self.tokenizer, self.sprites = tokenizer, dataclasses.replace(sprites, levels=())
        self.images, self.prompts, self.side = images, prompts, side
        self.mask_rows, self.seed, self.confusion, self.missed = mask_rows, seed, confusion, missed
        self.names = len(sprites.of_label)
        self.encoded: dict[str, tuple[list[int], list[int]]] = {}

    def __iter__(self) -> Iterator[Plan]:
        worker = get_worker_info()
        stream = worker.id if worker else 0
        rng, words = np.random.default_rng([self.seed, stream]), random.Random(f"{self.seed}/{stream}")
        while True:
            yield self.plan(rng, words)

    def encode(self, phrase: str, name: str) -> tuple[list[int], list[int]]:
        """Ids and mask of a phrase, or of the name if the phrase exceeds the context."""
        if phrase not in self.encoded:
            encoding = self.tokenizer.encode(phrase)
            # A full context may be truncated.
            if sum(encoding.attention_mask) == CONTEXT and phrase != name:
                encoding = self.tokenizer.encode(name)
            self.encoded[phrase] = encoding.ids, encoding.attention_mask
        return self.encoded[phrase]

    def choose_names(self, words: random.Random, present: list[int]) -> list[int]:
        """Names for the prompts: up to two thirds present, the rest absent, half of those hard."""
        chosen = words.sample(present, min(len(present), max(1, self.prompts * 2 // 3)))
        while len(chosen) < self.prompts:
            if present and words.random() < HARD_SHARE:
                weights = self.confusion[words.choice(present)].tolist()
                name = words.choices(range(self.names), weights)[0]
            else:
                name = words.randrange(self.names)
            if name not in present and name not in chosen:
                chosen.append(name)
        return chosen

    def plan(self, rng: np.random.Generator, words: random.Random) -> Plan:
        """One batch."""
        layout = draw_layout(rng, self.sprites, self.images, self.side, self.missed.double().numpy())
        with_boxes = round(self.images * EXEMPLAR_SHARE)
        ids, masks, image_of, asked, instances, shown = [], [], [], [], [], []
        for scene in range(self.images):
            labels = layout.label[scene]
            for name in self.choose_names(words, layout.present(scene)):
                slots = np.flatnonzero(labels == name).tolist()
                phrase = phrase_for(words, KNOWN[name])
                if scene < with_boxes:
                    others = np.flatnonzero((labels >= 0) & (labels != name)).tolist()
                    wanted = words.choice(slots) if slots and words.random() < 0.9 else -1
                    unwanted = words.choice(others) if others and words.random() < 0.4 else -1
                    if wanted >= 0 and words.random() < VISUAL_SHARE:
                        phrase = "visual"
                    shown.append((len(asked), wanted, unwanted))
                encoded = self.encode(phrase, KNOWN[name].name)
                ids.append(encoded[0])
                masks.append(encoded[1])
                image_of.append(scene)
                asked.append(name)
                instances.append((slots + [-1] * OF_ONE_NAME)[:OF_ONE_NAME])
        instances, shown = np.array(instances), np.array(shown, int).reshape(-1, 3)
        with_instances = np.flatnonzero(instances[:, 0] >= 0)
        return Plan(
            layout=layout, backgrounds=choose_backgrounds(rng, self.images), seed=int(rng.integers(1 << 40)),
            ids=np.array(ids), mask=np.array(masks), image_of=np.array(image_of), asked=np.array(asked), instances=instances,
            shown_rows=shown[:, 0], wanted=shown[:, 1], unwanted=shown[:, 2],
            mask_rows=np.sort(rng.permutation(with_instances)[:self.mask_rows]),
        )


def centre_form(boxes: Tensor) -> Tensor:
    """xyxy as cxcywh."""
    return torch.cat([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], -1)


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """An array as a tensor; on a GPU, copied asynchronously."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def token_answers(owner: Tensor, layout: Layout, patch: int) -> tuple[Tensor, Tensor]:
    """Share of each token that each slot covers [B, K, P, P], and the class of each token as `Targets` has it."""
    # Slot by slot: all at once would need twenty float images for each scene.
    cover = torch.stack([F.avg_pool2d((owner == slot + 1).float()[:, None], patch)[:, 0] for slot in range(SLOTS)], 1)
    labels = on_device(layout.label, owner.device)
    named = cover * (labels >= 0)[:, :, None, None]
    most, which = named.max(1)
    classes = labels.gather(1, which.flatten(1)).view_as(which) + 1
    return cover, torch.where(most > COVERED, classes, torch.where(named.sum(1) < BARE, 0, -100))


def cell_answers(owner: Tensor, layout: Layout, cells: int) -> Tensor:
    """The class of the pixel in the middle of each cell [B, cells, cells], as `Targets` has it."""
    labels = F.pad(on_device(layout.label, owner.device), (1, 0), value=-1)
    middle = ((torch.arange(cells, device=owner.device) + 0.5) * (owner.shape[-1] / cells)).long()
    seen = owner[:, middle[:, None], middle].long()
    return labels.gather(1, seen.flatten(1)).view_as(seen) + 1


@torch.no_grad()
def realise(plan: Plan, sprites: Sprites, side: int, patch: int) -> Batch:
    """Draws a plan on the sprites' device."""
    device = sprites.levels[0].device
    drawn = draw(sprites, plan.layout, plan.backgrounds, plan.seed, side)
    image_of, instances = on_device(plan.image_of, device), on_device(plan.instances, device)
    boxes, valid = centre_form(drawn.boxes), instances >= 0
    cover, token_classes = token_answers(drawn.owner, plan.layout, patch)
    same = on_device(plan.layout.label[plan.image_of] == plan.asked[:, None], device)
    coverage = (cover[image_of] * same[:, :, None, None]).sum(1)
    mask_rows = on_device(plan.mask_rows, device)
    slots = on_device(plan.instances[plan.mask_rows], device)
    owner = drawn.owner[image_of[mask_rows]]
    cells = 4 * side // patch
    # Slot by slot, for the same reason; an empty slot has the owner 255, which does not occur.
    wanted = torch.where(slots < 0, 255, slots + 1)
    masks = [F.adaptive_avg_pool2d((owner == wanted[:, place].view(-1, 1, 1)).float()[:, None], cells)[:, 0]
             for place in range(OF_ONE_NAME)]
    exemplars = None
    if len(plan.shown_rows):
        chosen = on_device(np.stack([plan.wanted, plan.unwanted], 1), device)
        rows = on_device(plan.shown_rows, device)
        picked = boxes[image_of[rows][:, None], chosen.clamp(min=0)]
        # Boxes drawn by people are not exact to the pixel.
        jitter = 1 + 0.04 * torch.randn(picked.shape, device=device)
        centre, size = picked[..., :2], picked[..., 2:]
        picked = torch.cat([centre + size * (jitter[..., :2] - 1), size * jitter[..., 2:]], -1)
        exemplars = Exemplars(rows=rows, boxes=picked * (chosen >= 0)[..., None], valid=chosen >= 0,
                              labels=torch.tensor([[1, 0]]).to(device, non_blocking=True).expand(len(rows), 2))
    return Batch(
        pixels=drawn.pixels, ids=on_device(plan.ids, device), mask=on_device(plan.mask, device), image_of=image_of,
        exemplars=exemplars,
        targets=Targets(boxes=boxes[image_of[:, None], instances.clamp(min=0)] * valid[..., None], valid=valid,
                        coverage=coverage, token_classes=token_classes,
                        cell_classes=cell_answers(drawn.owner, plan.layout, cells), mask_rows=mask_rows,
                        masks=torch.stack(masks, 1)),
    )
