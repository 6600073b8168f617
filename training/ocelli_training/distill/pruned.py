"""A trunk without some of its blocks and branches, which learns the features that it had with them."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import InputError
from .checkpoints import read_json
from .names import to_backbone_file
from .teacher import Teacher, Vision


@dataclass(frozen=True)
class Pruning:
    """Blocks that are removed, and branches (block, "attn" or "mlp") that are removed besides."""

    skip: tuple[int, ...]
    mask: tuple[tuple[int, str], ...]

    @staticmethod
    def of(skip: str, mask: str) -> Pruning:
        """From lists as `ocelli export` takes them: "5,10" and "25:attn,28:mlp"."""
        blocks = [part.strip() for part in skip.split(",") if part.strip()]
        for part in blocks:
            if not part.isdecimal():
                raise InputError(f"skip-blocks: {part} is no block: expected numbers, such as 5,10")
        branches = [part.strip() for part in mask.split(",") if part.strip()]
        for part in branches:
            if not re.fullmatch(r"\d+:(attn|mlp)", part):
                raise InputError(f"mask-blocks: {part} is no branch: expected BLOCK:attn or BLOCK:mlp, such as 25:attn")
        pairs = (part.split(":") for part in branches)
        return Pruning(tuple(sorted({int(part) for part in blocks})),
                       tuple(sorted({(int(block), branch) for block, branch in pairs})))

    @staticmethod
    def of_report(path: Path, step: int | None) -> Pruning:
        """From a report of `ocelli prune`: its last step, or another one; step 0 is the whole trunk."""
        if not path.is_file():
            raise InputError(f"prune: {path} does not exist")
        steps = read_json(path).get("steps")
        if not isinstance(steps, list) or not steps:
            raise InputError(f"prune: {path} is no report of ocelli prune: it has no steps")
        if step is not None and not 0 <= step < len(steps):
            raise InputError(f"prune-step is {step}: {path} has steps 0 to {len(steps) - 1}")
        chosen = steps[-1 if step is None else step]
        try:
            return Pruning.of(",".join(map(str, chosen["skip_blocks"])), ",".join(chosen["mask_blocks"]))
        except (KeyError, TypeError) as error:
            raise InputError(f"prune: {path} is no report of ocelli prune: its steps have no lists of blocks") from error

    def check(self, layers: int, global_blocks: list[int]) -> None:
        """Raises `InputError` for blocks that do not exist or must stay, as `ocelli export` refuses them."""
        if not self.skip and not self.mask:
            raise InputError("nothing is pruned: expected --skip-blocks, --mask-blocks or --prune with at least one block")
        named = [("skip-blocks", block) for block in self.skip] + [("mask-blocks", block) for block, _ in self.mask]
        for option, block in named:
            if block >= layers:
                raise InputError(f"{option} has block {block}: the model has blocks 0 to {layers - 1}")
            if block in global_blocks:
                raise InputError(f"{option} has block {block}, which attends to the whole image: the global blocks "
                                 f"{global_blocks} must stay")
        for block, branch in self.mask:
            if block in self.skip:
                raise InputError(f"mask-blocks has {block}:{branch}, but skip-blocks removes all of block {block}")

    def masks(self) -> list[str]:
        """As in files: "25:attn"."""
        return [f"{block}:{branch}" for block, branch in self.mask]


class NoAttention(nn.Module):
    """An attention branch that adds nothing."""

    def forward(self, hidden_states: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        return torch.zeros_like(hidden_states), None


class NoPerceptron(nn.Module):
    """A feed-forward branch that adds nothing."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        return torch.zeros_like(hidden_states)


class NoBlock(nn.Module):
    """A block that is skipped."""

    def forward(self, hidden_states: Tensor, **_: object) -> Tensor:
        return hidden_states


class PrunedStudent(nn.Module):
    """A copy of the teacher without its pruned parts; all that is left is trained."""

    def __init__(self, teacher: Teacher, pruning: Pruning) -> None:
        super().__init__()
        trunk = teacher.config.backbone_config
        pruning.check(trunk.num_hidden_layers, sorted(trunk.global_attn_indexes))
        self.pruning = pruning
        self.vision: Vision = copy.deepcopy(teacher.vision).requires_grad_(True)
        layers = self.vision.model.backbone.layers
        for block in pruning.skip:
            layers[block] = NoBlock()
        for block, branch in pruning.mask:
            if branch == "attn":
                layers[block].layer_norm1, layers[block].attention = nn.Identity(), NoAttention()
            else:
                layers[block].layer_norm2, layers[block].mlp = nn.Identity(), NoPerceptron()
        kept = set(self.vision.model.state_dict())
        whole = to_backbone_file(teacher.vision.model.state_dict())
        self.removed = sorted(set(whole) - set(to_backbone_file({name: value for name, value in
                                                                  teacher.vision.model.state_dict().items() if name in kept})))

    def forward(self, pixels: Tensor) -> list[Tensor | None]:
        return self.vision(pixels)

    def leave_out(self, levels: set[int]) -> None:
        self.vision.leave_out(levels)

    def blocks(self) -> list[nn.Module]:
        """What is worth a shard of its own."""
        return [layer for layer in self.vision.model.backbone.layers if not isinstance(layer, NoBlock)]

    def exported(self, weights: dict[str, Tensor]) -> dict[str, object]:
        """A file as DART's pruning saves it, from this module's state; `ocelli export --base` takes it."""
        prefix = "vision.model."
        tensors = to_backbone_file({name.removeprefix(prefix): value for name, value in weights.items()})
        return {"pruned_state_dict": tensors, "skip_blocks": list(self.pruning.skip), "mask_blocks": self.pruning.masks(),
                "removed_keys": self.removed}
