#!/usr/bin/env python3
"""Measures each option of the tracker on harder sequences, beside the trackers of PyPI's `trackers`.

    pip install trackers==2.6.1 motmetrics==1.4.0 trackeval==1.3.0
    python harder.py --ocelli target/release/ocelli               measures, writes harder.json and data/
    python harder.py --ocelli target/release/ocelli --tuning      the same on the seeds for choosing defaults, writes nothing

Every figure is that of TrackEval; MOTA and IDF1 agree with `motmetrics`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import supervision as sv
from trackers import ByteTrackTracker, OCSORTTracker, SORTTracker
from trackeval.metrics.hota import HOTA

from make import COMMITTED_SEEDS, EVALUATION_SEEDS, HERE, TUNING_SEEDS, measured, run_ours, write_mot
from scores import Counts, Hota, hota, iou
from sequences import HARDER, KINDS, Sequence, make_sequence

# The options of `ocelli track` that are compared, by name. `None` stands for the file with the motion of the camera.
OPTIONS: dict[str, dict] = {
    "defaults": {},
    "replay-gaps": {"--replay-gaps": ""},
    "momentum": {"--momentum": 0.2},
    "recover": {"--recover-thresh": 0.3},
    "all three": {"--replay-gaps": "", "--momentum": 0.2, "--recover-thresh": 0.3},
    "camera-motion": {"--camera-motion": None},
}
PEERS = {"ByteTrack": ByteTrackTracker, "SORT": SORTTracker, "OC-SORT": OCSORTTracker}


def run_peer(tracker, sequence: Sequence) -> list[np.ndarray]:
    """Tracks by frame [n, 5], id and box: the detections that got an id."""
    tracks = []
    for found in sequence.detections:
        result = tracker.update(sv.Detections(xyxy=found[:, :4], confidence=found[:, 4], class_id=np.zeros(len(found), int)))
        kept = result.tracker_id != -1 if len(result) else np.zeros(0, bool)
        boxes = np.concatenate([result.tracker_id[kept, None], result.xyxy[kept]], 1) if kept.any() else np.zeros((0, 5))
        tracks.append(boxes)
    return tracks


def write_motion(path: Path, motion: list[np.ndarray]) -> None:
    """The motion of the camera as `ocelli track --camera-motion` reads it."""
    lines = [f"{number},{','.join(f'{value:.6f}' for value in matrix.ravel())}\n" for number, matrix in enumerate(motion, 1)]
    path.write_text("".join(lines))


def run_with(program: Path, sequence: Sequence, flags: dict) -> list[np.ndarray]:
    """Tracks of `ocelli track`. Without a motion of the camera its flag is left out."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "motion.txt"
        if sequence.motion:
            write_motion(file, sequence.motion)
        flags = {flag: file if value is None else value for flag, value in flags.items() if value is not None or sequence.motion}
        return run_ours(program, sequence, flags)


def checked(sequence: Sequence, tracks: list[np.ndarray]) -> tuple[Counts, Hota]:
    """MOTA and IDF1 as `motmetrics` and HOTA as TrackEval count them."""
    numbered = []
    for frames in (sequence.truth, tracks):
        place = {name: at for at, name in enumerate(sorted({int(row[0]) for rows in frames for row in rows}))}
        numbered.append([np.array([place[int(row[0])] for row in rows], int) for rows in frames])
    overlap = lambda a, b: iou(a[:, 1:], b[:, 1:]) if len(a) and len(b) else np.zeros((len(a), len(b)))
    sizes = [sum(map(len, frames)) for frames in (sequence.truth, tracks)]
    ids = [len({int(row[0]) for rows in frames for row in rows}) for frames in (sequence.truth, tracks)]
    theirs = HOTA().eval_sequence({
        "num_gt_dets": sizes[0], "num_tracker_dets": sizes[1], "num_gt_ids": ids[0], "num_tracker_ids": ids[1],
        "gt_ids": numbered[0], "tracker_ids": numbered[1],
        "similarity_scores": [overlap(a, b) for a, b in zip(sequence.truth, tracks)],
    })["HOTA"].mean()
    quick = hota(sequence.truth, tracks)
    if abs(quick.hota - theirs) > 1e-9:
        print(f"{sequence.name}: TrackEval counts HOTA {theirs}, scores.py {quick.hota}")
    return measured(sequence, tracks), quick


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ocelli", type=Path, required=True, help="the program")
    parser.add_argument("--tuning", action="store_true", help="the tuning seeds, nothing is written")
    parser.add_argument("--options", help="JSON: other options to compare, by name")
    arguments = parser.parse_args()
    program, seeds = arguments.ocelli.resolve(), TUNING_SEEDS if arguments.tuning else EVALUATION_SEEDS
    runs = {f"trackers {name}": lambda sequence, make=make: run_peer(make(), sequence) for name, make in PEERS.items()}
    for name, flags in (json.loads(arguments.options) if arguments.options else OPTIONS).items():
        runs[f"ocelli, {name}"] = lambda sequence, flags=flags: run_with(program, sequence, flags)
    if arguments.options:
        runs = {name: run for name, run in runs.items() if name.startswith("ocelli")}
    totals: dict[str, dict[str, tuple[Counts, Hota]]] = {}
    of_sequences: dict[str, dict] = {}
    for kind in [*KINDS, *HARDER]:
        for seed in seeds:
            sequence = make_sequence(kind, seed)
            committed = not arguments.tuning and kind in HARDER and seed in COMMITTED_SEEDS[:1]
            if committed:
                write_mot(HERE / "data" / f"{sequence.name}.det.txt", sequence.detections, with_id=False)
                write_mot(HERE / "data" / f"{sequence.name}.truth.txt", sequence.truth, with_id=True)
                if sequence.motion:
                    write_motion(HERE / "data" / f"{sequence.name}.motion.txt", sequence.motion)
            for name, run in runs.items():
                tracks = run(sequence)
                counts, score = checked(sequence, tracks)
                for key in (kind, "all"):
                    before = totals.setdefault(key, {}).get(name, (Counts(), Hota()))
                    totals[key][name] = (before[0] + counts, before[1] + score)
                if committed:
                    entry = {"hota": round(score.hota, 4), "mota": round(counts.mota, 4), "idf1": round(counts.idf1, 4)}
                    of_sequences.setdefault(sequence.name, {})[name] = entry
    document: dict = {"versions": {name: version(name) for name in ["trackers", "motmetrics", "trackeval", "numpy"]},
                      "options": OPTIONS, "kinds": {}, "sequences": of_sequences}
    print(f"| sequences | {' | '.join(runs)} |\n|---|{'---|' * len(runs)}")
    for key, group in totals.items():
        cells = []
        for name, (counts, score) in group.items():
            entry = {"hota": round(score.hota, 4), "idf1": round(counts.idf1, 4), "mota": round(counts.mota, 4),
                     "switches": counts.switches}
            document["kinds"].setdefault(key, {})[name] = entry
            cells.append(f"{100 * score.hota:.1f} {100 * counts.idf1:.1f} {100 * counts.mota:.1f} ({counts.switches})")
        print(f"| {key} | {' | '.join(cells)} |")
    if not arguments.tuning and not arguments.options:
        (HERE / "harder.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
