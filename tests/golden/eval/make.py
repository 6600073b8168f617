"""Makes a small COCO data set, a detector's answers on it, and what pycocotools says of them.

Run with numpy and pycocotools: python make.py. Writes annotations.json, predictions.json and expected.json beside
this script; seed and versions are in the last. No image is needed: average precision looks at numbers alone.

In it are images of several sizes, objects of all three, polygons of one and of two parts, masks as run lengths both
compressed and not, crowds, categories whose ids have gaps, one that nothing is marked of and one that nothing is
found of, equal scores, two answers for one object, more than a hundred answers for one image and class.
"""

import contextlib
import importlib.metadata
import io
import json
import pathlib

import numpy
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

SEED = 20250613
HERE = pathlib.Path(__file__).parent
SIZES = [(640, 480), (480, 640), (333, 250), (97, 201), (1280, 720)]
CATEGORIES = {1: "person", 3: "red apple", 4: "dog", 17: "cat", 20: "unseen", 21: "unmarked"}
NEVER_FOUND, NEVER_MARKED = 20, 21
SUBSET = [2, 3, 5, 11, 12]


def blob(random, width, height, side):
    """A polygon around a centre, inside the image."""
    corners = int(random.integers(5, 11))
    angles = numpy.sort(random.uniform(0, 2 * numpy.pi, corners))
    radii = side / 2 * random.uniform(0.6, 1.1, corners)
    x, y = random.uniform(0, width), random.uniform(0, height)
    xs = numpy.clip(x + radii * numpy.cos(angles), 0, width - 1)
    ys = numpy.clip(y + radii * numpy.sin(angles), 0, height - 1)
    return numpy.stack([xs, ys], 1).round(2)


def encoded(polygons, width, height):
    code = coco_mask.merge(coco_mask.frPyObjects([p.flatten().tolist() for p in polygons], height, width))
    return {"size": [height, width], "counts": code["counts"].decode()}


def packed(code):
    return {"size": code["size"], "counts": code["counts"].encode()}


def runs(code):
    """The same mask with its run lengths written out, as COCO's crowds are."""
    flat = coco_mask.decode(packed(code)).flatten(order="F")
    borders = numpy.flatnonzero(numpy.diff(numpy.concatenate([[0], flat]))).tolist()
    edges = [0, *borders, len(flat)]
    return {"size": code["size"], "counts": [b - a for a, b in zip(edges, edges[1:])]}


def shifted(random, polygons, amount):
    return [p * random.normal(1, amount / 4) + random.normal(0, 1, 2) * amount * numpy.ptp(p, 0) for p in polygons]


