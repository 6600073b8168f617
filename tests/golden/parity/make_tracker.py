#!/usr/bin/env python3
"""Makes the goldens of the memory tracker: small random SAM 3 models with it, and what `transformers` computes with them.

    python make_tracker.py                all models, written beside this script
    python make_tracker.py --only tracker one of them

Written for torch 2.11.0 and transformers 5.23.0. Each folder is a checkpoint as `save_pretrained` writes it, and
`golden.safetensors`: `GRAPH.CASE.in.NAME` and `GRAPH.CASE.out.NAME`, and in its metadata `aliases` of tensors that several
cases share. The weights are random, those that `transformers`
starts at zero included, and rounded to 16 bits; the bias of the object score lies in the middle of the scores, so that both
signs occur.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Sam3VideoConfig, Sam3VideoModel

HERE = Path(__file__).resolve().parent
TOKENIZER = HERE.parents[2] / "src" / "builtin" / "tokenizer.json"
VOCABULARY_SIZE = 497
MODELS = {
    "tracker": dict(seed=21, image=112, hidden=16, width=16, memory=4, ffn=64, layers=4, heads=8, fuser=40, theta=10000.0),
    # An odd grid, other widths, depths and rotary frequencies.
    "tracker_odd": dict(seed=22, image=98, hidden=24, width=24, memory=12, ffn=40, layers=2, heads=4, fuser=56, theta=500.0),
}
# Objects, memories and pointers of each; the last sees another frame.
STEPS = ((1, 1, 0), (1, 1, 1), (2, 7, 16), (6, 4, 3), (1, 10, 18), (4, 2, 2))


def configuration(entry: dict) -> Sam3VideoConfig:
    image, width = entry["image"], entry["width"]
    grid = image // 14
    vision = dict(
        backbone_config=dict(model_type="sam3_vit_model", hidden_size=entry["hidden"], intermediate_size=40,
                             num_hidden_layers=2, num_attention_heads=2, image_size=image, pretrain_image_size=42,
                             patch_size=14, window_size=4, global_attn_indexes=[1]),
        fpn_hidden_size=width, backbone_feature_sizes=[[4 * grid] * 2, [2 * grid] * 2, [grid] * 2])
    small = dict(hidden_size=width, num_attention_heads=4)
    detector = dict(
        model_type="sam3", vision_config=dict(model_type="sam3_vision_model", **vision),
        text_config=dict(vocab_size=VOCABULARY_SIZE, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                         num_attention_heads=2, max_position_embeddings=8, projection_dim=8, bos_token_id=0,
                         eos_token_id=1, pad_token_id=1),
        geometry_encoder_config=dict(num_layers=1, intermediate_size=16, roi_size=3, **small),
        detr_encoder_config=dict(num_layers=1, intermediate_size=16, **small),
        detr_decoder_config=dict(num_layers=1, intermediate_size=16, num_queries=5, **small),
        mask_decoder_config=small)
    tracker = dict(
        model_type="sam3_tracker_video", vision_config=dict(model_type="sam3_vision_model", **vision),
        prompt_encoder_config=dict(hidden_size=width, image_size=image, patch_size=14),
        mask_decoder_config=dict(hidden_size=width, mlp_dim=entry["ffn"], iou_head_hidden_dim=width,
                                 num_attention_heads=entry["heads"]),
        memory_attention_hidden_size=width, memory_attention_num_layers=entry["layers"],
        memory_attention_feed_forward_hidden_size=entry["ffn"], memory_attention_rope_feat_sizes=[grid, grid],
        rope_parameters=dict(rope_type="default", rope_theta=entry["theta"]),
        memory_encoder_hidden_size=width, memory_encoder_output_channels=entry["memory"],
        mask_downsampler_embed_dim=width, memory_fuser_embed_dim=width, memory_fuser_intermediate_dim=entry["fuser"],
        image_size=image)
    return Sam3VideoConfig(detector_config=detector, tracker_config=tracker, low_res_mask_size=4 * grid)


def randomise(model: Sam3VideoModel, generator: torch.Generator) -> None:
    """Every parameter random and rounded to 16 bits."""
    tables = ("positional_embedding",)
    loose = ("embed", "token", "pointer", "positional_encoding")
    named = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n.endswith(tables))]
    for name, value in named:
        noise = torch.randn(value.shape, generator=generator)
        if ("norm" in name and name.endswith("weight")) or name.endswith((".scale", "layer_scale")):
            noise = 1 + 0.1 * noise
        elif name.endswith(tables):
            pass
        elif any(part in name.split("tracker_model.")[-1] for part in loose) and "proj" not in name:
            noise = 0.3 * noise
        elif value.ndim >= 2:
            noise = noise * value[0].numel() ** -0.5
        else:
            noise = 0.1 * noise
        # Sharper attention would be an arg max, which multiplies rounding.
        if "mask_decoder.transformer" in name and "image" in name and name.endswith(("q_proj.weight", "k_proj.weight")):
            noise = 0.25 * noise
        if name.endswith("pred_obj_score_head.proj_out.weight"):
            noise = 8 * noise
        if name.endswith("pred_obj_score_head.proj_out.bias"):
            noise = torch.zeros_like(noise)
        value.copy_(noise.half().float())


class Tracker:
    """What the graphs compute, in the modules of `transformers`."""

    def __init__(self, model: Sam3VideoModel):
        self.neck, self.model = model.tracker_neck, model.tracker_model
        self.width, self.memory = self.model.hidden_dim, self.model.mem_dim
        self.side, self.image = self.model.prompt_encoder.image_embedding_size[0], self.model.image_size

    def features(self, hidden: Tensor) -> tuple[dict, Tensor]:
        (fine, middle, pixel, *_), positions = self.neck(hidden)
        decoder, attention = self.model.mask_decoder, self.model.memory_attention
        flat = pixel.flatten(2).transpose(1, 2) + 0.1 * positions[2].flatten(2).transpose(1, 2)
        first = attention.layers[0]
        tables = attention.rotary_emb(flat, attention.position_ids)
        normed = first.layer_norm1(flat)[None]
        query = flat + first.self_attn(normed, normed, normed, tables)[0][0]
        return dict(high_res_0=decoder.conv_s0(fine), high_res_1=decoder.conv_s1(middle), pixel=pixel,
                    memory_pixel=self.model.memory_encoder.feature_projection(pixel), query_0=query), positions[2]

    def attend(self, pixel: Tensor, position: Tensor, bank: Tensor, slots: Tensor, times: Tensor, pointers: Tensor,
               offsets: Tensor) -> Tensor:
        """One object's frame after attention to its memories: [1, D, P, P]."""
        model = self.model
        rows = lambda x: x.reshape(-1, 1, self.memory)
        place = model.memory_encoder.position_encoding((1, self.memory, self.side, self.side), bank.device, bank.dtype)
        place = place.flatten(2).transpose(1, 2)
        memory_positions = rows(place + model.memory_temporal_positional_encoding[times][:, 0])
        parts = self.width // self.memory
        half = self.width // 2
        angles = offsets[:, None] / 10000 ** (2 * (torch.arange(half) // 2) / half)
        pointer_positions = model.temporal_positional_encoding_projection_layer(torch.cat([angles.sin(), angles.cos()], -1))
        pointer_positions = rows(pointer_positions.repeat_interleave(parts, 0))
        attended = model.memory_attention(
            current_vision_features=pixel.flatten(2).permute(2, 0, 1),
            current_vision_position_embeddings=position.flatten(2).permute(2, 0, 1),
            memory=torch.cat([rows(bank[slots]), rows(pointers)]),
            memory_posision_embeddings=torch.cat([memory_positions, pointer_positions]),
            num_object_pointer_tokens=len(pointers) * parts)
        return attended.reshape(-1, self.width).T.reshape(1, self.width, self.side, self.side)

    def decode(self, image: Tensor, features: dict, points: Tensor | None = None, labels: Tensor | None = None,
               mask: Tensor | None = None) -> tuple[Tensor, ...]:
        """All four masks, their IoU and tokens, and the object score."""
        model, count = self.model, len(image)
        if points is None:
            points, labels = torch.zeros(count, 1, 2), -torch.ones(count, 1, dtype=torch.int64)
        sparse, dense = model.prompt_encoder(points[:, None], labels[:, None], None, mask)
        high = [features[name].expand(count, -1, -1, -1) for name in ("high_res_0", "high_res_1")]
        decoder = model.mask_decoder
        decoder.dynamic_multimask_via_stability = False
        both = [decoder(image_embeddings=image,
                        image_positional_embeddings=model.get_image_wide_positional_embeddings().repeat(count, 1, 1, 1),
                        sparse_prompt_embeddings=sparse, dense_prompt_embeddings=dense, multimask_output=several,
                        high_resolution_features=high) for several in (False, True)]
        masks, ious, tokens = (torch.cat([both[0][i], both[1][i]], 2)[:, 0] for i in range(3))
        return masks, ious, tokens, both[0][3][:, 0, 0]

    def chosen(self, decoded: tuple[Tensor, ...], several: bool) -> dict:
        masks, ious, tokens, score = decoded
        each = torch.arange(len(masks))
        best = 1 + ious[:, 1:].argmax(1)
        ranked = ious[:, 1:].sort(1).values
        assert (ranked[:, -1] - ranked[:, -2]).min() > 1e-4, "the best mask depends on rounding"
        takes_best, token = torch.ones(len(masks), dtype=torch.bool), tokens[each, best]
        if not several:
            small, large = ((masks[:, 0] > logit).flatten(1).sum(1).float() for logit in (0.05, -0.05))
            takes_best, token = (large > 0) & (small / large.clamp(min=1) < 0.98), tokens[:, 0]
        mask = torch.where(takes_best[:, None, None], masks[each, best], masks[:, 0])
        iou = torch.where(takes_best, ious[each, best], ious[:, 0])
        present = score > 0
        pointer = torch.where(present[:, None], self.model.object_pointer_proj(token), self.model.no_object_pointer)
        return dict(masks=torch.where(present[:, None, None], mask, -1024.0), object_score=score, iou=iou, pointer=pointer)

    def init(self, features: dict, masks: Tensor) -> dict:
        image = features["pixel"].expand(len(masks), -1, -1, -1)
        _, _, tokens, score = self.decode(image, features, mask=self.model.mask_downsample(masks[:, None]))
        exists = masks.flatten(1).any(1)
        pointer = self.model.object_pointer_proj(tokens[:, 0])
        pointer = torch.where((exists & (score > 0))[:, None], pointer, self.model.no_object_pointer)
        return dict(pointer=pointer, object_score=torch.where(exists, 10.0, -10.0)), score

    def encode(self, features: dict, masks: Tensor, keep: Tensor, present: Tensor, binary: Tensor) -> dict:
        encoder, fine = self.model.memory_encoder, [16 * self.side] * 2
        enlarge = lambda x, sides: F.interpolate(x, size=sides, mode="bilinear", align_corners=False)
        each = (slice(None), None, None, None)
        hard = enlarge((enlarge(masks[:, None], [self.image] * 2) > 0).float() * 20 - 10, fine)
        soft = enlarge(masks[:, None], fine)
        soft = torch.where(keep[each], soft, soft.clamp(max=-10)).sigmoid() * 20 - 10
        mask = encoder.mask_downsampler(torch.where(binary[each], hard, soft))
        memory = encoder.projection(encoder.memory_fuser(features["memory_pixel"] + mask)).flatten(2).transpose(1, 2)
        absent = self.model.occlusion_spatial_embedding_parameter
        return dict(memory=memory + torch.where(present[:, None, None], 0.0, absent))


def overlaps(a: Tensor, b: Tensor) -> dict:
    inside, other = (a > 0).flatten(1), (b > 0).flatten(1)
    shared = (inside[:, None] & other[None]).sum(-1).float()
    joined = (inside[:, None] | other[None]).sum(-1).float().clamp(min=1)
    fine = F.interpolate(a[:, None], scale_factor=4, mode="bilinear", align_corners=False)[:, 0]
    winner = fine.argmax(0)
    kept = torch.stack([((fine[i] > 0) & (winner == i)).sum() for i in range(len(a))])
    return dict(iou=shared / joined, area=inside.sum(1).float(), area_before=(fine > 0).flatten(1).sum(1).float(),
                area_after=kept.float())


def rectangles(side: int, *places: tuple[float, float, float, float]) -> Tensor:
    masks = torch.full((len(places), side, side), -5.0)
    for i, place in enumerate(places):
        x, y, w, h = (round(part * side) for part in place)
        masks[i, y:y + h, x:x + w] = 4.0 + i
    return masks


def cases(tracker: Tracker, model: Sam3VideoModel, seed: int) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Every case of every graph, and the object scores among them."""
    generator = torch.Generator().manual_seed(seed)
    side, width, golden, scores = tracker.side, tracker.width, {}, []

    def put(graph: str, case: str, inputs: dict, outputs: dict) -> None:
        for way, values in (("in", inputs), ("out", outputs)):
            golden.update({f"{graph}.{case}.{way}.{name}": value.contiguous() for name, value in values.items()})

    pixels = torch.rand(1, 3, tracker.image, tracker.image, generator=generator) * 2 - 1
    hidden = model.detector_model.get_vision_features(pixel_values=pixels).last_hidden_state
    hidden = hidden.view(1, side, side, -1).permute(0, 3, 1, 2).contiguous()
    put("backbone", "a", dict(pixel_values=pixels), dict(hidden=hidden))
    features, position = tracker.features(hidden)
    put("track_features", "a", dict(hidden=hidden), features)
    shared = {name: features[name] for name in ("pixel", "high_res_0", "high_res_1")}

    bank = torch.randn(12, side * side, tracker.memory, generator=generator).bfloat16().float()
    for count, memories, pointers in STEPS:
        if (count, memories, pointers) == STEPS[-1]:
            features, position = tracker.features(torch.roll(-2 * hidden, 3, 3))
        slots = torch.stack([torch.randperm(12, generator=generator)[:memories] for _ in range(count)])
        times = torch.tensor(([6] * max(1, memories - 6) + list(range(6)))[:memories]).expand(count, memories)
        pointer = torch.randn(count, pointers, width, generator=generator)
        offsets = torch.arange(1, pointers + 1).float().expand(count, pointers) / 15
        attended = torch.cat([tracker.attend(features["pixel"], position, bank, slots[i], times[i], pointer[i], offsets[i])
                              for i in range(count)])
        step = tracker.chosen(tracker.decode(attended, features), True)
        scores.append(step["object_score"])
        high = {name: features[name] for name in ("query_0", "high_res_0", "high_res_1")}
        put("track_step", f"{count}_{memories}_{pointers}",
            dict(**high, bank=bank, slots=slots, slot_times=times, pointers=pointer, pointer_offsets=offsets), step)

    places = ((0.1, 0.1, 0.4, 0.4), (0.6, 0.2, 0.3, 0.5))
    logits = rectangles(4 * side, *places)
    init_masks = (F.interpolate(logits[:, None], scale_factor=4, mode="bilinear", align_corners=False)[:, 0] > 0).float()
    init_masks = torch.stack([init_masks[0], torch.zeros_like(init_masks[0])])
    init, score = tracker.init(features, init_masks)
    scores.append(score[:1])
    shared = {name: features[name] for name in ("pixel", "high_res_0", "high_res_1")}
    put("track_init", "a", dict(pixel=features["pixel"], masks=init_masks), init)

    noise = torch.randn(2, 4 * side, 4 * side, generator=generator) * 3
    encoder_masks = torch.cat([logits * 3, noise, logits * 256])
    flags = [torch.tensor([bool(int(flag)) for flag in text]) for text in ("101011", "110101", "000111")]
    inputs = dict(masks=encoder_masks, **dict(zip(("keep", "present", "binary"), flags, strict=True)))
    put("memory_encoder", "a", dict(memory_pixel=features["memory_pixel"], **inputs), tracker.encode(features, **inputs))

    for count, points, with_mask in ((1, 1, 0), (2, 1, 1), (1, 2, 0), (3, 5, 1), (1, 16, 0), (1, 0, 1)):
        spots = torch.rand(count, points, 2, generator=generator) * tracker.image
        labels = torch.randint(-1, 4, (count, points), generator=generator)
        prompt = noise[:1].expand(count, -1, -1) * 2
        image = features["pixel"] + tracker.model.no_memory_embedding.view(1, -1, 1, 1)
        decoded = tracker.decode(image.expand(count, -1, -1, -1), features, spots, labels, prompt[:, None] if with_mask else None)
        scores.append(decoded[3])
        put("track_points", f"{count}_{points}_{with_mask}",
            dict(**shared, points=spots, labels=labels, mask_prompt=prompt, has_mask=torch.tensor(bool(with_mask))),
            tracker.chosen(decoded, points <= 1))

    # Two equal masks: the first wins.
    a = torch.cat([rectangles(4 * side, *places, (0.3, 0.3, 0.3, 0.3)), logits[:1], torch.full_like(logits[:1], -5)])
    put("mask_iou", "a", dict(a=a, b=noise), overlaps(a, noise))
    return golden, scores


@torch.no_grad()
def make(name: str) -> None:
    entry, folder = MODELS[name], HERE / name
    folder.mkdir(exist_ok=True)
    model = Sam3VideoModel(configuration(entry)).eval()
    for layer in model.tracker_model.memory_attention.layers:
        # transformers fixes the width of a memory at 64 here, and takes it from the configuration elsewhere.
        for projection in ("k_proj", "v_proj"):
            setattr(layer.cross_attn_image, projection, torch.nn.Linear(entry["memory"], entry["width"]))
    randomise(model, torch.Generator().manual_seed(entry["seed"]))
    tracker = Tracker(model)
    bias = model.tracker_model.mask_decoder.pred_obj_score_head.proj_out.bias
    scores = torch.cat(cases(tracker, model, entry["seed"])[1][:len(STEPS)]).sort().values
    middle = len(scores) // 4 + (scores[1:] - scores[:-1])[len(scores) // 4:-(len(scores) // 4)].argmax()
    bias.copy_((-(scores[middle] + scores[middle + 1]) / 2).half().float())
    golden, scores = cases(tracker, model, entry["seed"])
    assert torch.cat(scores).abs().min() > 1e-3, scores
    scores = torch.cat(scores[:len(STEPS)])
    assert (scores > 0).any() and (scores < 0).any(), scores

    model.half().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    weights = load_file(folder / "model.safetensors")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = json.loads(TOKENIZER.read_text())
    tokenizer["truncation"]["max_length"] = 8
    tokenizer["padding"]["strategy"] = {"Fixed": 8}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")))
    meta = dict(torch=torch.__version__, transformers=transformers.__version__, seed=entry["seed"],
                script=hashlib.sha256(Path(__file__).read_bytes()).hexdigest(), patch=14, image_size=entry["image"],
                grid=entry["image"] // 14, absent=int((scores < 0).sum()), present=int((scores > 0).sum()))
    # A tensor that several cases share is stored once.
    first = {}
    aliases = {key: kept for key, value in golden.items() if (kept := first.setdefault(value.data_ptr() or key, key)) != key}
    golden = {key: value for key, value in golden.items() if key not in aliases}
    save_file(golden, folder / "golden.safetensors",
              metadata={"meta": json.dumps(meta), "pruned": "[]", "aliases": json.dumps(aliases)})
    print(name, meta["present"], "present,", meta["absent"], "absent;",
          *(f"{path.name} {path.stat().st_size / 1e3:.0f} kB" for path in sorted(folder.iterdir())))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODELS)
    arguments = parser.parse_args()
    for chosen in [arguments.only] if arguments.only else MODELS:
        make(chosen)
