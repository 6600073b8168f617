"""What is minimised. Every loss is a mean over images, so that it does not depend on how images are spread over batches."""

from __future__ import annotations

from typing import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .detection import Decoded

# Weights of the pyramid's levels, finest first, as in DART: the encoder reads the last one.
LEVEL_WEIGHTS = (0.15, 0.2, 0.65)
# A class that the teacher does not find counts this much of one that it finds.
LEAST_EMPHASIS = 0.1


def feature_losses(student: Sequence[Tensor | None], teacher: Sequence[Tensor | None]) -> dict[int, Tensor]:
    """The mean squared error of each level [B, C, h, w] that both have, in f32."""
    pairs = enumerate(zip(student, teacher, strict=True))
    return {level: F.mse_loss(mine.float(), theirs.float()) for level, (mine, theirs) in pairs
            if mine is not None and theirs is not None}


def weighted(levels: dict[int, Tensor], weights: Sequence[float]) -> Tensor:
    return torch.stack([weights[level] * value for level, value in levels.items()]).sum()


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """Binary Kullback-Leibler divergence from the probabilities of `target` logits: 0 where both are equal."""
    wanted = target.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(target, wanted, reduction="none")
    return F.binary_cross_entropy_with_logits(logits, wanted, reduction="none") - entropy


def corners(boxes: Tensor) -> Tensor:
    """cxcywh → xyxy."""
    half = boxes[..., 2:] / 2
    return torch.cat([boxes[..., :2] - half, boxes[..., :2] + half], -1)


def generalised_iou(a: Tensor, b: Tensor) -> Tensor:
    """GIoU of pairs of boxes xyxy [..., 4] (Rezatofighi et al., 2019)."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = [(box[..., 2:] - box[..., :2]).clamp(min=0).prod(-1) for box in (a, b)]
    union = areas[0] + areas[1] - shared
    hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
    return shared / union.clamp(min=1e-7) - (hull - union) / hull.clamp(min=1e-7)


def detection_losses(student: Decoded, teacher: Decoded) -> dict[str, Tensor]:
    """How far the detections from the student's features are from those from the teacher's; means over rows.

    A row is an image and a class. Both go through the same decoder, so that query q of the one is query q of the other and
    nothing needs to be matched. Boxes count by the teacher's score.
    """
    presence = divergence(student.presence, teacher.presence).mean()
    found = teacher.presence.sigmoid()
    emphasis = LEAST_EMPHASIS + (1 - LEAST_EMPHASIS) * found
    score = (divergence(student.logits, teacher.logits).sum(1) * emphasis).mean()
    weight = teacher.logits.sigmoid() * found[:, None]
    total = weight.sum(1) + 1
    distance = ((student.boxes - teacher.boxes).abs().sum(-1) * weight).sum(1) / total
    overlap = generalised_iou(corners(student.boxes), corners(teacher.boxes))
    return {"presence": presence, "score": score, "box": distance.mean(),
            "giou": (((1 - overlap) * weight).sum(1) / total).mean()}


# Weights of the parts of the detection loss among each other.
DETECTION_WEIGHTS = {"presence": 1.0, "score": 1.0, "box": 5.0, "giou": 2.0}


def total_detection_loss(losses: dict[str, Tensor]) -> Tensor:
    return torch.stack([DETECTION_WEIGHTS[name] * value for name, value in losses.items()]).sum()
