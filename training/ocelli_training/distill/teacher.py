"""The teacher: the image backbone of a SAM3 detector, and the sizes that its students share."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers.models.sam3.modeling_sam3 import Sam3VisionModel

from ..errors import InputError
from .checkpoints import Detector, build, load_weights, read_detector

LEVELS = 3


class Vision(nn.Module):
    """A `Sam3VisionModel` that gives the three levels that graphs read, finest first: [B, width, 4P, 4P] to [B, width, P, P].

    A level that is not in `levels` is `None`, and costs nothing.
    """

    def __init__(self, model: Sam3VisionModel) -> None:
        super().__init__()
        self.model = model
        # The fourth one is in no graph.
        model.neck.fpn_layers = nn.ModuleList(model.neck.fpn_layers[:LEVELS])
        self.levels = tuple(range(LEVELS))

    def forward(self, pixels: Tensor) -> list[Tensor | None]:
        tokens = self.model.backbone(pixels).last_hidden_state
        patch = self.model.config.backbone_config.patch_size
        rows, columns = (size // patch for size in pixels.shape[-2:])
        features = tokens.view(tokens.shape[0], rows, columns, -1).permute(0, 3, 1, 2)
        return [layer(features) if level in self.levels else None
                for level, layer in enumerate(self.model.neck.fpn_layers)]

    def leave_out(self, levels: set[int]) -> None:
        """Neither computes nor trains some levels."""
        self.levels = tuple(level for level in self.levels if level not in levels)
        for level in levels:
            self.model.neck.fpn_layers[level].requires_grad_(False)


class Teacher:
    """A frozen image backbone and what belongs to it.

    `side` of the images in pixels, `grid` the coarsest level's side, `width` the channels of every level.
    """

    def __init__(self, path: Path, side: int | None) -> None:
        self.detector: Detector = read_detector(path)
        vision = self.detector.config.vision_config
        trunk = vision.backbone_config
        for name, value in (("image_size", trunk.image_size), ("patch_size", trunk.patch_size)):
            if not isinstance(value, int):
                raise InputError(f"{path}: {name} is {value}: expected one number, for square images")
        side = trunk.image_size if side is None else side
        if side <= 0 or side % trunk.patch_size:
            raise InputError(f"imgsz is {side}: expected a multiple of {trunk.patch_size}, the model's patch size")
        vision = copy.deepcopy(vision)
        vision.backbone_config.image_size = side
        self.side, self.grid, self.width = side, side // trunk.patch_size, vision.fpn_hidden_size
        self.config = vision
        model = build(Sam3VisionModel, vision)
        load_weights(model, self.detector.part("vision_encoder."), self.detector.path)
        self.vision = Vision(model).eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> list[Tensor | None]:
        """The pyramid of images f32 [B, 3, side, side]."""
        return self.vision(pixels)
