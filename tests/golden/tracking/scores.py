"""MOTA and IDF1, quickly enough to tune with. `make.py` checks them against `motmetrics` on every sequence it reports.

MOTA: Bernardin & Stiefelhagen, "Evaluating Multiple Object Tracking Performance", 2008. IDF1: Ristani et al.,
"Performance Measures and a Data Set for Multi-Target, Multi-Camera Tracking", 2016.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

LEAST_IOU = 0.5


@dataclass
class Counts:
    """What MOTA and IDF1 are made of; the counts of sequences add up."""

    objects: int = 0
    tracked: int = 0
    misses: int = 0
    false_alarms: int = 0
    switches: int = 0
    identity_hits: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(astuple(self), astuple(other))))

    @property
    def mota(self) -> float:
        return 1 - (self.misses + self.false_alarms + self.switches) / self.objects

    @property
    def idf1(self) -> float:
        return 2 * self.identity_hits / (self.objects + self.tracked)


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IoU [n, m] of boxes [n, 4] and [m, 4], xyxy."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = (high - low).clip(0).prod(2)
    area = lambda boxes: (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return shared / (area(a)[:, None] + area(b)[None] - shared)


def score(truth: list[np.ndarray], tracks: list[np.ndarray]) -> Counts:
    """Counts of one sequence; both are [n, 5] of id and xyxy for each frame."""
    counts, last = Counts(), {}
    together: dict[tuple[int, int], int] = {}
    for objects, found in zip(truth, tracks):
        counts.objects += len(objects)
        counts.tracked += len(found)
        overlap = iou(objects[:, 1:], found[:, 1:]) if len(objects) and len(found) else np.zeros((len(objects), len(found)))
        names, ids = objects[:, 0].astype(int), found[:, 0].astype(int)
        for row, column in zip(*np.where(overlap >= LEAST_IOU)):
            pair = (int(names[row]), int(ids[column]))
            together[pair] = together.get(pair, 0) + 1
        # What was matched before stays matched while it may.
        pairs, place = {}, {int(one): column for column, one in enumerate(ids)}
        for row, name in enumerate(names):
            column = place.get(last.get(int(name)))
            if column is not None and overlap[row, column] >= LEAST_IOU and column not in pairs.values():
                pairs[row] = column
        rows = [row for row in range(len(names)) if row not in pairs]
        columns = [column for column in range(len(ids)) if column not in pairs.values()]
        if rows and columns:
            rest = overlap[np.ix_(rows, columns)]
            cost = np.where(rest >= LEAST_IOU, 1 - rest, 1e3)
            for row, column in zip(*linear_sum_assignment(cost)):
                if rest[row, column] >= LEAST_IOU:
                    name = int(names[rows[row]])
                    counts.switches += name in last and last[name] != int(ids[columns[column]])
                    pairs[rows[row]] = columns[column]
        for row, column in pairs.items():
            last[int(names[row])] = int(ids[column])
        counts.misses += len(names) - len(pairs)
        counts.false_alarms += len(ids) - len(pairs)
    if together:
        names = sorted({pair[0] for pair in together})
        ids = sorted({pair[1] for pair in together})
        matrix = np.zeros((len(names), len(ids)))
        for (name, one), hits in together.items():
            matrix[names.index(name), ids.index(one)] = hits
        counts.identity_hits = int(matrix[linear_sum_assignment(matrix, maximize=True)].sum())
    return counts
