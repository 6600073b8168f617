#!/usr/bin/env python3
"""Trains a model of the built-in model's architecture on drawn scenes, on a CPU.

    python train.py --minutes 107 --output runs/first            the budget of the shipped weights
    python train.py --minutes 107 --output runs/first --resume   go on after an interruption

Writes `checkpoint.pt` (everything needed to go on), `curves.csv` and, where matplotlib is installed, `curves.png`
into the output folder. `finish.py` turns the checkpoint into a checkpoint folder.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader

from batches import Batch, Batches
from losses import total_loss
from model import TrainingModel
from tokenizer import learn_tokenizer, load_tokenizer

LEARNING_RATE, WARM_UP_STEPS = 8e-4, 200
# The rate is constant for this share of the time, then falls along a cosine.
CONSTANT_SHARE = 0.6
# Masks are expensive: every third step, and not before boxes are roughly right.
MASK_EVERY, FIRST_MASK_STEP = 3, 400
AVERAGE_EVERY, AVERAGE_RATE = 5, 0.01
REPORT_EVERY, SAVE_EVERY = 25, 200


@dataclass
class State:
    """Where a run stands."""

    step: int = 0
    seconds: float = 0.0
    smoothed: dict[str, float] = field(default_factory=dict)

    def smooth(self, parts: dict[str, float]) -> None:
        """Moves the shown figures a twentieth towards the latest; a step without masks leaves the mask figure."""
        for name, value in parts.items():
            if name == "mask" and value == 0:
                self.smoothed.setdefault(name, 0.0)
                continue
            before = self.smoothed.get(name) or value
            self.smoothed[name] = 0.95 * before + 0.05 * value


class Average:
    """A running average of the weights, which is what is shipped."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Moves the average a hundredth of the way to the model."""
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                self.weights[name].lerp_(value, AVERAGE_RATE)
            else:
                self.weights[name].copy_(value)


