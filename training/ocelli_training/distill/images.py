"""Images from folders and tar files, in an order that depends on nothing but the seed.

A run reads one endless sequence of images: all of them once in a random order, then again in another one. A step takes the
next images of it, however many processes share the step, so that any step can be repeated.
"""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Iterator, Sequence

import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as transforms

from ..errors import InputError

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff"}


@dataclass(frozen=True)
class Entry:
    """An image: a file, or `size` bytes of a tar file from `offset` on. `name` is the same on every machine."""

    name: str
    path: str
    offset: int = 0
    size: int | None = None

    def read(self) -> bytes:
        """The encoded image."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            return file.read() if self.size is None else file.read(self.size)


def is_image(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES


def in_folder(folder: Path) -> list[Entry]:
    """The images of a folder and its subfolders, and those of its tar files."""
    entries = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() == ".tar" and path.is_file():
            entries += in_tar(path)
        elif is_image(path.name) and path.is_file():
            entries.append(Entry(path.relative_to(folder).as_posix(), str(path)))
    return entries


def in_tar(path: Path) -> list[Entry]:
    """The images of a tar file, as webdataset writes them. Only the headers are read."""
    try:
        with tarfile.open(path, "r:") as archive:
            return [Entry(f"{path.name}/{member.name}", str(path), member.offset_data, member.size)
                    for member in archive if member.isfile() and is_image(member.name)]
    except (tarfile.TarError, OSError) as error:
        raise InputError(f"images: {path} cannot be read as an uncompressed tar file: {error}") from error


def find_images(sources: Sequence[Path]) -> list[Entry]:
    """The images of folders, tar files and image files, in the given order, sorted within each.

    Raises `InputError` if a source does not exist, cannot be read, or has no images.
    """
    entries: list[Entry] = []
    for source in sources:
        if not source.exists():
            raise InputError(f"images: {source} does not exist")
        if source.is_dir():
            found = in_folder(source)
        elif source.suffix.lower() == ".tar":
            found = in_tar(source)
        else:
            found = [Entry(source.name, str(source))] if is_image(source.name) else []
        if not found:
            raise InputError(f"images: {source} has no images; expected a folder or a tar file with {', '.join(sorted(SUFFIXES))}")
        entries += found
    return entries


def fingerprint(entries: Sequence[Entry]) -> str:
    """A hash of the names and their order: a run continues on the same images only."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(f"{entry.name}\n".encode())
    return digest.hexdigest()


def decode(data: bytes, side: int) -> Tensor:
    """An encoded image as the model takes it, u8 [3, side, side].

    RGB, upright by its EXIF orientation, squashed into the square by antialiased bilinear interpolation on 8 bits, as SAM3's
    processor does.
    """
    with Image.open(io.BytesIO(data)) as file:
        upright = ImageOps.exif_transpose(file).convert("RGB")
    planes = transforms.pil_to_tensor(upright)
    return transforms.resize(planes, [side, side], InterpolationMode.BILINEAR, antialias=True)


def normalised(pixels: Tensor) -> Tensor:
    """u8 → -1..1, as f32."""
    return pixels.float().div(255).sub(0.5).div(0.5)


@lru_cache(maxsize=2)
def order(count: int, seed: int, epoch: int) -> list[int]:
    """The order of the images in an epoch."""
    places = list(range(count))
    random.Random(f"images/{seed}/{epoch}").shuffle(places)
    return places


class Stream(Dataset):
    """The endless sequence: an image u8 [3, side, side] for each position, or an error as text.

    `flip` is the probability that an image is mirrored. `shuffled=False` keeps the order of the files.
    """

    def __init__(self, entries: Sequence[Entry], side: int, seed: int, flip: float = 0.0, shuffled: bool = True) -> None:
        self.entries, self.side, self.seed, self.flip, self.shuffled = entries, side, seed, flip, shuffled

    def entry(self, position: int) -> Entry:
        epoch, place = divmod(position, len(self.entries))
        return self.entries[order(len(self.entries), self.seed, epoch)[place] if self.shuffled else place]

    def __getitem__(self, position: int) -> Tensor | str:
        entry = self.entry(position)
        try:
            pixels = decode(entry.read(), self.side)
        except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            return f"images: {entry.name} of {entry.path} cannot be decoded: {error}"
        if random.Random(f"flip/{self.seed}/{position}").random() < self.flip:
            pixels = pixels.flip(-1)
        return pixels


class Positions(Sampler):
    """The positions of one process: for each step from `first` on, one list for each accumulated batch."""

    def __init__(self, first: int, steps: int, accumulate: int, batch: int, rank: int, processes: int) -> None:
        self.first, self.steps, self.accumulate, self.batch = first, steps, accumulate, batch
        self.rank, self.processes = rank, processes

    def __len__(self) -> int:
        return max(0, self.steps - self.first) * self.accumulate

    def __iter__(self) -> Iterator[list[int]]:
        for part in range(self.first * self.accumulate, self.steps * self.accumulate):
            start = (part * self.processes + self.rank) * self.batch
            yield list(range(start, start + self.batch))


def collate(images: list[Tensor | str]) -> Tensor | str:
    """A batch u8 [B, 3, side, side], or the first error."""
    for image in images:
        if isinstance(image, str):
            return image
    return torch.stack(images)


def batches(stream: Stream, positions: Sampler | list[list[int]], workers: int, pinned: bool) -> Iterator[Tensor]:
    """Batches of decoded images; raises `InputError` for an image that cannot be decoded."""
    loader = DataLoader(stream, batch_sampler=positions, num_workers=workers, collate_fn=collate, pin_memory=pinned,
                        prefetch_factor=4 if workers else None)
    for batch in loader:
        if isinstance(batch, str):
            raise InputError(batch)
        yield batch
