"""The calibration of scores: the mean IoU and the precision of detections with similar scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np

BINS = 10


def reliability(scored: list[tuple[float, float]]) -> dict:
    """Figures for each tenth of the scores, from (score, IoU with the matched object or 0) of every detection.

    In training, the target of a score is the IoU; `error` is the mean difference, weighted by detections, over scores
    from 0.1 on.
    """
    scores, overlaps = (np.array(column) for column in zip(*scored)) if scored else (np.zeros(0), np.zeros(0))
    place = np.minimum((scores * BINS).astype(int), BINS - 1)
    rows, distance, count = [], 0.0, 0
    for number in range(BINS):
        mine = place == number
        if not mine.any():
            continue
        row = {"count": int(mine.sum()), "score": float(scores[mine].mean()), "iou": float(overlaps[mine].mean()),
               "right": float((overlaps[mine] >= 0.5).mean())}
        rows.append({name: round(value, 4) for name, value in row.items()})
        if number:
            distance += row["count"] * abs(row["score"] - row["iou"])
            count += row["count"]
    return {"error": round(distance / max(1, count), 4), "bins": rows}


def plot_reliability(figures: dict, target: Path) -> None:
    """Plots the figures; prints a note if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no plot of the reliability")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    bins = figures["bins"]
    figure, (upper, lower) = pyplot.subplots(2, 1, figsize=(5, 6), height_ratios=[3, 1], sharex=True,
                                             layout="constrained")
    upper.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    scores = [row["score"] for row in bins]
    upper.plot(scores, [row["iou"] for row in bins], "o-", label="mean IoU (what a score is to say)")
    upper.plot(scores, [row["right"] for row in bins], "s--", label="share with IoU ≥ 0.5")
    upper.legend()
    upper.set_title(f"mean distance from the diagonal {figures['error']:.3f}")
    lower.bar(scores, [row["count"] for row in bins], width=0.06)
    lower.set_yscale("log")
    lower.set_ylabel("detections")
    lower.set_xlabel("score")
    figure.savefig(target, dpi=120)
    pyplot.close(figure)
