#!/usr/bin/env python3
"""Joins and splits the built-in model's weights, which are in two crates because a package has at most 10 MiB.

    python weights.py join      src/builtin/model.safetensors from src/builtin/weights-*/weights.bin
    python weights.py split     the other way, after training

`model.safetensors` makes src/builtin a checkpoint folder; git ignores it. Without Python:
`cat src/builtin/weights-{1,2}/weights.bin > src/builtin/model.safetensors`.
"""

from __future__ import annotations

import sys
from pathlib import Path

BUILTIN = Path(__file__).resolve().parents[2] / "src" / "builtin"
WHOLE = BUILTIN / "model.safetensors"
PARTS = [BUILTIN / f"weights-{number}" / "weights.bin" for number in (1, 2)]


def join() -> Path:
    """Writes the whole file if it is missing or differs from its parts; returns its path."""
    weights = b"".join(part.read_bytes() for part in PARTS)
    if not WHOLE.is_file() or WHOLE.read_bytes() != weights:
        WHOLE.write_bytes(weights)
    return WHOLE


def split() -> None:
    """Writes both parts from the whole file."""
    weights = WHOLE.read_bytes()
    half = len(weights) // 2
    PARTS[0].write_bytes(weights[:half])
    PARTS[1].write_bytes(weights[half:])


if __name__ == "__main__":
    commands = {"join": join, "split": split}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]]()
