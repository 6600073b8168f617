#!/usr/bin/env python3
"""Makes `clicks.safetensors` beside the goldens of the memory tracker: clicks, boxes and masks on an image.

    python make_clicks.py                both models
    python make_clicks.py --only tracker one of them

Written for torch 2.11.0 and transformers 5.23.0. The checkpoints are those of `make_tracker.py`, opened as `Sam3TrackerModel`.
The image is random and of the size of the model's input; masks are resized to another size, `SIZE`. Tensors are
`pixel_values`, and for each case `CASE.points` [K, 2] in pixels of the input and `CASE.labels` [K] without the corners of
`CASE.box` [4], `CASE.mask_prompt` [4P, 4P]; `CASE.one.` and `CASE.three.` before `logits` [n, 4P, 4P], `iou` [n] and `masks`
[n, height, width], bool: `multimask_output` off and on; `CASE.first.` as `CASE.one.` if every mask were stable, which those of
random weights are not; `CASE.object_score` [1]. The case `refined` gives the click of `click` again, another one, and the
logits of the best of its three masks. Seeds are tried in turn until no choice and no pixel depends on rounding.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from itertools import count
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from make_tracker import HERE, MODELS
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Sam3TrackerModel, Sam3VideoConfig

# Width and height of the image.
SIZE = (90, 70)


class Close(Exception):
    """A choice that rounding could change."""


def resized(logits: Tensor) -> Tensor:
    """As `post_process_masks`."""
    found = F.interpolate(logits[None], size=SIZE[::-1], mode="bilinear", align_corners=False)[0]
    if (found.abs().amin((1, 2)) < 2e-6 * logits.abs().amax((1, 2))).any():
        raise Close("a pixel is on the border")
    return found > 0


def opened(folder: Path) -> Sam3TrackerModel:
    """The checkpoint's tracker on the trunk of its detector."""
    model = Sam3TrackerModel(Sam3VideoConfig.from_pretrained(folder)).eval()
    renamed = (("tracker_model.tracker_model.", ""), ("tracker_neck.", "vision_encoder.neck."),
               ("detector_model.vision_encoder.backbone.", "vision_encoder.backbone."))
    weights = {new + name.removeprefix(old): value.float() for name, value in load_file(folder / "model.safetensors").items()
               for old, new in renamed if name.startswith(old)}
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert not missing, missing
    return model


def embeddings(model: Sam3TrackerModel, pixels: Tensor) -> list[Tensor]:
    """The features of an image. `get_image_embeddings` adds the embedding of no memory to the neck's fourth map, which nothing
    reads; Meta's code, and `transformers` for a video, add it to the third."""
    maps = model.get_image_embeddings(pixels)
    assert torch.equal(maps[2], model.vision_encoder(pixels).fpn_hidden_states[2]), "transformers was corrected"
    return [*maps[:2], maps[2] + model.no_memory_embedding.view(1, -1, 1, 1)]


def run(model: Sam3TrackerModel, features: list[Tensor], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    names = dict(input_points="points", input_labels="labels", input_boxes="box", input_masks="mask_prompt")
    # An image, an object; the object is the batch of masks.
    prompt = {key: inputs[name][None, None] for key, name in names.items() if name in inputs}
    outputs = {}
    decoder = model.mask_decoder
    threshold = model.config.mask_decoder_config.dynamic_multimask_stability_thresh
    for name, several, least in (("first", False, 0.0), ("one", False, threshold), ("three", True, threshold)):
        decoder.dynamic_multimask_stability_thresh = least
        found = model(image_embeddings=[map.clone() for map in features], multimask_output=several, **prompt)
        logits, iou = found.pred_masks[0, 0], found.iou_scores[0, 0]
        outputs |= {f"{name}.logits": logits, f"{name}.iou": iou, f"{name}.masks": resized(logits)}
        outputs["object_score"] = found.object_score_logits.reshape(1)
    ranked = outputs["three.iou"].sort().values
    if ranked[-1] - ranked[-2] < 1e-4:
        raise Close("two masks are equally good")
    small, large = ((outputs["first.logits"] > limit).sum() for limit in (0.05, -0.05))
    if abs(small / large - threshold) < 1e-3:
        raise Close("the mask is hardly stable")
    return outputs


def cases(model: Sam3TrackerModel, pixels: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    image = pixels.shape[-1]
    side = 4 * image // 14
    features = embeddings(model, pixels)
    size = torch.tensor(SIZE, dtype=torch.float32)
    spots = lambda count: (torch.rand(count, 2, generator=generator) * size).floor() / size * image
    golden: dict[str, Tensor] = {}

    def put(case: str, **inputs: Tensor) -> dict[str, Tensor]:
        found = run(model, features, inputs)
        golden.update({f"{case}.{name}": value.clone() for name, value in (inputs | found).items()})
        return found

    click, box = spots(1), torch.tensor([0.2, 0.1, 0.7, 0.8]) * image
    first = put("click", points=click, labels=torch.tensor([1]))
    put("other", points=spots(1), labels=torch.tensor([1]))
    put("clicks", points=spots(3), labels=torch.tensor([1, 0, 1]))
    put("box", box=box)
    put("box_and_click", points=spots(1), labels=torch.tensor([0]), box=box)
    put("mask", mask_prompt=torch.randn(side, side, generator=generator) * 5)
    best = first["three.logits"][first["three.iou"].argmax()].clamp(-32, 32)
    put("refined", points=torch.cat([click, spots(1)]), labels=torch.tensor([1, 0]), mask_prompt=best)
    return golden


@torch.no_grad()
def make(name: str) -> None:
    folder = HERE / name
    model = opened(folder)
    image = MODELS[name]["image"]
    for seed in count(31):
        generator = torch.Generator().manual_seed(seed)
        pixels = torch.rand(1, 3, image, image, generator=generator) * 2 - 1
        try:
            golden = cases(model, pixels, generator)
            break
        except Close as reason:
            print(name, "seed", seed, reason)
    meta = dict(torch=torch.__version__, transformers=transformers.__version__, seed=seed, size=SIZE,
                script=hashlib.sha256(Path(__file__).read_bytes()).hexdigest())
    save_file(dict(golden, pixel_values=pixels), folder / "clicks.safetensors",
              metadata={"meta": json.dumps(meta), "pruned": "[]"})
    print(name, "seed", seed, f'{(folder / "clicks.safetensors").stat().st_size / 1e3:.0f} kB')


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODELS)
    arguments = parser.parse_args()
    for chosen in [arguments.only] if arguments.only else MODELS:
        make(chosen)
