"""The steps of a run."""

from __future__ import annotations

import argparse
import math
import signal
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import InputError
from .arguments import PRUNED
from .detection import DetectionHead
from .images import Positions, Stream, batches, find_images, fingerprint, normalised
from .journal import Journal
from .losses import DETECTION_WEIGHTS, detection_losses, feature_losses, total_detection_loss, weighted
from .processes import Joined, Processes
from .pruned import PrunedStudent, Pruning
from .state import identity, load_state, save_state, write_atomically
from .students import Student, fit_adapters
from .teacher import LEVELS, Teacher

STATE = "state.pt"
# The rate falls to this share of itself, along a cosine.
LAST_RATE = 0.01
# Images on which fresh adapters are scaled.
FIT_IMAGES = 8
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def read_classes(given: list[str]) -> list[str]:
    """Phrases, and the lines of files."""
    phrases: list[str] = []
    for one in given:
        if Path(one).is_file():
            lines = (line.strip() for line in Path(one).read_text().splitlines())
            phrases += [line for line in lines if line and not line.startswith("#")]
        else:
            phrases.append(one)
    if not phrases:
        raise InputError(f"classes: {' '.join(given)} has no phrases")
    return list(dict.fromkeys(phrases))


class Stop:
    """Notes the signal that asks a run to save and end, while it is entered."""

    def __init__(self) -> None:
        self.signal = 0
        self.before: dict[int, object] = {}

    def __enter__(self) -> Stop:
        self.before = {number: signal.signal(number, self.note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def note(self, number: int, _: object) -> None:
        self.signal = number


class Run:
    """One distillation and its folder."""

    def __init__(self, options: argparse.Namespace, processes: Processes) -> None:
        self.options, self.processes, self.folder = options, processes, options.output
        self.state_path = self.folder / STATE
        self.check_folder()
        entries = find_images(options.images)
        # Threads that share a sum would change its order from machine to machine.
        torch.manual_seed(options.seed)
        self.teacher = Teacher(options.teacher, options.imgsz)
        self.student = self.make_student()
        self.settings = self.describe(fingerprint(entries), len(entries))
        found = load_state(self.state_path, self.settings) if options.resume else None
        device = processes.device
        self.head = None
        if options.detection_weight:
            self.head = DetectionHead(self.teacher, read_classes(options.classes), options.tokenizer).to(device)
        self.teacher.detector.weights.clear()
        self.teacher.vision.to(device)
        self.student.to(device)
        self.stream = Stream(entries, self.teacher.side, options.seed, options.flip)
        self.validation = self.validation_stream()
        if found is None and isinstance(self.student, Student) and self.student.has_fresh_adapters:
            first = next(batches(self.stream, [list(range(FIT_IMAGES))], 0, False))
            fit_adapters(self.student, self.teacher, normalised(first.to(device)))
        unused = {level for level, weight in enumerate(options.level_weights) if not weight}
        self.teacher.vision.leave_out(unused)
        self.student.leave_out(unused)
        self.student.train()
        self.joined = Joined(self.student, processes, options.sharding)
        trained = [value for value in self.student.parameters() if value.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, options.rate, weight_decay=options.weight_decay)
        self.scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "fp16")
        self.step, self.total = 0, self.length(len(entries))
        if found is not None:
            self.restore(found)
        levels = (f"fpn_{level}" for level in range(LEVELS) if level not in unused)
        names = ["loss", *levels, *(DETECTION_WEIGHTS if self.head else ())]
        self.columns = names

    def check_folder(self) -> None:
        """Refuses to write over another run."""
        if self.state_path.exists() and not self.options.resume:
            raise InputError(f"output: {self.state_path} exists; add --resume to continue, or name another --output")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"output: {self.folder} cannot be made: {error.strerror}") from error

    def make_student(self) -> nn.Module:
        options = self.options
        if options.phase == PRUNED:
            pruning = (Pruning.of_report(options.prune, options.prune_step) if options.prune
                       else Pruning.of(options.skip_blocks, options.mask_blocks))
            return PrunedStudent(self.teacher, pruning)
        return Student(options.student, options.student_options, self.teacher, options.student_weights, options.phase,
                       options.lora_rank, options.running_norms)

    def describe(self, images: str, count: int) -> dict:
        """The settings that a continued run must share."""
        options = self.options
        names = ("phase", "student", "student_options", "skip_blocks", "mask_blocks", "flip", "level_weights",
                 "detection_weight", "classes", "classes_per_step", "rate", "warm_up", "weight_decay", "clip", "running_norms",
                 "seed", "precision")
        settings = {name: getattr(options, name) for name in names}
        if options.phase == "lora":
            settings["lora_rank"] = options.lora_rank
        if isinstance(self.student, PrunedStudent):
            pruning = self.student.pruning
            settings |= {"skip_blocks": list(pruning.skip), "mask_blocks": pruning.masks()}
        return settings | {
            "steps": self.length(count), "images of a step": self.images_of_step(), "imgsz": self.teacher.side,
            "images": images, "teacher": identity(self.teacher.vision.state_dict()),
        }

    def images_of_step(self) -> int:
        return self.options.batch * self.options.accumulate * self.processes.count

    def length(self, images: int) -> int:
        """The number of steps."""
        if self.options.steps:
            return self.options.steps
        return math.ceil(self.options.epochs * images / self.images_of_step())

    def validation_stream(self) -> Stream | None:
        if not self.options.validation:
            return None
        entries = find_images(self.options.validation)
        count = min(len(entries), self.options.validation_images) // self.processes.count * self.processes.count
        if not count:
            raise InputError(f"validation: {len(entries)} images for {self.processes.count} processes: expected at least as many")
        chosen = [entries[index * len(entries) // count] for index in range(count)]
        return Stream(chosen, self.teacher.side, 0, shuffled=False)

    def restore(self, found: dict) -> None:
        """Continues after the step of a saved state."""
        try:
            self.joined.restore(self.optimizer, found["weights"], found["optimizer"])
            self.scaler.load_state_dict(found["scaler"])
            self.step = int(found["step"])
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            raise InputError(f"resume: {self.state_path} does not fit this run: {str(error).splitlines()[0]}") from error

    def learning_rate(self) -> float:
        """The rate of the next step: a linear warm-up, and a cosine from the first step to the last."""
        options = self.options
        warm = min(1.0, (self.step + 1) / options.warm_up) if options.warm_up > 0 else 1.0
        fall = 0.5 * (1 + math.cos(math.pi * self.step / self.total))
        return options.rate * warm * (LAST_RATE + (1 - LAST_RATE) * fall)

    def losses(self, pixels: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and its parts [columns] for the journal."""
        options = self.options
        kind = PRECISIONS[options.precision]
        with torch.autocast(pixels.device.type, kind if kind != torch.float32 else torch.bfloat16,
                            enabled=kind != torch.float32):
            wanted = self.teacher(pixels)
            found = self.joined(pixels)
            levels = feature_losses(found, wanted)
            loss = weighted(levels, options.level_weights)
            parts = list(levels.values())
            if self.head is not None:
                with torch.no_grad():
                    truth = self.head(wanted[-1], classes)
                detections = detection_losses(self.head(found[-1], classes), truth)
                loss = loss + options.detection_weight * total_detection_loss(detections)
                parts += detections.values()
        return loss, torch.stack([loss, *parts]).detach().double()

    def take_step(self, images: list[Tensor]) -> tuple[Tensor, float]:
        """One step of the optimizer on some batches; returns the mean of the journal's columns, and the rate."""
        options, rate = self.options, self.learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        classes = self.head.choose(options.seed, self.step, options.classes_per_step) if self.head else None
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros(len(self.columns), dtype=torch.float64, device=self.processes.device)
        for place, pixels in enumerate(images):
            with self.joined.accumulating(place == len(images) - 1):
                loss, parts = self.losses(normalised(pixels.to(self.processes.device, non_blocking=True)), classes)
                self.scaler.scale(loss / len(images)).backward()
            total += parts / len(images)
        if options.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_([value for value in self.student.parameters() if value.requires_grad], options.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return total, rate

    @torch.no_grad()
    def validate(self) -> float:
        """The loss of the features on the images for validation."""
        self.student.eval()
        count, processes = len(self.validation.entries), self.processes
        mine = list(range(processes.rank, count, processes.count))
        lists = [mine[start:start + self.options.batch] for start in range(0, len(mine), self.options.batch)]
        total = torch.zeros((), dtype=torch.float64, device=processes.device)
        for pixels in batches(self.validation, lists, self.options.workers, False):
            loss = self.feature_loss(normalised(pixels.to(processes.device)))
            total += loss.double() * len(pixels) / len(mine)
        self.student.train()
        return float(processes.mean(total))

    def feature_loss(self, pixels: Tensor) -> Tensor:
        return weighted(feature_losses(self.joined.student(pixels), self.teacher(pixels)), self.options.level_weights)

    def save(self) -> None:
        """Writes the state, and the file for `ocelli export`."""
        weights, optimizer = self.joined.states(self.optimizer)
        problem = None
        if self.processes.rank == 0:
            try:
                save_state(self.state_path, self.step, self.settings, weights, optimizer, self.scaler.state_dict())
                exported = self.student.exported({name: value.detach().cpu() for name, value in weights.items()})
                write_atomically(self.folder / self.file_name(), exported | {"step": self.step})
            except InputError as error:
                problem = str(error)
        problem = self.processes.same(problem)
        if problem:
            raise InputError(problem)

    def file_name(self) -> str:
        return "pruned.pt" if self.options.phase == PRUNED else "student.pt"

    def report(self, values: dict[str, float | int]) -> None:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items() if name not in ("step", "seconds"))
        print(f"step {self.step} of {self.total}: {shown}", flush=True)

    def run(self) -> int:
        """All steps that are left; returns the exit status."""
        with Stop() as stop:
            return self.take_steps(stop)

    def take_steps(self, stop: Stop) -> int:
        options, first = self.options, self.processes.rank == 0
        columns = ["step", *self.columns, *(["validation"] if self.validation else []), "rate", "seconds"]
        journal = Journal(self.folder, columns, self.step, options.tensorboard) if first else None
        positions = Positions(self.step, self.total, options.accumulate, options.batch, self.processes.rank,
                              self.processes.count)
        source = batches(self.stream, positions, options.workers, self.processes.device.type == "cuda")
        started, images, stopped = time.monotonic(), [], 0
        for pixels in source:
            images.append(pixels)
            if len(images) < options.accumulate:
                continue
            total, rate = self.take_step(images)
            images = []
            self.step += 1
            # The signal travels with the losses, so that all processes end after the same step.
            shared = self.processes.mean(torch.cat([total, total.new_tensor([float(stop.signal)])]))
            *parts, asked = shared.tolist()
            stopped = stop.signal or (signal.SIGTERM if asked else 0)
            if not math.isfinite(parts[0]):
                raise InputError(f"the loss of step {self.step} is {parts[0]}; try a lower --rate, --clip 1, or --precision fp32")
            is_last = self.step == self.total or bool(stopped)
            values = {"step": self.step, **dict(zip(self.columns, parts))}
            if is_last or self.step % options.save_every == 0:
                self.save()
                if self.validation:
                    values["validation"] = self.validate()
            values |= {"rate": rate, "seconds": round(time.monotonic() - started, 3)}
            if journal:
                journal.add(values)
                if is_last or self.step % options.report_every == 0:
                    self.report(values)
            if stopped:
                break
        if journal:
            journal.close()
            journal.plot(f"{options.phase}: {options.student or 'self-distillation'}")
            self.conclude(stopped)
        return 128 + stopped if stopped else 0

    def conclude(self, stopped: int) -> None:
        file = self.folder / self.file_name()
        if stopped:
            print(f"stopped after step {self.step} of {self.total}; the same command with --resume continues")
        else:
            side = f" --imgsz {self.teacher.side}" if self.options.imgsz else ""
            print(f"{file}: ocelli export --checkpoint {file} --base {self.options.teacher}{side} --output graphs/")
