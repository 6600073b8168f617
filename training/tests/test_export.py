"""`ocelli export` takes what a distillation saves, and its graphs give the features that PyTorch computes.

OCELLI is the program; without it these tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from conftest import FOLDER, FULL, NETWORKS, PRUNED, SAM3, Distil
from safetensors.torch import load_file

from ocelli_training.distill.low_rank import merged
from ocelli_training.distill.pruned import PrunedStudent, Pruning
from ocelli_training.distill.students import Student
from ocelli_training.distill.teacher import Teacher

pytestmark = pytest.mark.skipif("OCELLI" not in os.environ, reason="needs OCELLI, the program")
RATE = ["--rate", "1e-2", "--steps", "3"]


def student(network: str, phase: str, *more: str) -> list[str]:
    name, options = NETWORKS[network]
    return ["--phase", phase, "--student", name, "--student-options", options, *more]


CASES = {
    "pruned, sam3.pt": (PRUNED, SAM3, None),
    "pruned, folder": (["--phase", "pruned", "--skip-blocks", "0", "--mask-blocks", "2:mlp"], FOLDER, None),
    "RepViT": (FULL, SAM3, "rep_vit"),
    "TinyViT, LoRA": (student("tiny_vit", "lora", "--lora-rank", "2"), SAM3, "tiny_vit"),
    "EfficientViT, adapters": (student("efficient_vit", "adapter"), FOLDER, "efficient_vit"),
}


@pytest.mark.parametrize("name", CASES)
def test_exported_graphs_give_pytorchs_features(name: str, distil: Distil, tmp_path: Path) -> None:
    phase, base, network = CASES[name]
    distil("run", phase, *RATE, teacher=base)
    file = tmp_path / "run" / ("student.pt" if network else "pruned.pt")
    subprocess.run([os.environ["OCELLI"], "export", "--checkpoint", str(file), "--base", str(base), "--tokenizer",
                    str((base if base.is_dir() else base.parent) / "tokenizer.json"), "--output", str(tmp_path / "graphs")],
                   check=True, capture_output=True)
    teacher = Teacher(base, None)
    weights = torch.load(tmp_path / "run" / "state.pt", weights_only=True)["weights"]
    if network:
        model = Student(*NETWORKS[network], teacher, None, "full", 2, False)
        weights = merged(weights)
    else:
        mask = phase[phase.index("--mask-blocks") + 1]
        model = PrunedStudent(teacher, Pruning.of("0", mask))
    model.load_state_dict(weights)
    folder = base if base.is_dir() else base.parent
    pixels = load_file(folder / "golden.safetensors")["pixel_values"]
    with torch.no_grad():
        wanted, before = model.eval()(pixels), teacher(pixels)
    session = onnxruntime.InferenceSession(tmp_path / "graphs" / "backbone.onnx", providers=["CPUExecutionProvider"])
    names = [f"fpn_{level}" for level in range(3)]
    for level, found in enumerate(session.run(names, {session.get_inputs()[0].name: pixels.numpy()})):
        golden = wanted[level].numpy()
        assert np.abs(found - golden).max() / np.abs(golden).max() < 1e-4
        assert np.abs(before[level].numpy() - golden).max() / np.abs(golden).max() > 1e-2
