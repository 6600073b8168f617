"""Runs `ocelli-ros2` beside a camera and a subscriber of another DDS implementation, Eclipse Cyclone DDS, and checks what
arrives. It needs its own network namespace: `integrations/check.sh` makes one.

peer.py OCELLI-ROS2 SCENES [FRAMES]

pip install cyclonedds==11.0.1 numpy==2.4.6 pillow==13.0.0
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, float32, float64, int32, int64, sequence, uint8, uint16, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration
from PIL import Image as PilImage


@dataclass
class Time(IdlStruct, typename="builtin_interfaces::msg::dds_::Time_"):
    sec: int32
    nanosec: uint32


@dataclass
class Header(IdlStruct, typename="std_msgs::msg::dds_::Header_"):
    stamp: Time
    frame_id: str


@dataclass
class Image(IdlStruct, typename="sensor_msgs::msg::dds_::Image_"):
    header: Header
    height: uint32
    width: uint32
    encoding: str
    is_bigendian: uint8
    step: uint32
    data: sequence[uint8]


@dataclass
class CompressedImage(IdlStruct, typename="sensor_msgs::msg::dds_::CompressedImage_"):
    header: Header
    format: str
    data: sequence[uint8]


@dataclass
class Hypothesis(IdlStruct, typename="vision_msgs::msg::dds_::ObjectHypothesis_"):
    class_id: str
    score: float64


@dataclass
class Pose(IdlStruct, typename="geometry_msgs::msg::dds_::PoseWithCovariance_"):
    pose: array[float64, 7]
    covariance: array[float64, 36]


@dataclass
class Result(IdlStruct, typename="vision_msgs::msg::dds_::ObjectHypothesisWithPose_"):
    hypothesis: Hypothesis
    pose: Pose


@dataclass
class Box(IdlStruct, typename="vision_msgs::msg::dds_::BoundingBox2D_"):
    x: float64
    y: float64
    theta: float64
    size_x: float64
    size_y: float64


@dataclass
class Detection(IdlStruct, typename="vision_msgs::msg::dds_::Detection2D_"):
    header: Header
    results: sequence[Result]
    bbox: Box
    id: str


@dataclass
class Detections(IdlStruct, typename="vision_msgs::msg::dds_::Detection2DArray_"):
    header: Header
    detections: sequence[Detection]


@dataclass
class VisionClass(IdlStruct, typename="vision_msgs::msg::dds_::VisionClass_"):
    class_id: uint16
    class_name: str


@dataclass
class LabelInfo(IdlStruct, typename="vision_msgs::msg::dds_::LabelInfo_"):
    header: Header
    class_map: sequence[VisionClass]
    threshold: float32


@dataclass
class VisionInfo(IdlStruct, typename="vision_msgs::msg::dds_::VisionInfo_"):
    header: Header
    method: str
    database_location: str
    database_version: int32


@dataclass
class Value(IdlStruct, typename="rcl_interfaces::msg::dds_::ParameterValue_"):
    type: uint8
    bool_value: bool
    integer_value: int64
    double_value: float64
    string_value: str
    byte_array_value: sequence[uint8]
    bool_array_value: sequence[bool]
    integer_array_value: sequence[int64]
    double_array_value: sequence[float64]
    string_array_value: sequence[str]


@dataclass
class Parameter(IdlStruct, typename="rcl_interfaces::msg::dds_::Parameter_"):
    name: str
    value: Value


# As Fast DDS maps services, which is the default of ROS 2: what identifies a request is not in its data.
@dataclass
class SetRequest(IdlStruct, typename="rcl_interfaces::srv::dds_::SetParameters_Request_"):
    parameters: sequence[Parameter]


@dataclass
class SetResult(IdlStruct, typename="rcl_interfaces::msg::dds_::SetParametersResult_"):
    successful: bool
    reason: str


@dataclass
class SetResponse(IdlStruct, typename="rcl_interfaces::srv::dds_::SetParameters_Response_"):
    results: sequence[SetResult]


SENSOR = Qos(Policy.Reliability.BestEffort, Policy.History.KeepLast(1))
RELIABLE = Qos(Policy.Reliability.Reliable(duration(seconds=1)), Policy.History.KeepLast(100))
LATCHED = Qos(Policy.Reliability.Reliable(duration(seconds=1)), Policy.Durability.TransientLocal, Policy.History.KeepLast(1))


def value(given):
    kinds = {bool: (1, "bool_value"), int: (2, "integer_value"), float: (3, "double_value"), str: (4, "string_value")}
    kind, field = kinds.get(type(given), (9, "string_array_value"))
    fields = dict(bool_value=False, integer_value=0, double_value=0.0, string_value="")
    fields |= {f"{name}_array_value": [] for name in ["byte", "bool", "integer", "double", "string"]}
    return Value(**{"type": kind, **fields, field: given})


def valid(reader, most=1):
    """Samples; what says that a writer has gone is none."""
    return [sample for sample in reader.take(most) if isinstance(sample, IdlStruct)]


class Peer:
    """A camera and what listens to the node."""

    def __init__(self):
        self.participant = DomainParticipant(0)
        self.images = self.camera()
        self.found = self.reader("rt/detections", Detections, RELIABLE)
        self.annotated = None
        self.labels = self.reader("rt/label_info", LabelInfo, LATCHED)
        self.info = self.reader("rt/vision_info", VisionInfo, LATCHED)
        requests = Topic(self.participant, "rq/ocelli/set_parametersRequest", SetRequest)
        self.requests = DataWriter(self.participant, requests, qos=RELIABLE)
        self.answers = self.reader("rr/ocelli/set_parametersReply", SetResponse, RELIABLE)

    def reader(self, name, kind, qos):
        return DataReader(self.participant, Topic(self.participant, name, kind), qos=qos)

    def camera(self):
        return DataWriter(self.participant, Topic(self.participant, "rt/image", Image), qos=SENSOR)

    def send(self, image, stamp=None):
        now = time.time_ns()
        stamp = stamp or (now // 10**9, now % 10**9)
        height, width, _ = image.shape
        header = Header(Time(*stamp), "camera/ü")
        self.images.write(Image(header, height, width, "bgr8", 0, 3 * width, image.tobytes()))
        return stamp

    def receive(self, timeout):
        """The next detections and when they came."""
        end = time.time() + timeout
        while time.time() < end:
            for sample in valid(self.found):
                return sample, time.time_ns()
            time.sleep(0.0005)
        return None

    def detect(self, image, tries=20, stamp=None):
        """The detections of this image; the first ones may be lost while the peers discover each other."""
        for _ in range(tries):
            stamp = self.send(image, stamp)
            while got := self.receive(2):
                if (got[0].header.stamp.sec, got[0].header.stamp.nanosec) == tuple(stamp):
                    return got[0]
        raise AssertionError("no detections")

    def set(self, name, given):
        """Sets a parameter as `ros2 param set` does."""
        self.requests.write(SetRequest([Parameter(name, value(given))]))
        end = time.time() + 30
        while time.time() < end:
            for answer in valid(self.answers):
                return answer.results[0]
            time.sleep(0.01)
        raise AssertionError(f"no answer to {name} = {given}")


def words(found):
    return sorted(d.results[0].hypothesis.class_id for d in found.detections)


def expect(holds, what):
    if not holds:
        raise AssertionError(what)
    print(f"ok: {what}", flush=True)


def start(program, *parameters):
    arguments = [argument for parameter in parameters for argument in ("-p", parameter)]
    return subprocess.Popen([program, "--ros-args", *arguments])


def stop(node):
    node.send_signal(signal.SIGINT)
    return node.wait(20)


def latest(reader):
    end, newest = time.time() + 10, None
    while time.time() < end and newest is None:
        for sample in valid(reader, 10):
            newest = sample
        time.sleep(0.01)
    return newest


def main():
    program, scenes = sys.argv[1:3]
    frames = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    park = PilImage.open(Path(scenes) / "park.png").convert("RGB")
    rgb = np.asarray(park)
    bgr = np.ascontiguousarray(rgb[:, :, ::-1])
    peer = Peer()

    node = start(program, "classes:=[dog, tree]", "engine:=embedded", "masks:=true", "threads:=1")
    try:
        stamp = (1_700_000_000, 999_999_999)
        found = peer.detect(bgr, stamp=stamp)
        expect(found.header == Header(Time(*stamp), "camera/ü"), "the header is that of the image")
        expect(all(d.header == found.header for d in found.detections), "and so is that of each detection")
        expect(words(found) == ["dog", "dog", "tree", "tree"], "two dogs and two trees, named by their words")
        expect(sorted(d.id for d in found.detections) == ["1", "2", "3", "4"], "with a track each")
        dog = min((d for d in found.detections if d.results[0].hypothesis.class_id == "dog"), key=lambda d: d.bbox.x)
        box = dog.bbox
        inside = 0 < box.x - box.size_x / 2 and box.x + box.size_x / 2 < park.width
        expect(inside and box.size_x > 10 and box.theta == 0, "boxes are in pixels")
        ids = {d.id for d in peer.detect(bgr).detections}
        expect(ids == {"1", "2", "3", "4"}, "tracks keep their ids")

        labels, info = latest(peer.labels), latest(peer.info)
        expect([c.class_name for c in labels.class_map] == ["dog", "tree"], "LabelInfo comes to those that join later")
        expect(info.database_location == "/label_info" and info.database_version == 1, "VisionInfo says where it is")

        annotated = peer.reader("rt/ocelli/annotated", Image, SENSOR)
        masks = peer.reader("rt/ocelli/masks", Image, SENSOR)
        time.sleep(2)
        image = mask = None
        for _ in range(10):
            found = peer.detect(bgr)
            time.sleep(0.3)
            image = next(iter(valid(annotated)), image)
            mask = next(iter(valid(masks)), mask)
            if image and mask:
                break
        drawn = np.array(image.data, np.uint8).reshape(rgb.shape)
        changed = (drawn != rgb).any(axis=2).mean()
        expect(image.header.frame_id == "camera/ü" and 0 < changed < 0.5, f"the annotated image differs in {changed:.0%}")
        values = np.array(mask.data, np.uint8).view(np.uint16).reshape(rgb.shape[:2])
        expect(mask.encoding == "mono16" and set(np.unique(values)) == set(range(5)), "the masks of four detections")

        expect(peer.set("classes", ["bicycle"]).successful, "classes change")
        expect(words(peer.detect(bgr)) == ["bicycle"], "and a bicycle is found")
        expect(latest(peer.info).database_version == 2, "VisionInfo says that they have changed")
        refused = peer.set("confidence", 1.5)
        expect(not refused.successful and "confidence is 1.5" in refused.reason, f"refused: {refused.reason}")
        expect(peer.set("confidence", 1.0).successful, "the confidence changes")
        expect(words(peer.detect(bgr)) == [], "and nothing is found")
        expect(peer.set("confidence", 0.5).successful and peer.set("track", False).successful, "tracking ends")
        expect([d.id for d in peer.detect(bgr).detections] == [""], "and detections have no track")
        refused = peer.set("engine", "onnxruntime" if os.environ.get("NO_ONNXRUNTIME") else "coreml")
        expect(not refused.successful, f"an engine that is not there is refused: {refused.reason[:60]}")
        expect(words(peer.detect(bgr)) == ["bicycle"], "and the one before goes on")

        # A camera that is unplugged and comes back, as another writer.
        del peer.images
        time.sleep(6)
        peer.images = peer.camera()
        expect(words(peer.detect(bgr)) == ["bicycle"], "a camera that comes back is used again")
        peer.images.write(Image(Header(Time(1, 2), ""), 5, 5, "bayer_rggb8", 0, 5, bytes(25)))
        expect(words(peer.detect(bgr)) == ["bicycle"], "an image that cannot be used harms nothing")

        # A camera that is faster than the detector.
        stamps = [peer.send(bgr) for _ in range(12)]
        arrived = []
        while got := peer.receive(3):
            arrived.append((got[0].header.stamp.sec, got[0].header.stamp.nanosec))
        expect(arrived and arrived[-1] == stamps[-1], "the newest image is detected")
        expect(len(arrived) < len(stamps), f"older ones are dropped: {len(arrived)} of {len(stamps)} have results")
        expect(arrived == sorted(arrived), "in order")

        measure(peer, np.ascontiguousarray(bgr[:480, :640]), frames)
        expect(stop(node) == 0, "an interrupted node ends with success")
    finally:
        node.kill()

    node = start(program, "classes:=[dog]", "image_transport:=compressed", "engine:=embedded", "threads:=1")
    try:
        file = BytesIO()
        park.save(file, "PNG")
        topic = Topic(peer.participant, "rt/image/compressed", CompressedImage)
        writer = DataWriter(peer.participant, topic, qos=SENSOR)
        for _ in range(20):
            writer.write(CompressedImage(Header(Time(7, 8), "eye"), "png", file.getvalue()))
            if got := peer.receive(2):
                break
        found = got[0]
        expect(words(found) == ["dog", "dog"] and found.header == Header(Time(7, 8), "eye"), "compressed images")
        expect(stop(node) == 0, "and the end")
    finally:
        node.kill()


def measure(peer, image, frames):
    """Latency from the stamp of an image to the arrival of its detections, one image at a time."""
    times = []
    for _ in range(frames):
        stamp = peer.send(image)
        if got := peer.receive(2):
            sent = stamp[0] * 10**9 + stamp[1]
            if (got[0].header.stamp.sec, got[0].header.stamp.nanosec) == tuple(stamp):
                times.append((got[1] - sent) / 1e6)
    p50, p90, p99 = np.percentile(times, [50, 90, 99])
    height, width, _ = image.shape
    print(f"latency of {width}x{height}: p50 {p50:.1f} ms, p90 {p90:.1f} ms, p99 {p99:.1f} ms, n {len(times)} of {frames}")
    expect(len(times) > frames * 0.8, "most images have results")


if __name__ == "__main__":
    main()
