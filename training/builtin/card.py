#!/usr/bin/env python3
"""Writes the measured figures into the model card, `src/builtin/README.md`, between its two marks.

    python card.py --figures OUT/figures.json [--former FIGURES.json]

`OUT` is what `evaluate.py --output OUT` wrote. With `--former` the table has a second column for other weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from pathlib import Path

from reference import BUILTIN

BEGIN, END = "<!-- figures: written by training/builtin/card.py -->", "<!-- end of figures -->"
CARD = BUILTIN / "README.md"
# The figures of the card and their keys: percentages with one digit, shares with two, mask IoU with three.
ROWS = (
    ("box AP (COCO, 0.50:0.95)", ("ap",), ".1f"), ("box AP50", ("ap50",), ".1f"), ("box AP75", ("ap75",), ".1f"),
    ("precision at score > {threshold}, IoU ≥ 0.5", ("precision",), ".2f"),
    ("recall at score > {threshold}, IoU ≥ 0.5", ("recall",), ".2f"),
    ("false alarms a scene, of {names} names asked", ("false_alarms_per_scene",), ".1f"),
    ("mean mask IoU of the hits", ("mask_iou_of_hits",), ".3f"),
    ("by one example and \"visual\": AP", ("by_example", "ap"), ".1f"),
    ("by one example and \"visual\": AP50", ("by_example", "ap50"), ".1f"),
    ("mean distance of score and IoU, scores from 0.1", ("reliability", "error"), ".2f"),
)


def value(figures: dict, path: tuple[str, ...], form: str) -> str:
    """One figure as text."""
    for key in path:
        figures = figures[key]
    return format(figures, form)


def table(figures: dict, former: dict | None) -> str:
    """The figures as Markdown."""
    columns = [figures] + ([former] if former else [])
    levels = figures["at_score"]
    lines = [f"{figures['scenes']} held-out scenes with {figures.get('instances', figures.get('things')):,} instances; every scene is asked for all "
             f"{figures['names']} names at once:", ""]
    lines += ["| | now | before |" if former else "| | |", "|---" * (1 + len(columns)) + "|"]
    for name, path, form in ROWS:
        shown = " | ".join(value(column, path, form) for column in columns)
        lines.append(f"| {name.format(**figures)} | {shown} |")
    lines += ["", "| score above | " + " | ".join(levels) + " |", "|---" * (1 + len(levels)) + "|"]
    for name in ("precision", "recall"):
        lines.append(f"| {name} | " + " | ".join(f"{row[name]:.2f}" for row in levels.values()) + " |")
    lines += ["", "| background | AP | AP50 | precision | recall |", "|---|---|---|---|---|"]
    for name, row in figures["by_background"].items():
        lines.append(f"| {name} | {row['ap']:.1f} | {row['ap50']:.1f} | {row['precision']:.2f} | {row['recall']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", type=Path, required=True, help="figures.json of the built-in model")
    parser.add_argument("--former", type=Path, help="figures.json of the previous weights")
    arguments = parser.parse_args()
    figures = json.loads(arguments.figures.read_text())
    former = json.loads(arguments.former.read_text()) if arguments.former else None
    text = CARD.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"error: {CARD} lacks the marks around its figures")
    before, rest = text.split(BEGIN)
    text = f"{before}{BEGIN}\n{table(figures, former)}\n{END}{rest.split(END)[1]}"
    digest = hashlib.sha256((BUILTIN / "model.safetensors").read_bytes()).hexdigest()
    CARD.write_text(re.sub("(SHA-256 of `model.safetensors`: )`[0-9a-f]{64}`", rf"\1`{digest}`", text))


if __name__ == "__main__":
    main()
