#!/usr/bin/env python3
"""Draws what `ocelli eval --video` is tested with, and asks the field's own evaluations for the figures.

    python make.py [--tools DIR]                        writes data/ and expected.json beside this script
    python make.py --check OCELLI [--seeds N] [--tools DIR]   compares the program with them on other seeds

Needs numpy, scipy, pillow, pycocotools, opencv-python-headless, scikit-image, tqdm, typing_extensions, and trackeval and sam3
without their dependencies. `--tools` is a folder with checkouts of `youtubevos/cocoapi` and `davis2017-evaluation`, which are not on PyPI:
see `peers.py`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from draw import draw
from peers import expected

SEED = 20251125
TOLERANCE = 1e-9
HERE = Path(__file__).parent


def plain(value):
    return None if value is None or math.isnan(value) or math.isinf(value) else value


def make(tools: Path | None) -> None:
    shutil.rmtree(HERE / "data", ignore_errors=True)
    (HERE / "data").mkdir()
    cases = draw(SEED, HERE / "data")
    for case in cases:
        figures = expected(HERE / "data", case, tools)
        case["expected"] = {part: {name: plain(value) for name, value in values.items()} for part, values in figures.items()}
    packages = ("numpy", "scipy", "pycocotools", "trackeval", "sam3")
    made_with = {"seed": SEED, "tools": bool(tools), **{name: importlib.metadata.version(name) for name in packages}}
    (HERE / "expected.json").write_text(json.dumps({"made_with": made_with, "cases": cases}, indent=1) + "\n")


def differences(report: dict, figures: dict) -> list[str]:
    found = []
    for part, values in figures.items():
        ours = report
        for step in part.strip("/").split("/"):
            ours = ours[int(step)] if isinstance(ours, list) else ours.get(step, {})
        for name, theirs in values.items():
            mine = ours.get(name)
            theirs = plain(theirs)
            if (mine is None) != (theirs is None) or mine is not None and abs(mine - theirs) > TOLERANCE:
                found.append(f"{part}/{name}: {mine}, expected {theirs}")
    return found


def check(program: str, seeds: int, tools: Path | None) -> None:
    figures = failures = 0
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            for case in draw(seed, Path(folder)):
                wanted = expected(Path(folder), case, tools)
                command = [program, "eval", "--video", "--json", "-", "--truth", *case["truth"], "--predictions",
                           case["predictions"]]
                run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                wrong = differences(json.loads(run.stdout), wanted) if run.returncode == 0 else [run.stderr.strip()]
                figures += sum(len(values) for values in wanted.values())
                failures += len(wrong)
                for line in wrong:
                    print(f"seed {seed}, {case['name']}: {line}", flush=True)
    print(f"{figures} figures of {seeds} seeds, {failures} differ by more than {TOLERANCE}")
    sys.exit(failures > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", metavar="OCELLI", help="compare this program instead of writing the golden")
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds to compare")
    parser.add_argument("--tools", type=Path, help="folder with cocoapi/ and davis2017-evaluation/")
    options = parser.parse_args()
    if options.check:
        check(options.check, options.seeds, options.tools)
    else:
        make(options.tools)


if __name__ == "__main__":
    main()
