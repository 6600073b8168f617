#!/usr/bin/env python3
"""Measures `transformers` as a detector on a GPU: the two halves alone, whole frames, memory, and agreement.

    python gpu_reference.py --model DIR --dtype f16 --mode compile --classes 4 16 8 2 1 80

The peer is optimised: fused ("sdpa") attention, inference mode, no mask head, the vision encoder once a frame, text
encoded before the clock starts, resize, threshold and NMS on the GPU, cuDNN's autotuning, and the grid size passed to
the decoder as plain numbers, which avoids a synchronisation and lets it be compiled as one graph. A frame goes from
8-bit pixels in host memory to boxes in host memory; a half, from features to features on the GPU. The clock stops after
the GPU has finished.

`--mode compile` is `torch.compile` of both halves. A new number of classes may compile again, before its clock starts;
the order of `--classes` matters: the first is compiled for that number only, the second for any number but 1.
`--device cpu` is for trying the script. Prints one line of JSON for each number of classes.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import argparse  # noqa: E402 - importing the others is part of the time to the first detection
import json  # noqa: E402
import math  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Callable  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402
from PIL import Image  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from torch import Tensor  # noqa: E402
from torchvision.transforms.v2.functional import resize  # noqa: E402
from transformers import Sam3Config, Sam3Model  # noqa: E402
from transformers.models.sam3.modeling_sam3 import inverse_sigmoid  # noqa: E402

from measurement import machine, peak_memory_gb  # noqa: E402
from torch_onnx import FixedGrid  # noqa: E402

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
THRESHOLD, SUPPRESSION, SUREST, FEWEST = 0.3, 0.7, 10, 3


class Peer:
    """The model, and its two halves as functions."""

    def __init__(self, folder: Path, imgsz: int | None, dtype: torch.dtype, mode: str, device: torch.device) -> None:
        config = Sam3Config.from_pretrained(folder)
        if imgsz:
            config.vision_config.backbone_config.image_size = imgsz
        self.side = config.vision_config.backbone_config.image_size
        self.model = Sam3Model.from_pretrained(folder, config=config, dtype=dtype, attn_implementation="sdpa")
        self.model = self.model.eval().to(device)
        self.dtype, self.device = dtype, device
        compiled = (lambda function: function) if mode == "eager" else (
            lambda function: torch.compile(function, mode=None if mode == "compile" else mode.removeprefix("compile-")))
        self.backbone, self.decode = compiled(self._backbone), compiled(self._decode)

    def text(self, phrases: list[str], folder: Path) -> tuple[Tensor, Tensor]:
        """Features [C, L, D] and mask [C, L] of text prompts."""
        context = self.model.config.text_config.max_position_embeddings
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.enable_truncation(context)
        tokenizer.enable_padding(length=context)
        encodings = [tokenizer.encode(phrase) for phrase in phrases]
        ids = torch.tensor([encoding.ids for encoding in encodings], device=self.device)
        mask = torch.tensor([encoding.attention_mask for encoding in encodings], device=self.device)
        return self.model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output, mask

    def _backbone(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[1, 3, S, S] -> features [1, D, P, P], their position encoding and the token of the image [1, 1, D]."""
        vision = self.model.vision_encoder(pixels)
        features, position = vision.fpn_hidden_states[-2], vision.fpn_position_encoding[-2]
        empty = {"dtype": self.dtype, "device": self.device}
        prompt = self.model.geometry_encoder(
            box_embeddings=torch.zeros(1, 0, 4, **empty), box_mask=torch.zeros(1, 0, dtype=torch.bool, device=self.device),
            box_labels=torch.zeros(1, 0, dtype=torch.long, device=self.device), img_feats=[features],
            img_pos_embeds=[position],
        ).last_hidden_state
        return features, position, prompt

    def _decode(self, features: Tensor, position: Tensor, prompt: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features and prompts [C, T, D] -> logits [C, Q], boxes [C, Q, xyxy] and presence [C], in f32."""
        model, count = self.model, prompt.shape[0]
        encoded = model.detr_encoder(
            vision_features=[features.expand(count, -1, -1, -1)], text_features=prompt, text_mask=mask,
            vision_pos_embeds=[position.expand(count, -1, -1, -1)],
        )
        decoded = model.detr_decoder(
            vision_features=encoded.last_hidden_state, text_features=prompt, text_mask=mask,
            vision_pos_encoding=encoded.pos_embeds_flattened, spatial_shapes=FixedGrid(features.shape[-1]),
        )
        hidden, reference = decoded.intermediate_hidden_states[-1:], decoded.reference_boxes[-1:]
        boxes = (inverse_sigmoid(reference) + model.detr_decoder.box_head(hidden)).sigmoid()[0].float()
        boxes = torch.cat([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)
        logits = model.dot_product_scoring(decoder_hidden_states=hidden, text_features=prompt, text_mask=mask)
        return logits[0, ..., 0].float(), boxes, decoded.presence_logits[-1].reshape(count).float()

    def prompts(self, text: Tensor, mask: Tensor, image_prompt: Tensor, chunk: int) -> list[tuple[Tensor, Tensor]]:
        """Text prompts with the token of the image appended, in chunks of classes."""
        whole = torch.cat([text.to(self.dtype), image_prompt.expand(len(text), -1, -1)], 1)
        masks = torch.cat([mask.bool(), torch.ones(len(text), 1, dtype=torch.bool, device=self.device)], 1)
        return list(zip(whole.split(chunk), masks.split(chunk)))

    def prompt_half(self, features: Tensor, position: Tensor, prompts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        """Logits, boxes and presence of all classes, on the GPU."""
        parts = [self.decode(features, position, prompt, mask) for prompt, mask in prompts]
        return parts[0] if len(parts) == 1 else tuple(torch.cat(part) for part in zip(*parts))

    def frame(self, image: Tensor, text: Tensor, mask: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor]:
        """8-bit pixels [3, H, W] in host memory -> boxes, scores and classes in host memory."""
        on_device = image.to(self.device, non_blocking=True)
        pixels = resize(on_device[None], [self.side, self.side], antialias=True).to(self.dtype) / 127.5 - 1
        features, position, image_prompt = self.backbone(pixels)
        return kept(*self.prompt_half(features, position, self.prompts(text, mask, image_prompt, chunk)))


def kept(logits: Tensor, boxes: Tensor, presence: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Threshold and NMS on the device; the rest is copied to the host."""
    scores = logits.sigmoid() * presence.sigmoid()[:, None]
    classes, queries = (scores > THRESHOLD).nonzero(as_tuple=True)
    boxes, scores = boxes[classes, queries], scores[classes, queries]
    best = torchvision.ops.batched_nms(boxes, scores, classes, SUPPRESSION)
    return boxes[best].cpu(), scores[best].cpu(), classes[best].cpu()


def cosine(one: Tensor, other: Tensor) -> float:
    """Cosine similarity."""
    one, other = one.double().flatten(), other.double().flatten()
    return float(one @ other / (one.norm() * other.norm()))


def agreement(reference: dict[str, Tensor], features: Tensor, outputs: tuple[Tensor, ...]) -> dict:
    """Differences of features and outputs from the reference, for the classes of both."""
    logits, boxes, presence = (tensor.float().cpu() for tensor in outputs)
    count = min(len(reference["presence"]), len(presence))
    ours = [tensor[:count] for tensor in (logits, boxes, presence)]
    theirs = [reference[name][:count] for name in ("logits", "boxes", "presence")]
    score = lambda out: out[0].double().sigmoid() * out[2].double().sigmoid()[:, None]  # noqa: E731
    surest = score(theirs).topk(min(SUREST, logits.shape[1]), 1).indices
    at = torch.arange(count)[:, None].expand_as(surest), surest
    return {
        "fpn_2_cosine": cosine(reference["fpn_2"], features.float().cpu()),
        "logits_cosine": cosine(theirs[0], ours[0]),
        "largest_box_difference": float((ours[1][at] - theirs[1][at]).abs().max()),
        "largest_score_difference": float((score(ours)[at] - score(theirs)[at]).abs().max()),
        "classes": count, "detections_reference": len(kept(*theirs)[0]), "detections": len(kept(*ours)[0]),
    }


def measure(once: Callable[[], object], arguments: argparse.Namespace, wait: Callable[[], None]) -> dict:
    """Warm-up, then some runs, or as many as fit into the time; the GPU is idle before and after each."""
    for _ in range(arguments.warm_up):
        once()
    wait()
    seconds, begun = [], time.perf_counter()
    while len(seconds) < arguments.runs and (len(seconds) < FEWEST or time.perf_counter() - begun < arguments.seconds):
        started = time.perf_counter()
        once()
        wait()
        seconds.append(time.perf_counter() - started)
    ordered = sorted(1000 * value for value in seconds)
    rank = lambda share: round(ordered[math.ceil(share * len(ordered)) - 1], 3)  # noqa: E731 - nearest rank
    return {"n": len(ordered), "p50_ms": rank(0.5), "p90_ms": rank(0.9), "p99_ms": rank(0.99)}


@torch.inference_mode()
def run(arguments: argparse.Namespace) -> None:
    """Prints the lines."""
    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    torch.backends.cudnn.benchmark = True
    peer = Peer(arguments.model, arguments.imgsz, DTYPES[arguments.dtype], arguments.mode, device)
    wait()
    load_s = time.perf_counter() - STARTED
    most = max(arguments.classes)
    text, mask = peer.text([f"thing number {index}" for index in range(most)], arguments.model)
    reference = load_file(arguments.reference) if arguments.reference else {}
    if reference:
        repeat = torch.arange(most) % len(reference["text_mask"])
        words = reference["text_features"][repeat].to(device), reference["text_mask"][repeat].to(device)
        pixels = reference["pixel_values"].to(device, peer.dtype)
    else:
        words, pixels = (text, mask), torch.rand(1, 3, peer.side, peer.side).to(device, peer.dtype) * 2 - 1
    rgb = np.asarray(Image.open(arguments.image).convert("RGB")) if arguments.image else \
        np.random.default_rng(0).integers(0, 256, (720, 1280, 3), dtype=np.uint8)
    image = torch.from_numpy(rgb.copy()).permute(2, 0, 1).contiguous()
    image = image.pin_memory() if on_gpu else image
    first_s = None
    for classes in arguments.classes:
        begun = time.perf_counter()
        frame = lambda: peer.frame(image, text[:classes], mask[:classes], arguments.chunk)  # noqa: B023, E731
        frame()
        wait()
        first_s = first_s or time.perf_counter() - STARTED
        compile_s = time.perf_counter() - begun
        backbone = measure(lambda: peer.backbone(pixels), arguments, wait)
        features, position, image_prompt = (tensor.clone() for tensor in peer.backbone(pixels))
        prompts = peer.prompts(words[0][:classes], words[1][:classes], image_prompt, arguments.chunk)
        half = lambda: [out.cpu() for out in peer.prompt_half(features, position, prompts)]  # noqa: B023, E731
        decode = measure(half, arguments, wait)
        outputs = tuple(half())
        if not all(torch.isfinite(out).all() for out in outputs):
            raise SystemExit("error: the outputs are no numbers: they overflow in this precision")
        print(json.dumps({
            "peer": "transformers", "mode": arguments.mode, "dtype": arguments.dtype, "device": arguments.device,
            "classes": classes, "chunk": arguments.chunk, "imgsz": peer.side, "backbone": backbone,
            "encoder_decoder": decode, "total": measure(frame, arguments, wait), "detections": len(frame()[0]),
            "agreement": agreement(reference, features, outputs) if reference else None,
            "load_s": round(load_s, 2), "first_s": round(first_s, 2), "first_of_shape_s": round(compile_s, 2),
            "peak_memory_gb": peak_memory_gb(), "gpu_memory_mib": gpu_memory_mib() if on_gpu else None,
            "gpu_allocated_mib": round(torch.cuda.max_memory_allocated() / 2**20) if on_gpu else None,
            "machine": machine(torch.get_num_threads()) | ({"gpu": torch.cuda.get_device_name()} if on_gpu else {}),
        }), flush=True)


def gpu_memory_mib() -> int:
    """GPU memory of all processes."""
    free, total = torch.cuda.mem_get_info()
    return round((total - free) / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="checkpoint folder of make_checkpoint.py")
    parser.add_argument("--imgsz", type=int, help="side of the model's input in pixels (default: the checkpoint's)")
    parser.add_argument("--dtype", choices=DTYPES, default="f16", help="of weights and activations (default f16)")
    parser.add_argument("--mode", choices=("eager", "compile", "compile-reduce-overhead", "compile-max-autotune"),
                        default="eager", help="eager, or torch.compile (default eager)")
    parser.add_argument("--device", default="cuda", help="cuda or cpu (default cuda)")
    parser.add_argument("--classes", type=int, nargs="+", default=[4, 16, 8, 2, 1, 80], help="numbers of classes")
    parser.add_argument("--chunk", type=int, default=16, help="classes per batch (default 16; more costs memory)")
    parser.add_argument("--reference", type=Path, help="inputs and outputs to compare with, from bench halves")
    parser.add_argument("--image", type=Path, help="image for whole frames (default: noise of 1280 x 720)")
    parser.add_argument("--runs", type=int, default=50, help="measured runs (default 50)")
    parser.add_argument("--warm-up", type=int, default=5, help="warm-up runs (default 5)")
    parser.add_argument("--seconds", type=float, default=10, help="maximum seconds per measurement (default 10)")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    run(arguments)


if __name__ == "__main__":
    main()
