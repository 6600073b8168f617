"""Backgrounds of training scenes, drawn in batches on the device.

Every kind is a function of (numbers, count, side) that returns [count, 3, side, side] in 0..1. Checkerboards,
landscapes, mosaics and rooms are deliberately missing: they are backgrounds of held-out scenes (`backgrounds.py`).
"""

from __future__ import annotations

import math
from typing import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


class Numbers:
    """Random numbers on a device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.chooser = torch.Generator().manual_seed(seed)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform between `low` and `high`."""
        return torch.rand(shape, generator=self.generator, device=self.device) * (high - low) + low

    def normal(self, *shape: int) -> Tensor:
        """Mean 0, deviation 1."""
        return torch.randn(shape, generator=self.generator, device=self.device)

    def choice(self, *shape: int) -> Tensor:
        """Uniform in 0..1, on the CPU, for choices that determine shapes, to avoid synchronisation."""
        return torch.rand(shape, generator=self.chooser)

    def below(self, share: float, *shape: int) -> Tensor:
        """True for about `share` of the places."""
        return self.uniform(*shape) < share


def coordinates(side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """x and y in -1..1, [1, side, side] each."""
    line = torch.linspace(-1, 1, side, device=device)
    return line.view(1, 1, side).expand(1, side, side), line.view(1, side, 1).expand(1, side, side)


def mix(numbers: Numbers, share: Tensor, near: float = 1.0) -> Tensor:
    """Two colours mixed by `share` [n, S, S]; `near` below 1 makes the second more similar to the first."""
    first = numbers.uniform(share.shape[0], 3, 1, 1)
    second = first + (numbers.uniform(share.shape[0], 3, 1, 1) - first) * near
    return first + (second - first) * share[:, None]


def octaves(numbers: Numbers, count: int, side: int, channels: int, roughness: float, first: int = 2) -> Tensor:
    """Noise at several scales, each weaker than the one before by `roughness`; about -1..1, [n, channels, S, S]."""
    total, weight, cells, norm = 0.0, 1.0, first, 0.0
    while cells <= side:
        layer = numbers.normal(count, channels, cells + 1, cells + 1)
        total = total + weight * F.interpolate(layer, (side, side), mode="bilinear", align_corners=True)
        norm, weight, cells = norm + weight * weight, weight * roughness, cells * 2
    return total / (1.6 * math.sqrt(norm))


def normalised(field: Tensor) -> Tensor:
    """A field [n, S, S] stretched to 0..1."""
    low, high = field.amin((1, 2), keepdim=True), field.amax((1, 2), keepdim=True)
    return (field - low) / (high - low + 1e-6)


def patchwork(numbers: Numbers, count: int, side: int) -> Tensor:
    """A few random colours, blurred into each other or in blocks."""
    fine = numbers.uniform(count, 3, 7, 7)
    smooth = F.interpolate(fine[:, :, :4, :4], (side, side), mode="bicubic", align_corners=True)
    soft = F.interpolate(fine, (side, side), mode="bilinear", align_corners=False)
    blocks = F.interpolate(fine[:, :, :5, :6], (side, side), mode="nearest")
    kind = numbers.uniform(count, 1, 1, 1)
    return torch.where(kind < 0.35, smooth, torch.where(kind < 0.7, soft, blocks))


def plain(numbers: Numbers, count: int, side: int) -> Tensor:
    """One colour; every third is white, black or grey."""
    colour = numbers.uniform(count, 3, 1, 1)
    grey = (numbers.uniform(count, 1, 1, 1) * 1.6 - 0.3).clamp(0, 1)
    return torch.where(numbers.below(0.35, count, 1, 1, 1), grey, colour).expand(count, 3, side, side)


def gradient(numbers: Numbers, count: int, side: int) -> Tensor:
    """From one colour to another, straight or around a point."""
    x, y = coordinates(side, numbers.device)
    angle, centre = numbers.uniform(count, 1, 1, high=2 * math.pi), numbers.uniform(2, count, 1, 1, low=-1)
    straight = x * angle.cos() + y * angle.sin()
    around = ((x - centre[0]) ** 2 + (y - centre[1]) ** 2).sqrt()
    return mix(numbers, normalised(torch.where(numbers.below(0.6, count, 1, 1), straight, around)))


def stripes(numbers: Numbers, count: int, side: int) -> Tensor:
    """Soft or sharp stripes at any angle, straight or wavy, at times of two widths."""
    x, y = coordinates(side, numbers.device)
    angle = numbers.uniform(count, 1, 1, high=math.pi)
    along, across = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    wave = numbers.uniform(count, 1, 1, high=0.15) * numbers.below(0.35, count, 1, 1)
    along = along + wave * torch.sin(across * numbers.uniform(count, 1, 1, low=2, high=12))
    period = torch.exp(numbers.uniform(count, 1, 1, low=math.log(0.06), high=math.log(0.8)))
    share = 0.5 + 0.5 * torch.sin(along * 2 * math.pi / period + numbers.uniform(count, 1, 1, high=6))
    sharp = (share > numbers.uniform(count, 1, 1, low=0.3, high=0.7)).float()
    return mix(numbers, torch.where(numbers.below(0.55, count, 1, 1), sharp, share))


def polygons(numbers: Numbers, count: int, side: int) -> Tensor:
    """The plane cut by straight lines, each side of each line in its own colour."""
    x, y = coordinates(side, numbers.device)
    image = numbers.uniform(count, 3, 1, 1).expand(count, 3, side, side)
    for _ in range(5):
        angle, offset = numbers.uniform(count, 1, 1, high=2 * math.pi), numbers.uniform(count, 1, 1, low=-0.2, high=0.9)
        beyond = (x * angle.cos() + y * angle.sin() > offset)[:, None] & numbers.below(0.8, count, 1, 1, 1)
        image = torch.where(beyond, numbers.uniform(count, 3, 1, 1), image)
    return image


def noise(numbers: Numbers, count: int, side: int) -> Tensor:
    """Grains of one size, from a pixel to a tenth of the image, grey or coloured."""
    cells = int(side * (1, 0.7, 0.4, 0.1)[int(numbers.choice(1) * 4)])
    grains = numbers.normal(count, 3, cells, cells) * numbers.uniform(count, 1, 1, 1, low=0.03, high=0.3)
    grains = torch.where(numbers.below(0.5, count, 1, 1, 1), grains[:, :1], grains)
    grains = F.interpolate(grains, (side, side), mode="bilinear" if numbers.choice(1) < 0.5 else "nearest")
    return numbers.uniform(count, 3, 1, 1) + grains


def clouds(numbers: Numbers, count: int, side: int) -> Tensor:
    """Soft noise between two colours, as of sky or marble."""
    return mix(numbers, (0.5 + 0.5 * octaves(numbers, count, side, 1, 0.55)[:, 0]).clamp(0, 1))


def photo_like(numbers: Numbers, count: int, side: int) -> Tensor:
    """Noise with the spectrum of photographs, with correlated channels: grass, stone, foliage out of focus."""
    shared = octaves(numbers, count, side, 1, 0.7, first=3)
    apart = octaves(numbers, count, side, 3, 0.6, first=2)
    contrast = numbers.uniform(count, 1, 1, 1, low=0.1, high=0.45)
    return numbers.uniform(count, 3, 1, 1) + contrast * (shared + 0.5 * apart)


def blobs(numbers: Numbers, count: int, side: int) -> Tensor:
    """Lights out of focus: blurred spots of many colours and sizes."""
    x, y = coordinates(side, numbers.device)
    image = numbers.uniform(count, 3, 1, 1) * 0.7
    for _ in range(7):
        centre = numbers.uniform(2, count, 1, 1, low=-1.1, high=1.1)
        radius = torch.exp(numbers.uniform(count, 1, 1, low=math.log(0.08), high=math.log(0.7)))
        edge = numbers.uniform(count, 1, 1, low=0.03, high=1)
        distance = (((x - centre[0]) ** 2 + (y - centre[1]) ** 2).sqrt() / radius - 1) / edge
        share = torch.sigmoid(-5 * distance)[:, None] * numbers.uniform(count, 1, 1, 1, low=0.3, high=1)
        image = image + (numbers.uniform(count, 3, 1, 1) - image) * share
    return image


def wood(numbers: Numbers, count: int, side: int) -> Tensor:
    """Rings around a far point, bent by noise, with a fine grain."""
    x, y = coordinates(side, numbers.device)
    bend = octaves(numbers, count, side, 1, 0.5)[:, 0]
    centre = numbers.uniform(2, count, 1, 1, low=-3, high=3)
    stretch = numbers.uniform(count, 1, 1, low=1, high=4)
    rings = ((x - centre[0]) ** 2 + (stretch * (y - centre[1])) ** 2).sqrt() + 0.2 * bend
    share = 0.5 + 0.5 * torch.sin(rings * numbers.uniform(count, 1, 1, low=8, high=50))
    brown = torch.tensor([0.55, 0.38, 0.24]).to(numbers.device, non_blocking=True).view(1, 3, 1, 1)
    base = brown * numbers.uniform(count, 1, 1, 1, low=0.5, high=1.6)
    base = torch.where(numbers.below(0.6, count, 1, 1, 1), base, numbers.uniform(count, 3, 1, 1))
    return base * (1 - numbers.uniform(count, 1, 1, 1, low=0.08, high=0.4) * share[:, None])


def tiles(numbers: Numbers, count: int, side: int) -> Tensor:
    """Rows of bricks or planks with joints, each in another shade."""
    x, y = coordinates(side, numbers.device)
    high = numbers.uniform(count, 1, 1, low=3, high=9)
    wide = high / numbers.uniform(count, 1, 1, low=1.8, high=4)
    row = torch.floor((y + 1) / 2 * high)
    u, v = (x + 1) / 2 * wide + 0.5 * (row % 2), (y + 1) / 2 * high
    column = torch.floor(u)
    shade = torch.frac(torch.sin(row * 12.9898 + column * 78.233) * 43758.5453).abs()
    joint = ((u - column < 0.04) | (v - row < 0.08))[:, None]
    colour = numbers.uniform(count, 3, 1, 1, low=0.2)
    bricks = colour * (1 - numbers.uniform(count, 1, 1, 1, high=0.35) * shade[:, None])
    return torch.where(joint, numbers.uniform(count, 3, 1, 1), bricks)


def horizon(numbers: Numbers, count: int, side: int) -> Tensor:
    """Two of the softer kinds, one above the other, with a level or slanting border."""
    x, y = coordinates(side, numbers.device)
    border = numbers.uniform(count, 1, 1, low=-0.4, high=0.6) + x * numbers.uniform(count, 1, 1, low=-0.3, high=0.3)
    below = torch.sigmoid((y - border) * numbers.uniform(count, 1, 1, low=20, high=200))[:, None]
    return clouds(numbers, count, side) * (1 - below) + photo_like(numbers, count, side) * below


KINDS: dict[str, tuple[float, Callable[[Numbers, int, int], Tensor]]] = {
    "patchwork": (3, patchwork), "plain": (1.5, plain), "gradient": (1.5, gradient), "stripes": (2, stripes),
    "polygons": (1.5, polygons), "noise": (1, noise), "clouds": (1, clouds), "photo_like": (2, photo_like),
    "blobs": (1.5, blobs), "wood": (1, wood), "tiles": (1, tiles), "horizon": (1, horizon),
}


def draw_backgrounds(numbers: Numbers, kinds: list[str], side: int) -> Tensor:
    """Backgrounds of the kinds named, [n, 3, S, S] in 0..1; a kind is drawn for all its scenes at once."""
    out = torch.empty(len(kinds), 3, side, side, device=numbers.device)
    for kind in dict.fromkeys(kinds):
        rows = torch.tensor([index for index, one in enumerate(kinds) if one == kind])
        rows = rows.to(numbers.device, non_blocking=True)
        out.index_copy_(0, rows, KINDS[kind][1](numbers, len(rows), side).contiguous().expand(len(rows), 3, side, side))
    return out.clamp_(0, 1)
