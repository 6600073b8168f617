"""A ROS 2 node as one writes it in Python: Pillow, ONNX Runtime and supervision, on the graphs of an exported model.

node.py MODEL THREADS CLASS...

It subscribes `image`, and publishes `detections` with tracks, by Cyclone DDS: as measure.py, which starts it. The text is encoded
once. The newest image is detected.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import supervision as sv
from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration
from PIL import Image as PilImage
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integrations" / "ros2" / "tests"))
from peer import RELIABLE, SENSOR, Box, Detection, Detections, Hypothesis, Image, Pose, Result, valid  # noqa: E402


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


class Model:
    """The graphs and the text features of some classes."""

    def __init__(self, folder: Path, threads: int, classes: list[str]) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.manifest = json.loads((folder / "model.json").read_text())
        names = ("backbone", "text_encoder", "encoder_decoder")
        self.backbone, text_encoder, self.decoder = (
            ort.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"]) for name in names
        )
        self.classes = classes
        context = self.manifest["context_length"]
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.enable_truncation(context)
        tokenizer.enable_padding(length=context)
        encodings = [tokenizer.encode(name) for name in classes]
        ids = np.array([one.ids for one in encodings])
        self.mask = np.array([one.attention_mask for one in encodings])
        (self.text,) = text_encoder.run(["text_features"], {"input_ids": ids, "attention_mask": self.mask})
        self.inputs = {one.name for one in self.decoder.get_inputs()}
        self.outputs = [one.name for one in self.backbone.get_outputs()]

    def detect(self, bgr: np.ndarray) -> sv.Detections:
        height, width, _ = bgr.shape
        preprocess, thresholds = self.manifest["preprocessing"], self.manifest["thresholds"]
        side = self.manifest["imgsz"]
        image = PilImage.fromarray(bgr[..., ::-1]).resize((side, side), PilImage.Resampling.BILINEAR)
        scaled = np.asarray(image, np.float32) / 255
        pixels = (scaled - np.float32(preprocess["mean"])) / np.float32(preprocess["std"])
        features = dict(
            zip(self.outputs, self.backbone.run(None, {"pixel_values": pixels.transpose(2, 0, 1)[None]}), strict=True)
        )
        prompt, mask = self.text, self.mask
        if "image_prompt" in features:
            token = np.repeat(features["image_prompt"], len(prompt), 0)
            prompt, mask = np.concatenate([prompt, token], 1), np.pad(mask, ((0, 0), (0, 1)), constant_values=1)
        feeds = {"prompt_features": prompt, "prompt_mask": mask, **features}
        feeds = {name: value for name, value in feeds.items() if name in self.inputs}
        logits, boxes, presence = self.decoder.run(["logits", "boxes", "presence"], feeds)
        scores = sigmoid(logits) * sigmoid(presence)
        class_id, query = np.nonzero(scores > thresholds["confidence"])
        corners = boxes[class_id, query].clip(0, 1) * np.float32([width, height, width, height])
        found = sv.Detections(corners, confidence=scores[class_id, query], class_id=class_id)
        return found.with_nms(thresholds["nms"])


def main(folder: str, threads: str, *classes: str) -> None:
    model = Model(Path(folder), int(threads), list(classes))
    tracker = sv.ByteTrack()
    participant = DomainParticipant(0)
    images = DataReader(participant, Topic(participant, "rt/image", Image), qos=SENSOR)
    results = DataWriter(participant, Topic(participant, "rt/detections", Detections), qos=RELIABLE)
    waiting = WaitSet(participant)
    waiting.attach(ReadCondition(images, SampleState.Any | ViewState.Any | InstanceState.Alive))
    while True:
        waiting.wait(duration(seconds=1))
        for image in valid(images):
            bgr = np.frombuffer(bytes(image.data), np.uint8).reshape(image.height, image.width, 3)
            found = tracker.update_with_detections(model.detect(bgr))
            results.write(Detections(image.header, [message(model, image, *one) for one in found]))


def message(model, image, xyxy, _mask, confidence, class_id, tracker_id, _data) -> Detection:
    left, top, right, bottom = map(float, xyxy)
    hypothesis = Hypothesis(model.classes[class_id], float(confidence))
    box = Box((left + right) / 2, (top + bottom) / 2, 0.0, right - left, bottom - top)
    pose = Pose([0.0] * 6 + [1.0], [0.0] * 36)
    return Detection(image.header, [Result(hypothesis, pose)], box, str(tracker_id))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
