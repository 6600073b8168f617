"""MOTA, IDF1 and HOTA, quickly enough to tune with. `make.py` checks MOTA and IDF1 against `motmetrics` on every sequence it
reports, and HOTA against TrackEval.

MOTA: Bernardin & Stiefelhagen, "Evaluating Multiple Object Tracking Performance", 2008. IDF1: Ristani et al.,
"Performance Measures and a Data Set for Multi-Target, Multi-Camera Tracking", 2016. HOTA: Luiten et al., "HOTA: A Higher
Order Metric for Evaluating Multi-Object Tracking", 2021, the mean over 19 least IoUs.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field

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


# The least IoUs that HOTA is the mean of.
LEVELS = np.arange(0.05, 0.99, 0.05)


@dataclass
class Hota:
    """What HOTA is made of, for each level; sequences add up."""

    pairs: np.ndarray = field(default_factory=lambda: np.zeros(len(LEVELS)))
    # The boxes of all objects and of all tracks.
    boxes: float = 0.0
    # The sum over all pairs of how well the object and the track of the pair belong together.
    association: np.ndarray = field(default_factory=lambda: np.zeros(len(LEVELS)))

    def __add__(self, other: "Hota") -> "Hota":
        return Hota(*(a + b for a, b in zip(vars(self).values(), vars(other).values())))

    @property
    def hota(self) -> float:
        found = self.pairs / np.maximum(1, self.boxes - self.pairs)
        return float(np.sqrt(found * self.association / np.maximum(1, self.pairs)).mean())


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


def hota(truth: list[np.ndarray], tracks: list[np.ndarray]) -> Hota:
    """HOTA of one sequence; both are [n, 5] of id and xyxy for each frame."""
    place_of = lambda frames: {int(one): at for at, one in enumerate(sorted({row[0] for rows in frames for row in rows}))}
    row_of, column_of = place_of(truth), place_of(tracks)
    together = np.zeros((len(row_of), len(column_of)))
    lengths = [np.zeros((len(row_of), 1)), np.zeros((1, len(column_of)))]
    frames = []
    for objects, found in zip(truth, tracks):
        rows = np.array([row_of[int(one)] for one in objects[:, 0]], int)
        columns = np.array([column_of[int(one)] for one in found[:, 0]], int)
        lengths[0][rows, 0] += 1
        lengths[1][0, columns] += 1
        if len(rows) and len(columns):
            overlap = iou(objects[:, 1:], found[:, 1:])
            either = overlap.sum(0)[None] + overlap.sum(1)[:, None] - overlap
            share = np.divide(overlap, either, out=np.zeros_like(overlap), where=either > np.finfo(float).eps)
            together[np.ix_(rows, columns)] += share
            frames.append((rows, columns, overlap))
    result = Hota(boxes=float(sum(length.sum() for length in lengths)))
    alike = together / (lengths[0] + lengths[1] - together)
    matched = np.zeros((len(LEVELS), *together.shape))
    for rows, columns, overlap in frames:
        for row, column in zip(*linear_sum_assignment(alike[np.ix_(rows, columns)] * overlap, maximize=True)):
            enough = overlap[row, column] >= LEVELS - np.finfo(float).eps
            matched[enough, rows[row], columns[column]] += 1
    result.pairs = matched.sum((1, 2))
    result.association = (matched**2 / np.maximum(1, lengths[0] + lengths[1] - matched)).sum((1, 2))
    return result
