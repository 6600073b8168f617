#!/usr/bin/env python3
"""Makes the golden of SAM 3.1's tracker: a small random checkpoint with it, and what its graphs compute.

    python make_multiplex.py        written into multiplex/, beside this script

Needs what make.py needs, which makes the detector. `sam3.1.safetensors` has the names of the released file;
`golden.safetensors` has `GRAPH.CASE.in.NAME` and `GRAPH.CASE.out.NAME`, computed by multiplex_model.py in float32, and in its
metadata `aliases` of tensors that several cases share. The weights are random and rounded to bfloat16; those of the largest
convolution have three values, so that they compress. Object scores of both signs occur, and none is near zero.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

HERE = Path(__file__).resolve().parent


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


make, reference = module("make"), module("multiplex_model")
SLOTS = reference.SLOTS
DETECTOR = make.SAM31 | dict(seed=34, width=64, heads=1, depth=4, globals=[0, 1, 2, 3], dim=64, pretrain=112)
SCORES = ("sam_mask_decoder", "interactive_sam_mask_decoder")
# Buckets, memories, frames of pointers, objects.
STEPS = ((1, 1, 1, 1), (1, 7, 8, 16), (2, 7, 16, 20), (1, 10, 19, 6), (3, 4, 3, 40))


def rectangles(side: int, *places: tuple[int, int, int, int]) -> Tensor:
    masks = torch.full((len(places), side, side), -5.0)
    for i, (x, y, w, h) in enumerate(places):
        masks[i, y:y + h, x:x + w] = 4.0 + i
    return masks


def cases(model) -> Iterator[tuple[str, str, dict, dict]]:
    """Every graph, in the shapes and branches that occur: graph, case, inputs, outputs."""
    generator = torch.Generator().manual_seed(5)
    grid, tokens, width, side = model.P, model.N, model.D, 4 * model.P
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    hidden = draw(1, DETECTOR["width"], grid, grid)
    features, interactive = model.mux_features(hidden), model.mux_interactive(hidden)
    yield "mux_features", "a", dict(hidden=hidden), features
    yield "mux_interactive", "a", dict(hidden=hidden), interactive

    high = {name: features[name] for name in ("high_res_0", "high_res_1")}
    frames = 11
    images = draw(frames, tokens, width)
    for buckets, memories, pointers, count in STEPS:
        places = buckets * SLOTS
        bank = draw(frames * buckets, tokens, width).bfloat16().float()
        rows = ([6, 3, 0, 5][:max(1, memories - 6)] + list(range(5, -1, -1)))[:memories]
        image_slots = torch.stack([torch.randperm(frames, generator=generator)[:memories] for _ in range(buckets)])
        objects = torch.randperm(places, generator=generator)[:count]
        valid = torch.zeros(places, dtype=torch.bool)
        valid[objects] = True
        valid = valid.view(buckets, SLOTS)
        known = torch.rand(buckets, pointers, SLOTS, 1, generator=generator) < 0.7
        inputs = dict(
            query_0=features["query_0"], image_query=features["image_query"], **high, bank=bank, images=images,
            slots=image_slots * buckets + torch.arange(buckets)[:, None], image_slots=image_slots,
            slot_times=torch.tensor(rows).expand(buckets, memories).contiguous(),
            pointers=draw(buckets, pointers, SLOTS, width) * known * valid[:, None, :, None],
            pointer_offsets=(torch.arange(1, pointers + 1).float() / 15).expand(buckets, pointers).contiguous(),
            valid=valid, objects=objects)
        yield "mux_step", f"{buckets}_{memories}_{pointers}_{count}", inputs, model.mux_step(**inputs)

    low = rectangles(side, (4, 4, 12, 12), (20, 6, 9, 14), (1, 1, 2, 2))
    fine = (reference.resize(low, 16 * grid) > 0).float()
    inputs = {name: interactive[name] for name in ("pixel", "high_res_0", "high_res_1")}
    masks = torch.cat([fine, torch.zeros_like(fine[:1])])
    yield "mux_init", "a", dict(pixel=inputs["pixel"], masks=masks), model.mux_init(**inputs, masks=masks)
    prompt = rectangles(side, (4, 4, 12, 12), (9, 2, 8, 20))
    for count in (1, 2, 5):
        for has_mask in (False, True):
            points = dict(points=torch.rand(2, count, 2, generator=generator) * model.S,
                          labels=torch.randint(0, 2, (2, count), generator=generator))
            outputs = model.mux_points(**inputs, **points, mask_prompt=prompt if has_mask else None)
            yield ("mux_points", f"{count}_{int(has_mask)}",
                   dict(**inputs, **points, mask_prompt=prompt, has_mask=torch.tensor(has_mask)), outputs)

    crowd = torch.cat([rectangles(side, (4, 4, 20, 12), (14, 4, 12, 12), (6, 12, 12, 6), (20, 20, 12, 12)),
                       torch.full((1, side, side), -1024.0), torch.full((1, side, side), -10.0), draw(2, side, side) * 3])
    crowd[1] -= 2
    planes = model.mux_planes(crowd)
    yield "mux_planes", "several", dict(masks=crowd), planes
    yield "mux_planes", "one", dict(masks=crowd[:1].clone()), model.mux_planes(crowd[:1])
    yield "mux_planes", "empty", dict(masks=crowd[4:5].clone()), model.mux_planes(crowd[4:5])
    given = torch.cat([rectangles(side, (4, 4, 20, 12), (14, 4, 12, 12)).sign() * 1024, crowd[4:]])
    stored = model.mux_planes_stored(given)
    yield "mux_planes_stored", "several", dict(masks=given), stored
    yield "mux_planes_stored", "one", dict(masks=given[:1].clone()), model.mux_planes_stored(given[:1])
    for case, made, present, buckets in (("several", planes["planes"], planes["present"], 1),
                                         ("two_buckets", planes["planes"], planes["present"], 2),
                                         ("stored", stored["planes"], torch.tensor([1, 1, 0, 0, 1, 1]).bool(), 1)):
        count = len(made)
        place = torch.randperm(buckets * SLOTS, generator=generator)[:count]
        order, valid = torch.zeros(buckets * SLOTS, dtype=torch.long), torch.zeros(buckets * SLOTS, dtype=torch.bool)
        order[place], valid[place] = torch.arange(count), True
        inputs = dict(memory_pixel=features["memory_pixel"], planes=made, order=order.view(buckets, -1),
                      valid=valid.view(buckets, -1), present=present,
                      conditional=torch.tensor([i % 3 == 0 for i in range(count)]))
        yield "mux_memory", case, inputs, dict(memory=model.mux_memory(**inputs))

    shared = torch.stack([((a > 0) & (b > 0)).sum() for a in crowd for b in low]).view(len(crowd), len(low)).float()
    areas = [(masks > 0).flatten(1).sum(1).float() for masks in (crowd, low)]
    joined = (areas[0][:, None] + areas[1][None] - shared).clamp(min=1)
    yield ("mask_iou", "a", dict(a=crowd, b=low),
           dict(iou=shared / joined, shared=shared, area=areas[0], area_b=areas[1],
                area_before=planes["area"].float(), area_after=planes["area_after"].float()))


def scores_of(model, graph: str) -> Tensor:
    return torch.cat([outputs["object_score"] for name, _, _, outputs in cases(model) if name == graph])


def balance(weights: dict[str, Tensor]) -> None:
    """Moves the biases of the object scores into the widest gap near the middle."""
    for graph, part in zip(("mux_step", "mux_points"), SCORES, strict=True):
        scores = scores_of(reference.Multiplex(weights, DETECTOR["image"]), graph).sort().values
        quarter = len(scores) // 4
        at = quarter + (scores[1:] - scores[:-1])[quarter:-quarter].argmax()
        name = f"{reference.TRACKER}{part}.pred_obj_score_head.layers.2.bias"
        weights[name] = (weights[name] - (scores[at] + scores[at + 1]) / 2).bfloat16().float()


@torch.no_grad()
def main() -> None:
    folder = HERE / "multiplex"
    folder.mkdir(exist_ok=True)
    weights = reference.random_weights(6, D=DETECTOR["dim"], V=DETECTOR["width"], ff=48, mlp_dim=40, iou=24)
    largest = f"{reference.TRACKER}maskmem_backbone.mask_downsampler.encoder.9.weight"
    weights[largest] = weights[largest].sign() * (weights[largest].abs() > weights[largest].std()) * weights[largest].std()
    weights = {name: value.bfloat16().float() for name, value in weights.items()}
    balance(weights)
    model = reference.Multiplex(weights, DETECTOR["image"])
    golden = {}
    for graph, case, inputs, outputs in cases(model):
        for way, values in (("in", inputs), ("out", outputs)):
            golden.update({f"{graph}.{case}.{way}.{name}": value.contiguous() for name, value in values.items()})
    for graph in ("mux_step", "mux_points"):
        scores = torch.cat([value for name, value in golden.items() if name.startswith(graph) and name.endswith("object_score")])
        assert scores.abs().min() > 1e-3 and (scores > 0).any() and (scores < 0).any(), (graph, scores)

    network = make.parity.build(DETECTOR)[0]
    named = make.to_meta({name: value.bfloat16() for name, value in network.state_dict().items()})
    named = {f"detector.{name}": value for name, value in named.items()
             if ".convs.3." not in name and not name.endswith("encoder.text_projection")}
    stored = named | {name: value.bfloat16() for name, value in weights.items()}
    save_file({name: value.contiguous().clone() for name, value in stored.items()}, folder / "sam3.1.safetensors",
              metadata={"format": "pt"})
    make.write_tokenizer(folder, DETECTOR["context"])
    first = {}
    aliases = {key: kept for key, value in golden.items() if (kept := first.setdefault(value.data_ptr(), key)) != key}
    scripts = "".join((HERE / name).read_text() for name in ("make_multiplex.py", "multiplex_model.py"))
    meta = dict(torch=torch.__version__, image_size=DETECTOR["image"], grid=model.P, seed=DETECTOR["seed"],
                script=hashlib.sha256(scripts.encode()).hexdigest())
    save_file({key: value for key, value in golden.items() if key not in aliases}, folder / "golden.safetensors",
              metadata={"meta": json.dumps(meta), "pruned": "[]", "aliases": json.dumps(aliases)})
    print(*(f"{path.name} {path.stat().st_size / 1e3:.0f} kB" for path in sorted(folder.iterdir())))


if __name__ == "__main__":
    main()
