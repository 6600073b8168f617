"""Scores of what `bench-appearance` has written: HOTA, IDF1, MOTA and identity switches, with and without appearance.

    bench-appearance --output tracks
    python benchmarks/tracking/appearance.py tracks

Objects count from half visible on; tracks of those that are hidden more are neither right nor wrong. Needs numpy and scipy.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/golden/tracking"))
from scores import LEAST_IOU, Counts, Hota, hota, iou, score  # noqa: E402

LEAST_VISIBLE = 0.5


def read(path: Path) -> np.ndarray:
    """Rows [n, 10] or [n, 9] of a MOTChallenge file, with boxes as xyxy."""
    rows = np.loadtxt(path, delimiter=",", ndmin=2)
    rows[:, 4:6] += rows[:, 2:4]
    return rows


def main() -> None:
    folder = Path(sys.argv[1])
    seeds = sorted(path.stem.split("-")[1] for path in folder.glob("truth-*.txt"))
    if not seeds:
        sys.exit(f"{folder} has no truth-SEED.txt: expected a folder that bench-appearance has written")
    for name in ["overlap", "appearance"]:
        counts, quality, ids = Counts(), Hota(), 0
        for seed in seeds:
            truth, tracks = read(folder / f"truth-{seed}.txt"), read(folder / f"{name}-{seed}.txt")
            ids += len(set(tracks[:, 1]))
            objects, found = [], []
            for frame in range(1, int(truth[:, 0].max()) + 1):
                all_objects, boxes = truth[truth[:, 0] == frame], tracks[tracks[:, 0] == frame][:, 1:6]
                visible = all_objects[:, 8] >= LEAST_VISIBLE
                on = iou(boxes[:, 1:], all_objects[:, 2:6]) >= LEAST_IOU
                hidden_only = on[:, ~visible].any(1) & ~on[:, visible].any(1)
                objects.append(all_objects[visible][:, 1:6])
                found.append(boxes[~hidden_only])
            counts, quality = counts + score(objects, found), quality + hota(objects, found)
        print(
            f"{name:10}  HOTA {100 * quality.hota:5.1f}  IDF1 {100 * counts.idf1:5.1f}  MOTA {100 * counts.mota:5.1f}"
            f"  switches {counts.switches:4}  ids {ids:4}  objects {counts.objects}"
        )


main()
