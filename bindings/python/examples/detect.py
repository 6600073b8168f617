"""Detects objects in an image, prints them and saves the image with boxes.

    python detect.py [IMAGE] [CLASS...]
"""

import sys
from pathlib import Path

import PIL.Image

import ocelli

image = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[3] / "demos/scenes/park.png"
classes = sys.argv[2:] or ["dog", "tree", "bicycle"]

# Without a model, the small built-in one; ocelli.Detector("sam3/") knows everything.
detector = ocelli.Detector(masks=True)
print(detector.engine)

found = detector.detect(image, classes)
for one in found:
    print(f"{one.class_name:12} {one.confidence:.2f}  {one.xyxy}")

PIL.Image.fromarray(found.plot(image)).save("found.png")
print("→ found.png")
