#!/usr/bin/env python3
"""Measures a checkpoint folder on held-out scenes, through the reference pipeline.

    python evaluate.py --count 500                              the built-in model: one line of JSON
    python evaluate.py --model DIR --device cuda --output OUT   another one, on a GPU; tables and images in OUT

Every scene is prompted with all names at once, then with each name in it by one example box and the text "visual".
Average precision is COCO's (boxes, at most 100 per class and scene, NMS at 0.7 within a class). For precision and
recall, a detection is correct if its IoU with an object of its name is at least 0.5. OUT gets `figures.json`,
`classes.md`, `predictions.json` (COCO's results format), and, where matplotlib is installed, `reliability.png`;
`failures.png` shows the worst scenes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torchvision
import transformers
from PIL import Image

from coco import evaluation_scenes, family_of
from failures import Failure, draw_failures
from precision import Evaluation, box_overlaps
from reference import BUILTIN, Found, ReferenceDetector
from reliability import reliability, plot_reliability
from scenes import Scene
from vocabulary import KNOWN, KNOWN_NAMES, NAMES

# Detections with lower scores are left out of average precision: they take time and do not change the third digit.
LEAST_SCORE = 0.01
REPORT_EVERY = 50
LEVELS = tuple(round(0.1 * step, 1) for step in range(1, 10))


@dataclass
class Counts:
    """True positives and misses at one threshold, summed over scenes."""

    hits: int = 0
    alarms: int = 0
    missed: int = 0
    mask_overlaps: list[float] = field(default_factory=list)

    def add(self, scene: Scene, found: list[Found]) -> list[tuple[Found, int | None, float]]:
        """Matches detections, best score first, to the unmatched object of the same name with the highest IoU (>= 0.5).

        Returns for each its object (`None` for a false positive) and the highest IoU with an unmatched object of its
        name.
        """
        free, matches = set(range(len(scene.labels))), []
        for one in found:
            same = [index for index in sorted(free) if scene.labels[index] == one.class_index]
            best, overlap = None, 0.0
            if same:
                ious = torchvision.ops.box_iou(torch.tensor([one.box]), torch.from_numpy(scene.boxes[same]))[0]
                place = int(ious.argmax())
                best, overlap = same[place], float(ious[place])
            if best is None or overlap < 0.5:
                self.alarms += 1
                matches.append((one, None, overlap))
                continue
            self.hits += 1
            free.discard(best)
            matches.append((one, best, overlap))
            if one.mask is not None:
                union = (one.mask | scene.masks[best]).sum()
                self.mask_overlaps.append(float((one.mask & scene.masks[best]).sum() / max(1, union)))
        self.missed += len(free)
        return matches

    def figures(self) -> dict[str, float]:
        """Precision and recall."""
        return {"precision": self.hits / max(1, self.hits + self.alarms),
                "recall": self.hits / max(1, self.hits + self.missed)}


def arrays(found: list[Found], name: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and boxes of one name."""
    mine = [one for one in found if one.class_index == name]
    return (np.array([one.score for one in mine], np.float64),
            np.array([one.box for one in mine], np.float64).reshape(-1, 4))


