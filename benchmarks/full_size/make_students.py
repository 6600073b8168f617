#!/usr/bin/env python3
"""Writes students of the released sizes with random weights: DART's, and EfficientSAM3's of size M.

    python make_students.py --base DIR --output DIR2                      all of them, in 16 bits, 2.3 GB
    python make_students.py --base DIR --output DIR2 --only dart_rep_vit  one; --reference adds what torch computes

`DIR` is a folder of make_checkpoint.py. DART's files have the image backbone only; EfficientSAM3's have the rest of `DIR`, with
its own text encoder. Needs timm, and takes networks and names from tests/golden/checkpoints/make_students.py. A reference
has the image in `pixel_values` and the pyramid in `fpn_0`, `fpn_1` and `fpn_2`.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import Sam3Config
from transformers.models.sam3.modeling_sam3 import Sam3VisionNeck

GOLDENS = Path(__file__).resolve().parents[2] / "tests" / "golden" / "checkpoints"
spec = importlib.util.spec_from_file_location("students", GOLDENS / "make_students.py")
students = importlib.util.module_from_spec(spec)
spec.loader.exec_module(students)
students.GRID = 72

DART = {
    "dart_rep_vit_m2_3": "repvit_m2_3", "dart_efficient_vit_l1": "efficientvit_l1",
    "dart_efficient_vit_l2": "efficientvit_l2", "dart_tiny_vit_21m": "tiny_vit_21m_224",
}
EFFICIENT = {
    "efficient_rep_vit_m": "repvit_m1_1", "efficient_efficient_vit_m": "efficientvit_b1",
    "efficient_tiny_vit_m": "tiny_vit_11m_224", "efficient_rep_vit_s": "repvit_m0_9",
    "efficient_efficient_vit_s": "efficientvit_b0", "efficient_tiny_vit_s": "tiny_vit_5m_224",
    "efficient_rep_vit_l": "repvit_m2_3", "efficient_efficient_vit_l": "efficientvit_b2",
    "efficient_tiny_vit_l": "tiny_vit_21m_224",
}
MEDIUM = [name for name in EFFICIENT if name.endswith("_m")]


def base_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of the base without its vision transformer, in 16 bits."""
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        names = [name for name in file.keys() if name.startswith("detector_model.")]
        return {name.removeprefix("detector_model."): file.get_tensor(name).half() for name in names
                if ".vision_encoder.backbone." not in name}


def image(side: int) -> Tensor:
    """Something with low and high frequencies."""
    generator = torch.Generator().manual_seed(7)
    coarse = F.interpolate(torch.rand(1, 3, 24, 24, generator=generator), size=(side, side), mode="bicubic")
    return (coarse * 2 - 1 + torch.rand(1, 3, side, side, generator=generator) * 0.2).clamp(-1, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, required=True, help="folder of make_checkpoint.py")
    parser.add_argument("--output", type=Path, required=True, help="folder to write, created if missing")
    parser.add_argument("--only", choices=DART | EFFICIENT, nargs="+", default=[*DART, *MEDIUM])
    parser.add_argument("--reference", action="store_true", help="write what torch computes as well")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    torch.set_grad_enabled(False)
    small = F.interpolate(image(1008), size=(224, 224), mode="area")
    for index, name in enumerate(arguments.only):
        generator = torch.Generator().manual_seed(index)
        path = arguments.output / f"{name}.pt"
        if name in DART:
            network = students.Student(DART[name], {}, 256).eval()
            students.draw(network, small, generator)
            students.round_to_stored(network)
            torch.save({"student_state_dict": students.stored(network.state_dict())}, path)
            pyramid = network
        else:
            network = students.Trunk(EFFICIENT[name], {}, 1024).eval()
            students.draw(network, small, generator)
            students.round_to_stored(network)
            base = base_weights(arguments.base)
            named = students.checkpoints.to_meta(base)
            named |= students.trunk_names(EFFICIENT[name], students.stored(network.state_dict()))
            torch.save({"model": {f"detector.{key}": value for key, value in named.items()}}, path)
            neck = Sam3VisionNeck(Sam3Config().vision_config).eval()
            inside = "vision_encoder.neck."
            neck.load_state_dict({key.removeprefix(inside): value.float() for key, value in base.items() if key.startswith(inside)})
            del base, named

            def pyramid(pixels: Tensor) -> list[Tensor]:
                features = network(pixels).last_hidden_state
                return neck(features.transpose(1, 2).reshape(1, 1024, 72, 72))[0][:3]

        count = sum(value.numel() for value in network.parameters())
        print(f"{path}: {count / 1e6:.1f} million parameters of the image backbone, timm {timm.__version__}", flush=True)
        if arguments.reference:
            pixels = image(1008)
            levels = {f"fpn_{i}": level.contiguous() for i, level in enumerate(pyramid(pixels))}
            save_file({"pixel_values": pixels.contiguous()} | levels, arguments.output / f"{name}.reference.safetensors")


if __name__ == "__main__":
    main()
