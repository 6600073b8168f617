"""Runs: resume, several processes, accumulation, and what every phase trains."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import FULL, PRUNED, REP_VIT, SAM3, Distil, command, environment, losses, rows, start

from ocelli_training.__main__ import main
from ocelli_training.distill.checkpoints import read_torch

DETECTION = ["--detection-weight", "0.5", "--classes", "cat", "dog", "red car", "--classes-per-step", "2"]


def test_a_killed_run_continues_at_the_exact_step(images: Path, tmp_path: Path, distil: Distil) -> None:
    options = [*DETECTION, "--steps", "40", "--batch", "3", "--save-every", "4", "--flip", "0.5", "--rate", "1e-3"]
    whole = distil("whole", FULL, *options)
    killed = command(images, tmp_path / "killed", FULL, *options)
    process = start(killed)
    table = tmp_path / "killed" / "losses.csv"
    while not table.exists() or len(table.read_text().splitlines()) < 8:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    step = read_torch(tmp_path / "killed" / "state.pt")["step"]
    assert 4 <= step < 40
    assert main([*killed, "--resume"]) == 0
    assert np.array_equal(losses(rows(tmp_path / "killed")), losses(whole))
    ours, theirs = (read_torch(tmp_path / name / "state.pt")["weights"] for name in ("killed", "whole"))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_a_signal_saves_and_ends_after_the_step(images: Path, tmp_path: Path) -> None:
    options = command(images, tmp_path / "run", PRUNED, "--steps", "100000", "--batch", "1")
    process = start(options)
    table = tmp_path / "run" / "losses.csv"
    while not table.exists() or len(table.read_text().splitlines()) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and "--resume continues" in output
    assert read_torch(tmp_path / "run" / "state.pt")["step"] == int(rows(tmp_path / "run")[-1]["step"])


SHARED = ["--rate", "1e-3", "--steps", "5"]
# Runs of one process with six images at once, and of two with three each.
COMPARED = {"pruned": [*PRUNED, *DETECTION, *SHARED], "batch norms": [*FULL, *DETECTION, *SHARED], "shards": [*PRUNED, *SHARED]}


def turn_back(folder: Path, step: int) -> None:
    """Makes a finished run one that has its last steps before it."""
    state = read_torch(folder / "state.pt")
    torch.save(state | {"step": step}, folder / "turned.pt")
    (folder / "turned.pt").replace(folder / "state.pt")


@pytest.fixture(scope="module")
def pair(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of all compared runs, by two processes that torchrun starts once."""
    folder = tmp_path_factory.mktemp("pair")

    def line(name: str, options: list[str], sharding: str, *more: str) -> str:
        return json.dumps(command(images, folder / name, options, "--batch", "3", "--sharding", sharding, *more)) + "\n"

    text = "".join(line(name, options, "fsdp" if name == "shards" else "ddp") for name, options in COMPARED.items())
    assert main(command(images, folder / "alone", COMPARED["shards"], "--batch", "6")) == 0
    turn_back(folder / "alone", 3)
    (folder / "runs.txt").write_text(text + line("alone", COMPARED["shards"], "fsdp", "--resume"))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(Path(__file__).with_name("pair.py"))]
    found = subprocess.run([sys.executable, *launcher, str(folder / "runs.txt")], env=environment(), capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    return folder


@pytest.mark.parametrize("name", COMPARED)
def test_two_processes_give_the_losses_of_one_with_the_doubled_batch(name: str, pair: Path, tmp_path: Path,
                                                                     distil: Distil) -> None:
    one = losses(distil("one", COMPARED[name], "--batch", "6"))
    assert np.allclose(losses(rows(pair / name)), one, rtol=2e-4)
    assert abs(one[-1, 1] / one[0, 1] - 1) > 0.01, "the losses hardly change, so that the comparison says nothing"
    alone, shared = (read_torch(folder / "state.pt")["weights"] for folder in (tmp_path / "one", pair / name))
    assert alone.keys() == shared.keys()
    # Biases before a batch norm, whose gradient is 0 but for rounding, differ, and means with them; variances do not.
    statistics = [key for key in shared if "running_var" in key]
    assert bool(statistics) == (name == "batch norms")
    assert all(torch.allclose(shared[key], alone[key], rtol=1e-3, atol=1e-4) for key in statistics)


def test_shards_continue_in_one_process_and_the_other_way(images: Path, pair: Path, tmp_path: Path) -> None:
    shutil.copytree(pair / "shards", tmp_path / "shards")
    turn_back(tmp_path / "shards", 3)
    assert main(command(images, tmp_path / "shards", COMPARED["shards"], "--batch", "6", "--resume")) == 0
    # Both had the state after five steps, and took two more steps from the third.
    assert np.allclose(losses(rows(tmp_path / "shards")), losses(rows(pair / "alone")), rtol=2e-4)
    moved = losses(rows(pair / "alone"))[3:, 1] / losses(rows(pair / "shards"))[3:, 1] - 1
    assert (abs(moved) > 1e-3).all()


@pytest.mark.parametrize("phase", [PRUNED, [*FULL, "--running-norms"]], ids=["pruned", "full"])
def test_accumulation_gives_the_losses_of_a_larger_batch(phase: list[str], distil: Distil) -> None:
    one = losses(distil("one", phase, "--batch", "6", "--rate", "1e-3", "--clip", "0.5"))
    parts = losses(distil("parts", phase, "--batch", "2", "--accumulate", "3", "--rate", "1e-3", "--clip", "0.5"))
    assert np.allclose(parts, one, rtol=2e-4)


@pytest.mark.parametrize("phase, trained", [("adapter", False), ("lora", True), ("full", True)])
def test_each_phase_trains_its_part(phase: str, trained: bool, distil: Distil, tmp_path: Path) -> None:
    start_from = tmp_path / "first" / "student.pt"
    distil("first", FULL, "--steps", "1")
    before = read_torch(start_from)["student_state_dict"]
    found = distil("run", ["--phase", phase, *REP_VIT, "--student-weights", str(start_from)], "--steps", "12", "--rate", "1e-3")
    after = read_torch(tmp_path / "run" / "student.pt")["student_state_dict"]
    assert before.keys() == after.keys()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert any(name.startswith("adapters.") for name in changed)
    assert any(name.startswith("backbone.") for name in changed) == trained
    statistics = {name for name in changed if "running_" in name}
    assert bool(statistics) == (phase == "full")
    assert float(found[-1]["loss"]) < 0.9 * float(found[0]["loss"])


@pytest.mark.parametrize("phase", [PRUNED, FULL], ids=["pruned", "full"])
def test_bfloat16_gives_nearly_the_losses_of_float32(phase: list[str], distil: Distil) -> None:
    exact, rough = (losses(distil(kind, phase, *DETECTION, "--precision", kind, "--batch", "3")) for kind in ("fp32", "bf16"))
    assert np.allclose(rough[:, 1], exact[:, 1], rtol=0.15) and not np.array_equal(rough, exact)


def test_levels_of_weight_0_are_left_out(distil: Distil, tmp_path: Path) -> None:
    found = distil("run", PRUNED, "--level-weights", "0", "0", "1")
    assert set(found[0]) == {"step", "loss", "fpn_2", "rate", "seconds"}
    tensors = read_torch(tmp_path / "run" / "pruned.pt")["pruned_state_dict"]
    before = read_torch(SAM3)["detector.backbone.vision_backbone.convs.0.conv_3x3.weight"]
    assert torch.equal(tensors["convs.0.conv_3x3.weight"], before.float())


def test_a_report_of_ocelli_prune_names_the_blocks(distil: Distil, tmp_path: Path) -> None:
    report = tmp_path / "prune.json"
    report.write_text('{"steps": [{"skip_blocks": [], "mask_blocks": []}, {"skip_blocks": [0], "mask_blocks": ["2:attn"]}]}')
    by_report = distil("report", ["--phase", "pruned", "--prune", str(report)], "--steps", "1")
    assert np.array_equal(losses(by_report), losses(distil("lists", PRUNED, "--steps", "1")))


def test_a_run_leaves_its_plot_and_events(distil: Distil, tmp_path: Path, images: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = distil("run", PRUNED, "--tensorboard", "--validation", str(images), "--validation-images", "3", "--save-every", "2")
    assert [bool(row["validation"]) for row in found] == [False, True, False, True]
    assert (tmp_path / "run" / "losses.png").stat().st_size > 5000
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert np.allclose([event.value for event in events.Scalars("loss")], [float(row["loss"]) for row in found])
