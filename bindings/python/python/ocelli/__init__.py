"""Open-vocabulary object detection in images and video.

    import ocelli

    detector = ocelli.Detector("sam3/")
    found = detector.detect("street.jpg", ["person", "red apple"])
    print(found.xyxy, found.confidence, found.class_name)

`Detector` finds the instances of any classes in an image, `Video` in a stream of frames, `Tracker` follows them; a
`VideoSession` follows objects with masks through a video, by SAM 3's memory tracker.
`export`, `label`, `evaluate` and `verify` are the programs of the same names. Errors are subclasses of `ocelli.Error`.
"""

from ._detector import Classes, Detector, Features, Prompt
from ._environment import search_this_environment
from ._errors import (
    Cancelled,
    Error,
    Execution,
    Internal,
    InvalidArgument,
    InvalidData,
    Io,
    Mismatch,
    Unavailable,
)
from ._jobs import evaluate, export, label, verify
from ._objects import ObjectMask, ObjectPrompt
from ._ocelli import __version__, read_image, vocabulary
from ._images import ImageLike
from ._results import Detection, Detections, Mask, Track
from ._session import TrackedFrame, VideoSession
from ._tracker import Tracker
from ._video import Video, VideoFrame

search_this_environment()

__all__ = [
    "Cancelled",
    "Classes",
    "Detection",
    "Detections",
    "Detector",
    "Error",
    "Execution",
    "Features",
    "ImageLike",
    "Internal",
    "InvalidArgument",
    "InvalidData",
    "Io",
    "Mask",
    "Mismatch",
    "ObjectMask",
    "ObjectPrompt",
    "Prompt",
    "Track",
    "TrackedFrame",
    "Tracker",
    "Unavailable",
    "Video",
    "VideoFrame",
    "VideoSession",
    "__version__",
    "evaluate",
    "export",
    "label",
    "read_image",
    "verify",
    "vocabulary",
]
