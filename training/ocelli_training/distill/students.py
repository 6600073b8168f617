"""Convolutional students: a network of timm with an adapter for each level of the pyramid, as DART's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from .checkpoints import UNUSED, load_weights, read_tensors
from .low_rank import add_low_rank, merged
from .teacher import LEVELS, Teacher

# The networks of timm whose files `ocelli export` reads, by the start of their names.
FAMILIES = ("repvit_", "efficientvit_l", "tiny_vit_")
PHASES = ("adapter", "full", "lora")
# What a classifier has beyond the three stages of a student.
BEYOND = re.compile(r"^(stages[._][3-9]\d*\.|head\.|head_dist\.|norm_head\.|classifier\.)")


class Adapter(nn.Module):
    """The features of a stage → a level of the pyramid: 1×1, bilinear to its side, 3×3."""

    def __init__(self, channels: int, width: int, side: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, 1)
        self.refine = nn.Conv2d(width, width, 3, padding=1)
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        return self.refine(F.interpolate(self.proj(x), size=(self.side, self.side), mode="bilinear", align_corners=False))


def create(name: str, options: str | None) -> nn.Module:
    """A network of timm without its weights, for the first three stages. Raises `InputError` for an unknown one."""
    if not name.startswith(FAMILIES):
        known = ", ".join(f"{family}…" for family in FAMILIES)
        raise InputError(f"student: {name} is not one of {known}, which ocelli export reads")
    try:
        sizes = json.loads(options) if options else {}
        if not isinstance(sizes, dict):
            raise ValueError("expected an object")
    except ValueError as error:
        raise InputError(f"student-options: {options} is no JSON object: {error}") from error
    try:
        network = timm.create_model(name, pretrained=False, features_only=True, out_indices=tuple(range(LEVELS)), **sizes)
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AssertionError) as error:
        raise InputError(f"student: timm {timm.__version__} cannot make {name}: {error}") from error
    for module in network.modules():
        # The same images must give the same features in every run.
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif hasattr(module, "drop_prob"):
            module.drop_prob = 0.0
    return network


def flattened(name: str) -> str:
    """timm's name in a classifier → its name in a network that gives the features of its stages."""
    return re.sub(r"^(stages|stem)\.(?=\d|in_conv|res)", lambda found: f"{found[1]}_", name)


def classifier_tensors(tensors: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The tensors of a file of timm that the network has."""
    own = network.state_dict()
    named = {}
    for name, value in tensors.items():
        new = name if name in own else flattened(name)
        if new in own or not BEYOND.search(name):
            named[new] = value
    return named


class Student(nn.Module):
    """A convolutional backbone and its adapters.

    Phases: `adapter` trains the adapters alone, `full` everything, `lora` the adapters and changes of low rank of the
    backbone. Outside `full` the backbone's batch norms keep their statistics.
    """

    def __init__(self, name: str, options: str | None, teacher: Teacher, start: Path | None, phase: str, rank: int,
                 running_norms: bool) -> None:
        super().__init__()
        self.phase, self.running_norms, self.levels = phase, running_norms, tuple(range(LEVELS))
        self.backbone = create(name, options)
        channels = self.backbone.feature_info.channels()
        self.adapters = nn.ModuleList(Adapter(count, teacher.width, teacher.grid << (LEVELS - 1 - level))
                                      for level, count in enumerate(channels))
        self.has_fresh_adapters = True
        if start is not None:
            self.load(start)
        if phase == "lora":
            self.backbone.requires_grad_(False)
            if not add_low_rank(self.backbone, rank):
                raise InputError(f"student: {name} has no linear layers or 1×1 convolutions, which phase lora changes")
        elif phase == "adapter":
            self.backbone.requires_grad_(False)

    def load(self, path: Path) -> None:
        """Weights of timm for the backbone, or a student that was saved before, with its adapters."""
        tensors = read_tensors(path)
        if any(name.startswith("adapters.") for name in tensors):
            for name in tensors:
                if name.endswith(".original.weight") and any(name.replace("original.weight", f"lora_{part}") not in tensors
                                                             for part in "AB"):
                    raise InputError(f"{path}: {name} has no lora_A and lora_B beside it")
            load_weights(self, {name: value for name, value in merged(tensors).items() if not UNUSED.search(name)}, str(path))
            self.has_fresh_adapters = False
        else:
            load_weights(self.backbone, classifier_tensors(tensors, self.backbone), str(path))

    def train(self, mode: bool = True) -> Student:
        super().train(mode)
        if self.phase != "full":
            self.backbone.eval()
        elif self.running_norms:
            for module in self.backbone.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        return self

    def forward(self, pixels: Tensor) -> list[Tensor | None]:
        found = zip(self.adapters, self.backbone(pixels), strict=True)
        return [adapter(features) if level in self.levels else None for level, (adapter, features) in enumerate(found)]

    def leave_out(self, levels: set[int]) -> None:
        """Neither computes nor trains the adapters of some levels."""
        self.levels = tuple(level for level in self.levels if level not in levels)
        for level in levels:
            self.adapters[level].requires_grad_(False)

    def blocks(self) -> list[nn.Module]:
        """What is worth a shard of its own."""
        return [*self.backbone.children(), *self.adapters]

    def exported(self, weights: dict[str, Tensor]) -> dict[str, object]:
        """A file as DART saves its students, from this module's state; `ocelli export --base` takes it."""
        return {"student_state_dict": {name: value for name, value in merged(weights).items() if not UNUSED.search(name)}}


@torch.no_grad()
def fit_adapters(student: Student, teacher: Teacher, pixels: Tensor) -> None:
    """Scales fresh adapters so that each level begins with the spread of the teacher's on these images."""
    wanted = [level.std() for level in teacher(pixels)]
    was = student.training
    student.eval()
    for adapter, level, goal in zip(student.adapters, student(pixels), wanted):
        factor = goal / level.std().clamp(min=1e-6)
        adapter.refine.weight.mul_(factor)
        adapter.refine.bias.mul_(factor)
    student.train(was)
