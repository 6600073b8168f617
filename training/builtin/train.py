#!/usr/bin/env python3
"""Trains the built-in model on drawn scenes, on a CPU or on a GPU with the same command.

    python train.py --minutes 60 --output runs/first                     from the built-in weights
    python train.py --minutes 60 --output runs/first --resume            continues the run in the folder
    python train.py --minutes 60 --output runs/first --resume --anew     continues with a new schedule
    python train.py --minutes 9 --schedule-minutes 26 --device cuda ...  the first third of a run of 26 minutes
    python train.py --minutes 107 --start none --output runs/new         from random weights

Writes into the output folder: `checkpoint.pt` (the complete state), `curves.csv` and, where matplotlib is
installed, `curves.png`, `settings.json`, and at the end `model/`, the averaged weights as a checkpoint folder.
`--portable` also writes `portable/`, a small checkpoint for `--resume-portable DIR` on another machine.
Ctrl-C saves and ends.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

import torch
import transformers
from torch import Tensor, nn
from torch.utils.data import DataLoader

from arguments import parse_arguments
from batches import Batch, Plan, Planner, realise
from checkpoints import load_portable, load_whole, save_portable, save_whole
from curves import plot_curves
from finish import write_model
from losses import mask_loss, match, query_of_thing, total_loss
from model import PATCH_SIZE, TrainingModel
from sprites import load_sprites
from together import Together, start_others
from tokenizer import learn_tokenizer, load_tokenizer

WARM_UP_STEPS = 200
# The rate is constant for this share of the time, then falls along a cosine.
CONSTANT_SHARE = 0.3
# Auxiliary classifiers are new on every warm start: at first only they learn, to protect good weights.
HEADS_ALONE_STEPS = 60
# A running average over about two hundred steps, fewer at the start; an hour on a CPU has a thousand.
AVERAGE_DECAY = 0.995
# The rate at which confusions are averaged, and the steps between updates: a GPU must be synchronised for it.
CONFUSION_RATE, LEAST_CONFUSION = 0.1, 0.02
CONFUSION_EVERY = {"cpu": 1, "cuda": 5}
# The same for misses of each name; the best name is still drawn a fifth as often as one that is never detected.
MISSED_RATE, LEAST_MISSED = 0.05, 0.2
# Masks are learnt from few prompts a step, by separate layers, which tolerate a higher rate.
MASK_RATE = 2.0
REPORT_EVERY, SAVE_SECONDS = 25, 90
# The run ends after this many consecutive reports without a finite loss.
MOST_LOST = 4


@dataclass
class State:
    """The progress of a run."""

    step: int = 0
    seconds: float = 0.0
    pictures: int = 0
    smoothed: dict[str, float] = field(default_factory=dict)

    def smooth(self, parts: dict[str, float]) -> None:
        """Moves the reported figures a fifth towards the latest."""
        for name, value in parts.items():
            before = self.smoothed.get(name) or value
            self.smoothed[name] = 0.8 * before + 0.2 * value


class Average:
    """A running average of the weights, which is shipped."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}
        self.updates = 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Moves the average towards the model, faster at the start."""
        self.updates += 1
        decay = min(AVERAGE_DECAY, self.updates / (self.updates + 9))
        own = model.state_dict()
        floating = [name for name, value in own.items() if value.is_floating_point()]
        torch._foreach_lerp_([self.weights[name] for name in floating], [own[name] for name in floating], 1 - decay)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16; a CPU without them takes forty times as long as in float32."""
    if device.type != "cpu":
        return True
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


