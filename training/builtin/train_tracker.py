#!/usr/bin/env python3
"""Trains a memory tracker for the built-in model, whose detector stays as it is, on drawn clips. For one CPU core.

    python train_tracker.py --minutes 70 --output ../../target/training/tracker     Ctrl-C saves, --resume continues

Every step draws clips of eight frames, and leaves out some of them. Objects are given by their masks on the first one,
and tracked through the others as the programs do it, by memories of the masks that were found; gradients flow through
the last three. The minutes are those of the core (process time), and so is the schedule of the learning rate.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Sam3Model

import weights
from clips import FRAMES, Clips, draw_clips
from model import PATCH_SIZE
from sprites import Sprites, load_sprites
from tracker import ABSENT, CONDITIONING, POINTER_SPAN, Decoded, Features, Tracker, levels_of
from vocabulary import VOCABULARY

# Visible pixels from which on an object is there, and to which it is not; between them neither is wrong.
THERE, GONE = 24, 8
# The logit of a true mask in memory, and the share of memories that are of true masks, at first and later.
SURE, GIVEN = 8.0, (0.9, 0.5)
# The frames at the end of a clip through which gradients flow.
TRAINED = 3
# How often drawn clips are used: in turns forward and backward, with other objects and other gaps.
TURNS = 6
# Hidden objects are rare, so they weigh as much as so many others.
HIDDEN_WEIGHT = 11.0
# Steps of the rising learning rate, and between two lines of text; seconds between two checkpoints.
WARM_UP, REPORT, SAVE = 60, 20, 120


@dataclass
class Objects:
    """B objects of clips: `clip` [B], `masks` [frames, B, 4P, 4P] the visible share of each cell, `seen` [frames, B]
    visible pixels."""

    clip: Tensor
    masks: Tensor
    seen: Tensor


def choose_objects(rng: np.random.Generator, clips: Clips, cells: int, most: int) -> Objects | None:
    """At most `most` objects of the clips, all well visible in the first frame; rather those that are hidden later, or
    move."""
    chosen, wanted = [], []
    for clip in range(len(clips.owner)):
        counts = torch.stack([torch.bincount(frame.flatten().int(), minlength=256) for frame in clips.owner[clip]])
        for slot in np.flatnonzero(clips.thing[clip]):
            seen = counts[:, slot + 1]
            if seen[0] >= 2 * THERE and seen[0] >= 0.5 * seen.max():
                first, later = (clips.owner[clip, frame] == slot + 1 for frame in (0, FRAMES // 2))
                moves = bool((first & later).sum() < 0.3 * (first | later).sum())
                hides = 6.0 if seen.min() <= GONE else 3.0 if seen.min() < 0.3 * seen[0] else 1.0
                chosen.append((clip, int(slot), seen))
                wanted.append(hides * (3.0 if moves else 1.0))
    if not chosen:
        return None
    share = np.array(wanted) / sum(wanted)
    kept = [chosen[row] for row in rng.choice(len(chosen), min(most, len(chosen)), replace=False, p=share)]
    masks = [F.adaptive_avg_pool2d((clips.owner[clip] == slot + 1).float(), cells) for clip, slot, _ in kept]
    return Objects(torch.tensor([clip for clip, _, _ in kept]), torch.stack(masks, 1),
                   torch.stack([seen for _, _, seen in kept], 1))


def iou_of(masks: Tensor, truth: Tensor) -> Tensor:
    """IoUs of [..., h, w] logits and shares."""
    found, wanted = (masks > 0).flatten(-2), (truth > 0.5).flatten(-2)
    return (found & wanted).sum(-1) / (found | wanted).sum(-1).clamp(min=1)


def mask_loss(masks: Tensor, truth: Tensor) -> Tensor:
    """Dice and a cross-entropy of logits [B, K, h, w] and shares [B, h, w], [B, K]."""
    truth = truth[:, None].expand_as(masks)
    found = masks.sigmoid()
    common, total = (found * truth).sum((-1, -2)), (found + truth).sum((-1, -2))
    dice = 1 - (2 * common + 1) / (total + 1)
    cross = F.binary_cross_entropy_with_logits(masks, truth, reduction="none")
    # Easy cells count little, but those of the object in full: it is small, and no mask at all must not be an optimum.
    weight = torch.where(truth > 0.5, 1.0, found.detach() ** 2)
    return 2 * dice + (cross * weight).sum((-1, -2)) / (truth.sum((-1, -2)) + 20)


@dataclass
class Losses:
    """Sums over objects: the loss, the objects, IoUs and visible ones, recognised and all hidden ones."""

    total: Tensor
    count: int = 0
    iou: float = 0.0
    seen: float = 0.0
    denied: float = 0.0
    gone: float = 0.0

    def add(self, decoded: Decoded, truth: Tensor, seen: Tensor) -> None:
        """One frame."""
        there, gone = seen >= THERE, seen <= GONE
        each = mask_loss(decoded.masks, truth)
        ious = iou_of(decoded.masks.detach(), truth[:, None])
        masks = 0.5 * each[:, 0] + each[:, 1:].mean(1) + (decoded.ious - ious).square().sum(1)
        score = F.binary_cross_entropy_with_logits(decoded.score, there.float(), reduction="none")
        self.total = self.total + (masks * there).sum() + (score * (there + HIDDEN_WEIGHT * gone)).sum()
        self.count += len(seen)
        best = 1 + decoded.ious[:, 1:].argmax(1)
        self.iou += float((ious[torch.arange(len(best)), best] * there).sum())
        self.seen += float(there.sum())
        self.denied += float(((decoded.score <= 0) & gone).sum())
        self.gone += float(gone.sum())


def noisy(rng: np.random.Generator, truth: Tensor) -> Tensor:
    """True masks with errors of a detector: 0/1."""
    exact = (truth > 0.5).float()
    if rng.random() < 0.4:
        return exact
    blurred = F.avg_pool2d(F.pad(truth[:, None], [2] * 4, mode="replicate"), 5, 1)[:, 0]
    speckle = F.interpolate(torch.randn(len(truth), 1, 16, 16), truth.shape[-2:], mode="bilinear")[:, 0]
    found = (0.5 * truth + 0.5 * blurred + 0.15 * speckle > 0.5).float()
    return torch.where(found.sum((1, 2), keepdim=True) >= 4, found, exact)


def follow(rng: np.random.Generator, tracker: Tracker, levels: list[list[Tensor]], objects: Objects,
           given: float) -> Losses:
    """Follows objects through a clip; `levels` of each frame. A share `given` of the memories is of true masks."""
    features: Features = tracker.features(levels[0]).of(objects.clip)
    memory, pointer, decoded = tracker.birth(features, noisy(rng, objects.masks[0]))
    births, losses = Losses(torch.zeros(())), Losses(torch.zeros(()))
    births.add(decoded, objects.masks[0], objects.seen[0])
    bank, pointers = [memory], [pointer]
    count, last = len(objects.clip), len(levels) - 1
    for frame in range(1, last + 1):
        trains = frame > last - TRAINED
        with torch.set_grad_enabled(trains):
            features = tracker.features(levels[frame]).of(objects.clip)
            rows = torch.tensor([CONDITIONING] + [frame - at - 1 for at in range(1, frame)])
            ages = torch.arange(frame, 0, -1) / POINTER_SPAN
            image = tracker.attend(features.query, torch.stack(bank, 1), rows.expand(count, -1),
                                   torch.stack(pointers, 1), ages.expand(count, -1))
            decoded = tracker.decode(image, features)
            if trains:
                losses.add(decoded, objects.masks[frame], objects.seen[frame])
            if frame == last:
                break
            mask, _, token = decoded.best()
            present = decoded.score > 0
            pointers.append(tracker.pointer(token, present))
            if rng.random() < given:
                mask = noisy(rng, objects.masks[frame]) * SURE * 2 - SURE
                present = objects.seen[frame] >= THERE
            bank.append(tracker.memory(features, torch.where(present[:, None, None], mask, ABSENT), present, False))
    losses.total = losses.total + 0.3 * births.total
    return losses


def draw_batch(rng: np.random.Generator, detector: Sam3Model, sprites: Sprites, clips: int, side: int
               ) -> tuple[Clips, list[list[Tensor]]]:
    """Clips and the detector's features of each frame."""
    drawn = draw_clips(rng, sprites, clips, side)
    with torch.autocast("cpu", torch.bfloat16):
        flat = levels_of(detector, drawn.pixels.flatten(0, 1))
    split = [level.view(clips, FRAMES, *level.shape[1:]) for level in flat]
    return drawn, [[level[:, frame] for level in split] for frame in range(FRAMES)]


