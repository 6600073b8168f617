"""Teachers and students compute what `transformers` and `timm` computed for the goldens of the exporter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import FOLDER, GOLDENS, NETWORKS, SAM3, STUDENTS
from safetensors.torch import load_file
from torch import Tensor

from ocelli_training.distill.checkpoints import read_torch
from ocelli_training.distill.detection import DetectionHead
from ocelli_training.distill.low_rank import LowRank, add_low_rank, merged
from ocelli_training.distill.pruned import PrunedStudent, Pruning
from ocelli_training.distill.students import Student
from ocelli_training.distill.teacher import Teacher

SHARDS = GOLDENS / "parity" / "released"


def distance(found: Tensor, golden: Tensor) -> float:
    return float(((found - golden).abs().max() / golden.abs().max()).detach())


@pytest.mark.parametrize("path", [SAM3, FOLDER, SHARDS], ids=["sam3.pt", "folder", "shards"])
def test_a_teacher_gives_the_goldens_pyramid(path: Path) -> None:
    golden = load_file((path if path.is_dir() else path.parent) / "golden.safetensors")
    teacher = Teacher(path, None)
    pyramid = teacher(golden["pixel_values"])
    assert [distance(level, golden[f"backbone.fpn_{i}"]) < 2e-5 for i, level in enumerate(pyramid)] == [True] * 3
    assert pyramid[2].shape[1:] == (teacher.width, teacher.grid, teacher.grid)


def test_a_pruned_trunk_gives_the_goldens_features() -> None:
    golden = load_file(SAM3.parent / "golden.safetensors")
    student = PrunedStudent(Teacher(SAM3, None), Pruning.of("0", "2:attn")).eval()
    assert distance(student(golden["pixel_values"])[2], golden["pruned.0.fpn_2"]) < 2e-5
    saved, ours = read_torch(SAM3.parent / "pruned.pt"), student.exported(student.state_dict())
    assert set(ours["pruned_state_dict"]) == {name for name in saved["pruned_state_dict"]
                                              if not name.endswith("freqs_cis") and ".convs.3." not in f".{name}"
                                              and not name.startswith("sam2_convs.")}
    assert (ours["skip_blocks"], ours["mask_blocks"]) == (saved["skip_blocks"], saved["mask_blocks"])


@pytest.mark.parametrize("name", ["rep_vit", "rep_vit_low_rank", "efficient_vit", "tiny_vit", "tiny_vit_low_rank"])
def test_a_saved_student_gives_the_goldens_features(name: str) -> None:
    golden = load_file(STUDENTS / "golden.safetensors")
    network, options = NETWORKS[name.removesuffix("_low_rank")]
    student = Student(network, options, Teacher(SAM3, None), STUDENTS / f"{name}.pt", "full", 2, False).eval()
    with torch.no_grad():
        assert distance(student(golden["pixel_values"])[2], golden[f"{name}.fpn_2"]) < 1e-4


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_of_timms_classifier_fill_the_backbone(name: str, tmp_path: Path) -> None:
    import timm

    network, options = NETWORKS[name]
    import json

    torch.manual_seed(5)
    whole = timm.create_model(network, num_classes=7, **json.loads(options)).eval()
    torch.save(whole.state_dict(), tmp_path / "timm.pt")
    student = Student(network, options, Teacher(SAM3, None), tmp_path / "timm.pt", "adapter", 2, False).eval()
    pixels = torch.randn(1, 3, 112, 112)
    with torch.no_grad():
        features = whole.forward_intermediates(pixels, indices=[0, 1, 2], intermediates_only=True)
        assert all(distance(mine, theirs) < 1e-5 for mine, theirs in zip(student.backbone(pixels), features))


def test_the_detection_head_gives_the_goldens_detections() -> None:
    golden = load_file(SAM3.parent / "golden.safetensors")
    teacher = Teacher(SAM3, None)
    head = DetectionHead(teacher, ["cat", "dog", "red car"], None)
    hidden = head.parts["text_encoder"](input_ids=golden["text.input_ids"], attention_mask=golden["text.attention_mask"])
    head.text, head.mask = head.parts["text_projection"](hidden.last_hidden_state), golden["text.attention_mask"].bool()
    found = head(teacher(golden["pixel_values"])[2], torch.arange(3))
    half = found.boxes[..., 2:] / 2
    corners = torch.cat([found.boxes[..., :2] - half, found.boxes[..., :2] + half], -1)
    assert distance(found.logits, golden["encdec.official.3.logits"]) < 1e-4
    assert distance(found.presence, golden["encdec.official.3.presence"].flatten()) < 1e-4
    assert distance(corners, golden["encdec.official.3.boxes"]) < 1e-4


def test_changes_of_low_rank_are_merged_into_the_weights() -> None:
    network, options = NETWORKS["tiny_vit"]
    student = Student(network, options, Teacher(SAM3, None), None, "lora", 3, False).eval()
    changed = [module for module in student.modules() if isinstance(module, LowRank)]
    assert {type(module.original).__name__ for module in changed} >= {"Linear", "Conv2d"}
    plain = Student(network, options, Teacher(SAM3, None), None, "full", 3, False).eval()
    plain.load_state_dict(merged(student.state_dict()))
    pixels = torch.randn(1, 3, 112, 112)
    with torch.no_grad():
        before = student(pixels)[2]
        for module in changed:
            module.lora_B.normal_(0, 0.3)
        after = student(pixels)[2]
        assert distance(plain(pixels)[2], before) < 1e-5
        assert distance(after, before) > 0.01
        plain.load_state_dict(merged(student.state_dict()))
        assert distance(plain(pixels)[2], after) < 1e-4
    assert add_low_rank(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), 2) == 0
