#!/usr/bin/env python3
"""Makes the golden session of SAM 3.1's tracker: a closed loop of the network of multiplex_model.py and the life cycle of
multiplex_policy.py over drawn detections.

    python make_multiplex_session.py        writes multiplex/session.safetensors, after make_multiplex.py

The weights are those of multiplex/sam3.1.safetensors, but for a bias of the object scores, `bias`: objects come and go.
`FRAME.hidden` are the backbone's features of a frame, `STEP.STATE.NAME` what a state keeps of the frame of a step, in the order
of its objects; the metadata have the script and every decision.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

HERE = Path(__file__).resolve().parent
FRAMES, SIDE, SHIFT = 20, 168, 2.8
# What is compared of a step.
KEYS = ("det", "trk", "matches", "unmatched", "reconditioned", "removed", "new", "present", "shrunk", "occluded", "ids",
        "states", "unconfirmed")


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


reference, policy = module("multiplex_model"), module("multiplex_policy")
SLOTS = reference.SLOTS
CONSTANTS = dict(
    score_threshold_detection=0.4, det_nms_thresh=0.1, det_nms_use_iom=True, assoc_iou_thresh=0.1, new_det_thresh=0.65,
    hotstart_delay=15, hotstart_unmatch_thresh=8, hotstart_dup_thresh=8, recondition_every_nth_frame=16,
    use_iom_recondition=True, max_num_objects=40)


class Networks(policy.Policy):
    """The life cycle with the graphs in place of drawn answers."""

    def __init__(self, script: dict, model, hidden: list[Tensor]):
        super().__init__(script, CONSTANTS)
        self.model, self.hidden, self.images = model, hidden, {}

    def start(self, frame):
        self.features, self.given = self.model.mux_features(self.hidden[frame]), None
        self.images[frame] = self.features["image"][0]

    def pointers(self, buckets) -> Tensor:
        empty = torch.zeros(self.model.D)
        return torch.stack([torch.stack([p if torch.is_tensor(p) else empty for p in bucket]) for bucket in buckets])

    def track(self, state, frame, bank):
        frames, rows, count = [m[0] for m in bank["mem"]], [m[1] for m in bank["mem"]], len(state.slots)
        places = {v: b * SLOTS + i for b, bucket in enumerate(state.slots) for i, v in enumerate(bucket) if v >= 0}
        slots = torch.arange(len(frames))[None] * count + torch.arange(count)[:, None]
        offsets = torch.tensor([distance for _, distance in bank["ptr"]]).float() / bank["div"]
        features = [self.features[name] for name in ("query_0", "image_query", "high_res_0", "high_res_1")]
        out = self.model.mux_step(
            *features, torch.cat([state.at(f)["memory"] for f in frames]), torch.stack([self.images[f] for f in frames]),
            slots, torch.arange(len(frames)).expand(count, -1), torch.tensor(rows).expand(count, -1),
            torch.stack([self.pointers(p) for p, _ in bank["ptr"]], 1), offsets.expand(count, -1),
            torch.tensor([[v >= 0 for v in bucket] for bucket in state.slots]),
            torch.tensor([places[i] for i in state.ids]))
        answers = {i: (out["masks"][n].numpy(), float(out["object_score"][n])) for n, i in enumerate(state.ids)}
        return answers, {i: out["pointer"][n] for n, i in enumerate(state.ids)}

    def point(self, frame, masks):
        self.given = self.given or self.model.mux_interactive(self.hidden[frame])
        features = [self.given[name] for name in ("pixel", "high_res_0", "high_res_1")]
        stacked = torch.tensor(np.stack(list(masks.values())), dtype=torch.float32)
        return dict(zip(masks, self.model.mux_init(*features, stacked)["pointer"]))

    def write(self, state, frame, stored, masks, present):
        entry = state.at(frame)
        planes = torch.tensor(np.stack(masks)).sigmoid() * 2 - 1
        planes = reference.resize(planes, 16 * self.model.P) if stored else planes
        order = torch.tensor([[state.ids.index(v) if v >= 0 else 0 for v in bucket] for bucket in state.slots])
        valid = torch.tensor([[v >= 0 for v in bucket] for bucket in state.slots])
        flags = [torch.tensor([i in chosen for i in state.ids]) for chosen in (set(present), entry["conditional"])]
        memory = self.model.mux_memory(self.features["memory_pixel"], planes, order, valid, *flags)
        entry["memory"] = memory.bfloat16().float()


def script() -> dict:
    box = lambda x, y, w, h: [x, y, x + w, y + h]  # noqa: E731
    detections = []
    for frame in range(FRAMES):
        found = [[0.9, "a", [box(4 + frame, 6, 13, 12)], 5.0], [0.85, "b", [box(28, 8 + frame % 16, 12, 14)], 4.0]]
        if frame >= 4:
            found.append([0.8, "c", [box(6, 28, 16, 12)], 4.5])
        if frame >= 6:
            places = [(2 + k % 8 * 6, 30 + k // 8 * 6) for k in range(16)]
            found += [[0.7 + 0.01 * k, f"k{k}", [box(x, y, 4, 4)], 5.0] for k, (x, y) in enumerate(places)]
        detections.append(found)
    return dict(frames=FRAMES, video=[policy.L, policy.L], opt={}, det=detections, trk={})


def noise(seed: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
def main() -> None:
    folder = HERE / "multiplex"
    weights = {name: value.float() for name, value in load_file(folder / "sam3.1.safetensors").items()}
    bias = f"{reference.TRACKER}sam_mask_decoder.pred_obj_score_head.layers.2.bias"
    weights[bias] = (weights[bias] - SHIFT).bfloat16().float()
    model = reference.Multiplex(weights, SIDE)
    width = weights[f"{reference.NECK}propagation_convs.2.conv_1x1.weight"].shape[1]
    shape = (1, width, model.P, model.P)
    hidden = [(3 * (noise(1, shape) + noise(1000 + frame, shape))).bfloat16().float() for frame in range(FRAMES)]
    loop, steps, kept, scores = Networks(script(), model, hidden), [], {"bias": weights[bias].bfloat16()}, []
    kept |= {f"{frame}.hidden": value.bfloat16() for frame, value in enumerate(hidden)}
    for step, frame in enumerate([0, *range(FRAMES)]):
        decided, _ = loop.frame(frame, False, step == 0)
        steps.append(dict(frame=frame) | {key: decided[key] for key in KEYS if key in decided})
        for index, state in enumerate(loop.states):
            entry = state.at(frame)
            values = dict(memory=entry["memory"].bfloat16(), pointers=loop.pointers(entry["ptr"]),
                          object_score=torch.tensor([entry["obj"][i] for i in state.ids]).float(),
                          masks=torch.tensor(np.stack([entry["mask"][i] for i in state.ids])).bfloat16())
            kept |= {f"{step}.{index}.{name}": value.contiguous().clone() for name, value in values.items()}
            scores += [entry["obj"][i] for i in state.ids if loop.born[i] < frame]
    scores = np.array(scores)
    assert np.abs(scores).min() > 1e-3 and 0.2 < (scores > 0).mean() < 0.8, scores
    names = ("make_multiplex_session.py", "multiplex_policy.py", "multiplex_model.py")
    meta = dict(torch=torch.__version__, image_size=SIDE, grid=model.P, script=loop.q, steps=steps,
                hash=hashlib.sha256("".join((HERE / name).read_text() for name in names).encode()).hexdigest())
    save_file(kept, folder / "session.safetensors", metadata={"meta": json.dumps(meta), "pruned": "[]"})
    print(f"{(folder / 'session.safetensors').stat().st_size / 1e3:.0f} kB, {len(kept)} tensors, {(scores > 0).mean():.2f} present")
    for step in steps:
        print(step["frame"], len(step["ids"]), "new", len(step["new"]), "removed", len(step["removed"]), "reconditioned",
              step["reconditioned"], "states", [(len(state["ids"]), len(state["buckets"])) for state in step["states"]])


if __name__ == "__main__":
    main()
