"""Scenes as a COCO data set: annotations that pycocotools and `ocelli eval` read."""

from __future__ import annotations

from typing import Iterator

import numpy as np
from backgrounds import HELD_OUT_FAMILIES
from glyphs import load_glyphs
from scenes import Scene, held_out_random, held_out_scene
from vocabulary import KNOWN_NAMES, NAMES

# Size of the evaluation scenes: not square, and larger than in training.
WIDTH, HEIGHT = 448, 336


def evaluation_scenes(count: int, names: int = len(NAMES), purpose: str = "evaluation") -> Iterator[Scene]:
    """The first `count` scenes for a purpose, of the first `names` objects; the n-th does not depend on the count.

    "evaluation" is for published figures, "validation" for choices.
    """
    glyphs = load_glyphs(names)
    for index in range(count):
        yield held_out_scene(held_out_random(purpose, index), glyphs, WIDTH, HEIGHT)


def family_of(index: int, purpose: str = "evaluation") -> str:
    """The family of a scene's background, which is the first random choice."""
    return held_out_random(purpose, index).choice(sorted(HELD_OUT_FAMILIES))


def encode_mask(mask: np.ndarray) -> dict:
    """COCO's compressed run-length encoding of a mask [H, W] bool, as text instead of bytes."""
    # Imported here, so that boxes can be measured without pycocotools.
    from pycocotools import mask as coco_mask

    encoded = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": [int(side) for side in encoded["size"]], "counts": encoded["counts"].decode("ascii")}


class Annotations:
    """Collects the ground truth of scenes; image and category ids count from 1."""

    def __init__(self, names: int = len(NAMES)) -> None:
        self.names = KNOWN_NAMES[:names]
        self.images: list[dict] = []
        self.annotations: list[dict] = []

    def add(self, scene: Scene, file_name: str) -> int:
        """Adds a scene and returns its image id."""
        height, width = scene.image.shape[:2]
        image_id = len(self.images) + 1
        self.images.append({"id": image_id, "file_name": file_name, "width": width, "height": height})
        for box, label, mask in zip(scene.boxes.tolist(), scene.labels.tolist(), scene.masks):
            x1, y1, x2, y2 = box
            self.annotations.append({
                "id": len(self.annotations) + 1, "image_id": image_id, "category_id": label + 1, "iscrowd": 0,
                "bbox": [x1, y1, x2 - x1, y2 - y1], "area": int(mask.sum()), "segmentation": encode_mask(mask),
            })
        return image_id

    def document(self) -> dict:
        """The whole data set, ready for `json.dump`."""
        return {
            "info": {"description": "drawn scenes that the built-in model was not trained on"},
            "images": self.images, "annotations": self.annotations,
            "categories": [{"id": index + 1, "name": name} for index, name in enumerate(self.names)],
        }
