"""Degrades images, in batches on the device: blur, light, noise, a smaller size, JPEG."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from textures import Numbers

# The luminance table of the JPEG standard (ITU-T T.81, annex K), for all three channels.
QUANTISERS = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)


def blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur with a `sigma` [n] in pixels for each image, at most 2."""
    reach = torch.arange(-4, 5, device=images.device, dtype=torch.float32)
    kernel = torch.exp(-0.5 * (reach / sigma[:, None].clamp(min=0.05)) ** 2)
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(3, 0)
    count, _, height, width = images.shape
    flat = F.pad(images.reshape(1, count * 3, height, width), (4, 4, 4, 4), mode="replicate")
    flat = F.conv2d(flat, kernel.view(-1, 1, 1, 9), groups=count * 3)
    return F.conv2d(flat, kernel.view(-1, 1, 9, 1), groups=count * 3).view(images.shape)


def cosines(device: torch.device) -> Tensor:
    """The matrix of the 8-point cosine transform."""
    k = torch.arange(8, device=device, dtype=torch.float32)
    matrix = torch.cos((2 * k[None] + 1) * k[:, None] * math.pi / 16) * 0.5
    matrix[0] *= math.sqrt(0.5)
    return matrix


def jpeg(images: Tensor, quality: Tensor) -> Tensor:
    """Quantises 8x8 blocks as JPEG of `quality` [n], 10..95, as for brightness; sides are multiples of 8."""
    count, _, height, width = images.shape
    factor = torch.where(quality < 50, 50 / quality, 2 - quality / 50).view(-1, 1, 1, 1, 1, 1)
    table = (torch.tensor(QUANTISERS, device=images.device).view(8, 8) * factor).clamp(min=1)
    blocks = (images * 255 - 128).view(count, 3, height // 8, 8, width // 8, 8).transpose(3, 4)
    matrix = cosines(images.device)
    rounded = torch.round(matrix @ blocks @ matrix.T / table) * table
    return ((matrix.T @ rounded @ matrix).transpose(3, 4).reshape(images.shape) + 128) / 255


def degrade(numbers: Numbers, images: Tensor) -> Tensor:
    """Degrades about half of the images and rounds all to 8 bits, as in files. [n, 3, S, S] in 0..1."""
    count, _, side, _ = images.shape
    # The images are chosen on the CPU, to avoid synchronisation; each degradation runs on its images only.
    victims = numbers.choice(5, count)

    def suffering(kind: int, share: float) -> Tensor | None:
        rows = torch.nonzero(victims[kind] < share).flatten()
        return rows.to(images.device, non_blocking=True) if len(rows) else None

    if (rows := suffering(0, 0.15)) is not None:
        images[rows] = blur(images[rows], numbers.uniform(len(rows), low=0.2, high=1.5))
    if (rows := suffering(1, 0.1)) is not None:
        small = int(side * (0.45 + 0.5 * float(victims[1].min()) / 0.1))
        reduced = F.interpolate(images[rows], (small, small), mode="bilinear", antialias=True)
        images[rows] = F.interpolate(reduced, (side, side), mode="bicubic").clamp(0, 1)
    if (rows := suffering(2, 0.45)) is not None:
        gain = numbers.uniform(len(rows), 1, 1, 1, low=0.6, high=1.25)
        shift = numbers.uniform(len(rows), 1, 1, 1, low=-0.12, high=0.08)
        some = (images[rows] - 0.5) * gain + 0.5 + shift + numbers.uniform(len(rows), 3, 1, 1, low=-0.06, high=0.06)
        grey = some.mean(1, keepdim=True)
        images[rows] = grey + (some - grey) * numbers.uniform(len(rows), 1, 1, 1, low=0.6, high=1.2)
    if (rows := suffering(3, 0.3)) is not None:
        strength = numbers.uniform(len(rows), 1, 1, 1, high=0.045)
        images[rows] = images[rows] + numbers.normal(len(rows), 3, side, side) * strength
    if (rows := suffering(4, 0.2)) is not None and side % 8 == 0:
        images[rows] = jpeg(images[rows].clamp(0, 1), numbers.uniform(len(rows), low=12, high=90))
    return torch.round(images.clamp(0, 1) * 255) / 255
