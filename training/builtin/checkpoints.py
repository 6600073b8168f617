"""The state of a training run on disk, written atomically.

`checkpoint.pt` is exact. A portable checkpoint has a quarter of the size, in files below 16 MB, for machines that
return little data: weights in f16, the second moments of the optimiser as 8-bit logarithms, no first moments (they
decay within twenty steps anyway) and no average (it restarts from the weights).
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

WEIGHTS, MOMENTS, STATE, CURVES = "weights.safetensors", "moments.safetensors", "state.json", "curves.csv"
# Eight bits for powers of two from 2^-48 up: a fifth of an octave each, which is 7 % at the most.
LOWEST_POWER, STEPS_OF_POWER = -48.0, 5.0


def write_folder(target: Path, write) -> None:
    """Lets `write` fill a temporary folder, then replaces `target` with it."""
    unfinished, former = target.with_name(target.name + ".tmp"), target.with_name(target.name + ".old")
    for leftover in (unfinished, former):
        shutil.rmtree(leftover, ignore_errors=True)
    unfinished.mkdir(parents=True)
    write(unfinished)
    if target.exists():
        os.replace(target, former)
    os.replace(unfinished, target)
    shutil.rmtree(former, ignore_errors=True)


def save_whole(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, Tensor],
               state: dict) -> None:
    """Writes to a temporary file, then renames it: an interruption leaves the previous file intact."""
    unfinished = path.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "average": average, "state": state},
               unfinished)
    os.replace(unfinished, path)


def load_whole(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer,
               device: torch.device) -> tuple[dict, dict]:
    """Loads model and optimiser; returns the average and the state."""
    saved = torch.load(path, weights_only=True, map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["average"], saved["state"]


def pack(moment: Tensor) -> Tensor:
    """Positive numbers in eight bits; 0 stays 0."""
    power = torch.log2(moment.clamp(min=2.0 ** LOWEST_POWER)) - LOWEST_POWER
    return torch.where(moment > 0, (power * STEPS_OF_POWER).round().clamp(1, 255), 0).to(torch.uint8)


def unpack(packed: Tensor) -> Tensor:
    """Decodes the numbers, within 7 %."""
    return torch.where(packed > 0, torch.exp2(packed.float() / STEPS_OF_POWER + LOWEST_POWER), 0)


def save_portable(target: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict, curves: Path) -> None:
    """Writes a portable checkpoint, with the curves so far, if any."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    moments, steps = {}, 0.0
    for parameter, entry in optimizer.state.items():
        moments[names[id(parameter)]] = pack(entry["exp_avg_sq"]).cpu()
        steps = float(entry["step"])

    def write(folder: Path) -> None:
        weights = {name: value.half().cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(weights, folder / WEIGHTS)
        save_file(moments, folder / MOMENTS)
        (folder / STATE).write_text(json.dumps(state | {"optimizer_steps": steps}) + "\n")
        if curves.exists():
            shutil.copy(curves, folder / CURVES)

    write_folder(target, write)


def load_portable(source: Path, model: nn.Module, optimizer: torch.optim.Optimizer, curves: Path) -> dict:
    """Loads model, optimiser and curves; returns the state."""
    if (source / CURVES).exists():
        shutil.copy(source / CURVES, curves)
    device = next(model.parameters()).device
    model.load_state_dict(load_file(source / WEIGHTS))
    moments, state = load_file(source / MOMENTS), json.loads((source / STATE).read_text())
    steps = state.pop("optimizer_steps")
    for name, parameter in model.named_parameters():
        if name in moments:
            optimizer.state[parameter] = {
                "step": torch.tensor(steps, device=device), "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": unpack(moments[name].to(device)),
            }
    return state
