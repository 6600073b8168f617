#!/usr/bin/env python3
"""Writes a checkpoint of facebook/sam3's size and layout with random weights, to measure speed and memory.

    python make_checkpoint.py --output DIR                  840 million parameters, float32, 3.4 GB
    python make_checkpoint.py --output DIR --config FILE    another size: keyword arguments of Sam3Config as JSON

Speed does not depend on the values, but overflow and denormals do: weights are normal with a spread of 1/sqrt(inputs),
so that activations stay near one. The file is written tensor by tensor, so memory is that of the largest tensor.
The layout is the released one: `config.json` with the detector under `detector_config`, names prefixed
`detector_model.`, tensors of a tracker beside them. The tokeniser is CLIP's (its merges are fetched once).
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import torch
import transformers
from torch import Tensor
from transformers import Sam3Config, Sam3Model

TOKENIZER_SCRIPT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer" / "make.py"
# The heads' biases are set so that some queries of every class pass the default threshold, as in real use.
PRESENCE_BIAS = 2.0


def shapes(config: Sam3Config) -> dict[str, torch.Size]:
    """Names and shapes of the detector's tensors, without making one."""
    with torch.device("meta"):
        model = Sam3Model(config)
    return {name: value.shape for name, value in model.state_dict().items()}


def draw(name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """One tensor."""
    values = torch.empty(shape, dtype=torch.float32)
    if name == "detr_decoder.presence_head.layer3.bias":
        return values.fill_(PRESENCE_BIAS)
    if name.endswith("bias"):
        return values.normal_(0, 0.02, generator=generator)
    if "norm" in name:
        return values.normal_(1, 0.05, generator=generator)
    if "embed" in name and "projection" not in name and "rpb" not in name and "mask_embedder" not in name:
        return values.normal_(0, 0.02, generator=generator)
    if name == "detr_decoder.reference_points.weight":
        return values.normal_(0, 1, generator=generator)
    inputs = values[0].numel()
    return values.normal_(0, inputs**-0.5, generator=generator)


def write_weights(path: Path, tensors: dict[str, torch.Size], seed: int) -> int:
    """Streams a safetensors file; returns the number of parameters."""
    generator = torch.Generator().manual_seed(seed)
    foreign = {"tracker_model.no_memory_embedding": torch.Size([1, 1, 8]), "tracker_neck.bias": torch.Size([8])}
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    offset = 0
    entries = [(f"detector_model.{name}", name, shape) for name, shape in tensors.items()]
    entries += [(name, name, shape) for name, shape in foreign.items()]
    for stored, _, shape in entries:
        end = offset + 4 * shape.numel()
        header[stored] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, name, shape in entries:
            write_tensor(file, draw(name, shape, generator))
    os.replace(unfinished, path)
    return sum(shape.numel() for shape in tensors.values())


def write_tensor(file: BinaryIO, tensor: Tensor) -> None:
    """The tensor's bytes, little-endian as on every machine this runs on."""
    file.write(memoryview(tensor.numpy().reshape(-1)).cast("B"))


def write_config(path: Path, config: Sam3Config) -> None:
    """The nested config of the released checkpoint, with RoPE's base in its older spelling."""
    detector = json.loads(config.to_json_string(use_diff=False))
    backbone = detector["vision_config"]["backbone_config"]
    backbone["rope_theta"] = backbone.pop("rope_parameters")["rope_theta"]
    document = {"architectures": ["Sam3VideoModel"], "model_type": "sam3_video", "detector_config": detector}
    path.write_text(json.dumps(document, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder to write, created if missing")
    parser.add_argument("--config", type=Path,
                        help="JSON with keyword arguments of Sam3Config (default: the released size)")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json to copy (default: CLIP's, fetched with pip)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    config = Sam3Config(**(json.loads(arguments.config.read_text()) if arguments.config else {}))
    arguments.output.mkdir(parents=True, exist_ok=True)
    count = write_weights(arguments.output / "model.safetensors", shapes(config), arguments.seed)
    write_config(arguments.output / "config.json", config)
    if arguments.tokenizer:
        (arguments.output / "tokenizer.json").write_bytes(arguments.tokenizer.read_bytes())
    else:
        subprocess.run([sys.executable, str(TOKENIZER_SCRIPT), "--merges-only", str(arguments.output)], check=True)
    print(f"{count / 1e6:.1f} million parameters in {arguments.output}")


if __name__ == "__main__":
    main()
