"""Bad input: one line on stderr, a status other than 0, and no run in the output folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Callable

import pytest
import torch
from conftest import FOLDER, FULL, NETWORKS, PRUNED, SAM3, STUDENTS, Distil, command

from ocelli_training.__main__ import main
from ocelli_training.distill.checkpoints import read_torch
from ocelli_training.distill.processes import first_host, from_slurm

Refusal = Callable[..., str]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str], images: Path, tmp_path: Path) -> Refusal:
    """Runs a distillation that must fail; returns its only line."""

    def run(phase: list[str], *more: str, teacher: Path = SAM3, source: Path = images, status: int = 1,
            output: Path | None = None) -> str:
        folder = output or tmp_path / "refused"
        before = sorted(folder.iterdir()) if folder.exists() else []
        capsys.readouterr()
        try:
            found = main(command(source, folder, phase, *more, teacher=teacher))
        except SystemExit as error:
            found = error.code
        lines = capsys.readouterr().err.splitlines()
        assert found == status and len(lines) == 1 and lines[0].startswith("error: "), (found, lines)
        assert not folder.exists() or sorted(folder.iterdir()) == before
        return lines[0]

    return run


@pytest.mark.parametrize("phase, more, part", [
    (["--phase", "pruned"], [], "phase pruned needs --skip-blocks, --mask-blocks or --prune"),
    (["--phase", "distant"], [], "invalid choice: 'distant'"),
    ([*PRUNED, "--student", "repvit_m0_9"], [], "--student does not belong to phase pruned"),
    ([*FULL, "--skip-blocks", "0"], [], "--skip-blocks does not belong to phase full"),
    (["--phase", "adapter"], [], "phase adapter needs --student"),
    ([*PRUNED, "--prune", "x.json"], [], "--prune names the blocks"),
    ([*PRUNED, "--prune-step", "1"], [], "--prune-step needs --prune"),
    (PRUNED, ["--running-norms"], "--running-norms does not belong to phase pruned"),
    (PRUNED, ["--batch", "0"], "argument --batch: 0: expected at least 1"),
    (PRUNED, ["--flip", "2"], "argument --flip: 2: expected 0 to 1"),
    (PRUNED, ["--rate", "nan"], "argument --rate: nan: expected at least 0"),
    (PRUNED, ["--detection-weight", "1"], "--detection-weight needs --classes"),
    (PRUNED, ["--classes", "cat"], "--classes needs --detection-weight"),
    (PRUNED, ["--precision", "fp16"], "--precision fp16 needs --device cuda"),
    (PRUNED, ["--level-weights", "1", "1", "0"], "the last level, which the encoder reads"),
    (PRUNED, ["--steps", "3", "--epochs", "1"], "not allowed with argument"),
])
def test_options_that_do_not_fit(phase: list[str], more: list[str], part: str, refusal: Refusal) -> None:
    assert part in refusal(phase, *more, status=2)


@pytest.mark.parametrize("phase, more, part", [
    (["--phase", "pruned", "--skip-blocks", "4"], [], "skip-blocks has block 4: the model has blocks 0 to 3"),
    (["--phase", "pruned", "--skip-blocks", "1"], [], "block 1, which attends to the whole image"),
    (["--phase", "pruned", "--skip-blocks", "first"], [], "first is no block"),
    (["--phase", "pruned", "--mask-blocks", "2:head"], [], "2:head is no branch"),
    (["--phase", "pruned", "--skip-blocks", "2", "--mask-blocks", "2:mlp"], [], "skip-blocks removes all of block 2"),
    (["--phase", "pruned", "--prune", "none.json"], [], "none.json does not exist"),
    (["--phase", "full", "--student", "resnet50"], [], "resnet50 is not one of repvit_"),
    (["--phase", "full", "--student", "repvit_m77"], [], "cannot make repvit_m77"),
    (["--phase", "full", "--student", "repvit_m2_3", "--student-options", "[1]"], [], "is no JSON object"),
    (["--phase", "full", "--student", "repvit_m2_3", "--student-options", '{"wide": 3}'], [], "cannot make repvit_m2_3"),
    ([*FULL, "--student-weights", "none.pt"], [], "none.pt does not exist"),
    (PRUNED, ["--imgsz", "100"], "imgsz is 100: expected a multiple of 14"),
    (PRUNED, ["--detection-weight", "1", "--classes", "cat", "--tokenizer", "none.json"], "none.json does not exist"),
    (PRUNED, ["--resume"], "state.pt does not exist; without --resume a run starts"),
    (PRUNED, ["--validation", "none"], "none does not exist"),
])
def test_what_does_not_exist_or_fit_the_model(phase: list[str], more: list[str], part: str, refusal: Refusal) -> None:
    assert part in refusal(phase, *more)


def cut(source: Path, target: Path) -> Path:
    """Half of a file."""
    target.write_bytes(source.read_bytes()[:source.stat().st_size // 2])
    return target


def test_teachers_that_cannot_be_read(tmp_path: Path, refusal: Refusal) -> None:
    assert "none does not exist" in refusal(PRUNED, teacher=tmp_path / "none")
    assert "corrupt" in refusal(PRUNED, teacher=cut(SAM3, tmp_path / "cut.pt"))
    assert "is no detector: its" in refusal(PRUNED, teacher=STUDENTS / "rep_vit.pt")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "config.json cannot be read" in refusal(PRUNED, teacher=empty)
    shutil.copy(FOLDER / "config.json", empty)
    assert "has no weights: expected model.safetensors" in refusal(PRUNED, teacher=empty)
    cut(FOLDER / "model.safetensors", empty / "model.safetensors")
    assert "model.safetensors is corrupt" in refusal(PRUNED, teacher=empty)
    shutil.copy(FOLDER / "model.safetensors", empty)
    config = json.loads((FOLDER / "config.json").read_text())
    config["vision_config"]["backbone_config"]["hidden_size"] *= 2
    (empty / "config.json").write_text(json.dumps(config))
    assert "has shape" in refusal(PRUNED, teacher=empty)
    (empty / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert "model_type is bert" in refusal(PRUNED, teacher=empty)


def test_weights_of_a_detector_with_a_tensor_too_few(tmp_path: Path, refusal: Refusal) -> None:
    tensors = read_torch(SAM3)
    del tensors["detector.backbone.vision_backbone.trunk.blocks.1.norm2.bias"]
    torch.save(tensors, tmp_path / "few.pt")
    assert "tensor backbone.layers.1.layer_norm2.bias is missing" in refusal(PRUNED, teacher=tmp_path / "few.pt")


def test_weights_of_another_student(tmp_path: Path, refusal: Refusal) -> None:
    def full(network: str, weights: Path) -> list[str]:
        name, options = NETWORKS[network]
        return ["--phase", "full", "--student", name, "--student-options", options, "--student-weights", str(weights)]

    saved = read_torch(STUDENTS / "rep_vit.pt")["student_state_dict"]
    assert "is missing" in refusal(full("tiny_vit", STUDENTS / "rep_vit.pt"))
    assert "corrupt" in refusal(full("rep_vit", cut(STUDENTS / "rep_vit.pt", tmp_path / "cut.pt")))
    wide = {name: value.repeat(2, *[1] * (value.ndim - 1)) if name == "adapters.0.proj.weight" else value
            for name, value in saved.items()}
    torch.save(wide, tmp_path / "wide.pt")
    line = refusal(full("rep_vit", tmp_path / "wide.pt"))
    assert "adapters.0.proj.weight has shape [64, 8, 1, 1]: expected [32, 8, 1, 1]" in line
    torch.save(saved | {"backbone.extra": torch.zeros(1)}, tmp_path / "more.pt")
    assert "unknown tensor backbone.extra" in refusal(full("rep_vit", tmp_path / "more.pt"))
    torch.save({"student_state_dict": {name: value for name, value in
                                       read_torch(STUDENTS / "rep_vit_low_rank.pt")["student_state_dict"].items()
                                       if not name.endswith("lora_B")}}, tmp_path / "half.pt")
    assert "has no lora_A and lora_B beside it" in refusal(full("rep_vit", tmp_path / "half.pt"))


def test_images_that_cannot_be_read(tmp_path: Path, images: Path, refusal: Refusal) -> None:
    assert "none does not exist" in refusal(PRUNED, source=tmp_path / "none")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no images" in refusal(PRUNED, source=empty)
    (empty / "a.tar").write_bytes(b"not a tar" * 200)
    assert "a.tar cannot be read as an uncompressed tar file" in refusal(PRUNED, source=empty)
    (empty / "a.tar").unlink()
    cut(images / "0.png", empty / "0.png")
    folder = tmp_path / "run"
    folder.mkdir()
    assert main(command(empty, folder, PRUNED)) == 1
    assert not (folder / "state.pt").exists()


def test_runs_that_cannot_be_continued(tmp_path: Path, distil: Distil, refusal: Refusal) -> None:
    distil("run", PRUNED)
    folder = tmp_path / "run"
    assert "state.pt exists; add --resume to continue" in refusal(PRUNED, output=folder)
    assert "rate was 0.0001, and is 0.01 now" in refusal(PRUNED, "--resume", "--rate", "0.01", output=folder)
    assert "phase was pruned, and is full now" in refusal(FULL, "--resume", output=folder)
    assert "teacher was" in refusal(["--phase", "pruned", "--skip-blocks", "0", "--mask-blocks", "2:attn"], "--resume",
                                    teacher=other_teacher(tmp_path), output=folder)
    state = (folder / "state.pt").read_bytes()
    (folder / "state.pt").write_bytes(state[:len(state) // 3])
    assert "state.pt is corrupt" in refusal(PRUNED, "--resume", output=folder)
    torch.save({"step": 3}, folder / "state.pt")
    assert "is no state of a distillation" in refusal(PRUNED, "--resume", output=folder)


def other_teacher(folder: Path) -> Path:
    tensors = read_torch(SAM3)
    name = "detector.backbone.vision_backbone.trunk.blocks.1.norm2.bias"
    torch.save(tensors | {name: tensors[name] + 1}, folder / "other.pt")
    shutil.copy(SAM3.parent / "tokenizer.json", folder)
    return folder / "other.pt"


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2 and main(["train"]) == 2
    assert [line.split(";")[0] for line in capsys.readouterr().err.splitlines()] == ["error: no command",
                                                                                    "error: unknown command train"]


def test_slurms_variables_become_torchruns() -> None:
    task = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "12034",
            "SLURM_JOB_NODELIST": "gpu[03-05,9],login"}
    assert from_slurm(task) == {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "gpu03", "MASTER_PORT": "29534"}
    assert from_slurm(task | {"RANK": "0"}) == from_slurm({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) == from_slurm({}) == {}
    assert [first_host(nodes) for nodes in ("a1", "a1,b2", "n[7]", "n[01-09]")] == ["a1", "a1", "n7", "n01"]
