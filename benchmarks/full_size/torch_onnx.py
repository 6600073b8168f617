#!/usr/bin/env python3
"""Measures `torch.onnx.export` on a checkpoint: time and peak memory for each part, or its error.

    python torch_onnx.py --model DIR --output DIR

Parts: the vision encoder, the text encoder, and fusion encoder + decoder + scoring, traced for one class. Each part
runs in a separate process; a part that fails is reported with its error. Prints one line of JSON for each.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn
from transformers import Sam3Model

from measurement import machine, peak_memory_gb

PARTS = ("backbone", "text_encoder", "encoder_decoder")


class Backbone(nn.Module):
    """pixel_values -> the three levels of the feature pyramid."""

    def __init__(self, model: Sam3Model) -> None:
        super().__init__()
        self.vision_encoder = model.vision_encoder

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.vision_encoder(pixel_values).fpn_hidden_states[:-1])


class TextEncoder(nn.Module):
    """input_ids, attention_mask -> text_features."""

    def __init__(self, model: Sam3Model) -> None:
        super().__init__()
        self.text_encoder, self.text_projection = model.text_encoder, model.text_projection

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        out = self.text_encoder(input_ids=input_ids, attention_mask=attention_mask)
        return self.text_projection(out.last_hidden_state)


class FixedGrid:
    """Stands in for the tensor `spatial_shapes`: plain numbers, which the dynamo exporter needs and torch allows."""

    def __init__(self, side: int) -> None:
        self.shape, self.side = (1, 2), side

    def __getitem__(self, key: tuple[int, int]) -> int:
        return self.side


class EncoderDecoder(nn.Module):
    """fpn_2, its position encoding, prompt features and mask -> logits, boxes, presence."""

    def __init__(self, model: Sam3Model) -> None:
        super().__init__()
        self.encoder, self.decoder, self.scoring = model.detr_encoder, model.detr_decoder, model.dot_product_scoring

    def forward(self, fpn_2: Tensor, position: Tensor, prompt: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        valid = mask.bool()
        encoded = self.encoder(vision_features=[fpn_2], text_features=prompt, vision_pos_embeds=[position],
                               text_mask=valid)
        decoded = self.decoder(
            vision_features=encoded.last_hidden_state, text_features=prompt, text_mask=valid,
            vision_pos_encoding=encoded.pos_embeds_flattened, spatial_shapes=FixedGrid(fpn_2.shape[-1]),
        )
        hidden, reference = decoded.intermediate_hidden_states[-1:], decoded.reference_boxes[-1:]
        inverse = transformers.models.sam3.modeling_sam3.inverse_sigmoid(reference)
        boxes = (inverse + self.decoder.box_head(hidden)).sigmoid()[0]
        boxes = torch.cat([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)
        logits = self.scoring(decoder_hidden_states=hidden, text_features=prompt, text_mask=valid)
        return logits[0, ..., 0], boxes, decoded.presence_logits[-1]


def part(model: Sam3Model, name: str) -> tuple[nn.Module, tuple[Tensor, ...], list[str], list[str]]:
    """The module of a part, inputs to trace it with, and the names of both ends."""
    config = model.config
    side, patch = (getattr(config.vision_config.backbone_config, key) for key in ("image_size", "patch_size"))
    width, context = config.detr_encoder_config.hidden_size, config.text_config.max_position_embeddings
    grid = side // patch
    if name == "backbone":
        return Backbone(model), (torch.zeros(1, 3, side, side),), ["pixel_values"], ["fpn_0", "fpn_1", "fpn_2"]
    if name == "text_encoder":
        ids = torch.ones(1, context, dtype=torch.long)
        return TextEncoder(model), (ids, ids), ["input_ids", "attention_mask"], ["text_features"]
    features = torch.randn(1, width, grid, grid)
    inputs = (features, features, torch.randn(1, context + 1, width), torch.ones(1, context + 1, dtype=torch.long))
    return (EncoderDecoder(model), inputs, ["fpn_2", "position", "prompt_features", "prompt_mask"],
            ["logits", "boxes", "presence"])


def measure(folder: Path, output: Path, name: str, exporter: str, threads: int) -> dict:
    """Exports one part and returns time and memory; a failure is a result, too."""
    model = Sam3Model.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    module, inputs, input_names, output_names = part(model, name)
    loaded_gb, file = peak_memory_gb(), output / f"{name}.onnx"
    result = {"peer": "torch.onnx", "part": name, "exporter": exporter, "loaded_gb": loaded_gb}
    started = time.perf_counter()
    try:
        # The exporter prints to stdout, which is for the figures.
        with torch.no_grad(), contextlib.redirect_stdout(sys.stderr):
            torch.onnx.export(module.eval(), inputs, str(file), input_names=input_names, output_names=output_names,
                              opset_version=20, dynamo=exporter == "dynamo", verbose=False,
                              external_data=True)
    except Exception as error:  # noqa: BLE001 - whatever the exporter throws is the finding
        lines = str(error).strip().splitlines() or [""]
        result |= {"works": False, "error": f"{type(error).__name__}: {lines[0][:300]}"}
    else:
        size = sum(path.stat().st_size for path in output.iterdir())
        result |= {"works": True, "folder_mb": round(size / 1e6, 1)}
    return result | {"export_s": round(time.perf_counter() - started, 2), "peak_memory_gb": peak_memory_gb(),
                     "machine": machine(threads)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="checkpoint folder of make_checkpoint.py")
    parser.add_argument("--output", type=Path, required=True, help="folder for the graphs, created if missing")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="which parts (default all)")
    parser.add_argument("--exporter", choices=("dynamo", "torchscript"), default="dynamo",
                        help="dynamo needs the package onnxscript (default dynamo)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    arguments = parser.parse_args()
    if arguments.exporter == "dynamo" and importlib.util.find_spec("onnxscript") is None:
        raise SystemExit("error: torch's default exporter needs onnxscript: pip install onnxscript==0.7.2, "
                         "or choose --exporter torchscript")
    if len(arguments.parts) > 1:
        for name in arguments.parts:
            command = [sys.executable, __file__, "--model", str(arguments.model), "--output", str(arguments.output)]
            command += ["--parts", name, "--exporter", arguments.exporter, "--threads", str(arguments.threads)]
            subprocess.run(command, check=True)
        return
    output = arguments.output / arguments.parts[0]
    output.mkdir(parents=True, exist_ok=True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(arguments.threads)
    print(json.dumps(measure(arguments.model, output, arguments.parts[0], arguments.exporter, arguments.threads)),
          flush=True)


if __name__ == "__main__":
    main()
