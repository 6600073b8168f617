"""Reads checkpoints: a detector in a Hugging Face folder or as Meta's `sam3.pt`, and dictionaries of tensors in any file."""

from __future__ import annotations

import json
import pickle
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import Sam3Config
from transformers.initialization import no_init_weights

from ..errors import InputError
from . import sizes
from .names import to_transformers

# Dictionaries that training programs put around the tensors.
WRAPPERS = ("model", "state_dict", "model_state_dict", "student_state_dict", "pruned_state_dict")
PREFIX = "detector_model."
# Tensors that no part of a detector needs: counters, tables that are computed, point prompts.
UNUSED = re.compile(r"\.num_batches_tracked$|\.position_ids$|\.rotary_emb\.inv_freq$|\.freqs_cis(_real|_imag)?$|"
                    r"^geometry_encoder\.points_|\.attention_bias_idxs$")
# The fourth level of the neck is in no graph, and SAM 3.1 does not have it.
FOURTH_LEVEL = re.compile(r"(^|\.)neck\.fpn_layers\.3\.")


@dataclass
class Detector:
    """A checkpoint: its configuration, its tensors by their names in `transformers`, and where a tokeniser may be."""

    config: Sam3Config
    weights: dict[str, Tensor]
    folder: Path
    path: str

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors below a prefix, without it."""
        return {name.removeprefix(prefix): value for name, value in self.weights.items() if name.startswith(prefix)}


def read_torch(path: Path) -> dict[str, Any]:
    """The content of a `.pt` file; nothing in it is executed. Raises `InputError` if it cannot be read."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{path} is corrupt, or holds more than tensors and plain values: {reason}") from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        raise InputError(f"{path} is corrupt or no file of torch.save: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} holds a {type(found).__name__}: expected a dictionary of tensors")
    return found


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file. Raises `InputError` if it cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, struct.error) as error:
        raise InputError(f"{path} is corrupt or no safetensors file: {error}") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of either kind, without what training programs put around them."""
    if not path.is_file():
        raise InputError(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    found: dict[str, Any] = read_safetensors(path) if path.suffix == ".safetensors" else read_torch(path)
    for wrapper in WRAPPERS:
        if isinstance(found.get(wrapper), dict):
            found = found[wrapper]
            break
    return {name.removeprefix("module.").replace("_orig_mod.", ""): value for name, value in found.items()
            if isinstance(value, Tensor)}


def read_json(path: Path) -> dict:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} is no JSON object")
    return found


def read_folder(folder: Path) -> Detector:
    """A Hugging Face folder: `config.json` and `model.safetensors`, or its shards."""
    config = read_json(folder / "config.json")
    config = config.get("detector_config") or config
    if config.get("model_type", "sam3") not in ("sam3", "sam3_video"):
        raise InputError(f"{folder / 'config.json'}: model_type is {config['model_type']}: expected sam3 or sam3_video")
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        files = [whole]
    elif index.is_file():
        files = [folder / name for name in sorted(set(read_json(index).get("weight_map", {}).values()))]
    else:
        raise InputError(f"{folder} has no weights: expected model.safetensors, or its shards with model.safetensors.index.json")
    weights: dict[str, Tensor] = {}
    for file in files:
        weights |= read_tensors(file)
    if any(name.startswith(PREFIX) for name in weights):
        weights = {name.removeprefix(PREFIX): value for name, value in weights.items() if name.startswith(PREFIX)}
    try:
        parsed = Sam3Config(**{key: value for key, value in config.items() if key != "model_type"})
    except Exception as error:
        # Whatever a configuration of strict types raises; the file is the cause.
        raise InputError(f"{folder / 'config.json'} is no configuration of SAM3: {str(error).splitlines()[0]}") from error
    return Detector(parsed, weights, folder, str(folder))


def read_meta(path: Path) -> Detector:
    """A file in Meta's names, with or without `detector.`: `sam3.pt`, a fine-tune, a mirror."""
    found = {name.replace("sam3_model.", "detector.", 1) if name.startswith("sam3_model.") else name: value
             for name, value in read_tensors(path).items()}
    if any(name.startswith("detector.") for name in found):
        found = {name.removeprefix("detector."): value for name, value in found.items() if name.startswith("detector.")}
    if not any(name.startswith("backbone.vision_backbone.trunk.blocks.") for name in found):
        first = next(iter(found), "nothing")
        raise InputError(f"{path} is no detector: its {len(found)} tensors begin with {first}; expected SAM3 in Meta's names "
                         "(detector.backbone.…), or a Hugging Face folder")
    table = re.compile(r"^backbone\.vision_backbone\.trunk\.blocks\.(\d+)\.attn\.freqs_cis$")
    tables = {int(match[1]): tuple(value.shape) for name, value in found.items() if (match := table.match(name))}
    weights = to_transformers({name: value for name, value in found.items() if not UNUSED.search(name)})
    return Detector(sizes.configuration(weights, tables, str(path)), weights, path.parent, str(path))


def read_detector(path: Path) -> Detector:
    """A detector from a folder or a file. Raises `InputError`, as one line, for whatever is wrong with it."""
    if not path.exists():
        raise InputError(f"teacher: {path} does not exist")
    return read_folder(path) if path.is_dir() else read_meta(path)


def load_weights(module: nn.Module, weights: dict[str, Tensor], path: str, optional: re.Pattern = FOURTH_LEVEL) -> None:
    """Copies tensors into a module and checks that all are there, in their shapes, and no others.

    Raises `InputError` with the first tensor that is missing, unknown or of another shape. Those that `optional` matches may
    be missing.
    """
    own = {name: value for name, value in module.state_dict().items() if not UNUSED.search(name)}
    for name, value in own.items():
        if name not in weights:
            if not optional.search(name):
                raise InputError(f"{path}: tensor {name} is missing")
        elif weights[name].shape != value.shape:
            raise InputError(f"{path}: tensor {name} has shape {list(weights[name].shape)}: expected {list(value.shape)}")
        elif not weights[name].is_floating_point():
            raise InputError(f"{path}: tensor {name} holds {weights[name].dtype}: expected floating-point numbers")
    for name in weights:
        if name not in own and not UNUSED.search(name):
            raise InputError(f"{path}: unknown tensor {name}")
    with torch.no_grad():
        for name, value in own.items():
            if name in weights:
                value.copy_(weights[name])


def build(make: Any, *arguments: Any) -> nn.Module:
    """A module whose weights are loaded next: nothing is drawn for them."""
    with no_init_weights():
        return make(*arguments)