def make(random):
    images, annotations, predictions = [], [], []
    for number in range(14):
        width, height = SIZES[number % len(SIZES)]
        image = {"id": 7 * number + 2 if number % 3 else number + 1, "file_name": f"{number:02}.png",
                 "width": width, "height": height}
        images.append(image)
        inside = (width - 1, height - 1)
        for _ in range(int(random.integers(0, 9))):
            category = int(random.choice([c for c in CATEGORIES if c != NEVER_MARKED]))
            side = float(random.choice([14, 24, 50, 80, 130, 220]))
            polygons = [blob(random, width, height, side) for _ in range(1 + (random.random() < 0.2))]
            code = encoded(polygons, width, height)
            area = int(coco_mask.area(packed(code)))
            if area < 4:
                continue
            crowd = random.random() < 0.12
            form = runs(code) if crowd else code if random.random() < 0.3 else [p.flatten().tolist() for p in polygons]
            annotations.append({
                "id": 100 + len(annotations), "image_id": image["id"], "category_id": category, "iscrowd": int(crowd),
                "bbox": coco_mask.toBbox(packed(code)).tolist(), "area": area, "segmentation": form,
            })
            if category == NEVER_FOUND:
                continue
            for _ in range(int(random.choice([0, 1, 1, 1, 2]))):
                found = shifted(random, polygons, float(random.choice([0.01, 0.04, 0.1])))
                found = [numpy.clip(p, 0, inside) for p in found]
                other = int(random.choice([1, 3, 4, 17])) if random.random() < 0.1 else category
                predictions.append((image, other, found, round(float(random.uniform(0.2, 1)), 1)))
        for _ in range(130 if number == 4 else int(random.integers(0, 6))):
            side = float(random.uniform(10, 150))
            category = 4 if number == 4 else int(random.choice([1, 3, 4, 17, NEVER_MARKED]))
            predictions.append((image, category, [blob(random, width, height, side)], float(random.uniform(0, 0.6))))
    results = []
    for image, category, polygons, score in predictions:
        code = encoded(polygons, image["width"], image["height"])
        if coco_mask.area(packed(code)) == 0:
            continue
        x1, y1 = numpy.min([p.min(0) for p in polygons], 0)
        x2, y2 = numpy.max([p.max(0) for p in polygons], 0)
        results.append({"image_id": image["id"], "category_id": category,
                        "bbox": [round(float(v), 2) for v in (x1, y1, x2 - x1, y2 - y1)],
                        "score": round(score, 4), "segmentation": code})
    categories = [{"id": id, "name": name} for id, name in CATEGORIES.items()]
    return {"images": images, "annotations": annotations, "categories": categories}, results


def evaluate(kind, images):
    truth = COCO(str(HERE / "annotations.json"))
    results = json.loads((HERE / "predictions.json").read_text())
    if kind == "segm":
        # With a box beside the mask, its area would be taken for the mask's.
        results = [{name: value for name, value in one.items() if name != "bbox"} for one in results]
    evaluation = COCOeval(truth, truth.loadRes(results), kind)
    if images is not None:
        evaluation.params.imgIds = images
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    precision, recall = evaluation.eval["precision"], evaluation.eval["recall"]  # [T, R, K, A, M], [T, K, A, M]
    mean = lambda values: float(values[values > -1].mean()) if (values > -1).any() else None
    classes = {
        CATEGORIES[id]: {
            "ap": mean(precision[:, :, k, 0, 2]), "ap50": mean(precision[0, :, k, 0, 2]),
            "ap75": mean(precision[5, :, k, 0, 2]), "ap_small": mean(precision[:, :, k, 1, 2]),
            "ap_medium": mean(precision[:, :, k, 2, 2]), "ap_large": mean(precision[:, :, k, 3, 2]),
            "ar100": mean(recall[:, k, 0, 2]),
        }
        for k, id in enumerate(evaluation.params.catIds)
    }
    names = ["ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large",
             "ar1", "ar10", "ar100", "ar_small", "ar_medium", "ar_large"]
    figures = {name: None if value < 0 else float(value) for name, value in zip(names, evaluation.stats)}
    return {"kind": kind, "images": images, "figures": figures, "per_class": classes}


def lines(records):
    return "[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in records) + "\n]"


def main():
    document, results = make(numpy.random.default_rng(SEED))
    parts = [f'"{name}": {lines(records)}' for name, records in document.items()]
    (HERE / "annotations.json").write_text("{" + ",\n".join(parts) + "}\n")
    (HERE / "predictions.json").write_text(lines(results) + "\n")
    ids = [image["id"] for image in document["images"]]
    with contextlib.redirect_stdout(io.StringIO()):
        some = [ids[place] for place in SUBSET]
        cases = [evaluate(kind, images) for kind in ("bbox", "segm") for images in (None, some)]
    made_with = {"seed": SEED, **{name: importlib.metadata.version(name) for name in ("numpy", "pycocotools")}}
    (HERE / "expected.json").write_text(json.dumps({"made_with": made_with, "cases": cases}, indent=1) + "\n")
    for case in cases:
        print(case["kind"], case["images"], case["figures"])
    print(len(document["annotations"]), "annotations,", len(results), "predictions")


if __name__ == "__main__":
    main()