class Run:
    """One training run and its folder."""

    def __init__(self, arguments: argparse.Namespace, together: Together) -> None:
        self.arguments, self.folder, self.together = arguments, arguments.output, together
        self.device = torch.device(arguments.device)
        self.is_mixed = not arguments.full_precision and has_bfloat16(self.device)
        self.checkpoint, self.curves = self.folder / "checkpoint.pt", self.folder / "curves.csv"
        if self.checkpoint.exists() and not arguments.resume:
            raise SystemExit(f"error: {self.checkpoint} exists: add --resume to go on, or name another --output")
        if arguments.resume and not self.checkpoint.exists():
            raise SystemExit(f"error: nothing to resume: {self.checkpoint} does not exist")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.words = self.folder / "tokenizer.json"
        if not self.words.exists():
            (learn_tokenizer() if arguments.relearn_words else load_tokenizer()).save(str(self.words))
        torch.manual_seed(arguments.seed)
        self.tokenizer = load_tokenizer(self.words)
        self.model = TrainingModel(self.tokenizer, arguments.side, arguments.names).to(self.device)
        if self.device.type == "cpu" and self.is_mixed:
            # For such short sequences the fused bfloat16 kernels take two to seven times as long.
            self.model.detector.set_attn_implementation("eager")
        # The groups differ in their rates only.
        self.optimizer = torch.optim.AdamW(
            [{"params": part} for part in self.model.parts()], arguments.rate, weight_decay=0.02, betas=(0.9, 0.98),
            fused=True)
        self.state, self.lost = State(), 0
        self.start()
        self.sprites = load_sprites(arguments.names, self.device)
        # Shared with the processes that plan the batches.
        self.confusion, self.missed = together.confusion, together.missed
        settings = {"side": arguments.side, "names": arguments.names, "seed": arguments.seed, "rate": arguments.rate,
                    "images": arguments.images, "prompts": arguments.prompts, "mask_rows": arguments.mask_rows}
        (self.folder / "settings.json").write_text(json.dumps(settings) + "\n")
        if arguments.compile:
            self.compile()

    def start(self) -> None:
        """Resumes a saved run, or starts from the weights of a folder, or from random weights."""
        if self.arguments.resume:
            average, state = load_whole(self.checkpoint, self.model, self.optimizer, self.device)
            self.state = State(**state)
            if self.arguments.anew:
                self.state.seconds = 0.0
            self.average = Average(self.model)
            self.average.weights, self.average.updates = average, self.state.step
        elif self.arguments.resume_portable:
            source = self.arguments.resume_portable
            self.state = State(**load_portable(source, self.model, self.optimizer, self.curves))
            self.average = Average(self.model)
        else:
            if self.arguments.start != "none":
                for note in self.model.start_from(Path(self.arguments.start)):
                    print(note)
            self.average = Average(self.model)
        if self.arguments.masks_only:
            self.keep_what_detects()
        # Later parts use other random numbers for the scenes.
        torch.manual_seed(self.arguments.seed + self.state.step)

    def keep_what_detects(self) -> None:
        """Keeps the averaged weights of everything but the masks bit-identical."""
        self.model.load_state_dict(self.average.weights)
        detects, _, heads = self.model.parts()
        for value in detects + heads:
            value.requires_grad_(False)

    def compile(self) -> None:
        """Compiles the parts with fixed shapes; the names of the weights do not change."""
        for part in (self.model.detector.vision_encoder, self.model.detector.detr_encoder):
            part.compile(dynamic=False)

    def save(self) -> None:
        """Writes the checkpoints."""
        state = vars(self.state)
        if self.arguments.portable:
            save_portable(self.folder / "portable", self.model, self.optimizer, state, self.curves)
        save_whole(self.checkpoint, self.model, self.optimizer, self.average.weights, state)

    def plans(self) -> Iterator[Plan]:
        """Plans of batches, made by worker processes if requested."""
        arguments, count = self.arguments, self.together.count
        seed = (arguments.seed * 1_000_003 + self.state.step) * count + self.together.rank
        planner = Planner(self.tokenizer, self.sprites, arguments.images // count, arguments.prompts, arguments.side,
                          arguments.mask_rows // count, seed, self.confusion, self.missed)
        if not arguments.workers:
            return iter(planner)
        return iter(DataLoader(planner, batch_size=None, num_workers=arguments.workers, prefetch_factor=4))

    def learning_rate(self, share: float) -> float:
        """The learning rate after a share of the time."""
        warm = min(1.0, (self.state.step + 1) / WARM_UP_STEPS)
        if share < CONSTANT_SHARE:
            return self.arguments.rate * warm
        fall = min(1.0, (share - CONSTANT_SHARE) / (1 - CONSTANT_SHARE))
        return self.arguments.rate * warm * (0.5 * (1 + math.cos(math.pi * fall)) + 0.005)

    def step(self, batch: Batch, rate: float) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        """One step of AdamW, in bfloat16 mixed precision if the device supports it.

        Returns the losses, the presence of each prompted name [R], how well its objects were detected [R], score times
        IoU, and the presence of every name, from the most similar token [B, names].
        """
        warm = self.arguments.start != "none" and self.state.step < HEADS_ALONE_STEPS
        for group, share in zip(self.optimizer.param_groups, (0.0 if warm else 1.0, 0.0 if warm else MASK_RATE, 1.0)):
            group["lr"] = rate * share
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_mixed):
            outputs = self.model(batch)
        matched = match(outputs, batch.targets)
        mask = outputs.boxes.new_zeros(())
        rows = batch.targets.mask_rows
        if len(rows):
            queries, has_query = query_of_thing(matched.thing[-1][rows], batch.targets.masks.shape[1])
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_mixed):
                masks, semantic = self.model.masks(outputs, batch.image_of, rows, queries)
            mask = mask_loss(outputs, batch.targets, masks, semantic, has_query)
        loss, parts = total_loss(outputs, batch.targets, matched, mask)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.together.average_gradients(self.model)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        # If a gradient is not finite, the fused optimiser skips the step, without synchronisation for
        # it.
        self.optimizer.found_inf = (~torch.isfinite(norm)).float()
        self.optimizer.step()
        parts["gradient"] = norm.detach()
        shown = outputs.logits[-1].detach().sigmoid() * outputs.presence[-1].detach().sigmoid()
        held = (matched.thing[-1] >= 0) * matched.iou[-1].detach()
        found = (shown * held).sum(1) / batch.targets.valid.sum(1).clamp(min=1)
        return parts, shown.amax(1), found, outputs.token_classes.detach().softmax(1)[:, 1:].amax((2, 3))

    def learn_missed(self, plan: Plan, found: Tensor) -> None:
        """Records the misses of present names."""
        lost = 1 - found.cpu()
        for row in (plan.instances[:, 0] >= 0).nonzero()[0].tolist():
            name = int(plan.asked[row])
            self.missed[name] = self.missed[name].lerp(lost[row], MISSED_RATE).clamp(min=LEAST_MISSED)

    def learn_confusion(self, plan: Plan, seemed: Tensor, tokens: Tensor) -> None:
        """Records the presence of absent names where others were: roughly for all names, then for the prompted ones."""
        scores, rough = seemed.cpu(), tokens.cpu()
        for scene in range(len(rough)):
            present = plan.layout.present(scene)
            rough[scene, present] = LEAST_CONFUSION
            self.confusion[present] = self.confusion[present].lerp(rough[scene], CONFUSION_RATE)
        self.confusion.clamp_(min=LEAST_CONFUSION)
        for row in (plan.instances[:, 0] < 0).nonzero()[0].tolist():
            present, asked = plan.layout.present(int(plan.image_of[row])), int(plan.asked[row])
            self.confusion[present, asked] = (
                self.confusion[present, asked] * (1 - CONFUSION_RATE) + CONFUSION_RATE * scores[row]
            ).clamp(min=LEAST_CONFUSION)

    def report(self, parts: dict[str, Tensor], rate: float, speed: float) -> None:
        """One line on the terminal and one in `curves.csv`."""
        state = self.state
        latest = dict(zip(parts, torch.stack([value.float() for value in parts.values()]).tolist()))
        # The optimiser skips a single step without a finite loss; several in a row mean that nothing is learnt.
        if not math.isfinite(latest["loss"]):
            self.lost += 1
            if self.lost == MOST_LOST:
                raise SystemExit(f"error: the loss is {latest['loss']} at step {state.step}: lower the learning rate")
            return
        self.lost = 0
        state.smooth(latest)
        shown = " ".join(f"{name} {value:.3f}" for name, value in state.smoothed.items())
        minutes = f"{state.seconds / 60:.1f} of {self.arguments.schedule_minutes:g} min"
        print(f"step {state.step}, {minutes}, {speed:.1f} images/s, rate {rate:.1e}, {shown}", flush=True)
        row = {"step": state.step, "seconds": round(state.seconds, 1), "pictures": state.pictures, "rate": rate} | {
            name: round(value, 5) for name, value in state.smoothed.items()}
        is_new = not self.curves.exists()
        with self.curves.open("a", newline="") as file:
            writer = csv.DictWriter(file, row)
            if is_new:
                writer.writeheader()
            writer.writerow(row)

    def train(self) -> None:
        """Trains until the time is up; saves regularly and at the end, also after Ctrl-C and SIGTERM."""
        # The other processes have nothing to save; the first one ends them.
        if self.together.rank == 0:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        whole, part = self.arguments.schedule_minutes * 60, self.arguments.minutes * 60
        before, started = self.state.seconds, time.monotonic()
        plans, rate, saved, reported, elapsed = self.plans(), self.arguments.rate, started, started, 0.0
        try:
            while True:
                done = elapsed >= part or self.state.seconds >= whole or self.state.step == self.arguments.steps
                share = self.together.agree(-1.0 if done else self.state.seconds / whole)
                if share < 0:
                    break
                plan = next(plans)
                rate = self.learning_rate(share)
                batch = realise(plan, self.sprites, self.arguments.side, PATCH_SIZE)
                parts, seemed, found, tokens = self.step(batch, rate)
                if self.state.step % CONFUSION_EVERY[self.device.type] == 0:
                    self.learn_confusion(plan, seemed, tokens)
                    self.learn_missed(plan, found)
                self.state.step += 1
                if self.together.rank:
                    continue
                self.average.update(self.model)
                self.state.pictures += self.arguments.images
                if self.state.step % REPORT_EVERY == 0:
                    now = time.monotonic()
                    self.report(parts, rate, REPORT_EVERY * self.arguments.images / (now - reported))
                    reported = now
                elapsed = time.monotonic() - started
                self.state.seconds = before + elapsed
                if time.monotonic() - saved > SAVE_SECONDS:
                    self.save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            print("interrupted: saving")
        if self.together.rank:
            return
        self.save()
        write_model(self.model, self.average.weights, self.words, self.folder / "model")
        plot_curves(self.curves, self.folder / "curves.png")
        print(f"{self.state.step} steps, {self.state.pictures} images in {self.state.seconds / 60:.1f} minutes, "
              f"saved in {self.folder}")


def prepare(arguments: argparse.Namespace, together: Together) -> Run:
    """The run in this process."""
    torch.set_num_threads(max(1, arguments.threads // together.count))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    return Run(arguments, together)


def work(arguments: argparse.Namespace, together: Together) -> None:
    """The run in the other processes."""
    prepare(arguments, together).train()


def main() -> None:
    arguments = parse_arguments()
    together = Together(arguments.processes, torch.full((arguments.names, arguments.names), LEAST_CONFUSION))
    run = prepare(arguments, together)
    count = sum(parameter.numel() for parameter in run.model.detector.parameters())
    print(f"{count / 1e6:.2f} million parameters, {run.tokenizer.get_vocab_size()} tokens, {arguments.names} names, "
          f"{arguments.side} px, {run.device} in {'bfloat16' if run.is_mixed else 'float32'}, step {run.state.step}",
          flush=True)
    together.prepare(run.model)
    start_others(together, work, arguments)
    run.train()


if __name__ == "__main__":
    main()
