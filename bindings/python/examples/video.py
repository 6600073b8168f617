"""Tracks objects in a video, a folder of images or a camera, and prints what comes into view.

    python video.py SOURCE CLASS...

A video needs `pip install "ocelli-vision[video]"`.
"""

import sys

import ocelli

source, classes = sys.argv[1], sys.argv[2:]
seen = set[int]()

with ocelli.Video(source, classes, track=True) as video:
    for frame in video:
        for track in frame.tracks:
            if track.tracker_id not in seen:
                seen.add(track.tracker_id)
                print(f"{frame.time_s:7.2f} s  {classes[track.class_id]} {track.tracker_id}")

stats = video.stats
print(f"{stats['frames_out']} frames, {stats['fps']:.1f} a second, {stats['latency_ms']['p50']:.0f} ms latency")
