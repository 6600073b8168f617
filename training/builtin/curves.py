"""Plots the curves of a training run.

    python curves.py runs/first/curves.csv runs/first/curves.png
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

LOSSES = ("token_classes", "presence", "score", "shown", "box", "giou", "mask")
SHARES = ("token_accuracy", "presence_accuracy", "iou")


def plot_curves(source: Path, target: Path) -> None:
    """Plots `curves.csv`; prints a note if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        print(f"matplotlib is not installed: the curves are in {source} only")
        return
    if not source.exists():
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    # Not minutes, which mean little on a machine with other load.
    steps = [int(row["step"]) for row in rows]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for axis, names in zip(axes, (LOSSES, SHARES)):
        for name in names:
            axis.plot(steps, [float(row.get(name) or "nan") for row in rows], label=name)
        axis.set_xlabel("steps")
        axis.legend()
    axes[0].set_yscale("log")
    figure.savefig(target, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    plot_curves(arguments.source, arguments.target)


if __name__ == "__main__":
    main()
