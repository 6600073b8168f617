#!/usr/bin/env python3
"""Measures a checkpoint folder on held-out scenes, through the reference pipeline.

    python evaluate.py --count 500                    the built-in model
    python evaluate.py --model DIR --count 100        another one

Every scene is asked for all 80 names at once. Average precision is COCO's (pycocotools, boxes, at most 100 a class
and scene, suppression 0.7 within a class); precision and recall are at the programs' default threshold with a match
at IoU 0.5. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torchvision
import transformers
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from coco import Annotations, evaluation_scenes
from reference import BUILTIN, Found, ReferenceDetector
from scenes import Scene
from vocabulary import NAMES

# Detections below this score do not enter average precision: they cost time and change nothing in the third digit.
LEAST_SCORE = 0.01


@dataclass
class Counts:
    """Hits and misses at one threshold, summed over scenes."""

    hits: int = 0
    alarms: int = 0
    missed: int = 0
    mask_overlaps: list[float] = field(default_factory=list)

    def add(self, scene: Scene, found: list[Found]) -> None:
        """Matches detections, best score first, to the free thing of the same name they overlap most (IoU >= 0.5)."""
        free = set(range(len(scene.labels)))
        for one in found:
            same = [index for index in sorted(free) if scene.labels[index] == one.class_index]
            best, overlap = None, 0.5
            if same:
                ious = torchvision.ops.box_iou(torch.tensor([one.box]), torch.from_numpy(scene.boxes[same]))[0]
                place = int(ious.argmax())
                best, overlap = same[place], float(ious[place])
            if best is None or overlap < 0.5:
                self.alarms += 1
                continue
            self.hits += 1
            free.discard(best)
            if one.mask is not None:
                union = (one.mask | scene.masks[best]).sum()
                self.mask_overlaps.append(float((one.mask & scene.masks[best]).sum() / max(1, union)))
        self.missed += len(free)


def average_precision(annotations: dict, results: list[dict]) -> dict[str, float]:
    """COCO's box metrics in percent."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = annotations
        truth.createIndex()
        if not results:
            return {"ap": 0.0, "ap50": 0.0, "ap75": 0.0, "ar100": 0.0}
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    stats = evaluation.stats
    return {"ap": 100 * stats[0], "ap50": 100 * stats[1], "ap75": 100 * stats[2], "ar100": 100 * stats[8]}


def measure(detector: ReferenceDetector, count: int, threshold: float) -> dict:
    """All figures over the first `count` evaluation scenes."""
    annotations, results, counts, started = Annotations(), [], Counts(), time.monotonic()
    for index, scene in enumerate(evaluation_scenes(count)):
        image_id = annotations.add(scene, f"{index:04}.png")
        image = Image.fromarray(scene.image)
        candidates = detector.candidates(detector.pixels(image), NAMES)
        for found in detector.select(candidates, image.width, image.height, LEAST_SCORE):
            x1, y1, x2, y2 = found.box
            results.append({"image_id": image_id, "category_id": found.class_index + 1, "score": found.score,
                            "bbox": [x1, y1, x2 - x1, y2 - y1]})
        counts.add(scene, detector.select(candidates, image.width, image.height, threshold, with_masks=True))
    figures = average_precision(annotations.document(), results)
    figures |= {
        "precision": counts.hits / max(1, counts.hits + counts.alarms),
        "recall": counts.hits / max(1, counts.hits + counts.missed),
        "mask_iou_of_hits": float(np.mean(counts.mask_overlaps)) if counts.mask_overlaps else 0.0,
        "false_alarms_per_scene": counts.alarms / max(1, count),
    }
    return {
        "scenes": count, "things": len(annotations.annotations), "threshold": threshold,
        **{name: round(value, 4) for name, value in figures.items()},
        "seconds": round(time.monotonic() - started, 1),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=BUILTIN, help="checkpoint folder (default: the built-in model)")
    parser.add_argument("--count", type=int, default=500, help="how many scenes (default 500)")
    parser.add_argument("--threshold", type=float, default=0.3, help="for precision and recall (default 0.3)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(arguments.threads)
    print(json.dumps(measure(ReferenceDetector(arguments.model), arguments.count, arguments.threshold)))


if __name__ == "__main__":
    main()
