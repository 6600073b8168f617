"""Writes cdr.txt: messages of ROS 2, serialised by rosbags. Run by `integrations/check.sh --goldens`.

pip install rosbags==0.11.9 numpy==2.4.6
"""

import importlib.metadata
import sys
from pathlib import Path

import numpy as np
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

# The definitions of vision_msgs 4.1, which rosbags does not have.
VISION = {
    "Point2D": "float64 x\nfloat64 y\n",
    "Pose2D": "vision_msgs/Point2D position\nfloat64 theta\n",
    "BoundingBox2D": "vision_msgs/Pose2D center\nfloat64 size_x\nfloat64 size_y\n",
    "ObjectHypothesis": "string class_id\nfloat64 score\n",
    "ObjectHypothesisWithPose": "vision_msgs/ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose\n",
    "Detection2D": "std_msgs/Header header\nObjectHypothesisWithPose[] results\nBoundingBox2D bbox\nstring id\n",
    "Detection2DArray": "std_msgs/Header header\nvision_msgs/Detection2D[] detections\n",
    "VisionInfo": "std_msgs/Header header\nstring method\nstring database_location\nint32 database_version\n",
    "VisionClass": "uint16 class_id\nstring class_name\n",
    "LabelInfo": "std_msgs/Header header\nvision_msgs/VisionClass[] class_map\nfloat32 threshold\n",
}

store = get_typestore(Stores.ROS2_JAZZY)
for name, text in VISION.items():
    store.register(get_types_from_msg(text, f"vision_msgs/msg/{name}"))


def make(name, **fields):
    package, message = name.split("/")
    return store.types[f"{package}/msg/{message}"](**fields)


def header(sec, nanosec, frame_id):
    return make("std_msgs/Header", stamp=make("builtin_interfaces/Time", sec=sec, nanosec=nanosec), frame_id=frame_id)


def detection(the_header, phrase, score, center, size, track):
    pose = make(
        "geometry_msgs/Pose",
        position=make("geometry_msgs/Point", x=0.0, y=0.0, z=0.0),
        orientation=make("geometry_msgs/Quaternion", x=0.0, y=0.0, z=0.0, w=1.0),
    )
    result = make(
        "vision_msgs/ObjectHypothesisWithPose",
        hypothesis=make("vision_msgs/ObjectHypothesis", class_id=phrase, score=score),
        pose=make("geometry_msgs/PoseWithCovariance", pose=pose, covariance=np.zeros(36)),
    )
    position = make("vision_msgs/Point2D", x=center[0], y=center[1])
    box = make(
        "vision_msgs/BoundingBox2D",
        center=make("vision_msgs/Pose2D", position=position, theta=0.0),
        size_x=size[0],
        size_y=size[1],
    )
    return make("vision_msgs/Detection2D", header=the_header, results=[result], bbox=box, id=track)


first = header(1700000000, 999999999, "camera/ü")
last = header(-1, 1, "")
messages = {
    "image": make(
        "sensor_msgs/Image",
        header=first,
        height=2,
        width=1,
        encoding="rgb8",
        is_bigendian=0,
        step=3,
        data=np.arange(6, dtype=np.uint8),
    ),
    "compressed": make(
        "sensor_msgs/CompressedImage", header=last, format="jpeg", data=np.array([255, 216, 255], dtype=np.uint8)
    ),
    "detections": make(
        "vision_msgs/Detection2DArray",
        header=first,
        detections=[
            detection(first, "red apple", 0.875, (10.5, 20.25), (3.0, 4.5), "17"),
            detection(first, "犬", 0.5, (0.0, 0.125), (1.0, 2.0), ""),
        ],
    ),
    "nothing": make("vision_msgs/Detection2DArray", header=last, detections=[]),
    "vision": make(
        "vision_msgs/VisionInfo", header=last, method="Ocelli", database_location="/label_info", database_version=3
    ),
    "labels": make(
        "vision_msgs/LabelInfo",
        header=first,
        class_map=[
            make("vision_msgs/VisionClass", class_id=0, class_name="red apple"),
            make("vision_msgs/VisionClass", class_id=1, class_name="dog"),
        ],
        threshold=0.25,
    ),
}
lines = [f"# rosbags {importlib.metadata.version('rosbags')}, the types of Jazzy and vision_msgs 4.1"]
for name, message in messages.items():
    lines.append(f"{name} {bytes(store.serialize_cdr(message, message.__msgtype__)).hex()}")
output = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "cdr.txt"
output.write_text("\n".join(lines) + "\n")
