#!/usr/bin/env python3
"""Compares two ways of tracking on the videos of `videos.py`: `ocelli video --track` and `--memory`.

    python evaluate_tracks.py --videos DIR --program target/release/ocelli [--model MODEL]

Objects that are visible by less than half are neither missed nor false. The overlap of a track with an object is the
larger of those with its whole and with its visible box, since boxes are of the whole and masks of the visible part. An
occlusion, of at least three frames, is kept if the object's last id before it is the one that it has ten frames after
it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

# An object counts from this visible share on, and is hidden below the other, for at least so many frames.
COUNTS, HIDDEN, LONG, AFTER = 0.5, 0.25, 3, 10
ALPHAS = np.arange(0.05, 0.99, 0.05)


def iou(a, b) -> float:
    """The IoU of two boxes, 0 if one is missing."""
    if a is None or b is None:
        return 0.0
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(0.0, width) * max(0.0, height)
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


def overlaps(objects, tracks) -> np.ndarray:
    """Overlaps of objects and tracks of one frame, 0 for other classes."""
    return np.array([[max(iou(one["box"], track["box"]), iou(one["seen"], track["box"]))
                      if one["label"] == track["label"] else 0.0 for track in tracks] for one in objects]
                    ).reshape(len(objects), len(tracks))


def assign(score: np.ndarray) -> list[tuple[int, int]]:
    """The pairs with the greatest sum."""
    return list(zip(*(side.tolist() for side in linear_sum_assignment(-score)))) if score.size else []


def read_tracks(text: str, frames: int) -> list[list[dict]]:
    """The tracks of JSON lines, by frame."""
    found: list[list[dict]] = [[] for _ in range(frames)]
    for line in text.splitlines():
        report = json.loads(line)
        for track in report["tracks"]:
            box = track["box"]
            found[report["frame"]].append({"id": track["id"], "label": track["label"], "box": box})
    return found


def prepared(truth, tracks):
    """Per frame the objects that count, the tracks without those of hidden objects, and their overlaps."""
    for objects, found in zip(truth, tracks):
        whole = overlaps(objects, found)
        pairs = assign(np.where(whole >= 0.5, whole + 1, 0))
        ignored = {column for row, column in pairs if whole[row, column] >= 0.5 and objects[row]["visible"] < COUNTS}
        rows = [row for row, one in enumerate(objects) if one["visible"] >= COUNTS]
        columns = [column for column in range(len(found)) if column not in ignored]
        yield [objects[row] for row in rows], [found[column] for column in columns], whole[np.ix_(rows, columns)]


def hota(frames) -> np.ndarray:
    """Counts for HOTA by alpha: [19, 4] true positives, misses, false alarms, sum of association scores."""
    together, of_truth, of_track = Counter(), Counter(), Counter()
    for objects, found, overlap in frames:
        total = overlap.sum(0)[None] + overlap.sum(1)[:, None] - overlap
        share = np.divide(overlap, total, out=np.zeros_like(overlap), where=total > 0)
        for row, one in enumerate(objects):
            for column, track in enumerate(found):
                together[one["id"], track["id"]] += share[row, column]
        of_truth.update(one["id"] for one in objects)
        of_track.update(track["id"] for track in found)
    result = np.zeros((len(ALPHAS), 4))
    matches = [Counter() for _ in ALPHAS]
    for objects, found, overlap in frames:
        align = np.array([[together[one["id"], track["id"]] / max(
            of_truth[one["id"]] + of_track[track["id"]] - together[one["id"], track["id"]], 1e-9) for track in found]
            for one in objects]).reshape(overlap.shape)
        pairs = assign(align * overlap)
        for index, alpha in enumerate(ALPHAS):
            kept = [(row, column) for row, column in pairs if overlap[row, column] >= alpha - 1e-9]
            result[index, :3] += len(kept), len(objects) - len(kept), len(found) - len(kept)
            matches[index].update((objects[row]["id"], found[column]["id"]) for row, column in kept)
    for index, counts in enumerate(matches):
        result[index, 3] = sum(count * count / (of_truth[a] + of_track[b] - count) for (a, b), count in counts.items())
    return result


def identity(frames) -> tuple[int, int, int]:
    """Frames of the best assignment of ids, of objects, and of tracks."""
    together, objects_, tracks_ = Counter(), Counter(), Counter()
    for objects, found, overlap in frames:
        for row, one in enumerate(objects):
            for column, track in enumerate(found):
                together[one["id"], track["id"]] += overlap[row, column] >= 0.5
        objects_.update(one["id"] for one in objects)
        tracks_.update(track["id"] for track in found)
    table = np.array([[together[a, b] for b in tracks_] for a in objects_]).reshape(len(objects_), len(tracks_))
    return int(sum(table[pair] for pair in assign(table))), sum(objects_.values()), sum(tracks_.values())


def matched_ids(truth, tracks) -> list[dict]:
    """Per frame the track's id of each object that has one; an id stays with an object while it overlaps."""
    last: dict = {}
    out = []
    for objects, found in zip(truth, tracks):
        overlap = overlaps(objects, found)
        bonus = np.array([[last.get(one["id"]) == track["id"] for track in found] for one in objects])
        bonus = bonus.reshape(overlap.shape)
        score = np.where(overlap >= 0.5, overlap + 1000 * bonus + 1, 0)
        now = {objects[row]["id"]: found[column]["id"] for row, column in assign(score)
               if overlap[row, column] >= 0.5 and objects[row]["visible"] >= COUNTS}
        last.update(now)
        out.append(now)
    return out