class Measurement:
    """The sums over all scenes."""

    def __init__(self, detector: ReferenceDetector, names: int, threshold: float, purpose: str) -> None:
        self.detector, self.names, self.threshold, self.purpose = detector, names, threshold, purpose
        self.boxes, self.masks, self.shown = Evaluation(), Evaluation(), Evaluation()
        self.counts, self.levels = Counts(), {level: Counts() for level in LEVELS}
        self.families: dict[str, tuple[Evaluation, Counts]] = {}
        self.classes = [Counts() for _ in range(names)]
        self.mistaken: list[dict[int, int]] = [{} for _ in range(names)]
        self.scored: list[tuple[float, float]] = []
        self.failures: list[Failure] = []
        self.predictions: list[dict] = []
        self.scenes = self.instances = 0

    def add(self, scene: Scene) -> None:
        """One scene, prompted with all names."""
        image, index = Image.fromarray(scene.image), self.scenes
        self.scenes, self.instances = self.scenes + 1, self.instances + len(scene.labels)
        pixels = self.detector.pixels(image)
        candidates = self.detector.candidates(pixels, KNOWN_NAMES[:self.names])
        found = self.detector.select(candidates, image.width, image.height, LEAST_SCORE)
        family = self.families.setdefault(family_of(index, self.purpose), (Evaluation(), Counts()))
        for name in sorted(set(scene.labels.tolist()) | {one.class_index for one in found}):
            scores, boxes = arrays(found, name)
            overlaps = box_overlaps(boxes, scene.boxes[scene.labels == name].astype(np.float64))
            self.boxes.add(name, scores, overlaps)
            family[0].add(name, scores, overlaps)
        for one in found:
            x1, y1, x2, y2 = one.box
            self.predictions.append({
                "image_id": index + 1, "category_id": one.class_index + 1, "score": round(one.score, 5),
                "bbox": [round(value, 2) for value in (x1, y1, x2 - x1, y2 - y1)]})
        self.scored += [(one.score, overlap) for one, _, overlap in Counts().add(scene, found)]
        for level, counts in self.levels.items():
            counts.add(scene, [one for one in found if one.score > level])
        shown = self.detector.select(candidates, image.width, image.height, self.threshold, with_masks=True)
        family[1].add(scene, shown)
        self.note(scene, self.counts.add(scene, shown))
        self.examples(scene, pixels)

    def note(self, scene: Scene, matches: list[tuple[Found, int | None, float]]) -> None:
        """Counts by name, confusions, and the number of errors in a scene."""
        missed = set(range(len(scene.labels))) - {thing for _, thing, _ in matches}
        alarms = []
        for one, thing, _ in matches:
            if thing is not None:
                self.classes[one.class_index].hits += 1
                continue
            self.classes[one.class_index].alarms += 1
            alarms.append(one)
            near = box_overlaps(np.array([one.box]), scene.boxes.astype(np.float64))[0]
            other = int(scene.labels[near.argmax()]) if len(near) and near.max() >= 0.5 else -1
            self.mistaken[one.class_index][other] = self.mistaken[one.class_index].get(other, 0) + 1
        for thing in missed:
            self.classes[int(scene.labels[thing])].missed += 1
        if alarms or missed:
            lost = [(scene.boxes[thing], int(scene.labels[thing])) for thing in missed]
            self.failures.append(Failure(scene.image, lost, alarms))

    def examples(self, scene: Scene, pixels: torch.Tensor) -> None:
        """Prompts each name in the scene with the box of its first object and the text "visual"."""
        present = sorted(set(scene.labels.tolist()))
        if not present:
            return
        height, width = scene.image.shape[:2]
        firsts = torch.from_numpy(np.stack([scene.boxes[np.flatnonzero(scene.labels == name)[0]] for name in present]))
        scaled = firsts / torch.tensor([width, height, width, height], dtype=torch.float32)
        centres = torch.cat([(scaled[:, :2] + scaled[:, 2:]) / 2, scaled[:, 2:] - scaled[:, :2]], 1)[:, None]
        candidates = self.detector.candidates(pixels, ["visual"] * len(present), centres, torch.ones(len(present), 1))
        found = self.detector.select(candidates, width, height, LEAST_SCORE)
        for place, name in enumerate(present):
            scores, boxes = arrays(found, place)
            self.shown.add(name, scores, box_overlaps(boxes, scene.boxes[scene.labels == name].astype(np.float64)))

    def figures(self) -> dict:
        """All figures."""
        masks = self.counts.mask_overlaps
        return {
            "scenes": self.scenes, "instances": self.instances, "names": self.names, "threshold": self.threshold,
            **rounded(self.boxes.summary()), **rounded(self.counts.figures()),
            "mask_iou_of_hits": round(float(np.mean(masks)) if masks else 0.0, 4),
            "false_alarms_per_scene": round(self.counts.alarms / max(1, self.scenes), 3),
            "by_example": rounded(self.shown.summary()),
            "at_score": {str(level): rounded(counts.figures()) for level, counts in self.levels.items()},
            "by_background": {name: rounded(evaluation.summary() | counts.figures())
                              for name, (evaluation, counts) in sorted(self.families.items())},
            "reliability": reliability(self.scored),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }

    def table(self) -> str:
        """The figures of every name, worst first, as Markdown."""
        precision = self.boxes.per_category()
        lines = ["| name | pictogram | instances | AP | AP50 | precision | recall | false alarms are mostly |",
                 "|---|---|---|---|---|---|---|---|"]
        for name, values in sorted(precision.items(), key=lambda item: item[1].mean()):
            counts, mistaken = self.classes[name], self.mistaken[name]
            figures = counts.figures()
            worst = max(mistaken, key=mistaken.get) if mistaken else None
            what = "" if worst is None else f"{'background' if worst < 0 else KNOWN_NAMES[worst]} ({mistaken[worst]})"
            lines.append(f"| {KNOWN_NAMES[name]} | {KNOWN[name].character} | {counts.hits + counts.missed} "
                         f"| {100 * values.mean():.1f} | {100 * values[0]:.1f} | {figures['precision']:.2f} "
                         f"| {figures['recall']:.2f} | {what} |")
        return "\n".join(lines) + "\n"


def rounded(figures: dict[str, float]) -> dict[str, float]:
    """Four digits."""
    return {name: round(value, 4) for name, value in figures.items()}


def measure(detector: ReferenceDetector, count: int, names: int, threshold: float, purpose: str) -> Measurement:
    """Measures the first `count` scenes of a purpose, with progress on stderr."""
    measurement, started = Measurement(detector, names, threshold, purpose), time.monotonic()
    for scene in evaluation_scenes(count, names, purpose):
        measurement.add(scene)
        if measurement.scenes % REPORT_EVERY == 0:
            print(f"{measurement.scenes} of {count} scenes, {time.monotonic() - started:.0f} s", file=sys.stderr)
    return measurement


def write(measurement: Measurement, figures: dict, output: Path) -> None:
    """Tables and images."""
    output.mkdir(parents=True, exist_ok=True)
    (output / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    (output / "classes.md").write_text(measurement.table())
    (output / "predictions.json").write_text(json.dumps(measurement.predictions) + "\n")
    plot_reliability(figures["reliability"], output / "reliability.png")
    draw_failures(measurement.failures, output / "failures.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=BUILTIN, help="checkpoint folder (default: the built-in model)")
    parser.add_argument("--count", type=int, default=500, help="number of scenes (default 500)")
    parser.add_argument("--names", type=int, default=len(NAMES),
                        help=f"number of names (default {len(NAMES)})")
    parser.add_argument("--purpose", default="evaluation",
                        help="evaluation (default), or validation: other scenes, for choices")
    parser.add_argument("--threshold", type=float, default=0.3, help="for precision, recall and masks (default 0.3)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--output", type=Path, help="folder for tables and images")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(arguments.threads)
    started = time.monotonic()
    detector = ReferenceDetector(arguments.model, torch.device(arguments.device))
    measurement = measure(detector, arguments.count, arguments.names, arguments.threshold, arguments.purpose)
    figures = measurement.figures() | {"seconds": round(time.monotonic() - started, 1)}
    if arguments.output:
        write(measurement, figures, arguments.output)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
