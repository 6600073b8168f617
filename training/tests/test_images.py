"""Images from folders and tar files, their order, and their preparation."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import webdataset
from PIL import Image
from transformers.models.sam3.image_processing_sam3 import Sam3ImageProcessor

from ocelli_training.distill.images import Positions, Stream, decode, find_images, fingerprint, normalised


def encoded(image: Image.Image, kind: str = "png", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def test_a_tar_of_webdataset_is_the_same_as_its_files(tmp_path: Path, images: Path) -> None:
    with webdataset.TarWriter(str(tmp_path / "set-0000.tar")) as sink:
        for path in sorted(images.iterdir()):
            sink.write({"__key__": path.stem, "png": path.read_bytes(), "txt": "a caption"})
    packed, loose = find_images([tmp_path]), find_images([images])
    assert [entry.read() for entry in packed] == [entry.read() for entry in loose]
    assert [entry.name for entry in packed] == [f"set-0000.tar/{entry.name}" for entry in loose]
    assert fingerprint(packed) != fingerprint(loose) != fingerprint(loose[::-1])


def test_images_are_prepared_as_by_sam3s_processor() -> None:
    random = np.random.default_rng(1)
    image = Image.fromarray(random.integers(0, 255, (130, 201, 3), np.uint8))
    wanted = Sam3ImageProcessor(size={"height": 112, "width": 112})(image, return_tensors="pt").pixel_values[0]
    assert torch.allclose(normalised(decode(encoded(image), 112)), wanted, atol=1e-6)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = decode(encoded(image.rotate(90, expand=True), exif=exif), 112)
    assert torch.equal(turned, decode(encoded(image), 112))


def test_an_epoch_has_every_image_once_in_an_order_of_the_seed(images: Path) -> None:
    entries = find_images([images])
    count = len(entries)
    names = [[Stream(entries, 28, seed).entry(position).name for position in range(3 * count)] for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    assert names[0][:count] != names[0][count:2 * count]
    assert all(Counter(names[0][start:start + count]) == Counter(entry.name for entry in entries)
               for start in range(0, 3 * count, count))
    mirrored = [torch.equal(Stream(entries, 28, 1, flip=0.5)[index], Stream(entries, 28, 1)[index]) for index in range(20)]
    assert set(mirrored) == {True, False}


def test_processes_and_accumulation_split_the_same_images() -> None:
    def of_step(step: int, accumulate: int, batch: int, processes: int) -> list[int]:
        lists = [list(Positions(step, step + 1, accumulate, batch, rank, processes)) for rank in range(processes)]
        return sorted(position for parts in lists for part in parts for position in part)

    assert of_step(3, 1, 8, 1) == of_step(3, 2, 4, 1) == of_step(3, 2, 2, 2) == of_step(3, 1, 2, 4) == list(range(24, 32))
    assert list(Positions(2, 4, 2, 3, 0, 1)) == list(Positions(0, 4, 2, 3, 0, 1))[4:]
