"""COCO's average precision in numpy, for machines without pycocotools.

The same steps as `COCOeval` for boxes or masks without crowds: per category, detections by descending score, at most
100 per image; each is matched to the unmatched ground truth with the highest IoU, at ten thresholds; precision is made
monotone and sampled at 101 recalls. `checks.py` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = 100


def box_overlaps(detections: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """IoU of boxes xyxy [D, 4] and [T, 4]."""
    low = np.maximum(detections[:, None, :2], truth[None, :, :2])
    high = np.minimum(detections[:, None, 2:], truth[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (detections, truth)]
    return shared / np.maximum(areas[0][:, None] + areas[1][None] - shared, 1e-12)


def match_detections(overlaps: np.ndarray) -> np.ndarray:
    """The true positives among detections (rows, best score first) at each threshold: [10, D] bool."""
    hits = np.zeros((len(THRESHOLDS), overlaps.shape[0]), bool)
    for level, threshold in enumerate(THRESHOLDS):
        free = np.ones(overlaps.shape[1], bool)
        for row, line in enumerate(overlaps):
            candidates = np.where(free, line, -1.0)
            # The last of equals, as in COCOeval.
            best = len(candidates) - 1 - int(np.argmax(candidates[::-1])) if len(candidates) else -1
            if best >= 0 and candidates[best] >= min(threshold, 1 - 1e-10):
                hits[level, row], free[best] = True, False
    return hits


@dataclass
class Category:
    """The detections of one category."""

    scores: list[np.ndarray] = field(default_factory=list)
    hits: list[np.ndarray] = field(default_factory=list)
    instances: int = 0

    def precision(self) -> np.ndarray:
        """Average precision at each threshold [10]."""
        scores = np.concatenate(self.scores) if self.scores else np.zeros(0)
        if not len(scores):
            return np.zeros(len(THRESHOLDS))
        order = np.argsort(-scores, kind="mergesort")
        hits = np.concatenate(self.hits, axis=1)[:, order]
        out = np.zeros(len(THRESHOLDS))
        for level, line in enumerate(hits):
            true = np.cumsum(line)
            recall, precision = true / self.instances, true / np.arange(1, len(line) + 1)
            precision = np.maximum.accumulate(precision[::-1])[::-1]
            places = np.searchsorted(recall, RECALLS, side="left")
            out[level] = np.where(places < len(precision), precision[np.minimum(places, len(precision) - 1)], 0).mean()
        return out


class Evaluation:
    """Accumulates images."""

    def __init__(self) -> None:
        self.categories: dict[int, Category] = {}

    def add(self, category: int, scores: np.ndarray, overlaps: np.ndarray) -> None:
        """An image's detections of one category and their IoU with its objects of that category [D, T]."""
        if not overlaps.size and not len(scores) and not overlaps.shape[1]:
            return
        entry = self.categories.setdefault(category, Category())
        order = np.argsort(-scores, kind="mergesort")[:MOST]
        entry.scores.append(scores[order])
        entry.hits.append(match_detections(overlaps[order]))
        entry.instances += overlaps.shape[1]

    def per_category(self) -> dict[int, np.ndarray]:
        """Average precision at each threshold, for each category with objects."""
        return {number: entry.precision() for number, entry in sorted(self.categories.items()) if entry.instances}

    def summary(self) -> dict[str, float]:
        """AP, AP50 and AP75 in percent, the mean over categories."""
        rows = list(self.per_category().values())
        mean = 100 * np.mean(rows, axis=0) if rows else np.zeros(len(THRESHOLDS))
        return {"ap": float(mean.mean()), "ap50": float(mean[0]), "ap75": float(mean[5])}
