#!/usr/bin/env python3
"""Measures `transformers` (float32 or bfloat16, CPU) as a detector: latency and peak memory for some numbers of classes.

    python reference.py --model DIR --classes 1 4 16 --threads 2 --runs 3

The peer is optimised: fused ("sdpa") attention, inference mode, no mask head, the vision encoder once an image, text
encoded before the clock starts, the rest batched in chunks of `--chunk` classes. Each number of classes is measured in
a separate process, for its peak memory. `--compile` is `torch.compile` of the vision encoder, the fusion encoder and the
decoder; it compiles before the clock starts, and compiles again for another number of classes. Prints one line of JSON for
each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torchvision
import transformers
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Sam3Model
from transformers.models.sam3.image_processing_sam3 import Sam3ImageProcessor

from measurement import machine, peak_memory_gb, summary

WORDS = ("person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
         "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat")
THRESHOLD, SUPPRESSION = 0.3, 0.7


class Peer:
    """The model, the text features, and one image."""

    def __init__(self, folder: Path, classes: int, dtype: torch.dtype, compiled: bool) -> None:
        started = time.perf_counter()
        self.model = Sam3Model.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()
        if compiled:
            for part in (self.model.vision_encoder, self.model.detr_encoder, self.model.detr_decoder):
                part.compile()
        self.load_s = time.perf_counter() - started
        side = self.model.config.vision_config.backbone_config.image_size
        self.processor = Sam3ImageProcessor(size={"height": side, "width": side})
        noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
        self.image = Image.fromarray(noise)
        context = self.model.config.text_config.max_position_embeddings
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.enable_truncation(context)
        tokenizer.enable_padding(length=context)
        encodings = [tokenizer.encode(WORDS[index % len(WORDS)]) for index in range(classes)]
        ids = torch.tensor([encoding.ids for encoding in encodings])
        self.text_mask = torch.tensor([encoding.attention_mask for encoding in encodings])
        started = time.perf_counter()
        self.text = self.model.get_text_features(input_ids=ids, attention_mask=self.text_mask).pooler_output
        self.text_s = time.perf_counter() - started

    def backbone(self) -> tuple[Tensor, Tensor, Tensor]:
        """Features [1, D, P, P], their position encoding and the CLS token [1, 1, D]."""
        pixels = self.processor(self.image, return_tensors="pt").pixel_values.to(self.model.dtype)
        vision = self.model.vision_encoder(pixels)
        features, position = vision.fpn_hidden_states[-2], vision.fpn_position_encoding[-2]
        prompt = self.model.geometry_encoder(
            box_embeddings=torch.zeros(1, 0, 4, dtype=self.model.dtype), box_mask=torch.zeros(1, 0, dtype=torch.bool),
            box_labels=torch.zeros(1, 0, dtype=torch.long), img_feats=[features], img_pos_embeds=[position],
        ).last_hidden_state
        return features, position, prompt

    def detect(self, image: tuple[Tensor, Tensor, Tensor], first: int, last: int) -> int:
        """Detections of the classes first..last: the number after threshold and NMS."""
        features, position, image_prompt = image
        model, count = self.model, last - first
        prompt = torch.cat([self.text[first:last], image_prompt.expand(count, -1, -1)], 1)
        mask = torch.cat([self.text_mask[first:last], torch.ones(count, 1, dtype=torch.long)], 1).bool()
        encoded = model.detr_encoder(
            vision_features=[features.expand(count, -1, -1, -1)], text_features=prompt, text_mask=mask,
            vision_pos_embeds=[position.expand(count, -1, -1, -1)],
        )
        decoded = model.detr_decoder(
            vision_features=encoded.last_hidden_state, text_features=prompt, text_mask=mask,
            vision_pos_encoding=encoded.pos_embeds_flattened, spatial_shapes=encoded.spatial_shapes,
        )
        hidden, reference = decoded.intermediate_hidden_states[-1:], decoded.reference_boxes[-1:]
        inverse = transformers.models.sam3.modeling_sam3.inverse_sigmoid(reference)
        boxes = (inverse + model.detr_decoder.box_head(hidden)).sigmoid()[0]
        boxes = torch.cat([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)
        logits = model.dot_product_scoring(decoder_hidden_states=hidden, text_features=prompt, text_mask=mask)
        scores = logits[0, ..., 0].sigmoid() * decoded.presence_logits[-1].sigmoid()
        if not torch.isfinite(scores).all():
            raise SystemExit("error: the scores are no numbers: the checkpoint's weights overflow")
        kept = 0
        for class_scores, class_boxes in zip(scores, boxes):
            above = class_scores > THRESHOLD
            kept += len(torchvision.ops.nms(class_boxes[above].float(), class_scores[above].float(), SUPPRESSION))
        return kept


@torch.inference_mode()
def measure(arguments: argparse.Namespace) -> dict:
    """One line of figures."""
    classes, chunk, dtype = arguments.classes[0], arguments.chunk, arguments.dtype
    warm_up, runs = arguments.warm_up, arguments.runs
    peer = Peer(arguments.model, classes, getattr(torch, dtype), arguments.compile)
    backbone, rest, whole, detections = [], [], [], 0
    for run in range(warm_up + runs):
        started = time.perf_counter()
        image = peer.backbone()
        middle = time.perf_counter()
        detections = sum(peer.detect(image, first, min(first + chunk, classes)) for first in range(0, classes, chunk))
        ended = time.perf_counter()
        if run >= warm_up:
            backbone.append(middle - started)
            rest.append(ended - middle)
            whole.append(ended - started)
    return {
        "peer": "transformers", "dtype": dtype, "compiled": arguments.compile, "classes": classes, "chunk": chunk, "imgsz": peer.processor.size["height"],
        "total": summary(whole), "backbone": summary(backbone), "encoder_decoder": summary(rest),
        "per_class_ms": round(1000 * sum(rest) / len(rest) / classes, 1), "detections": detections,
        "load_s": round(peer.load_s, 2), "text_s": round(peer.text_s, 2), "peak_memory_gb": peak_memory_gb(),
        "machine": machine(arguments.threads),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="checkpoint folder of make_checkpoint.py")
    parser.add_argument("--classes", type=int, nargs="+", default=[1, 4, 16],
                        help="numbers of classes (default 1 4 16)")
    parser.add_argument("--chunk", type=int, default=4, help="classes per batch (default 4; more costs memory)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="number format")
    parser.add_argument("--compile", action="store_true", help="torch.compile, which needs a C++ compiler")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--runs", type=int, default=3, help="measured runs (default 3)")
    parser.add_argument("--warm-up", type=int, default=1, help="warm-up runs (default 1)")
    arguments = parser.parse_args()
    if len(arguments.classes) > 1:
        for classes in arguments.classes:
            command = [sys.executable, __file__, "--model", str(arguments.model), "--classes", str(classes)]
            for name in ("chunk", "dtype", "threads", "runs", "warm_up"):
                command += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
            subprocess.run(command + ["--compile"] * arguments.compile, check=True)
        return
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(arguments.threads)
    print(json.dumps(measure(arguments)), flush=True)


if __name__ == "__main__":
    main()
