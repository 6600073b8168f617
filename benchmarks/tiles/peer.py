"""sahi with Ocelli's graphs on ONNX Runtime: `bench tiles --peer PYTHON` runs it on the images that Ocelli searched.

    peer.py GRAPHS WORK THREADS WIDTH HEIGHT IMAGE...

The last line of stdout is JSON: detections (image, class, x1, y1, x2, y2, score), seconds for each image, and the peak memory
of this process. Slices have WIDTH × HEIGHT pixels and overlap by a fifth; 0 × 0 searches whole images. Merging is sahi's
default: greedy non-maximum merging by the intersection over the smaller box, from 0.5 on, within each class, with a prediction of the whole
image as well. The resize is PIL's bilinear one with antialiasing, as in Ocelli.
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image
from sahi.models.base import DetectionModel
from sahi.predict import get_prediction, get_sliced_prediction
from sahi.prediction import ObjectPrediction

graphs, work, threads, width, height, *images = sys.argv[1:]
LEAST_SCORE, NMS, CHUNK = 0.1, 0.7, 4
Image.MAX_IMAGE_PIXELS = None

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(threads)
load = lambda name: onnxruntime.InferenceSession(Path(graphs) / name, options, ["CPUExecutionProvider"])
manifest = json.loads((Path(graphs) / "model.json").read_text())
side, depth, tokens = manifest["imgsz"], manifest["model_width"], manifest["context_length"]
text = np.fromfile(Path(work) / "text_features.f32", np.float32)
text = text.reshape(-1, tokens, depth)
mask = np.fromfile(Path(work) / "text_masks.i64", np.int64).reshape(-1, tokens)
mean, std = (np.float32(manifest["preprocessing"][name]).reshape(3, 1, 1) for name in ("mean", "std"))


def suppress(boxes: np.ndarray, scores: np.ndarray) -> list[int]:
    """Greedy non-maximum suppression within a class, as Ocelli does it."""
    kept: list[int] = []
    for index in np.argsort(-scores, kind="stable"):
        x1, y1 = np.maximum(boxes[kept, :2], boxes[index, :2]).T if kept else (np.empty(0), np.empty(0))
        x2, y2 = np.minimum(boxes[kept, 2:], boxes[index, 2:]).T if kept else (np.empty(0), np.empty(0))
        common = np.clip(x2 - x1, 0, None) * np.clip(y2 - y1, 0, None)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        if not kept or (common / (areas[kept] + areas[index] - common) <= NMS).all():
            kept.append(int(index))
    return kept


class Graphs(DetectionModel):
    """A model of sahi that runs the backbone and the encoder-decoder."""

    def load_model(self) -> None:
        self.model = (load("backbone.onnx"), load("encoder_decoder.onnx"))
        self.category_mapping = {str(number): str(number) for number in range(len(text))}

    def perform_inference(self, image: np.ndarray) -> None:
        backbone, decoder = self.model
        small = np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR), np.float32)
        pixels = ((small.transpose(2, 0, 1) / 255 - mean) / std)[None]
        names = [output.name for output in backbone.get_outputs()]
        wanted = [name for name in ("fpn_2", "image_prompt") if name in names]
        features = dict(zip(wanted, backbone.run(wanted, {"pixel_values": pixels})))
        found = []
        for first in range(0, len(text), CHUNK):
            prompt, prompt_mask = text[first:first + CHUNK], mask[first:first + CHUNK]
            if "image_prompt" in features:
                own = np.repeat(features["image_prompt"], len(prompt), 0)
                prompt = np.concatenate([prompt, own], 1)
                prompt_mask = np.concatenate([prompt_mask, np.ones((len(prompt), 1), np.int64)], 1)
            given = {"fpn_2": features["fpn_2"], "prompt_features": prompt, "prompt_mask": prompt_mask}
            logits, boxes, presence = decoder.run(["logits", "boxes", "presence"], given)
            scores = 1 / (1 + np.exp(-logits)) / (1 + np.exp(-presence.reshape(-1, 1)))
            for row in range(len(prompt)):
                chosen = scores[row] > LEAST_SCORE
                own_boxes, own_scores = np.clip(boxes[row][chosen], 0, 1), scores[row][chosen]
                found += [(first + row, own_boxes[at], own_scores[at]) for at in suppress(own_boxes, own_scores)]
        self._original_predictions = (found, image.shape)

    def _create_object_prediction_list_from_original_predictions(self, shift_amount_list=((0, 0),), full_shape_list=None):
        found, (rows, columns, _) = self._original_predictions
        shift = shift_amount_list[0] if isinstance(shift_amount_list[0], (list, tuple)) else shift_amount_list
        full = full_shape_list[0] if full_shape_list and isinstance(full_shape_list[0], (list, tuple)) else full_shape_list
        predictions = []
        for label, box, score in found:
            x1, y1, x2, y2 = (float(edge) for edge in box * [columns, rows, columns, rows])
            if x2 > x1 and y2 > y1:
                predictions.append(ObjectPrediction(
                    bbox=[x1, y1, x2, y2], score=float(score), category_id=label, category_name=str(label),
                    shift_amount=list(shift), full_shape=full or [rows, columns],
                ))
        self._object_prediction_list_per_image = [predictions]

    @property
    def num_categories(self) -> int:
        return len(text)

    @property
    def has_mask(self) -> bool:
        return False

    @property
    def category_names(self) -> list[str]:
        return list(self.category_mapping.values())


model = Graphs(confidence_threshold=LEAST_SCORE, device="cpu")
detections, seconds = [], []
for number, image in enumerate(images):
    pixels = np.asarray(Image.open(image).convert("RGB"))
    start = time.perf_counter()
    if int(width) == 0:
        result = get_prediction(pixels, model)
    else:
        result = get_sliced_prediction(
            pixels, model, slice_height=int(height), slice_width=int(width), overlap_height_ratio=0.2,
            overlap_width_ratio=0.2, verbose=0,
        )
    seconds.append(time.perf_counter() - start)
    for one in result.object_prediction_list:
        box = [float(edge) for edge in one.bbox.to_xyxy()]
        detections.append((number, one.category.id, box, float(one.score.value)))
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"detections": detections, "seconds": seconds, "peak_memory_mib": memory}))
