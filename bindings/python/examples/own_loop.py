"""A loop of one's own: frames as they come from OpenCV, detection in the background, the newest frame first."""

import numpy as np

import ocelli


def frames(count: int) -> list[np.ndarray]:
    """Frames in OpenCV's channel order. A program reads a camera here: `capture.read()[1]`."""
    images = np.full((count, 270, 480, 3), 255, np.uint8)
    return list(images)


with ocelli.Video(None, ["person", "dog"], track=True, policy="latest", channel_order="bgr") as video:
    for number, frame in enumerate(frames(30)):
        video.push(frame, time_s=number / 30)
        # What is ready by now, without waiting.
        while (result := video.receive(timeout=0)) is not None:
            print(f"frame {result.index}: {len(result.detections)} detections, {len(result.tracks)} tracks")
    video.finish()
    for result in video:
        print(f"frame {result.index}: {len(result.detections)} detections")
    print(f"{video.stats['frames_dropped']} frames dropped")
