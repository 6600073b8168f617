#!/usr/bin/env python3
"""Compares `ocelli track` with `trackers`' ByteTrack and writes the golden files that the tests compare with.

    pip install trackers==2.6.1 motmetrics==1.4.0 trackeval==1.3.0
    python make.py --ocelli target/release/ocelli --trials 60        tunes, measures, writes comparison.json and data/
    python make.py --ocelli target/release/ocelli --min-hits         measures what --min-hits costs and saves

Both trackers are tuned by the same number of random trials on the tuning seeds, towards the mean of MOTA and IDF1 over
the four kinds of sequences. Every figure that is written comes from the other seeds, and from `motmetrics`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import supervision as sv
from trackers import BoTSORTTracker, ByteTrackTracker, OCSORTTracker
from trackeval.metrics.hota import HOTA

from scores import LEAST_IOU, Counts, Hota, hota, iou, score
from sequences import HARDER, KINDS, Sequence, make_sequence

if not hasattr(np, "asfarray"):  # motmetrics 1.4 was written for NumPy 1.
    np.asfarray = lambda array, dtype=np.float64: np.asarray(array, dtype=dtype)
import motmetrics  # noqa: E402

HERE = Path(__file__).resolve().parent
TUNING_SEEDS = range(100, 103)
EVALUATION_SEEDS = range(200, 206)
# The sequences that are committed: the first seeds of the evaluation.
COMMITTED_SEEDS = range(200, 202)

# What is tuned: `trackers` says itself what and in which range; of ours as many.
PEER_SPACE = ByteTrackTracker.search_space
OUR_SPACE = {
    "--track-thresh": ("uniform", 0.35, 0.65),
    "--new-track-thresh": ("uniform", 0.35, 0.65),
    "--match-thresh": ("uniform", 0.3, 0.6),
    "--low-match-thresh": ("uniform", 0.2, 0.6),
    "--max-time-lost": ("randint", 10, 91),
}


def run_peer(sequence: Sequence, options: dict, kind: type = ByteTrackTracker) -> list[np.ndarray]:
    """Tracks by frame [n, 5], id and box, as `trackers` gives them: the detections that got an id."""
    tracker = kind(**options)
    tracks = []
    for found in sequence.detections:
        detections = sv.Detections(xyxy=found[:, :4], confidence=found[:, 4], class_id=np.zeros(len(found), int))
        result = tracker.update(detections)
        kept = result.tracker_id != -1 if len(result) else np.zeros(0, bool)
        tracks.append(np.concatenate([result.tracker_id[kept, None], result.xyxy[kept]], 1) if kept.any()
                      else np.zeros((0, 5)))
    return tracks


def write_mot(path: Path, frames: list[np.ndarray], with_id: bool) -> None:
    """Boxes by frame as MOTChallenge text."""
    lines = []
    for number, boxes in enumerate(frames, 1):
        for row in boxes:
            name, (x1, y1, x2, y2) = (int(row[0]), row[1:5]) if with_id else (-1, row[:4])
            rest = "1,1,1" if with_id else f"{row[4]:.3f}"
            lines.append(f"{number},{name},{x1:.1f},{y1:.1f},{x2 - x1:.1f},{y2 - y1:.1f},{rest}\n")
    path.write_text("".join(lines))


def run_ours(program: Path, sequence: Sequence, flags: dict) -> list[np.ndarray]:
    """Tracks by frame [n, 5], id and box, from the real program."""
    with tempfile.TemporaryDirectory() as folder:
        detections = Path(folder) / "det.txt"
        write_mot(detections, sequence.detections, with_id=False)
        arguments = [str(part) for flag in flags.items() for part in flag if part != ""]
        text = subprocess.run([program, "track", "--quiet", "--detections", detections, *arguments],
                              check=True, capture_output=True, text=True).stdout
    tracks: list[list] = [[] for _ in sequence.detections]
    for line in text.splitlines():
        frame, name, left, top, width, height = map(float, line.split(",")[:6])
        tracks[int(frame) - 1].append([name, left, top, left + width, top + height])
    return [np.array(rows).reshape(-1, 5) for rows in tracks]


def draw(rng: np.random.Generator, space: dict) -> dict:
    """Random options of a space."""
    options = {}
    for name, entry in space.items():
        kind, (low, high) = (entry["type"], entry["range"]) if isinstance(entry, dict) else (entry[0], entry[1:])
        options[name] = int(rng.integers(low, high)) if kind == "randint" else round(float(rng.uniform(low, high)), 3)
    return options


def mean_score(run, sequences: list[Sequence], options: dict) -> float:
    """The mean of MOTA and IDF1 over the kinds."""
    by_kind: dict[str, Counts] = {}
    for sequence in sequences:
        kind = sequence.name.split("-")[0]
        by_kind[kind] = by_kind.get(kind, Counts()) + score(sequence.truth, run(sequence, options))
    return float(np.mean([(counts.mota + counts.idf1) / 2 for counts in by_kind.values()]))


def tune(run, sequences: list[Sequence], space: dict, trials: int) -> dict:
    """The best of `trials` random options, the defaults among them."""
    rng = np.random.default_rng(0)
    best, best_score = {}, mean_score(run, sequences, {})
    for _ in range(trials):
        options = draw(rng, space)
        value = mean_score(run, sequences, options)
        if value > best_score:
            best, best_score = options, value
    return best


def measured(sequence: Sequence, tracks: list[np.ndarray]) -> Counts:
    """Counts by `motmetrics`; ours have to be the same."""
    accumulator = motmetrics.MOTAccumulator(auto_id=True)
    for objects, found in zip(sequence.truth, tracks):
        ltwh = [np.concatenate([rows[:, 1:3], rows[:, 3:] - rows[:, 1:3]], 1) for rows in (objects, found)]
        distance = motmetrics.distances.iou_matrix(*ltwh, max_iou=1 - LEAST_IOU)
        accumulator.update(objects[:, 0].astype(int), found[:, 0].astype(int), distance)
    names = ["num_objects", "num_predictions", "num_misses", "num_false_positives", "num_switches", "idtp"]
    row = motmetrics.metrics.create().compute(accumulator, metrics=names).iloc[0]
    counts = Counts(*(int(row[name]) for name in names))
    quick = score(sequence.truth, tracks)
    if quick != counts:
        print(f"{sequence.name}: motmetrics counts {counts}, scores.py {quick}")
    check_hota(sequence, tracks)
    return counts


def check_hota(sequence: Sequence, tracks: list[np.ndarray]) -> None:
    """Says so if HOTA is not that of TrackEval."""
    data: dict = {"similarity_scores": [
        iou(a[:, 1:], b[:, 1:]) if len(a) and len(b) else np.zeros((len(a), len(b)))
        for a, b in zip(sequence.truth, tracks)
    ]}
    for name, frames in [("gt", sequence.truth), ("tracker", tracks)]:
        place = {one: at for at, one in enumerate(sorted({int(row[0]) for rows in frames for row in rows}))}
        data[f"{name}_ids"] = [np.array([place[int(row[0])] for row in rows], int) for rows in frames]
        data |= {f"num_{name}_ids": len(place), f"num_{name}_dets": sum(map(len, frames))}
    theirs, ours = HOTA().eval_sequence(data)["HOTA"].mean(), hota(sequence.truth, tracks).hota
    if abs(theirs - ours) > 1e-9:
        print(f"{sequence.name}: TrackEval counts HOTA {theirs}, scores.py {ours}")


def report(counts: Counts) -> dict:
    """Counts and what follows from them."""
    return {**vars(counts), "mota": round(counts.mota, 4), "idf1": round(counts.idf1, 4)}


def compare(program: Path, trials: int, keep_peer: bool) -> None:
    """Tunes, measures and writes; with `keep_peer` takes the tuned options of `trackers` from the last time."""
    ours = lambda sequence, options: run_ours(program, sequence, options)
    tuning = [make_sequence(kind, seed) for kind in KINDS for seed in TUNING_SEEDS]
    before = json.loads((HERE / "comparison.json").read_text())["settings"] if keep_peer else None
    settings = {
        "defaults": {"trackers": {}, "ocelli": {}},
        "tuned": {"trackers": before["tuned"]["trackers"] if before else tune(run_peer, tuning, PEER_SPACE, trials),
                  "ocelli": tune(ours, tuning, OUR_SPACE, trials)},
    }
    evaluation = [make_sequence(kind, seed) for kind in KINDS for seed in EVALUATION_SEEDS]
    versions = {name: version(name) for name in ["trackers", "motmetrics", "numpy", "scipy"]}
    document = {"versions": versions, "trials": trials, "settings": settings, "kinds": {}, "sequences": {}}
    data = HERE / "data"
    data.mkdir(exist_ok=True)
    print("| sequences | | trackers MOTA | ocelli MOTA | trackers IDF1 | ocelli IDF1 |\n|---|---|---|---|---|---|")
    for setting, options in settings.items():
        totals: dict[str, dict[str, Counts]] = {}
        for sequence in evaluation:
            kind, seed = sequence.name.rsplit("-", 1)
            committed = int(seed) in COMMITTED_SEEDS
            if committed:
                write_mot(data / f"{sequence.name}.det.txt", sequence.detections, with_id=False)
                write_mot(data / f"{sequence.name}.truth.txt", sequence.truth, with_id=True)
            for name, run in [("trackers", run_peer), ("ocelli", ours)]:
                counts = measured(sequence, run(sequence, options[name]))
                for key in (kind, "all"):
                    group = totals.setdefault(key, {})
                    group[name] = group.get(name, Counts()) + counts
                if committed:
                    document["sequences"].setdefault(sequence.name, {}).setdefault(setting, {})[name] = report(counts)
        for key, group in totals.items():
            document["kinds"].setdefault(key, {})[setting] = {name: report(one) for name, one in group.items()}
            peer, own = group["trackers"], group["ocelli"]
            print(f"| {key} | {setting} | {peer.mota:.3f} | {own.mota:.3f} | {peer.idf1:.3f} | {own.idf1:.3f} |")
    (HERE / "comparison.json").write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(settings["tuned"]))


def measure_harder(program: Path) -> None:
    """A table of all kinds, the harder ones too, with the defaults of each tracker: HOTA, IDF1, MOTA, switches."""
    # BoT-SORT's compensation needs images, which drawn boxes have not.
    runs = {
        "Ocelli": lambda sequence: run_ours(program, sequence, {}),
        "ByteTrack": lambda sequence: run_peer(sequence, {}),
        "OC-SORT": lambda sequence: run_peer(sequence, {}, OCSORTTracker),
        "BoT-SORT": lambda sequence: run_peer(sequence, {"enable_cmc": False}, BoTSORTTracker),
    }
    print(f"| sequences | {' | '.join(runs)} |\n|---|{'---|' * len(runs)}")
    total = {name: (Counts(), Hota()) for name in runs}
    for kind in KINDS | HARDER:
        cells = []
        sequences = [make_sequence(kind, seed) for seed in EVALUATION_SEEDS]
        for name, run in runs.items():
            counts, quality = Counts(), Hota()
            for sequence in sequences:
                tracks = run(sequence)
                counts, quality = counts + score(sequence.truth, tracks), quality + hota(sequence.truth, tracks)
            total[name] = (total[name][0] + counts, total[name][1] + quality)
            cells.append((counts, quality))
        print_row(kind, cells)
    print_row("all", total.values())


def print_row(name: str, cells) -> None:
    texts = (
        f"{100 * quality.hota:.1f} / {100 * counts.idf1:.1f} / {100 * counts.mota:.1f} ({counts.switches})"
        for counts, quality in cells
    )
    print(f"| {name} | {' | '.join(texts)} |")


def measure_min_hits(program: Path) -> None:
    """A table of what the number of hits before a track is shown does, on the tuning seeds."""
    sequences = [make_sequence(kind, seed) for kind in KINDS for seed in TUNING_SEEDS]
    print("| `--min-hits` | `--sure-thresh` | MOTA | IDF1 | misses | false alarms | switches |\n|---|---|---|---|---|---|---|")
    for hits in [1, 2, 3, 4]:
        for sure in [None, 0.8, 0.7, 0.6] if hits > 1 else [None]:
            flags = {"--min-hits": hits} | ({"--sure-thresh": sure} if sure else {})
            total = Counts()
            for sequence in sequences:
                total += score(sequence.truth, run_ours(program, sequence, flags))
            print(f"| {hits} | {sure or '–'} | {total.mota:.4f} | {total.idf1:.4f} | {total.misses} | "
                  f"{total.false_alarms} | {total.switches} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ocelli", type=Path, required=True, help="the program")
    parser.add_argument("--trials", type=int, default=60, help="random options tried for each tracker")
    parser.add_argument("--keep-peer", action="store_true", help="take trackers' tuned options from comparison.json")
    parser.add_argument("--min-hits", action="store_true", help="only measure --min-hits")
    parser.add_argument("--harder", action="store_true", help="only the table with the harder sequences")
    arguments = parser.parse_args()
    if arguments.harder:
        measure_harder(arguments.ocelli.resolve())
    elif arguments.min_hits:
        measure_min_hits(arguments.ocelli.resolve())
    else:
        compare(arguments.ocelli.resolve(), arguments.trials, arguments.keep_peer)


if __name__ == "__main__":
    main()
