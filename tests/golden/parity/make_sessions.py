#!/usr/bin/env python3
"""Makes `session.safetensors` beside the goldens of the memory tracker: objects followed through ten frames.

    python make_sessions.py                both sessions
    python make_sessions.py --only tracker one of them

Written for torch 2.11.0, transformers 5.23.0 and scipy 1.17.1. The checkpoints are those of `make_tracker.py`. Detections are
drawn; masks, pointers and memories come from the modules of `transformers`, and `Session` decides what becomes of them: an
independent model of the life cycle of Meta's `sam3` 0.1.4, forward and with one prompt. The first frame is processed twice,
at the prompt and in the run, which makes eleven steps. Tensors are `FRAME.hidden`, `STEP.ID.masks`, `.object_score`, `.iou` and
`.pointer` of tracked objects, `STEP.ID.prompt_pointer` of mask prompts and `STEP.ID.memory`, before it is rounded to bfloat16.
The metadata has the detections, the decisions of each step and the masks that are shown. Seeds are tried in turn until objects
are present and absent, and no decision is close.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from itertools import count

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from make_tracker import HERE, MODELS, Tracker, configuration
from safetensors.torch import load_file, save_file
from scipy import ndimage
from torch import Tensor
from transformers import Sam3VideoModel

FRAMES, VIDEO = 10, (72, 96)
# Whether with temporal disambiguation: hotstart, reconditioning and memory selection.
SESSIONS = {"tracker": True, "tracker_odd": False}
f32 = np.float32


class Close(Exception):
    """A decision that rounding could change."""


def is_above(value: float, limit: float, margin: float = 0.003) -> bool:
    if value and abs(value - limit) < margin:
        raise Close(f"{value} and {limit}")
    return value >= limit


def resize(mask, size, antialias=False) -> np.ndarray:
    mask = torch.as_tensor(np.asarray(mask, f32))[None, None]
    return F.interpolate(mask, size=size, mode="bilinear", align_corners=False, antialias=antialias)[0, 0].numpy()


def iou(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / max(1, (a | b).sum()))


def fill_holes(mask: np.ndarray, most: int = 16) -> np.ndarray:
    def areas(inside):
        labels, _ = ndimage.label(inside, np.ones((3, 3)))
        return np.bincount(labels.ravel())[labels]
    background = mask <= 0
    mask = np.where(background & (areas(background) <= most), f32(0.1), mask)
    foreground = mask > 0
    return np.where(foreground & (areas(foreground) <= min(most, int(foreground.sum()) // 2)), f32(-0.1), mask)


def runs(mask: np.ndarray) -> list[int]:
    flat = mask.astype(np.uint8).ravel()
    lengths = np.diff(np.concatenate([[0], np.flatnonzero(np.diff(flat)) + 1, [flat.size]])).tolist()
    return [0] * int(flat[0]) + lengths


def nearest(frames: list[int], frame: int) -> list[int]:
    """At most four conditioning frames."""
    if len(frames) <= 4:
        return frames
    before, after = [f for f in frames if f < frame], [f for f in frames if f >= frame]
    chosen = before[-1:] + after[:1]
    return chosen + sorted((f for f in frames if f not in chosen), key=lambda f: abs(f - frame))[:4 - len(chosen)]


class Session:
    def __init__(self, tracker: Tracker, with_disambiguation: bool):
        self.tracker, self.on = tracker, with_disambiguation
        self.side = 4 * tracker.side
        self.groups, self.tensors, self.step, self.next = [], {}, 0, 0
        self.birth, self.score, self.last, self.missed, self.shared, self.removed = {}, {}, {}, {}, {}, set()
        self.signs = set()

    def put(self, ident: int, name: str, value: Tensor) -> None:
        self.tensors[f"{self.step}.{ident}.{name}"] = value.clone().contiguous()

    def ids(self) -> list[int]:
        return [i for group in self.groups for i in group["ids"]]

    def stored(self, masks: list[np.ndarray]) -> list[np.ndarray]:
        masks = [resize(mask, VIDEO, True) > 0.5 for mask in masks]
        masks = [mask & ~np.any(masks[n + 1:], 0) if masks[n + 1:] else mask for n, mask in enumerate(masks)]
        return [resize(np.where(mask, 1024.0, -1024.0), [self.side] * 2, True) for mask in masks]

    @staticmethod
    def selection_score(group: dict, frame: int) -> float:
        entries = [group["frames"][frame][i] for i in group["ids"]]
        presence = [max(0.0, 2 / (1 + np.exp(-e["score"])) - 1) for e in entries]
        return float(np.mean(presence) * np.mean([e["iou"] for e in entries]))

    def selection(self, group: dict, frame: int) -> tuple[list, list]:
        """Frames with their rows in the table of times, and frames with how far back they are."""
        conditioning = nearest(sorted(group["conditioning"]), frame)
        known = lambda f: f in group["frames"] and f not in conditioning
        most = min(FRAMES, 16)
        if self.on:
            valid = [f for f in range(frame - 1, 0, -1) if f in group["frames"] and f not in group["conditioning"]
                     and is_above(group["selection"][f], 0.01, 1e-3)][:most - 1] if frame else []
            if frame and frame - 1 not in valid:
                valid.insert(0, frame - 1)
            earlier = dict(enumerate(valid, 1))
            pointers = {k: f for k, f in earlier.items() if k < min(most, len(valid))}
        else:
            earlier = {k: frame - k for k in range(1, 7)}
            pointers = {k: frame - k for k in range(1, most)}
        memories = [(f, 6) for f in conditioning] + [(f, k - 1) for k, f in earlier.items() if k <= 6 and known(f)]
        return memories, [(f, frame - f) for f in conditioning if f <= frame] + [(f, k) for k, f in pointers.items() if known(f)]

    def track(self, group: dict, frame: int, features: dict, position: Tensor) -> list[int]:
        memories, pointers = self.selection(group, frame)
        entry = {}
        for i in group["ids"]:
            own = group["frames"]
            bank = torch.stack([own[f][i]["memory"] for f, _ in memories])
            offsets = torch.tensor([distance / (min(FRAMES, 16) - 1) for _, distance in pointers])
            pointer = torch.stack([own[f][i]["pointer"] for f, _ in pointers]) if pointers else torch.zeros(0, self.tracker.width)
            attended = self.tracker.attend(features["pixel"], position, bank, torch.arange(len(memories)),
                                           torch.tensor([row for _, row in memories]), pointer, offsets)
            found = self.tracker.chosen(self.tracker.decode(attended, features), True)
            for name, value in found.items():
                self.put(i, name, value[0])
            score, mask = float(found["object_score"]), found["masks"][0]
            is_above(score, 0.0, 0.003)
            if (mask.abs() < 1e-5).any():
                raise Close("a logit")
            self.signs.add(score > 0)
            entry[i] = dict(mask=mask.numpy(), score=score, iou=float(found["iou"]), pointer=found["pointer"][0])
        group["frames"][frame] = entry
        group["selection"][frame] = self.selection_score(group, frame)
        return [len(group["ids"]), len(memories), len(pointers)]

    def prompt(self, ident: int, entry: dict, features: dict, fine: np.ndarray, stored: np.ndarray) -> None:
        found, score = self.tracker.init(features, torch.as_tensor(fine[None].astype(f32)))
        is_above(float(score), 0.0, 0.003)
        self.put(ident, "prompt_pointer", found["pointer"][0])
        entry.update(mask=stored, score=10.0, iou=1.0, pointer=found["pointer"][0])

    def encode(self, entries: dict[int, dict], features: dict, masks, keep, present, binary: bool) -> None:
        flags = [torch.as_tensor(np.array(flag, bool)) for flag in (keep, present, [binary] * len(entries))]
        memory = self.tracker.encode(features, torch.as_tensor(np.stack(masks).astype(f32)), *flags)["memory"]
        for (i, entry), value in zip(entries.items(), memory, strict=True):
            self.put(i, "memory", value)
            entry["memory"] = value.bfloat16().float()

    def process(self, frame: int, hidden: Tensor, detections: list) -> tuple[dict, dict]:
        features, position = self.tracker.features(hidden)
        fine = [16 * self.tracker.side] * 2
        scores = [score for score, _ in detections]
        drawn = [mask for _, mask in detections]
        kept = []
        for d in sorted(range(len(drawn)), key=lambda d: -scores[d]):
            if scores[d] > 0.5 and not any(is_above(iou(drawn[d] > 0, drawn[k] > 0), 0.1) for k in kept):
                kept.append(d)
        kept.sort()
        ids = self.ids()
        batches = [self.track(group, frame, features, position) for group in self.groups if frame not in group["conditioning"]]
        entry_of = lambda i: next(g["frames"][frame][i] for g in self.groups if i in g["ids"])
        masks = {i: fill_holes(entry_of(i)["mask"]) for i in ids}
        logits = {i: entry_of(i)["score"] for i in ids}
        overlap = {(d, i): iou(drawn[d] > 0, masks[i] > 0) for d in kept for i in ids}
        visible = [i for i in ids if (masks[i] > 0).any()]
        matches, unmatched, new, sure = {}, visible, [] if ids else kept, {}
        if ids and kept:
            unmatched = [i for i in visible if not any(is_above(overlap[d, i], 0.5) for d in kept)]
            matches = {d: [i for i in ids if is_above(overlap[d, i], 0.1)] for d in kept}
            new = [d for d in kept if scores[d] >= 0.7 and not matches[d]]
            best = {d: max(ids, key=lambda i: overlap[d, i]) for d in kept}
            sure = {best[d]: d for d in kept if scores[d] >= 0.8 and d not in new and is_above(overlap[d, best[d]], 0.8)}
        born = {self.next + n: d for n, d in enumerate(new)}
        self.next += len(new)
        self.birth.update({i: frame for i in born})

        for i in unmatched:
            self.missed[i] = self.missed.get(i, 0) + 1
        for rivals in matches.values():
            elder = min(rivals, key=lambda i: self.birth[i], default=None)
            for i in rivals:
                if i != elder:
                    self.shared[elder, i] = self.shared.get((elder, i), 0) + 1
        is_young = lambda i: self.on and i not in self.removed and self.birth[i] > frame - 15
        gone = {i for i, n in self.missed.items() if is_young(i) and n >= 8}
        gone |= {i for (_, i), n in self.shared.items() if is_young(i) and n >= 8}
        self.removed |= gone

        reconditioned = []
        for group in self.groups if self.on and frame % 16 == 0 else []:
            own = [i for i in group["ids"] if i in sure and is_above(logits[i], 0.8)]
            for i in own:
                mask = resize(drawn[sure[i]], fine) > 0
                self.prompt(i, group["frames"][frame][i], features, mask, self.stored([mask])[0])
                group["conditioning"].setdefault(frame, set()).add(i)
            reconditioned += group["ids"] if own else []

        last = {i: self.last.get(i, 100000 if i in gone else -1) for i in ids}
        occluded = set()
        for n, a in enumerate(ids):
            for b in ids[n + 1:]:
                if is_above(iou(masks[a] > 0, masks[b] > 0), 0.7):
                    occluded |= {x for x, y in ((a, b), (b, a)) if last[x] > last[y] > -1}
        self.last = {i: frame if i in occluded or i not in visible else last[i] for i in ids if i not in gone}
        masks.update({i: np.full_like(masks[i], -10) for i in occluded})

        shrunk, present = [], []
        if ids:
            large = np.stack([resize(masks[i], fine) for i in ids])
            winner = large.argmax(0)
            for n, i in enumerate(ids):
                area, own = (large[n] > 0).sum(), ((large[n] > 0) & (winner == n)).sum()
                keeps = len(ids) == 1 or is_above(own / max(1, area), 0.3)
                shrunk += [i] if area and not keeps else []
                present += [i] if area and keeps else []
            entries = {i: entry_of(i) for i in ids}
            # An object without a mask does not keep it.
            keep = [i in present for i in ids] if len(ids) > 1 else [True]
            self.encode(entries, features, [masks[i] for i in ids], keep, [i in present for i in ids], False)

        video = {i: resize(masks[i], VIDEO) > 0 for i in ids}
        if born:
            large = [resize(drawn[d], fine) > 0 for d in born.values()]
            entries = {i: {} for i in born}
            for i, mask, stored in zip(born, large, self.stored(large), strict=True):
                self.prompt(i, entries[i], features, mask, stored)
            self.encode(entries, features, [e["mask"] for e in entries.values()], [True] * len(born), [True] * len(born), True)
            self.groups.append(dict(ids=list(born), frames={frame: entries}, conditioning={frame: set(born)}, selection={}))
            self.score.update({i: scores[d] for i, d in born.items()})
            video.update({i: resize(fill_holes(drawn[d]), VIDEO) > 0 for i, d in born.items()})
        tracker_scores = {i: 1 / (1 + np.exp(-logits[i])) for i in ids} | {i: scores[d] for i, d in born.items()}
        for group in self.groups:
            for i in gone & set(group["ids"]):
                group["ids"].remove(i)
                for f, prompted in list(group["conditioning"].items()):
                    prompted.discard(i)
                    if not prompted and group["ids"]:
                        del group["conditioning"][f]
                group["selection"] = {f: self.selection_score(group, f) for f in group["frames"]} if group["ids"] else {}
        self.groups = [group for group in self.groups if group["ids"]]
        self.step += 1
        decisions = dict(frame=frame, detections=kept, tracked=ids, unmatched=unmatched, removed=sorted(gone),
                         born=[[i, d] for i, d in born.items()], matches=[[d, m] for d, m in matches.items() if m],
                         reconditioned=reconditioned, occluded=[i for i in ids if i in occluded], shrunk=shrunk, present=present,
                         objects=self.ids(), batches=batches)
        return decisions, dict(frame=frame, video=video, scores=tracker_scores)

    def shown(self, output: dict) -> dict:
        ids = [i for i, mask in sorted(output["video"].items()) if mask.any() and i not in self.removed]
        winner = np.stack([np.where(output["video"][i], output["scores"][i], 0) for i in ids]).argmax(0) if ids else None
        masks = [output["video"][i] & ((winner == n) | (len(ids) == 1)) for n, i in enumerate(ids)]
        return dict(frame=output["frame"], ids=ids, scores=[self.score[i] for i in ids], masks=[runs(mask) for mask in masks])


def drawn_detections(frame: int) -> list:
    """Scores, rectangles in shares of the side, and the logit inside: [score, [left, top, right, bottom], logit]."""
    move = frame / 64
    births = {0: [[0.9, [0.1 + move, 0.1, 0.5, 0.5], 4.0], [0.85, [0.5, 0.4, 0.9, 0.9], 5.0], [0.6, [0.1, 0.12, 0.5, 0.5], 3.0]],
              3: [[0.8, [0.55, 0.05, 0.95, 0.3], 6.0]], 6: [[0.75, [0.05, 0.6, 0.35, 0.95], 3.0], [0.3, [0.0, 0.0, 1.0, 1.0], 9.0]]}
    return births.get(frame, [[0.65, [0.25 + move, 0.25, 0.75, 0.7], 2.0]] if frame % 2 else [])


def paint(side: int, detection: list) -> np.ndarray:
    _, place, logit = detection
    left, top, right, bottom = (round(part * side) for part in place)
    mask = np.full((side, side), -logit, f32)
    mask[top:bottom, left:right] = logit
    return mask


def attempt(model: Sam3VideoModel, tracker: Tracker, with_disambiguation: bool, seed: int):
    generator = torch.Generator().manual_seed(seed)
    still = torch.rand(1, 3, tracker.image, tracker.image, generator=generator) * 2 - 1
    session, golden, steps, outputs = Session(tracker, with_disambiguation), {}, [], []
    detections = []
    for frame in range(FRAMES):
        pixels = 0.7 * torch.roll(still, 3 * frame, 3) + 0.6 * torch.randn(still.shape, generator=generator)
        hidden = model.detector_model.get_vision_features(pixel_values=pixels).last_hidden_state
        hidden = hidden.view(1, tracker.side, tracker.side, -1).permute(0, 3, 1, 2).contiguous()
        if frame in (4, 5, 8):
            hidden = torch.roll((-1 - seed % 3) * hidden, 3, 3)  # far from the others, so that objects are absent, too
        golden[f"{frame}.hidden"] = hidden
        detections.append(drawn_detections(frame))
        found = [(detection[0], paint(4 * tracker.side, detection)) for detection in detections[-1]]
        for _ in range(2 if frame == 0 else 1):
            decisions, output = session.process(frame, hidden, found)
            steps.append(decisions)
        outputs.append(output)
    shown = [session.shown(output) for output in outputs]
    batches = [batch for step in steps for batch in step["batches"]]
    births = sum(len(step["born"]) for step in steps)
    if session.signs != {True, False} or births < 4 or max(b[1] for b in batches) < 7 or max(b[0] for b in batches) < 2:
        raise Close(f"signs {session.signs}, {births} births, batches {batches}")
    if sum(len(frame["ids"]) for frame in shown) < 12 or max(b[2] for b in batches) < 6:
        raise Close("little is shown or read")
    return golden | session.tensors, dict(detections=detections, steps=steps, shown=shown)


@torch.no_grad()
def make(name: str) -> None:
    entry, folder = MODELS[name], HERE / name
    model = Sam3VideoModel(configuration(entry)).eval()
    for layer in model.tracker_model.memory_attention.layers:
        for projection in ("k_proj", "v_proj"):
            setattr(layer.cross_attn_image, projection, torch.nn.Linear(entry["memory"], entry["width"]))
    # transformers writes this prefix twice.
    twice = "tracker_model."
    weights = {key.replace(twice + twice, twice): value.float() for key, value in load_file(folder / "model.safetensors").items()}
    model.load_state_dict(weights)
    tracker = Tracker(model)
    for seed in count():
        try:
            golden, session = attempt(model, tracker, SESSIONS[name], seed)
            break
        except (Close, AssertionError) as why:
            print(name, seed, str(why)[:150])
    meta = dict(torch=torch.__version__, transformers=transformers.__version__, seed=seed, grid=tracker.side,
                script=hashlib.sha256(open(__file__, "rb").read()).hexdigest(), with_disambiguation=SESSIONS[name],
                video=[VIDEO[1], VIDEO[0]], **session)
    save_file(golden, folder / "session.safetensors", metadata={"meta": json.dumps(meta), "pruned": "[]"})
    print(name, "seed", seed, [(s["frame"], s["tracked"], s["born"], s["removed"], s["batches"]) for s in session["steps"]],
          [(f["frame"], f["ids"]) for f in session["shown"]], (folder / "session.safetensors").stat().st_size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SESSIONS)
    arguments = parser.parse_args()
    for chosen in [arguments.only] if arguments.only else SESSIONS:
        make(chosen)
