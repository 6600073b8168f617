"""Draws ground truth and predictions of every format that `ocelli eval --video` reads, from a seed.

Tracks miss objects, change ids, and are where nothing is; frames and sequences are empty; boxes, masks and scores are equal,
so that figures depend on how ties are resolved.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image
from pycocotools import mask as codec


def encoded(bitmap: np.ndarray) -> dict:
    rle = codec.encode(np.asfortranarray(bitmap.astype(np.uint8)))
    return {"size": [int(side) for side in rle["size"]], "counts": rle["counts"].decode()}


def uncompressed(bitmap: np.ndarray) -> dict:
    flat = bitmap.astype(np.uint8).flatten(order="F")
    edges = [0, *np.flatnonzero(np.diff(np.concatenate([[0], flat]))).tolist(), flat.size]
    return {"size": list(bitmap.shape), "counts": [b - a for a, b in zip(edges, edges[1:])]}


def ellipse(width: int, height: int, x: float, y: float, rx: float, ry: float) -> np.ndarray:
    ys, xs = np.mgrid[:height, :width]
    return ((xs - x) / rx) ** 2 + ((ys - y) / ry) ** 2 <= 1


class Walkers:
    """Objects that walk, and tracks of them."""

    def __init__(self, random: np.random.Generator, objects: int, frames: int, width: int, height: int):
        self.random, self.frames = random, frames
        self.start = random.uniform([0, 0], [width, height], (objects, 2))
        self.step = random.normal(0, width / frames / 4, (objects, 2))
        self.size = random.uniform(min(width, height) / 6, min(width, height) / 2.5, (objects, 2))
        begin = random.integers(0, max(1, frames // 2), objects)
        self.seen = [set(range(one, int(random.integers(one + 1, frames + 1)))) for one in begin]
        for seen in self.seen:
            seen -= {int(frame) for frame in random.integers(0, frames, frames // 6)}
        self.track = list(range(1, objects + 1))
        self.next = objects + 1
        self.blank = int(random.integers(0, frames))

    def at(self, one: int, frame: int) -> np.ndarray:
        return self.start[one] + self.step[one] * frame

    def found(self, frame: int) -> list[tuple[int, int]]:
        """Objects that are tracked, with the ids of their tracks."""
        if frame == self.blank:
            return []
        if self.random.random() < 0.25 and len(self.track) > 1:
            a, b = self.random.choice(len(self.track), 2, replace=False)
            self.track[a], self.track[b] = self.track[b], self.track[a]
        if self.random.random() < 0.2 and self.track:
            self.track[int(self.random.integers(len(self.track)))] = self.next
            self.next += 1
        return [(one, self.track[one]) for one, seen in enumerate(self.seen)
                if frame in seen and self.random.random() > 0.15]


def mot(random, folder: Path, name: str, sequences: list[str], classes: list[int] | None) -> dict:
    for sequence in sequences:
        frames = int(random.integers(8, 20))
        walkers = Walkers(random, int(random.integers(2, 8)), frames, 400, 300)
        truth, tracks = [], []
        kinds = [1 if classes is None or random.random() < 0.6 else int(random.choice(classes)) for _ in walkers.seen]
        # Integers make ties; fractions make sums that round.
        digits = int(random.choice([0, 0, 2]))
        line = lambda values: ",".join(str(round(float(v), digits) if digits else int(v)) for v in values)
        whole = sequence.endswith("00")
        for frame in range(frames):
            for one, seen in enumerate(walkers.seen):
                if frame in seen and not whole:
                    flag = int(random.random() > 0.1)
                    kind = kinds[one] if classes else -1
                    box = [*walkers.at(one, frame), *walkers.size[one]]
                    truth.append(f"{frame + 1},{one + 1},{line(box)},{flag},{kind},1")
            for one, track in walkers.found(frame):
                noise = random.choice([0, 0, 4, 15, 40])
                box = np.concatenate([walkers.at(one, frame), walkers.size[one]]) + random.normal(0, 1, 4) * noise
                box[2:] = np.maximum(box[2:], 0)
                tracks.append(f"{frame + 1},{track},{line(box)},{random.random():.3f},-1,-1,-1")
                if random.random() < 0.15:
                    walkers.next += 1
                    tracks.append(f"{frame + 1},{walkers.next},{line(box)},1,-1,-1,-1")
            if random.random() < 0.3:
                walkers.next += 1
                box = random.uniform([0, 0, 10, 10], [400, 300, 90, 90])
                tracks.append(f"{frame + 1},{walkers.next},{line(box)},1,-1,-1,-1")
        place = folder / name / "truth" / sequence
        (place / "gt").mkdir(parents=True)
        (place / "gt/gt.txt").write_text("".join(f"{one}\n" for one in truth))
        (place / "seqinfo.ini").write_text(f"[Sequence]\nname={sequence}\nseqLength={frames}\n")
        (folder / name / "tracks").mkdir(exist_ok=True)
        (folder / name / "tracks" / f"{sequence}.txt").write_text("".join(f"{one}\n" for one in tracks))
    return {"name": name, "truth": [f"{name}/truth"], "predictions": f"{name}/tracks"}


def vis(random, folder: Path, name: str) -> dict:
    categories = [{"id": 5, "name": "dog"}, {"id": 2, "name": "cat"}, {"id": 9, "name": "kite"}]
    videos, truth, found = [], [], []
    for number, id in enumerate([7, 3, 4]):
        frames, (width, height) = int(random.integers(3, 7)), [(400, 300), (60, 44), (600, 400)][number]
        names = [f"video{id}/{frame:05}.jpg" for frame in range(frames)]
        videos.append({"id": id, "width": width, "height": height, "length": frames, "file_names": names})
        walkers = Walkers(random, int(random.integers(3, 6)), frames, width, height)
        for one, seen in enumerate(walkers.seen):
            category = int(random.choice([5, 2]))
            kind = uncompressed if random.random() < 0.5 else encoded
            shapes = [ellipse(width, height, *walkers.at(one, frame), *np.maximum(2, walkers.size[one] / 1.2))
                      if frame in seen else None for frame in range(frames)]
            shapes = [None if shape is None or not shape.any() else shape for shape in shapes]
            if all(shape is None for shape in shapes):
                continue
            truth.append({"id": len(truth) + 1, "video_id": id, "category_id": category, "width": width, "height": height,
                          "iscrowd": int(random.random() < 0.15), "length": frames,
                          "segmentations": [None if shape is None else kind(shape) for shape in shapes],
                          "bboxes": [None if shape is None else codec.toBbox(codec.encode(np.asfortranarray(
                              shape.astype(np.uint8)))).tolist() for shape in shapes],
                          "areas": [None if shape is None else int(shape.sum()) for shape in shapes]})
            for _ in range(int(random.choice([0, 1, 1, 2, 2]))):
                noise = random.choice([0, 0, 0.05, 0.2])
                moved = [ellipse(width, height, *(walkers.at(one, frame) + random.normal(0, 1, 2) * noise * walkers.size[one]),
                                 *np.maximum(2, walkers.size[one] / 1.2 * random.normal(1, noise / 2)))
                         if frame in seen and random.random() > 0.15 else None for frame in range(frames)]
                other = int(random.choice([5, 2, 9])) if random.random() < 0.15 else category
                found.append({"video_id": id, "category_id": other, "score": round(float(random.random()), 1),
                              "segmentations": [None if shape is None or not shape.any() else encoded(shape)
                                                for shape in moved]})
        if id == 3:
            for _ in range(104):
                box = ellipse(width, height, *random.uniform([0, 0], [width, height]), 3, 3)
                masks = [encoded(box)] + [None] * (frames - 1)
                found.append({"video_id": id, "category_id": 2, "score": round(float(random.random() * 0.4), 2),
                              "segmentations": masks})
    document = {"videos": videos, "categories": categories, "annotations": truth}
    document["video_np_pairs"] = [{"video_id": video["id"], "category_id": category["id"]} for video in videos
                                  for category in categories if random.random() < 0.8]
    (folder / name).mkdir(parents=True)
    (folder / name / "truth.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")
    (folder / name / "tracks.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    return {"name": name, "truth": [f"{name}/truth.json"], "predictions": f"{name}/tracks.json"}


def davis(random, folder: Path, name: str, given: bool) -> dict:
    for sequence, (width, height) in [("goat", (64, 40)), ("train", (150, 110))]:
        frames = int(random.integers(4, 9))
        objects = int(random.integers(2, 4))
        walkers = Walkers(random, objects + 1, frames, width, height)
        for part in ("truth", "masks"):
            (folder / name / part / sequence).mkdir(parents=True)
        for frame in range(frames):
            truth, masks = np.zeros((2, height, width), np.uint8)
            for one in range(objects + 1):
                # All but one are in the first frame, whose highest number is the number of objects.
                if frame == 0 and one == objects or frame and frame not in walkers.seen[one] and random.random() < 0.6:
                    continue
                at = np.clip(walkers.at(one, frame), 0, [width, height])
                size = np.maximum(3, walkers.size[one] / 1.5)
                truth[ellipse(width, height, *at, *size)] = one + 1
                noise = random.choice([0, 0, 1, 4])
                number = one + 1 if given else 1 + (one + 2) % (objects + 3)
                if random.random() > 0.15 and not (given and one == objects):
                    masks[ellipse(width, height, *(at + random.normal(0, 1, 2) * noise), *size)] = number
            truth[ellipse(width, height, *random.uniform([0, 0], [width, height]), 4, 4)] = 255
            if frame == 0:
                truth[:2, :2] = objects
            for part, pixels in (("truth", truth), ("masks", masks)):
                image = Image.fromarray(pixels)
                image.putpalette([255 * (channel == place % 3) for place in range(256) for channel in range(3)])
                image.save(folder / name / part / sequence / f"{frame:05}.png", optimize=True)
    return {"name": name, "truth": [f"{name}/truth"], "predictions": f"{name}/masks"}


def saco(random, folder: Path, name: str, annotators: int, count: int) -> dict:
    width, height = 60, 40
    sets = [{"images": [], "annotations": [], "categories": [{"id": 1, "name": "object"}]} for _ in range(annotators)]
    found = []
    box_of = lambda shape: codec.toBbox(codec.encode(np.asfortranarray(shape.astype(np.uint8)))).tolist()
    for number in range(count):
        id = 3 * number + 1
        objects = int(random.choice([0, 0, 1, 2, 4]))
        places = [(*random.uniform([5, 5], [width - 5, height - 5]), *random.uniform(3, 12, 2)) for _ in range(objects)]
        for person, one in enumerate(sets):
            one["images"].append({"id": id, "width": width, "height": height, "file_name": f"{number}.png",
                                  "text_input": "dog", "is_instance_exhaustive": int(random.random() > 0.12)})
            for place in places:
                if person and random.random() < 0.2:
                    continue
                shape = ellipse(width, height, *(np.array(place) + random.normal(0, 0.6, 4) * (person > 0)))
                one["annotations"].append({"id": len(one["annotations"]) + 1, "image_id": id, "category_id": 1,
                                           "iscrowd": int(random.random() < 0.1), "area": int(shape.sum()),
                                           "bbox": box_of(shape), "segmentation": encoded(shape)})
        for place in places + [(*random.uniform([5, 5], [width - 5, height - 5]), 6, 6)] * int(random.random() < 0.4):
            for _ in range(int(random.choice([0, 1, 1, 1, 2]))):
                shape = ellipse(width, height, *(np.array(place) + random.normal(0, 1, 4) * random.choice([0, 0, 1])))
                found.append({"image_id": id, "category_id": 1, "score": round(float(random.uniform(0.3, 1)), 1),
                              "bbox": box_of(shape), "segmentation": encoded(shape)})
    (folder / name).mkdir(parents=True)
    for person, one in enumerate(sets):
        (folder / name / f"truth{person}.json").write_text(json.dumps(one, separators=(",", ":")) + "\n")
    (folder / name / "found.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    return {"name": name, "truth": [f"{name}/truth{person}.json" for person in range(annotators)],
            "predictions": f"{name}/found.json"}


def draw(seed: int, folder: Path) -> list[dict]:
    """Writes one case of each kind into a folder."""
    random = np.random.default_rng(seed)
    return [
        mot(random, folder, "mot17", ["MOT17-01", "MOT17-02"], [1, 2, 3, 6, 7, 8, 12]),
        mot(random, folder, "mot20", ["MOT20-01"], [1, 2, 6, 7, 13]),
        mot(random, folder, "mot15", ["SEQ-00", "SEQ-01"], None),
        # In data/ what follows was drawn after one more case, so another run draws other files.
        vis(random, folder, "vis"),
        davis(random, folder, "davis-given", True),
        davis(random, folder, "davis-free", False),
        saco(random, folder, "saco", 1, 14),
        saco(random, folder, "saco-oracle", 3, 14),
    ]