def occlusions(truth, ids) -> tuple[int, int, int]:
    """Occlusions of objects that had an id: all, those after which it has the same, and those after which another."""
    states: dict = {}
    total = kept = switched = 0
    every = sorted({one["id"] for objects in truth for one in objects})
    for name in every:
        visible = [next((one["visible"] for one in objects if one["id"] == name), 0.0) for objects in truth]
        frame = 0
        while frame < len(visible):
            if visible[frame] >= HIDDEN:
                frame += 1
                continue
            end = frame
            while end < len(visible) and visible[end] < HIDDEN:
                end += 1
            back = next((at for at in range(end, len(visible)) if visible[at] >= COUNTS), None)
            hidden_again = back is not None and any(visible[at] < HIDDEN for at in range(end, back))
            before = next((ids[at][name] for at in range(frame - 1, max(frame - 15, -1), -1) if name in ids[at]), None)
            if end - frame >= LONG and back is not None and not hidden_again and before is not None:
                after = [ids[at][name] for at in range(back, min(back + AFTER, len(visible))) if name in ids[at]]
                total += 1
                kept += bool(after) and after[-1] == before
                switched += bool(after) and after[-1] != before
            frame = end
    return total, kept, switched


def switches(ids) -> int:
    """How often an object's id differs from its last one."""
    last: dict = {}
    count = 0
    for now in ids:
        count += sum(name in last and last[name] != found for name, found in now.items())
        last.update(now)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--videos", type=Path, required=True, help="folder of videos.py")
    parser.add_argument("--program", type=Path, required=True, help="the program ocelli")
    parser.add_argument("--model", default="built-in", help="model with a tracker (default: the built-in one)")
    parser.add_argument("--ways", nargs="+", default=["track", "memory"], help="options to compare, without --")
    arguments = parser.parse_args()
    for way in arguments.ways:
        of_hota, of_identity, events, total = np.zeros((len(ALPHAS), 4)), np.zeros(3, int), np.zeros(3, int), 0
        for folder in sorted(arguments.videos.iterdir()):
            truth = json.loads((folder / "truth.json").read_text())
            command = [str(arguments.program), "video", "--model", arguments.model, "--video", str(folder / "frames"),
                       "--fps", "25", "--classes", *truth["classes"], *f"--{way}".split(), "--jsonl", "-"]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                raise SystemExit(f"error: {' '.join(command)}: {run.stderr}")
            tracks = read_tracks(run.stdout, len(truth["frames"]))
            frames = list(prepared(truth["frames"], tracks))
            of_hota += hota(frames)
            of_identity += identity(frames)
            ids = matched_ids(truth["frames"], tracks)
            events += occlusions(truth["frames"], ids)
            total += switches(ids)
        hits, misses, alarms, association = of_hota.T
        detection = hits / (hits + misses + alarms)
        association = association / np.maximum(hits, 1)
        right, objects, found = of_identity
        at = 9
        print(f"{way}: HOTA {100 * np.sqrt(detection * association).mean():.1f}  DetA {100 * detection.mean():.1f}  "
              f"AssA {100 * association.mean():.1f}  IDF1 {200 * right / (objects + found):.1f}  switches {total}  "
              f"occlusions {events[0]}: kept {events[1]}, another id {events[2]}  "
              f"missed {int(misses[at])}, false {int(alarms[at])} of {objects}", flush=True)


if __name__ == "__main__":
    main()