class Run:
    """One training run and its folder."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.folder = arguments, arguments.output
        self.checkpoint, self.curves = self.folder / "checkpoint.pt", self.folder / "curves.csv"
        if self.checkpoint.exists() and not arguments.resume:
            raise SystemExit(f"error: {self.checkpoint} exists: add --resume to go on, or name another --output")
        if arguments.resume and not self.checkpoint.exists():
            raise SystemExit(f"error: nothing to resume: {self.checkpoint} does not exist")
        self.folder.mkdir(parents=True, exist_ok=True)
        words = self.folder / "tokenizer.json"
        if not words.exists():
            (learn_tokenizer() if arguments.relearn_words else load_tokenizer()).save(str(words))
        torch.manual_seed(arguments.seed)
        self.tokenizer = load_tokenizer(words)
        self.model = TrainingModel(self.tokenizer)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), LEARNING_RATE, weight_decay=0.02, betas=(0.9, 0.98))
        self.average, self.state = Average(self.model), State()
        if arguments.resume:
            self.load()

    def load(self) -> None:
        """Takes up a saved run; the scenes go on with other random numbers than the first part saw."""
        saved = torch.load(self.checkpoint, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.average.weights = saved["average"]
        self.state = State(**saved["state"])
        torch.manual_seed(self.arguments.seed + self.state.step)

    def save(self) -> None:
        """Writes the checkpoint beside its place, then renames it: an interruption leaves the former one whole."""
        unfinished = self.checkpoint.with_suffix(".tmp")
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "average": self.average.weights, "state": vars(self.state)}, unfinished)
        os.replace(unfinished, self.checkpoint)

    def batches(self) -> Iterator[Batch]:
        """Batches drawn by one process beside this one."""
        seed = self.arguments.seed * 1_000_003 + self.state.step
        source = Batches(self.tokenizer, self.arguments.pictures, self.arguments.prompts, seed)
        return iter(DataLoader(source, batch_size=None, num_workers=1, prefetch_factor=4))

    def learning_rate(self, share: float) -> float:
        """The rate after a share of the time."""
        warm = min(1.0, (self.state.step + 1) / WARM_UP_STEPS)
        if share < CONSTANT_SHARE:
            return LEARNING_RATE * warm
        fall = (share - CONSTANT_SHARE) / (1 - CONSTANT_SHARE)
        return LEARNING_RATE * warm * (0.5 * (1 + math.cos(math.pi * min(1.0, fall))) + 0.01)

    def step(self, batch: Batch, rate: float) -> dict[str, float]:
        """One step of AdamW in bfloat16 mixed precision."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with_masks = self.state.step % MASK_EVERY == MASK_EVERY - 1 and self.state.step > FIRST_MASK_STEP
        with torch.autocast("cpu", torch.bfloat16, enabled=not self.arguments.full_precision):
            outputs = self.model(batch.pixels, batch.ids, batch.mask, batch.image_of, with_masks, batch.exemplars)
        loss, parts = total_loss(outputs, batch.targets)
        if not math.isfinite(parts["loss"]):
            raise SystemExit(f"error: the loss is {parts['loss']} at step {self.state.step}: lower the learning rate")
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return parts

    def report(self, rate: float) -> None:
        """One line on the terminal and one in `curves.csv`."""
        state = self.state
        shown = " ".join(f"{name} {value:.3f}" for name, value in state.smoothed.items())
        minutes = f"{state.seconds / 60:.1f} of {self.arguments.minutes:g} min"
        print(f"step {state.step}, {minutes}, rate {rate:.1e}, {shown}", flush=True)
        row = {"step": state.step, "seconds": round(state.seconds, 1), "rate": rate} | {
            name: round(value, 5) for name, value in state.smoothed.items()}
        is_new = not self.curves.exists()
        with self.curves.open("a", newline="") as file:
            writer = csv.DictWriter(file, row)
            if is_new:
                writer.writeheader()
            writer.writerow(row)

    def train(self) -> None:
        """Trains until the time is up, saving on the way and at the end, Ctrl-C included."""
        budget, before, started = self.arguments.minutes * 60, self.state.seconds, time.monotonic()
        batches, rate = self.batches(), LEARNING_RATE
        try:
            while self.state.seconds < budget:
                rate = self.learning_rate(self.state.seconds / budget)
                self.state.smooth(self.step(next(batches), rate))
                self.state.step += 1
                self.state.seconds = before + time.monotonic() - started
                if self.state.step % AVERAGE_EVERY == 0:
                    self.average.update(self.model)
                if self.state.step % REPORT_EVERY == 0:
                    self.report(rate)
                if self.state.step % SAVE_EVERY == 0:
                    self.save()
        except KeyboardInterrupt:
            print("interrupted: saving")
        self.save()
        plot_curves(self.curves, self.folder / "curves.png")
        print(f"{self.state.step} steps in {self.state.seconds / 60:.1f} minutes, saved in {self.checkpoint}")


def plot_curves(source: Path, target: Path) -> None:
    """Draws `curves.csv`; says so where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        print(f"matplotlib is not installed: the curves are in {source} alone")
        return
    if not source.exists():
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    minutes = [float(row["seconds"]) / 60 for row in rows]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for axis, names in ((axes[0], ("token_classes", "presence", "score", "box", "giou", "mask")),
                        (axes[1], ("token_accuracy", "presence_accuracy", "iou"))):
        for name in names:
            axis.plot(minutes, [float(row.get(name) or "nan") for row in rows], label=name)
        axis.set_xlabel("minutes")
        axis.legend()
    axes[0].set_yscale("log")
    figure.savefig(target, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=107, help="time to train in all, resumed parts included")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run; made if missing")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --output")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the scenes (default 0)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--pictures", type=int, default=16, help="scenes a batch (default 16)")
    parser.add_argument("--prompts", type=int, default=3, help="names asked a scene (default 3)")
    parser.add_argument("--full-precision", action="store_true", help="float32 in place of mixed bfloat16")
    parser.add_argument("--relearn-words", action="store_true", help="learn the tokeniser anew (changed vocabulary)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run = Run(arguments)
    count = sum(parameter.numel() for parameter in run.model.detector.parameters())
    print(f"{count / 1e6:.2f} million parameters, {run.tokenizer.get_vocab_size()} tokens, step {run.state.step}")
    run.train()


if __name__ == "__main__":
    main()
