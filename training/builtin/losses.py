"""The losses. They are dense over queries and slots, to avoid synchronisation with the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from batches import BARE, COVERED, Targets
from matching import assign_one, assign_several, corners, costs, generalised_iou
from model import Outputs

# The number of queries that each object is matched to in all decoder layers but the last.
MATCHES_OF_EARLY_LAYERS = 4


@dataclass
class Matched:
    """The match of each query in each layer: `thing` [L, R, Q] (-1: unmatched), its box `truth` and the `iou`."""

    thing: Tensor
    truth: Tensor
    iou: Tensor
    giou: Tensor


def focal(logits: Tensor, target: Tensor, alpha: float = 0.5, gamma: float = 2.0) -> Tensor:
    """Focal loss per element (Lin et al. 2017), with soft targets."""
    probability = logits.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    agreement = probability * target + (1 - probability) * (1 - target)
    return (alpha * target + (1 - alpha) * (1 - target)) * entropy * (1 - agreement) ** gamma


def match(outputs: Outputs, targets: Targets) -> Matched:
    """Matches several queries to one object in early layers, one to one in the last."""
    layers = outputs.boxes.shape[0]
    cost = costs(outputs.logits.detach(), outputs.boxes.detach(), targets.boxes[None])
    valid = targets.valid[None].expand(layers, -1, -1)
    early = assign_several(cost[:-1], valid[:-1], MATCHES_OF_EARLY_LAYERS)
    thing = torch.cat([early, assign_one(cost[-1], targets.valid)[None]])
    place = thing.clamp(min=0)[..., None].expand(-1, -1, -1, 4)
    truth = targets.boxes[None].expand(layers, -1, -1, -1).gather(2, place)
    giou, iou = generalised_iou(corners(outputs.boxes), corners(truth))
    return Matched(thing, truth, iou, giou)


def token_loss(outputs: Outputs, targets: Targets) -> tuple[Tensor, Tensor]:
    """Dense losses: the class of a token before fusion; with the binary one after fusion added."""
    weight = torch.ones(outputs.token_classes.shape[1], device=outputs.token_classes.device)
    weight[:1] = 0.25
    classes = F.cross_entropy(outputs.token_classes, targets.token_classes, weight=weight, ignore_index=-100)
    wanted = (targets.coverage > COVERED).float()
    decided = ((targets.coverage < BARE) | (targets.coverage > COVERED)).float()
    return classes, classes + (focal(outputs.token_match, wanted) * decided).sum() / (wanted.sum() + 10)


def cell_loss(outputs: Outputs, targets: Targets) -> Tensor:
    """The class of every mask cell, from the features of the mask head, so that thin parts count."""
    weight = torch.ones(outputs.cell_classes.shape[1], device=outputs.cell_classes.device)
    weight[:1] = 0.25
    return F.cross_entropy(outputs.cell_classes, targets.cell_classes, weight=weight)


def final_score_loss(outputs: Outputs, quality: Tensor) -> Tensor:
    """Cross-entropy of the reported score, the product of query and presence, with the IoU as its target.

    Summed over queries, with absent names at full weight, so that scores are calibrated when all names are prompted at
    once.
    """
    shown = (F.logsigmoid(outputs.logits[-1]) + F.logsigmoid(outputs.presence[-1])).exp().clamp(1e-6, 1 - 1e-6)
    distance = (quality - shown).abs()
    return (distance ** 2 * F.binary_cross_entropy(shown, quality, reduction="none")).sum()


def mask_loss(outputs: Outputs, targets: Targets, masks: Tensor, semantic: Tensor, has_query: Tensor) -> Tensor:
    """Cross-entropy and Dice of instance masks [M, N, h, w], cross-entropy of the semantic one [M, 1, h, w]."""
    truth, weight = targets.masks, has_query.float()
    count = weight.sum().clamp(min=1)
    share = masks.sigmoid().flatten(2)
    flat = truth.flatten(2)
    dice = 1 - (2 * (share * flat).sum(2) + 1) / (share.sum(2) + flat.sum(2) + 1)
    entropy = F.binary_cross_entropy_with_logits(masks, truth, reduction="none").flatten(2)
    # Half the weight is on the cells in and around the object, which are few for a small object, and on other objects
    # of the same name, which masks are most easily extended to.
    near = torch.maximum(F.max_pool2d(truth, 5, 1, 2), truth.amax(1, keepdim=True)).ceil().flatten(2)
    close = (entropy * near).sum(2) / near.sum(2).clamp(min=1)
    instance = (weight * (3 * entropy.mean(2) + 0.7 * close + 1.5 * dice)).sum() / count
    whole = F.binary_cross_entropy_with_logits(semantic.squeeze(1), truth.sum(1).clamp(max=1))
    return instance + whole


def query_of_thing(thing: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """The query of each object [M, N] and whether it has one, from the object of each query [M, Q]."""
    held = thing[:, :, None] == torch.arange(places, device=thing.device)
    return held.int().argmax(1), held.any(1)


def total_loss(outputs: Outputs, targets: Targets, matched: Matched, mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The total loss and its parts, on the device, for the progress line.

    Presence and classification count in every decoder layer; the last layer's target score is the IoU, so that the
    score predicts the quality of the box.
    """
    layers = outputs.boxes.shape[0]
    classes, dense = token_loss(outputs, targets)
    cells = cell_loss(outputs, targets)
    present = targets.valid.any(1).float()
    presence = F.binary_cross_entropy_with_logits(outputs.presence.squeeze(-1), present[None].expand(layers, -1))
    has = (matched.thing >= 0).float()
    count = has.sum((1, 2)).clamp(min=1)
    quality = has[-1] * matched.iou[-1].detach().clamp(0.2, 1)
    wanted = torch.cat([has[:-1], quality[None]])
    # A prompt for an absent name counts a tenth, because presence rejects it already.
    emphasis = 0.1 + 0.9 * present[None, :, None]
    score = ((focal(outputs.logits, wanted) * emphasis).sum((1, 2)) / count).mean()
    shown = final_score_loss(outputs, quality) / count[-1]
    distance = (((outputs.boxes - matched.truth).abs().sum(-1) * has).sum((1, 2)) / count).mean()
    overlap = (((1 - matched.giou) * has).sum((1, 2)) / count).mean()
    loss = 3 * (dense + cells + mask) + presence + 4 * score + 2 * shown + 5 * distance + 2 * overlap
    foreground = targets.token_classes > 0
    hits = (outputs.token_classes.argmax(1) == targets.token_classes) & foreground
    parts = {
        "loss": loss, "token_classes": classes, "cells": cells, "presence": presence, "score": score, "shown": shown,
        "box": distance, "giou": overlap, "mask": mask, "token_accuracy": hits.sum() / foreground.sum().clamp(min=1),
        "presence_accuracy": ((outputs.presence[-1].squeeze(-1) > 0) == (present > 0)).float().mean(),
        "iou": (matched.iou[-1] * has[-1]).sum() / count[-1],
    }
    return loss, {name: value.detach() for name, value in parts.items()}
