"""What a run leaves on disk: its state, from which it continues at the exact step, and the file for `ocelli export`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from .checkpoints import read_torch

VERSION = 1


def write_atomically(path: Path, content: Any) -> None:
    """`torch.save`, complete or not at all."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def identity(weights: dict[str, Tensor]) -> str:
    """A hash of names, shapes and some values of tensors: enough to tell two checkpoints apart."""
    digest = hashlib.sha256()
    for name, value in sorted(weights.items()):
        digest.update(f"{name} {tuple(value.shape)}".encode())
        flat = value.reshape(-1)
        digest.update(flat[:: max(1, flat.numel() // 64)].float().numpy().tobytes())
    return digest.hexdigest()


def save_state(path: Path, step: int, settings: dict[str, Any], weights: dict, optimizer: dict, scaler: dict) -> None:
    """The complete state after `step` steps."""
    write_atomically(path, {"version": VERSION, "step": step, "settings": settings, "weights": weights, "optimizer": optimizer,
                            "scaler": scaler})


def load_state(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The state that `save_state` wrote for the same settings.

    Raises `InputError` if there is none, if it is corrupt, or if a setting differs.
    """
    if not path.is_file():
        raise InputError(f"resume: {path} does not exist; without --resume a run starts")
    found = read_torch(path)
    if found.get("version") != VERSION or not isinstance(found.get("settings"), dict):
        raise InputError(f"resume: {path} is no state of a distillation of this version")
    for name, value in settings.items():
        was = found["settings"].get(name)
        if was != value:
            raise InputError(f"resume: {name} was {was}, and is {value} now; continue with the same, or name another --output")
    return found
