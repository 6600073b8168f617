"""PyPI's `trackers` on frames from stdin: `bench track --peer PYTHON` runs it in the same run.

Each line of stdin is a frame: a JSON list of boxes [x1, y1, x2, y2, score]. The first `warm_up` frames (the first
argument) do not count. Writes one JSON object: microseconds of each update, and the number of tracks in all of them.
"""

import json
import sys
import time
from importlib.metadata import version

import numpy as np
import supervision as sv
from trackers import ByteTrackTracker

warm_up = int(sys.argv[1])
tracker, times, tracks = ByteTrackTracker(), [], 0
for number, line in enumerate(sys.stdin):
    boxes = np.array(json.loads(line), dtype=np.float32).reshape(-1, 5)
    # Created outside the clock, as a detector would provide it.
    detections = sv.Detections(xyxy=boxes[:, :4], confidence=boxes[:, 4], class_id=np.zeros(len(boxes), dtype=int))
    start = time.perf_counter_ns()
    result = tracker.update(detections)
    elapsed = time.perf_counter_ns() - start
    if number >= warm_up:
        times.append(elapsed / 1e3)
        tracks += int((result.tracker_id != -1).sum()) if len(result) else 0
print(json.dumps({"name": f"trackers {version('trackers')}", "times_us": times, "tracks": tracks}))
