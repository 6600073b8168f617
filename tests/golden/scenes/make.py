#!/usr/bin/env python3
"""Makes 50 drawn scenes and what the reference pipeline (`transformers`, float32, CPU) detects in them.

    python make.py              writes NN.png and detections.json beside this script
    python make.py --check      computes the detections again from the committed images and compares

The scenes are not from training: other backgrounds, sizes and shapes, other seeds. Each is asked for twelve names,
the present ones and absent ones. A scene is drawn anew where rounding alone would decide the outcome: a score within
0.004 of the threshold, or two boxes of a class whose overlap is within 0.01 of the suppression threshold.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torchvision
import transformers
from PIL import Image
from pycocotools import mask as coco_mask

HERE = Path(__file__).resolve().parent
TRAINING = HERE.parents[2] / "training" / "builtin"
sys.path.insert(0, str(TRAINING))

from glyphs import load_glyphs  # noqa: E402
from reference import BUILTIN, Candidates, ReferenceDetector  # noqa: E402
from scenes import Scene, held_out_random, held_out_scene  # noqa: E402
from vocabulary import NAMES  # noqa: E402

COUNT, CLASSES = 50, 12
SIZES = ((320, 240), (224, 224), (448, 336), (200, 360), (256, 256), (400, 150), (97, 131), (333, 222))
THRESHOLD, SUPPRESSION = 0.3, 0.7
SCORE_MARGIN, OVERLAP_MARGIN = 0.004, 0.01
# Every fifth scene carries masks.
MASK_EVERY = 5


def ask(rng: random.Random, scene: Scene) -> list[str]:
    """Twelve names: those in the scene and others, in random order."""
    present = [NAMES[label] for label in sorted(set(scene.labels.tolist()))]
    absent = [name for name in NAMES if name not in present]
    names = present + rng.sample(absent, CLASSES - len(present))
    rng.shuffle(names)
    return names


def is_decided_by_rounding(candidates: Candidates) -> bool:
    """Whether a score or an overlap lies so near to a threshold that another order of summation could flip it."""
    if bool(((candidates.scores - THRESHOLD).abs() < SCORE_MARGIN).any()):
        return True
    for scores, boxes in zip(candidates.scores, candidates.boxes.clamp(0, 1)):
        above = boxes[scores > THRESHOLD]
        overlap = torchvision.ops.box_iou(above, above)
        if bool(((overlap - SUPPRESSION).abs() < OVERLAP_MARGIN).any()):
            return True
    return False


def detections(detector: ReferenceDetector, candidates: Candidates, names: list[str], width: int, height: int,
               with_masks: bool) -> list[dict]:
    """Detections as the programs write them: class_id, label, score, box and, where asked for, mask."""
    out = []
    for found in detector.select(candidates, width, height, THRESHOLD, SUPPRESSION, with_masks):
        entry = {"class_id": found.class_index, "label": names[found.class_index], "score": round(found.score, 6),
                 "box": [round(value, 4) for value in found.box]}
        if found.mask is not None:
            encoded = coco_mask.encode(np.asfortranarray(found.mask.astype(np.uint8)))
            entry["mask"] = {"size": list(encoded["size"]), "counts": encoded["counts"].decode("ascii")}
        out.append(entry)
    return out


def describe(detector: ReferenceDetector, index: int, attempt: int, scene: Scene, names: list[str],
             candidates: Candidates) -> dict:
    """One entry of `detections.json`."""
    image = Image.fromarray(scene.image)
    exact = detector.candidates(detector.pixels_without_rounding(image), names)
    asked = candidates.scores > THRESHOLD
    change = (exact.scores - candidates.scores).abs()[asked]
    return {
        "file": f"{index:02}.png", "width": image.width, "height": image.height, "seed": f"golden/{index}.{attempt}",
        "classes": names,
        "ground_truth": [{"label": NAMES[label], "box": box} for label, box in
                         zip(scene.labels.tolist(), scene.boxes.tolist())],
        # What resizing in floating point instead of on 8 bits does to these scores.
        "score_change_without_rounding": round(float(change.max()), 5) if change.numel() else 0.0,
        "detections": detections(detector, candidates, names, image.width, image.height, index % MASK_EVERY == 0),
    }


def versions() -> dict[str, str]:
    """Versions of everything that takes part in the numbers."""
    return {"torch": torch.__version__, "torchvision": torchvision.__version__, "numpy": np.__version__,
            "transformers": transformers.__version__, "pillow": Image.__version__}


def sha256(*paths: Path) -> str:
    """SHA-256 of some files together."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make(detector: ReferenceDetector) -> None:
    """Draws and writes everything."""
    glyphs, images, redrawn = load_glyphs(), [], 0
    for index in range(COUNT):
        for attempt in range(100):
            rng = held_out_random("golden", f"{index}.{attempt}")
            scene = held_out_scene(rng, glyphs, *SIZES[index % len(SIZES)], noisy=0.1)
            names = ask(rng, scene)
            candidates = detector.candidates(detector.pixels(Image.fromarray(scene.image)), names)
            if len(scene.labels) and not is_decided_by_rounding(candidates):
                break
            redrawn += 1
        Image.fromarray(scene.image).save(HERE / f"{index:02}.png", optimize=True)
        images.append(describe(detector, index, attempt, scene, names, candidates))
    report = {
        "versions": versions(), "script_sha256": sha256(Path(__file__)),
        "scenes_sha256": sha256(*(TRAINING / name for name in ("backgrounds.py", "glyphs.py", "scenes.py",
                                                               "reference.py", "vocabulary.py"))),
        "weights_sha256": sha256(BUILTIN / "model.safetensors"),
        "imgsz": detector.size["height"], "prompt": "official", "score_threshold": THRESHOLD, "nms": SUPPRESSION,
        "redrawn": redrawn, "images": images,
    }
    (HERE / "detections.json").write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n")
    found = [one for image in images for one in image["detections"]]
    size = sum(path.stat().st_size for path in HERE.glob("*.png"))
    print(f"{len(images)} scenes, {size / 1e6:.2f} MB, {redrawn} redrawn, {len(found)} detections, "
          f"{sum('mask' in one for one in found)} masks, {sum(len(i['ground_truth']) for i in images)} instances drawn")


def check(detector: ReferenceDetector) -> None:
    """Compares with the committed file; raises where a detection differs by more than float32 noise."""
    report, worst = json.loads((HERE / "detections.json").read_text()), 0.0
    for index, entry in enumerate(report["images"]):
        image = Image.open(HERE / entry["file"])
        candidates = detector.candidates(detector.pixels(image), entry["classes"])
        again = detections(detector, candidates, entry["classes"], image.width, image.height, index % MASK_EVERY == 0)
        assert [one["label"] for one in again] == [one["label"] for one in entry["detections"]], entry["file"]
        for ours, theirs in zip(again, entry["detections"]):
            worst = max(worst, abs(ours["score"] - theirs["score"]))
            assert ours.get("mask") == theirs.get("mask") and worst < 1e-4, (entry["file"], ours, theirs)
    print(f"{len(report['images'])} scenes as committed, scores within {worst:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed files, write nothing")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    (check if arguments.check else make)(ReferenceDetector())


if __name__ == "__main__":
    main()