def rate_at(share: float, step: int) -> float:
    """The share of the learning rate at a share of the run."""
    return min(1.0, (step + 1) / WARM_UP) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(share, 1.0))))


class Run:
    """A run and its state on disk."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        torch.manual_seed(arguments.seed)
        self.arguments, self.limit = arguments, 60 * arguments.minutes
        folder = weights.join().parent
        self.detector = Sam3Model.from_pretrained(folder, dtype=torch.float32).eval().requires_grad_(False)
        self.side = self.detector.config.vision_config.backbone_config.image_size
        self.sprites = load_sprites(len(VOCABULARY), torch.device("cpu"))
        self.tracker = Tracker(self.side)
        self.parameters = [value for value in self.tracker.parameters() if value.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.01)
        self.step, self.spent = 0, 0.0
        self.file = arguments.output / "checkpoint.pt"
        arguments.output.mkdir(parents=True, exist_ok=True)
        if arguments.resume:
            saved = torch.load(self.file, weights_only=True)
            self.tracker.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.average, self.step, self.spent = saved["average"], saved["step"], saved["spent"]
        else:
            self.average = {name: value.clone() for name, value in self.tracker.state_dict().items()}
        self.rng = np.random.default_rng([arguments.seed, self.step])

    def save(self) -> None:
        """Writes to a temporary file, then renames it: an interruption leaves the previous file intact."""
        unfinished = self.file.with_suffix(".tmp")
        torch.save({"model": self.tracker.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "average": self.average, "step": self.step, "spent": self.spent, "side": self.side}, unfinished)
        os.replace(unfinished, self.file)

    def learn(self, drawn: Clips, levels: list[list[Tensor]]) -> Losses | None:
        """One step; `None` if the clips have no object to follow."""
        objects = choose_objects(self.rng, drawn, 4 * self.side // PATCH_SIZE, self.arguments.objects)
        if objects is None:
            return None
        share = self.spent / self.limit
        kept = [0, *np.sort(self.rng.choice(np.arange(1, FRAMES), self.rng.integers(3, 6), replace=False)).tolist()]
        some = Objects(objects.clip, objects.masks[kept], objects.seen[kept])
        with torch.autocast("cpu", torch.bfloat16):
            losses = follow(self.rng, self.tracker, [levels[frame] for frame in kept], some, GIVEN[share > 0.15])
        self.optimizer.zero_grad(set_to_none=True)
        (losses.total / losses.count).backward()
        for group in self.optimizer.param_groups:
            group["lr"] = self.arguments.rate * rate_at(share, self.step)
        if torch.isfinite(torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)):
            self.optimizer.step()
        decay = min(0.99, 1 - 1 / (self.step + 2))
        with torch.no_grad():
            for name, value in self.tracker.state_dict().items():
                self.average[name].lerp_(value, 1 - decay)
        self.step += 1
        return losses

    def train(self) -> None:
        """Until the minutes are spent, or a signal."""
        began, before, saved = time.process_time(), self.spent, time.monotonic()
        shown, sums = began, np.zeros(6)
        while self.spent < self.limit:
            drawn, levels = draw_batch(self.rng, self.detector, self.sprites, self.arguments.clips, self.side)
            for _ in range(TURNS):
                losses = self.learn(drawn, levels)
                drawn, levels = drawn.reversed(), levels[::-1]
                self.spent = before + time.process_time() - began
                if losses is not None:
                    sums += [losses.total.item() / losses.count, losses.iou, losses.seen, losses.denied, losses.gone, 1]
            if sums[5] >= REPORT:
                pace = (time.process_time() - shown) / sums[5]
                print(f"step {self.step}, {self.spent / 60:.1f} min: loss {sums[0] / sums[5]:.3f}, IoU "
                      f"{sums[1] / max(sums[2], 1):.3f}, {sums[3]:.0f} of {sums[4]:.0f} hidden ones recognised, "
                      f"{pace:.2f} s a step", flush=True)
                shown, sums = time.process_time(), np.zeros(6)
            if time.monotonic() - saved > SAVE:
                self.save()
                saved = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--minutes", type=float, default=70, help="minutes of one core in all (default 70)")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate (default 0.001)")
    parser.add_argument("--clips", type=int, default=4, help="clips of a step (default 4)")
    parser.add_argument("--objects", type=int, default=16, help="objects of a step at most (default 16)")
    parser.add_argument("--resume", action="store_true", help="continue the run in the folder")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, stop)
    run = Run(arguments)
    print(f"{sum(value.numel() for value in run.parameters) / 1e6:.2f} million parameters", flush=True)
    try:
        run.train()
    except KeyboardInterrupt:
        print(f"interrupted after {run.step} steps", flush=True)
    run.save()


if __name__ == "__main__":
    main()
