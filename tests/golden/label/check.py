#!/usr/bin/env python3
"""Reads a data set of `ocelli label` back with the tools people use, and compares what they read.

    pip install supervision==0.31.2 pycocotools==2.0.11 opencv-python-headless
    ocelli label --model built-in --images tests/golden/scenes --classes … --format yolo,yolo-seg,coco,voc -o DIR
    python check.py DIR

The images must be in one folder, because `supervision` does not recurse. It refuses symbolic links that leave the folder; the
images are hard links.
`annotations.json` as read by `pycocotools` is
what the others are compared with: the boxes of YOLO to less than a pixel, the polygons of YOLO-seg by the IoU of what
they fill.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import supervision as sv
from pycocotools import mask as codec
from pycocotools.coco import COCO

BOX_TOLERANCE = 0.6
"""Pixels: YOLO has six decimals of the side, supervision rounds boxes of polygons to whole pixels."""
VOC_TOLERANCE = 1.01
"""Pixels: coordinates are whole numbers."""
MASK_IOU = 0.6
"""Of one thing: small parts that are far from the rest are left out of YOLO-seg's one polygon, or cost a line."""
MEAN_MASK_IOU = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what ocelli label wrote, in all four formats")
    parser.add_argument("--least", type=int, default=100, help="minimum number of instances, so that an empty set fails")
    arguments = parser.parse_args()
    folder, least = arguments.folder.resolve(), arguments.least
    reference = read_coco(folder / "annotations.json")
    failures: list[str] = []
    instances = sum(len(boxes) for boxes, *_ in reference.values())
    if instances < least:
        failures.append(f"{instances} instances in annotations.json, expected {least} at least")
    failures += compare("COCO in supervision", reference, coco_dataset(folder), True)
    failures += splits(folder, reference)
    failures += compare("Pascal VOC", voc_names(reference), voc_dataset(folder / "voc"), False, VOC_TOLERANCE)
    failures += compare("YOLO", reference, yolo_dataset(folder, False), False)
    failures += compare("YOLO-seg", reference, yolo_dataset(folder / "segments", True), True)
    for failure in failures:
        print(failure)
    if failures:
        sys.exit(f"error: {len(failures)} differences in {folder}")
    print(f"{folder}: {len(reference)} images, {instances} instances, the same in every format")


Reference = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
"""By the image's name: boxes xyxy, class ids from 0, masks."""


def read_coco(path: Path) -> Reference:
    coco = COCO(str(path))
    found: Reference = {}
    for image in coco.dataset["images"]:
        annotations = coco.loadAnns(coco.getAnnIds(image["id"]))
        boxes = np.array([a["bbox"] for a in annotations], dtype=float).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        masks = np.array([coco.annToMask(a) for a in annotations], dtype=bool)
        for annotation, mask in zip(annotations, masks):
            assert mask.shape == (image["height"], image["width"]), (image, mask.shape)
            if not isinstance(annotation["segmentation"], list):
                assert annotation["area"] == mask.sum() == codec.area(coco.annToRLE(annotation)), annotation
        classes = np.array([a["category_id"] - 1 for a in annotations], dtype=int)
        found[image["file_name"]] = boxes, classes, masks
    assert [c["id"] for c in coco.dataset["categories"]] == list(range(1, len(coco.dataset["categories"]) + 1))
    return found


def coco_dataset(folder: Path) -> dict[str, sv.Detections]:
    data = sv.DetectionDataset.from_coco(
        images_directory_path=str(folder / "images"),
        annotations_path=str(folder / "annotations.json"),
        force_masks=True,
    )
    return by_name(data, folder)


def yolo_dataset(folder: Path, masks: bool) -> dict[str, sv.Detections]:
    found: dict[str, sv.Detections] = {}
    for part in ("train", "val"):
        data = sv.DetectionDataset.from_yolo(
            images_directory_path=str(folder / "images" / part),
            annotations_directory_path=str(folder / "labels" / part),
            data_yaml_path=str(folder / "data.yaml"),
            force_masks=masks,
        )
        found.update(by_name(data, folder))
    names = (folder / "classes.txt").read_text().splitlines()
    assert data.classes == names, (data.classes, names)
    return found


def splits(folder: Path, reference: Reference) -> list[str]:
    """The files of the splits have the images of `annotations.json`, each of them once."""
    failures = []
    joined: Reference = {}
    for part in ("train", "val"):
        found = read_coco(folder / f"annotations_{part}.json")
        if not found or not all(name.startswith(f"{part}/") for name in found):
            failures.append(f"annotations_{part}.json: {sorted(found)}")
        joined.update(found)
    same = set(joined) == set(reference) and all(
        np.array_equal(joined[name][0], reference[name][0]) for name in joined
    )
    return failures if same else [*failures, "COCO's splits: other images or boxes"]


def voc_names(reference: Reference) -> Reference:
    """Without splits, and with the classes by name: VOC has no ids."""
    return {name.split("/", 1)[1]: found for name, found in reference.items()}


def voc_dataset(folder: Path) -> dict[str, sv.Detections]:
    data = sv.DetectionDataset.from_pascal_voc(
        images_directory_path=str(folder / "JPEGImages"),
        annotations_directory_path=str(folder / "Annotations"),
    )
    names = (folder.parent / "classes.txt").read_text().splitlines()
    found = {}
    for path, _, detections in data:
        detections.class_id = np.array([names.index(data.classes[i]) for i in detections.class_id], dtype=int)
        found[Path(path).relative_to(folder / "JPEGImages").as_posix()] = detections
    return found


def by_name(data: sv.DetectionDataset, folder: Path) -> dict[str, sv.Detections]:
    return {Path(path).relative_to(folder / "images").as_posix(): found for path, _, found in data}


def compare(what: str, reference: Reference, found: dict[str, sv.Detections], masks: bool,
            tolerance: float = BOX_TOLERANCE) -> list[str]:
    failures = []
    if set(found) != set(reference):
        failures.append(f"{what}: other images: {sorted(set(found) ^ set(reference))}")
    ious = []
    for name in sorted(set(found) & set(reference)):
        boxes, classes, expected_masks = reference[name]
        detections = found[name]
        if len(detections) != len(boxes):
            failures.append(f"{what}, {name}: {len(detections)} instances, expected {len(boxes)}")
            continue
        if len(boxes) == 0:
            continue
        if list(detections.class_id) != list(classes):
            failures.append(f"{what}, {name}: classes {detections.class_id}, expected {classes}")
        if not masks:
            worst = np.abs(detections.xyxy - boxes).max()
            if worst > tolerance:
                failures.append(f"{what}, {name}: a box is {worst:.2f} pixels off")
            continue
        for mask, expected in zip(detections.mask, expected_masks):
            iou = (mask & expected).sum() / (mask | expected).sum()
            ious.append(iou)
            if iou < MASK_IOU:
                failures.append(f"{what}, {name}: a mask of {expected.sum()} pixels has IoU {iou:.3f}")
    if masks and np.mean(ious) < MEAN_MASK_IOU:
        failures.append(f"{what}: mean mask IoU {np.mean(ious):.3f}, expected {MEAN_MASK_IOU}")
    if masks:
        print(f"{what}: mean mask IoU {np.mean(ious):.4f}, least {np.min(ious):.4f} of {len(ious)}")
    return failures


if __name__ == "__main__":
    main()
