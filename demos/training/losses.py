"""What the training minimises."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from model import Outputs

# How many queries each thing is matched to in all decoder layers but the last.
MATCHES_OF_EARLY_LAYERS = 4
# A token belongs to a thing that covers more than the first share of it, to nothing below the second.
COVERED, BARE = 0.4, 0.1
MASK_SIDE = 64


@dataclass
class Targets:
    """The truth of a batch of R prompts on B pictures.

    `boxes` R tensors [n, 4] cxcywh in 0..1; `masks` R tensors [n, 64, 64], the share of each cell that is covered;
    `coverage` [R, P, P], the share of each token that the prompt's things cover; `token_classes` [B, P, P] i64,
    0 nothing, 1.. the name's index + 1, -100 undecided.
    """

    boxes: list[Tensor]
    masks: list[Tensor]
    coverage: Tensor
    token_classes: Tensor


def corners(boxes: Tensor) -> Tensor:
    """cxcywh to xyxy."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], -1)


def generalised_iou(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """GIoU and IoU of boxes xyxy that broadcast against each other (Rezatofighi et al. 2019)."""
    shared = (torch.min(a[..., 2:], b[..., 2:]) - torch.max(a[..., :2], b[..., :2])).clamp(0).prod(-1)
    area_a, area_b = ((box[..., 2:] - box[..., :2]).clamp(0).prod(-1) for box in (a, b))
    union = area_a + area_b - shared + 1e-7
    hull = (torch.max(a[..., 2:], b[..., 2:]) - torch.min(a[..., :2], b[..., :2])).clamp(0).prod(-1) + 1e-7
    return shared / union - (hull - union) / hull, shared / union


def focal(logits: Tensor, target: Tensor, alpha: float = 0.5, gamma: float = 2.0) -> Tensor:
    """Focal loss per element (Lin et al. 2017), with soft targets."""
    probability = logits.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    agreement = probability * target + (1 - probability) * (1 - target)
    return (alpha * target + (1 - alpha) * (1 - target)) * entropy * (1 - agreement) ** gamma


def match(scores: Tensor, boxes: Tensor, truth: Tensor, copies: int) -> tuple[Tensor, Tensor, Tensor]:
    """Assigns each thing to `copies` queries; returns query indices, thing indices and their IoU."""
    with torch.no_grad():
        giou, iou = generalised_iou(corners(boxes)[:, None], corners(truth)[None])
        cost = -2 * scores[:, None] + 5 * torch.cdist(boxes, truth, 1) - 2 * giou
    queries, things = linear_sum_assignment(cost.repeat(1, copies).numpy())
    queries, things = torch.from_numpy(queries), torch.from_numpy(things % len(truth))
    return queries, things, iou[queries, things]


def token_loss(outputs: Outputs, targets: Targets) -> tuple[Tensor, Tensor]:
    """Dense losses: the 80-way one before fusion, and that plus the yes-or-no one after it."""
    weight = torch.ones(outputs.token_classes.shape[1])
    weight[0] = 0.25
    classes = F.cross_entropy(outputs.token_classes, targets.token_classes, weight=weight, ignore_index=-100)
    wanted = (targets.coverage > COVERED).float()
    decided = ((targets.coverage < BARE) | (targets.coverage > COVERED)).float()
    return classes, classes + (focal(outputs.token_match, wanted) * decided).sum() / (wanted.sum() + 10)


def mask_loss(outputs: Outputs, targets: Targets, rows: Tensor, queries: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropy and Dice of the matched instance masks, cross-entropy of the semantic one."""
    predicted = outputs.masks.pred_masks[rows, queries]
    share, flat = predicted.sigmoid().flatten(1), truth.flatten(1)
    dice = 1 - (2 * (share * flat).sum(1) + 1) / (share.sum(1) + flat.sum(1) + 1)
    union = torch.stack([masks.amax(0) if len(masks) else torch.zeros(MASK_SIDE, MASK_SIDE) for masks in targets.masks])
    semantic = F.binary_cross_entropy_with_logits(outputs.masks.semantic_seg.squeeze(1), union)
    return 5 * F.binary_cross_entropy_with_logits(predicted, truth) + dice.mean() + semantic


def total_loss(outputs: Outputs, targets: Targets) -> tuple[Tensor, dict[str, float]]:
    """The sum that is minimised, and its parts for the progress line.

    Presence and classification count in every decoder layer; early layers match each thing to several queries, the
    last one to one, with the IoU as the target score, so that the score says how good the box is.
    """
    layers, rows = outputs.boxes.shape[:2]
    classes, dense = token_loss(outputs, targets)
    present = torch.tensor([float(len(boxes) > 0) for boxes in targets.boxes])
    presence = sum(F.binary_cross_entropy_with_logits(layer.squeeze(-1), present)
                   for layer in outputs.presence) / layers
    zero = dense.new_zeros(())
    score, distance, overlap, mask = zero, zero, zero, zero
    last_iou = torch.zeros(0)
    for layer in range(layers):
        last = layer == layers - 1
        probabilities = outputs.logits[layer].detach().sigmoid()
        wanted = torch.zeros_like(outputs.logits[layer])
        found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for row, truth in enumerate(targets.boxes):
            if not len(truth):
                continue
            queries, things, iou = match(probabilities[row], outputs.boxes[layer, row].detach(), truth,
                                         1 if last else MATCHES_OF_EARLY_LAYERS)
            wanted[row, queries] = iou.clamp(0.2, 1) if last else 1.0
            found.append((torch.full_like(queries, row), queries, truth[things], targets.masks[row][things]))
        # A prompt for something absent counts a tenth: presence already says no.
        emphasis = torch.where(present > 0, 1.0, 0.1)[:, None]
        matched = sum(len(queries) for _, queries, _, _ in found)
        score = score + (focal(outputs.logits[layer], wanted) * emphasis).sum() / max(1, matched)
        if not found:
            continue
        row, query, truth, truth_masks = (torch.cat(parts) for parts in zip(*found))
        boxes = outputs.boxes[layer][row, query]
        giou, iou = generalised_iou(corners(boxes), corners(truth))
        distance = distance + (boxes - truth).abs().sum() / matched
        overlap = overlap + (1 - giou).sum() / matched
        if last:
            last_iou = iou.detach()
            if outputs.masks is not None:
                mask = mask_loss(outputs, targets, row, query, truth_masks)
    score, distance, overlap = score / layers, distance / layers, overlap / layers
    loss = 3 * dense + presence + 4 * score + 5 * distance + 2 * overlap + mask
    foreground = targets.token_classes > 0
    parts = {
        "loss": loss, "token_classes": classes, "presence": presence, "score": score, "box": distance,
        "giou": overlap, "mask": mask,
        "token_accuracy": (outputs.token_classes.argmax(1) == targets.token_classes)[foreground].float().mean(),
        "presence_accuracy": ((outputs.presence[-1].squeeze(-1) > 0) == (present > 0)).float().mean(),
        "iou": last_iou.mean() if len(last_iou) else zero,
    }
    return loss, {name: float(value.detach()) for name, value in parts.items()}
