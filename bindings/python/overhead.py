"""Measures what a call from Python costs beside the call in Rust that it makes, at 1920x1080.

The time of the Rust call is the detector's own, `times_ms["total"]`. Prints the quantiles of the difference.
"""

import sys
import time

import numpy as np

import ocelli

FRAMES = int(sys.argv[1]) if len(sys.argv) > 1 else 100

detector = ocelli.Detector(max_detections=20)
frame = np.random.default_rng(1).integers(0, 255, (1080, 1920, 3), np.uint8)
padded = np.zeros((1080, 2000, 3), np.uint8)[:, :1920]
padded[:] = frame
mirrored = frame[:, ::-1]

for name, image, order in (
    ("contiguous", frame, "rgb"),
    ("BGR", frame, "bgr"),
    ("rows with padding", padded, "rgb"),
    ("mirrored view", mirrored, "rgb"),
):
    over: list[float] = []
    total: list[float] = []
    for number in range(FRAMES + 10):
        start = time.perf_counter()
        found = detector.detect(image, ["dog"], channel_order=order)  # type: ignore[arg-type]
        spent = (time.perf_counter() - start) * 1e3
        if number >= 10:
            over.append(spent - found.times_ms["total"])
            total.append(spent)
    p50, p90, p99 = np.quantile(over, [0.5, 0.9, 0.99])
    print(f"{name:24} overhead p50 {p50:.3f} p90 {p90:.3f} p99 {p99:.3f} ms of {np.median(total):.1f} ms, n {FRAMES}")
