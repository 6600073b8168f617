"""The small random models of tests/golden, drawn images, and ways to run a distillation."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, Sequence

import numpy as np
import pytest
import torch
from PIL import Image

from ocelli_training.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "golden"
SAM3 = GOLDENS / "checkpoints" / "sam3" / "sam3.pt"
FOLDER = GOLDENS / "parity" / "plain"
STUDENTS = GOLDENS / "checkpoints" / "students"
# Small sizes of the three families, as in tests/golden/checkpoints/make_students.py.
NETWORKS = {
    "rep_vit": ("repvit_m2_3", '{"embed_dim": [8, 16, 24], "depth": [2, 1, 3]}'),
    "efficient_vit": ("efficientvit_l1", '{"widths": [4, 8, 8, 16, 16], "depths": [1, 1, 1, 2, 1], "head_dim": 8}'),
    "tiny_vit": ("tiny_vit_21m_224", '{"embed_dims": [8, 12, 24, 24], "depths": [1, 2, 2, 1], "num_heads": [1, 2, 3, 3], '
                                     '"window_sizes": [7, 3, 5, 7]}'),
}
PRUNED = ["--phase", "pruned", "--skip-blocks", "0", "--mask-blocks", "2:attn"]
REP_VIT = ["--student", NETWORKS["rep_vit"][0], "--student-options", NETWORKS["rep_vit"][1]]
FULL = ["--phase", "full", *REP_VIT]

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven images of noise and shades, not square."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(3)
    for index in range(7):
        coarse = Image.fromarray(random.integers(0, 255, (5, 6, 3), np.uint8))
        coarse.resize((90 + 7 * index, 120), Image.Resampling.BICUBIC).save(folder / f"{index}.png")
    return folder


def command(images: Path, output: Path, phase: Sequence[str], *more: str, teacher: Path = SAM3) -> list[str]:
    """Options of a short run."""
    options = ["distill", "--teacher", str(teacher), "--images", str(images), "--output", str(output), *phase, "--device", "cpu",
               "--threads", "1", "--report-every", "100", *more]
    if not {"--steps", "--epochs"} & {*phase, *more}:
        options += ["--steps", "4"]
    return options


Distil = Callable[..., list[dict[str, str]]]


@pytest.fixture
def distil(images: Path, tmp_path: Path) -> Distil:
    """Runs a distillation in this process, `distil(name, phase, *options)`; returns the rows of its losses."""

    def run(name: str, phase: Sequence[str], *more: str, teacher: Path = SAM3) -> list[dict[str, str]]:
        assert main(command(images, tmp_path / name, phase, *more, teacher=teacher)) == 0
        return rows(tmp_path / name)

    return run


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "losses.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def losses(found: Sequence[dict[str, str]]) -> np.ndarray:
    """Everything but the times, [steps, columns]."""
    return np.array([[float(value) for name, value in row.items() if name != "seconds"] for row in found])


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "training")}


def start(options: Sequence[str]) -> subprocess.Popen[str]:
    """Starts a distillation as a program of its own."""
    return subprocess.Popen([sys.executable, "-m", "ocelli_training", *options], env=environment(), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
