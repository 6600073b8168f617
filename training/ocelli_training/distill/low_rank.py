"""Changes of low rank (LoRA, Hu et al., 2021) of linear layers and 1×1 convolutions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LowRank(nn.Module):
    """A frozen layer W with a change B·A of some rank: the output is (W + B·A)·x. It begins as W, because B is 0."""

    def __init__(self, original: nn.Linear | nn.Conv2d, rank: int) -> None:
        super().__init__()
        self.original = original.requires_grad_(False)
        outputs, inputs = original.weight.shape[:2]
        rest = original.weight.shape[2:]
        self.lora_A = nn.Parameter(torch.empty(rank, inputs, *rest))
        self.lora_B = nn.Parameter(torch.zeros(outputs, rank, *rest))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.original, nn.Linear):
            return self.original(x) + F.linear(F.linear(x, self.lora_A), self.lora_B)
        return self.original(x) + F.conv2d(F.conv2d(x, self.lora_A, stride=self.original.stride), self.lora_B)


def takes_low_rank(module: nn.Module) -> bool:
    if isinstance(module, nn.Linear):
        return True
    return (isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.groups == 1
            and module.padding == (0, 0))


def add_low_rank(network: nn.Module, rank: int) -> int:
    """Replaces every such layer of a network; returns their number."""
    places = [(parent, name) for parent in network.modules() for name, module in parent.named_children()
              if takes_low_rank(module)]
    for parent, name in places:
        setattr(parent, name, LowRank(getattr(parent, name), rank))
    return len(places)


def merged(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in which W + B·A stands for `original`, `lora_A` and `lora_B`, so that every reader takes them."""
    out: dict[str, Tensor] = {}
    for name, value in weights.items():
        if name.endswith((".lora_A", ".lora_B")):
            continue
        plain = name.replace(".original.", ".")
        if name.endswith(".original.weight"):
            layer = name.removesuffix(".original.weight")
            a, b = (weights[f"{layer}.lora_{part}"].double().flatten(1) for part in "AB")
            value = (value.double() + (b @ a).view(value.shape)).float()
        out[plain] = value
    return out
