"""Matches queries to objects, one to one or several to one, for all prompts at once, on the device."""

from __future__ import annotations

import torch
from torch import Tensor

# The minimum bid increment: the total cost exceeds the optimum by at most this for each object.
LEAST_RISE = 0.01
ROUNDS = 24


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


@torch.no_grad()
def costs(logits: Tensor, boxes: Tensor, truth: Tensor) -> Tensor:
    """The cost of a query for an object [..., Q, N], from logits [..., Q], boxes [..., Q, 4] and truth [..., N, 4]."""
    ours, theirs = boxes[..., :, None, :], truth[..., None, :, :]
    giou, _ = generalised_iou(corners(ours), corners(theirs))
    return -2 * logits.sigmoid()[..., None] + 5 * (ours - theirs).abs().sum(-1) - 2 * giou


@torch.no_grad()
def assign_several(cost: Tensor, valid: Tensor, copies: int) -> Tensor:
    """Matches each object to its `copies` cheapest queries; a query of two objects goes to the cheaper one.

    Cost [..., Q, N] and valid [..., N] -> the object of each query [..., Q], -1 for none.
    """
    cost = cost.masked_fill(~valid[..., None, :], torch.inf)
    cheapest = cost.topk(copies, dim=-2, largest=False).indices
    wanted = torch.zeros_like(cost, dtype=torch.bool).scatter_(-2, cheapest, True) & valid[..., None, :]
    least, thing = cost.masked_fill(~wanted, torch.inf).min(-1)
    return torch.where(least.isinf(), -1, thing)


@torch.no_grad()
def assign_one(cost: Tensor, valid: Tensor) -> Tensor:
    """Matches each object to one query with minimal total cost, by an auction (Bertsekas 1988).

    Cost [R, Q, N] and valid [R, N] -> the object of each query [R, Q], -1 for none. After `ROUNDS` rounds an object may
    still be unmatched, if many compete for the same query; this is rare, and it is then left out.
    """
    rows, queries, instances = cost.shape
    value = -cost.transpose(1, 2)
    price = cost.new_zeros(rows, queries)
    holder = torch.full((rows, queries), -1, dtype=torch.long, device=cost.device)
    names = torch.arange(instances, device=cost.device)
    for _ in range(ROUNDS):
        waiting = valid & ~(holder[:, :, None] == names).any(1)
        # On a CPU the check is free; on a GPU it would synchronise.
        if cost.device.type == "cpu" and not waiting.any():
            break
        best, index = (value - price[:, None]).topk(2, dim=-1)
        bid = torch.where(waiting, best[..., 0] - best[..., 1] + LEAST_RISE, -torch.inf)
        offers = torch.full_like(value, -torch.inf).scatter_(-1, index[..., :1], bid[..., None])
        highest, winner = offers.max(1)
        sold = ~highest.isinf()
        price = torch.where(sold, price + highest, price)
        holder = torch.where(sold, winner, holder)
    return holder
