#!/usr/bin/env python3
"""Makes the parity goldens: small random SAM3 models and what `transformers` computes with them.

Each folder beside this script holds one model as a checkpoint folder (`config.json`, weights, `tokenizer.json`)
and `golden.safetensors`: the inputs and every output that the exported graphs must reproduce. Written for
torch 2.11.0, torchvision 0.26.0, transformers 5.23.0, safetensors and numpy; everything runs on a CPU in a minute.

    python make.py                  all models, written beside this script
    python make.py --only padded    one of them
    python make.py --sensitivity    writes nothing; changes one epsilon at a time and reports what it moves

The weights are drawn from a seed, scaled layer by layer so that activations stay in a sane range (a random network
with default weights has trivial norms and biases, and saturates at the clamps), then rounded to the type they are
stored in. The reference is computed in float32 from the rounded weights with explicit ("eager") attention.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Callable

import numpy
import safetensors
import torch
import torchvision
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Sam3Config, Sam3Model

HERE = Path(__file__).resolve().parent
TOKENIZER = HERE.parents[2] / "src" / "builtin" / "tokenizer.json"
CLASS_COUNTS = (1, 3, 17)
KINDS = ("text", "official", "exemplar")
VOCABULARY_SIZE = 497

# One line per model. `vision` is the trunk, `model` what the detector's parts share.
MODELS: dict[str, dict] = {
    # Everything divides everything: the place to look first when something fails.
    "plain": dict(
        seed=11, stored=torch.float16, image=112, patch=14, pretrain=112, window=4, width=32, depth=4, heads=2,
        ffn=96, globals=[3], eps=1e-6, theta=10000.0, dim=32, dim_heads=4, dim_ffn=64, queries=12,
        context=12, text_width=32, text_heads=2, text_layers=2, text_ffn=64, text_act="quick_gelu",
        geometry_layers=1, encoder_layers=2, decoder_layers=2,
        pruned=[("1", ""), ("", "0:attn,2:mlp"), ("2", "0:mlp,1:attn")],
    ),
    # A 10x10 grid in windows of 4: padded to 12x12. The position table is 4x4, tiled 2.5 times.
    "padded": dict(
        seed=12, stored=torch.float16, image=140, patch=14, pretrain=56, window=4, width=48, depth=5, heads=3,
        ffn=100, globals=[1, 4], eps=1e-5, theta=10000.0, dim=40, dim_heads=2, dim_ffn=72, queries=17,
        context=9, text_width=24, text_heads=3, text_layers=1, text_ffn=60, text_act="gelu",
        geometry_layers=2, encoder_layers=3, decoder_layers=3,
        pruned=[("0,3", ""), ("", "2:attn,2:mlp"), ("2", "0:attn,3:mlp")],
    ),
    # A 12x12 grid, a 5x5 position table (no multiple), another RoPE base, many queries, a deep decoder.
    "tiled": dict(
        seed=13, stored=torch.float16, image=168, patch=14, pretrain=70, window=6, width=64, depth=3, heads=2,
        ffn=152, globals=[2], eps=1e-6, theta=500.0, dim=24, dim_heads=3, dim_ffn=88, queries=30,
        context=16, text_width=40, text_heads=4, text_layers=3, text_ffn=80, text_act="gelu",
        geometry_layers=3, encoder_layers=1, decoder_layers=4,
        pruned=[("0", ""), ("", "1:attn"), ("1", "0:mlp")],
    ),
    # 16-pixel patches, heads of 8, stored in bfloat16.
    "patch16": dict(
        seed=14, stored=torch.bfloat16, image=128, patch=16, pretrain=64, window=4, width=40, depth=4, heads=5,
        ffn=88, globals=[0, 2], eps=1e-6, theta=10000.0, dim=48, dim_heads=4, dim_ffn=56, queries=9,
        context=20, text_width=36, text_heads=3, text_layers=2, text_ffn=48, text_act="quick_gelu",
        geometry_layers=2, encoder_layers=2, decoder_layers=1,
        pruned=[("1", ""), ("", "3:attn,1:mlp")],
    ),
    # A 7x7 grid smaller than the window of 8: what a small --imgsz makes of the released model.
    "small_grid": dict(
        seed=15, stored=torch.float16, image=98, patch=14, pretrain=42, window=8, width=32, depth=4, heads=4,
        ffn=64, globals=[1, 3], eps=1e-6, theta=10000.0, dim=32, dim_heads=8, dim_ffn=48, queries=21,
        context=7, text_width=20, text_heads=5, text_layers=2, text_ffn=40, text_act="gelu",
        geometry_layers=1, encoder_layers=4, decoder_layers=5,
        pruned=[("0", ""), ("2", "0:mlp")],
    ),
    # The layout of the released checkpoint: nested config, prefixed names, foreign tensors, shards.
    "released": dict(
        seed=16, stored=torch.float32, image=126, patch=14, pretrain=42, window=3, width=32, depth=4, heads=2,
        ffn=74, globals=[1, 3], eps=1e-6, theta=5000.0, dim=16, dim_heads=2, dim_ffn=64, queries=15,
        context=10, text_width=32, text_heads=2, text_layers=2, text_ffn=128, text_act="gelu",
        geometry_layers=3, encoder_layers=2, decoder_layers=2, released=True,
        pruned=[("0,2", ""), ("", "0:attn,2:attn,2:mlp")],
    ),
}

# Root mean square that a layer's output is scaled to, by the end of its name (a pattern); the first that fits counts.
# Residual branches are kept small on purpose: an epsilon is visible only where the variance is small.
OUTPUT_SCALES: list[tuple[str, float]] = [
    ("patch_embeddings.projection", 0.04),
    ("scale_layers.0", 0.5), ("scale_layers.2", 0.5), (".proj1", 0.5), (".proj2", 0.05),
    # Sharper where the keys differ little, else the queries' norm would not matter.
    ("geometry_encoder.layers.*.cross_attn.q_proj", 2.5), ("geometry_encoder.layers.*.cross_attn.k_proj", 2.5),
    ("geometry_encoder.layers.*.cross_attn.o_proj", 0.05),
    ("prompt_cross_attn.q_proj", 2.0), ("prompt_cross_attn.k_proj", 2.0), ("prompt_cross_attn.o_proj", 0.1),
    (".q_proj", 1.0), (".k_proj", 1.0), (".v_proj", 0.3), (".o_proj", 0.03), (".out_proj", 0.03),
    (".fc1", 1.0), (".fc2", 0.03),
    ("boxes_direct_project", 0.05), ("boxes_pool_project", 0.05), ("boxes_pos_enc_project", 0.05),
    ("final_proj", 0.05),
    ("ref_point_head.layer1", 1.0), ("ref_point_head.layer2", 0.05),
    ("box_rpb_embed_x.layer1", 1.0), ("box_rpb_embed_x.layer2", 1.0),
    ("box_rpb_embed_y.layer1", 1.0), ("box_rpb_embed_y.layer2", 1.0),
    ("box_head.layer3", 0.35), ("presence_head.layer3", 1.5),
    ("text_mlp.layer1", 1.0), ("text_mlp.layer2", 0.03), ("text_proj", 1.5), ("query_proj", 1.5),
    ("pixel_decoder.conv_layers.0", 0.05), ("pixel_decoder.conv_layers.1", 0.05),
    ("text_encoder.text_projection", 0.3), ("text_projection", 0.05),
    ("instance_projection", 0.5), ("mask_embedder.layers.2", 0.5), ("semantic_projection", 1.0),
    ("", 1.0),
]
# Norms whose output runs on as a residual: small, for the same reason.
RESIDUAL_NORMS = ("backbone.layer_norm", "prompt_layer_norm", "geometry_encoder.output_layer_norm",
                  "self_attn_layer_norm", "text_cross_attn_layer_norm", "vision_cross_attn_layer_norm",
                  "mlp_layer_norm")


def configuration(model: dict) -> Sam3Config:
    """The `Sam3Config` of one entry of `MODELS`."""
    grid = model["image"] // model["patch"]
    shared = dict(hidden_size=model["dim"], num_attention_heads=model["dim_heads"])
    config = Sam3Config(
        vision_config=dict(
            backbone_config=dict(
                model_type="sam3_vit_model", hidden_size=model["width"], intermediate_size=model["ffn"],
                num_hidden_layers=model["depth"], num_attention_heads=model["heads"], image_size=model["image"],
                pretrain_image_size=model["pretrain"], patch_size=model["patch"], window_size=model["window"],
                global_attn_indexes=model["globals"], layer_norm_eps=model["eps"],
                rope_parameters=dict(rope_type="axial", rope_theta=model["theta"]),
            ),
            fpn_hidden_size=model["dim"],
            backbone_feature_sizes=[[grid * 4] * 2, [grid * 2] * 2, [grid] * 2],
        ),
        text_config=dict(
            model_type="clip_text_model", vocab_size=VOCABULARY_SIZE, hidden_size=model["text_width"],
            intermediate_size=model["text_ffn"], num_hidden_layers=model["text_layers"],
            num_attention_heads=model["text_heads"], max_position_embeddings=model["context"],
            projection_dim=model["text_width"] // 2, hidden_act=model["text_act"], bos_token_id=0, eos_token_id=1,
            pad_token_id=1,
        ),
        geometry_encoder_config=dict(shared, num_layers=model["geometry_layers"],
                                     intermediate_size=model["dim_ffn"] + 8),
        detr_encoder_config=dict(shared, num_layers=model["encoder_layers"],
                                 intermediate_size=model["dim_ffn"] + 16),
        detr_decoder_config=dict(shared, num_layers=model["decoder_layers"], intermediate_size=model["dim_ffn"],
                                 num_queries=model["queries"]),
        mask_decoder_config=shared,
    )
    config._attn_implementation = "eager"
    return config


class Reference:
    """Sam3Model taken apart at the seams of the exported graphs."""

    def __init__(self, model: Sam3Model) -> None:
        self.model = model

    def backbone(self, pixel_values: Tensor) -> dict[str, Tensor]:
        """Feature pyramid, position encoding, trunk output and the CLS token of a prompt without boxes."""
        vision = self.model.vision_encoder(pixel_values)
        levels, positions = vision.fpn_hidden_states[:-1], vision.fpn_position_encoding[:-1]
        out = {f"fpn_{i}": level for i, level in enumerate(levels)}
        out["position"], out["trunk"] = positions[-1], vision.last_hidden_state
        out["image_prompt"] = self.exemplar(out, pixel_values.new_zeros(1, 0, 4), torch.zeros(1, 0, dtype=torch.long))
        return out

    def exemplar(self, image: dict[str, Tensor], boxes: Tensor, labels: Tensor) -> Tensor:
        """Exemplar features [1, N + 1, D] of boxes [1, N, 4] (cxcywh)."""
        return self.model.geometry_encoder(
            box_embeddings=boxes, box_mask=torch.ones_like(labels, dtype=torch.bool), box_labels=labels,
            img_feats=(image["fpn_2"],), img_pos_embeds=(image["position"],),
        ).last_hidden_state

    def text(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Text features [C, L, D]."""
        return self.model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output

    def encoder_decoder(self, image: dict[str, Tensor], prompt: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Logits, boxes, presence, queries and the encoded image for C prompts [C, T, D]."""
        model, count = self.model, prompt.shape[0]
        mask = mask.bool()
        encoded = model.detr_encoder(
            vision_features=[image["fpn_2"].expand(count, -1, -1, -1)], text_features=prompt,
            vision_pos_embeds=[image["position"].expand(count, -1, -1, -1)], text_mask=mask,
        )
        decoded = model.detr_decoder(
            vision_features=encoded.last_hidden_state, text_features=prompt,
            vision_pos_encoding=encoded.pos_embeds_flattened, text_mask=mask, spatial_shapes=encoded.spatial_shapes,
        )
        hidden = decoded.intermediate_hidden_states
        inverse = transformers.models.sam3.modeling_sam3.inverse_sigmoid(decoded.reference_boxes)
        centre = (inverse + model.detr_decoder.box_head(hidden)).sigmoid()[-1]
        half = centre[..., 2:] / 2
        logits = model.dot_product_scoring(decoder_hidden_states=hidden, text_features=prompt, text_mask=mask)
        return dict(
            logits=logits.squeeze(-1)[-1], boxes=torch.cat([centre[..., :2] - half, centre[..., :2] + half], -1),
            presence=decoded.presence_logits[-1], queries=hidden[-1], encoded=encoded.last_hidden_state,
            references=decoded.reference_boxes,
        )

    def masks(self, image: dict[str, Tensor], encoded: Tensor, prompt: Tensor, mask: Tensor,
              queries: Tensor) -> tuple[Tensor, Tensor]:
        """Mask and semantic logits of one class at four times the grid."""
        out = self.model.mask_decoder(
            decoder_queries=queries, backbone_features=[image["fpn_0"], image["fpn_1"], image["fpn_2"]],
            encoder_hidden_states=encoded, prompt_features=prompt, prompt_mask=mask.bool(),
        )
        return out.pred_masks, out.semantic_seg


def draw_inputs(model: dict, generator: torch.Generator) -> dict[str, Tensor]:
    """Pixels, 17 phrases of varied length (full and empty ones among them) and two sets of exemplar boxes."""
    size, context = model["image"], model["context"]
    ids = torch.ones(17, context, dtype=torch.long)
    mask = torch.zeros(17, context, dtype=torch.long)
    for row in range(17):
        drawn = 2 + int(torch.randint(context - 1, (1,), generator=generator))
        length = {0: min(5, context), 1: context, 2: 2}.get(row, drawn)
        ids[row, 0] = 0
        ids[row, 1:length - 1] = torch.randint(3, VOCABULARY_SIZE, (length - 2,), generator=generator)
        mask[row, :length] = 1
    return {
        "pixel_values": torch.rand(1, 3, size, size, generator=generator) * 2 - 1,
        "text.input_ids": ids,
        "text.attention_mask": mask,
        "exemplar.1.boxes": torch.tensor([[[0.41, 0.57, 0.33, 0.21]]]),
        "exemplar.1.labels": torch.tensor([[1]]),
        # ordinary and wanted; tiny and unwanted; touching the right and lower border and wanted
        "exemplar.3.boxes": torch.tensor([[[0.30, 0.62, 0.44, 0.38], [0.713, 0.221, 0.006, 0.009],
                                           [0.80, 0.75, 0.40, 0.50]]]),
        "exemplar.3.labels": torch.tensor([[1, 0, 1]]),
    }


def randomise(model: Sam3Model, inputs: dict[str, Tensor], generator: torch.Generator) -> None:
    """Draws every parameter and scales each layer's output on `inputs` to its entry in `OUTPUT_SCALES`."""
    pending: set[str] = set()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        for name, module in model.named_modules():
            if isinstance(module, (nn.LayerNorm, nn.GroupNorm)):
                scale = 0.03 if name.endswith(RESIDUAL_NORMS) else 1.0
                module.weight.mul_(0.25).add_(1).mul_(scale)
                module.bias.mul_(0.3 * scale)
            elif isinstance(module, nn.Embedding):
                module.weight.mul_(0.05)
            elif isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
                module.weight.div_(module.weight[0].numel() ** 0.5)
                if module.bias is not None:
                    module.bias.mul_(0.3)
                pending.add(name)
        model.vision_encoder.backbone.embeddings.position_embeddings.mul_(0.04)
        # Reference boxes: most in the open, some corners beyond what inverse_sigmoid clamps.
        reference = model.detr_decoder.reference_points.weight
        reference.mul_(20)
        reference[0, 0], reference[1, 3], reference[2, 1] = 8.0, -8.0, -8.5

    def fit(name: str) -> Callable:
        target = next(scale for pattern, scale in OUTPUT_SCALES if fnmatch(name, f"*{pattern}"))

        def hook(module: nn.Module, _: tuple, output: Tensor) -> Tensor | None:
            if name not in pending or output.numel() == 0:
                return None
            pending.discard(name)
            bias = 0 if module.bias is None else module.bias.view([1, -1] + [1] * (output.dim() - 2) if isinstance(
                module, (nn.Conv2d, nn.ConvTranspose2d)) else [-1])
            linear = output - bias
            rms = linear.pow(2).mean().sqrt()
            factor = target / (output.pow(2).mean().sqrt() if module.bias is None else (1 + 0.3**2) ** 0.5 * rms)
            module.weight.mul_(factor)
            if module.bias is None:
                return output * factor
            module.bias.mul_(rms * factor)
            return linear * factor + bias * rms * factor

        return hook

    names = sorted(pending)
    handles = [model.get_submodule(name).register_forward_hook(fit(name)) for name in names]
    with torch.no_grad():
        evaluate(Reference(model), inputs, counts=(3,))
    for handle in handles:
        handle.remove()
    unused = {name for name in pending}
    known = ("neck.fpn_layers.3.", "conv_layers.2")
    assert all(any(part in name for part in known) for name in unused), f"never called: {sorted(unused)}"


def evaluate(reference: Reference, inputs: dict[str, Tensor],
             counts: tuple[int, ...] = CLASS_COUNTS) -> dict[str, Tensor]:
    """Every golden output, by the name it is stored under."""
    out: dict[str, Tensor] = {}
    image = reference.backbone(inputs["pixel_values"])
    for name in ("fpn_0", "fpn_1", "fpn_2", "image_prompt", "trunk"):
        out[f"backbone.{name}"] = image[name]
    text_mask = inputs["text.attention_mask"]
    text = reference.text(inputs["text.input_ids"], text_mask)
    out["text.text_features"] = text
    for count in (1, 3):
        out[f"exemplar.{count}.features"] = reference.exemplar(
            image, inputs[f"exemplar.{count}.boxes"], inputs[f"exemplar.{count}.labels"])
    extra = dict(text=text[:1, :0], official=image["image_prompt"], exemplar=out["exemplar.3.features"])
    for kind in KINDS:
        for count in counts:
            prompt = torch.cat([text[:count], extra[kind].expand(count, -1, -1)], 1)
            mask = torch.cat([text_mask[:count], torch.ones(count, extra[kind].shape[1], dtype=torch.long)], 1)
            result = reference.encoder_decoder(image, prompt, mask)
            for name in ("logits", "boxes", "presence"):
                out[f"encdec.{kind}.{count}.{name}"] = result[name]
            if count == 3:
                out[f"encdec.{kind}.3.queries"], out[f"encdec.{kind}.3.encoded"] = result["queries"], result["encoded"]
                out[f"mask.{kind}.3.masks"], out[f"mask.{kind}.semantic"] = reference.masks(
                    image, result["encoded"][1:2], prompt[1:2], mask[1:2], result["queries"][1:2, :3])
                out[f"check.{kind}.references"] = result["references"]
            if count == 17:
                out[f"encdec.{kind}.17.queries_last"] = result["queries"][16:]
                out[f"encdec.{kind}.17.encoded_last"] = result["encoded"][16:]
    return out


def prune(model: Sam3Model, skip_blocks: str, mask_blocks: str) -> Sam3Model:
    """A copy whose skipped blocks are the identity and whose masked branches add nothing to the residual."""
    model = copy.deepcopy(model)
    trunk = model.vision_encoder.backbone
    with torch.no_grad():
        for item in filter(None, mask_blocks.split(",")):
            block, branch = item.split(":")
            layer = trunk.layers[int(block)]
            last = {"attn": layer.attention.o_proj, "mlp": layer.mlp.fc2}[branch]
            last.weight.zero_()
            last.bias.zero_()
    skipped = {int(block) for block in skip_blocks.split(",") if block}
    trunk.layers = nn.ModuleList(layer for i, layer in enumerate(trunk.layers) if i not in skipped)
    return model


def distance(a: Tensor, b: Tensor) -> float:
    """The measure of the parity tests: max|a - b| / max|b|."""
    return float((a.double() - b.double()).abs().max() / b.double().abs().max())


def check(model: Sam3Model, inputs: dict[str, Tensor], golden: dict[str, Tensor]) -> dict[str, float]:
    """Asserts that the pieces equal `Sam3Model.forward` and that the numbers are worth comparing."""
    ids, mask = inputs["text.input_ids"][:1], inputs["text.attention_mask"][:1]
    whole = dict(pixel_values=inputs["pixel_values"], input_ids=ids, attention_mask=mask)
    forwards = {
        "text": model(**whole),
        # One box labelled -10 is masked: what is left of the geometry prompt is its CLS token.
        "official": model(**whole, input_boxes=torch.full((1, 1, 4), 0.5), input_boxes_labels=torch.tensor([[-10]])),
        "exemplar": model(**whole, input_boxes=inputs["exemplar.3.boxes"],
                          input_boxes_labels=inputs["exemplar.3.labels"]),
    }
    for kind, forward in forwards.items():
        for name, value in (("logits", forward.pred_logits), ("boxes", forward.pred_boxes),
                            ("presence", forward.presence_logits)):
            error = distance(golden[f"encdec.{kind}.1.{name}"], value)
            assert error < 1e-5, f"{kind} {name}: the pieces differ from Sam3Model.forward by {error:.1e}"
    logits = torch.cat([golden[f"encdec.{kind}.17.logits"].flatten() for kind in KINDS])
    presence = torch.cat([golden[f"encdec.{kind}.17.presence"].flatten() for kind in KINDS])
    references = torch.cat([golden[f"check.{kind}.references"].flatten() for kind in KINDS])
    boxes = golden["encdec.official.17.boxes"]
    sides = torch.cat([boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]])
    facts = {
        "logits_clamped": float((logits.abs() >= 11.999).double().mean()),
        "presence_clamped": float((presence.abs() >= 9.999).double().mean()),
        "references_clamped": float(((references < 1e-3) | (references > 1 - 1e-3)).double().mean()),
        "sides_saturated": float(((sides < 0.01) | (sides > 0.99)).double().mean()),
        "logit_deviation": float(logits.std()),
        "class_deviation": float(golden["encdec.official.17.logits"].std(0).mean()),
        "query_deviation": float(golden["encdec.official.17.logits"].std(1).mean()),
        "prompt_deviation": distance(golden["encdec.official.3.logits"], golden["encdec.text.3.logits"]),
    }
    assert facts["logits_clamped"] < 0.01 and facts["presence_clamped"] < 0.01, facts
    assert 0 < facts["references_clamped"] < 0.1 and facts["sides_saturated"] < 0.1, facts
    assert min(facts["class_deviation"], facts["query_deviation"], facts["prompt_deviation"]) > 0.02, facts
    # The reference's own rounding, against the same network in float64.
    exact = evaluate(Reference(copy.deepcopy(model).double()),
                     {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()})
    facts["float32_noise"] = max(distance(golden[name], exact[name]) for name in exact)
    assert facts["float32_noise"] < 2e-5, facts
    return facts


def write_checkpoint(folder: Path, model: Sam3Model, entry: dict) -> None:
    """Writes config, weights and tokeniser, in the plain or in the released layout."""
    config = json.loads(model.config.to_json_string(use_diff=False))
    weights = {name: value.to(entry["stored"]).contiguous() for name, value in model.state_dict().items()}
    if entry.get("released"):
        backbone = config["vision_config"]["backbone_config"]
        backbone["rope_theta"] = backbone.pop("rope_parameters")["rope_theta"]
        config = {"architectures": ["Sam3VideoModel"], "model_type": "sam3_video", "detector_config": config,
                  "tracker_config": {"model_type": "sam3_tracker_video"}, "score_threshold_detection": 0.5}
        weights = {f"detector_model.{name}": value for name, value in weights.items()}
        weights["tracker_model.foo"], weights["tracker_neck.bar"] = torch.zeros(3, 5), torch.zeros(7)
        names = sorted(weights)
        shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for file, part in shards.items():
            save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
        index = {"metadata": {"total_size": sum(w.numel() * w.element_size() for w in weights.values())},
                 "weight_map": {name: file for file, part in shards.items() for name in part}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    else:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tokenizer = json.loads(TOKENIZER.read_text())
    tokenizer["truncation"]["max_length"] = entry["context"]
    tokenizer["padding"]["strategy"] = {"Fixed": entry["context"]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")))


def build(entry: dict) -> tuple[Sam3Model, dict[str, Tensor]]:
    """The model of one entry with its rounded weights, and the inputs."""
    generator = torch.Generator().manual_seed(entry["seed"])
    model = Sam3Model(configuration(entry)).eval()
    inputs = draw_inputs(entry, generator)
    randomise(model, inputs, generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(entry["stored"] if entry["stored"] != torch.float32 else torch.float16))
    return model, inputs


def make(name: str, entry: dict) -> None:
    """Writes one folder."""
    model, inputs = build(entry)
    golden = evaluate(Reference(model), inputs)
    facts = check(model, inputs, golden)
    golden = {key: value for key, value in golden.items() if not key.startswith("check.")}
    variants = []
    for index, (skip_blocks, mask_blocks) in enumerate(entry["pruned"]):
        pruned = Reference(prune(model, skip_blocks, mask_blocks)).backbone(inputs["pixel_values"])
        golden[f"pruned.{index}.fpn_2"] = pruned["fpn_2"]
        assert distance(pruned["fpn_2"], golden["backbone.fpn_2"]) > 0.01, "pruning changes nothing"
        variants.append({"skip_blocks": skip_blocks, "mask_blocks": mask_blocks})
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_checkpoint(folder, model, entry)
    loaded = Sam3Model.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    for key, value in model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[key]), f"{name}: {key} does not come back from the folder"
    again = evaluate(Reference(loaded), inputs, counts=(3,))["encdec.exemplar.3.boxes"]
    assert torch.equal(again, golden["encdec.exemplar.3.boxes"]), f"{name}: the written folder computes something else"
    meta = {
        "image_size": entry["image"], "patch": entry["patch"], "grid": entry["image"] // entry["patch"],
        "model_width": entry["dim"], "queries": entry["queries"], "context": entry["context"], "seed": entry["seed"],
        "versions": versions(), "script_sha256": script_hash(), "facts": facts,
    }
    tensors = {key: value.contiguous().clone() for key, value in (inputs | golden).items()}
    save_file(tensors, folder / "golden.safetensors",
              metadata={"meta": json.dumps(meta), "pruned": json.dumps(variants)})
    for file in folder.iterdir():
        file.chmod(0o644)
    size = sum(file.stat().st_size for file in folder.iterdir())
    count = sum(p.numel() for p in model.parameters())
    print(f"{name}: {count} parameters, {size / 1e6:.2f} MB, " + ", ".join(f"{k} {v:.2g}" for k, v in facts.items()))


def sensitivity(name: str, entry: dict) -> None:
    """Changes the epsilon of one norm at a time (1e-5 <-> 1e-6) and prints those that move nothing visibly."""
    model, inputs = build(entry)
    with torch.no_grad():
        golden = evaluate(Reference(model), inputs)
        moved: dict[str, float] = {}
        for path, module in model.named_modules():
            if not isinstance(module, (nn.LayerNorm, nn.GroupNorm)):
                continue
            eps, module.eps = module.eps, 1e-6 if module.eps > 5e-6 else 1e-5
            changed = evaluate(Reference(model), inputs)
            moved[path] = max(distance(changed[key], golden[key]) for key in golden)
            module.eps = eps
    unused = [path for path, value in moved.items() if value == 0]
    faint = {path: f"{value:.1e}" for path, value in moved.items() if 0 < value < 1e-4}
    print(f"{name}: {len(moved)} norms, faintest visible {min(v for v in moved.values() if v >= 1e-4):.1e}")
    print(f"  below 1e-4: {faint}\n  unused: {unused}")


def versions() -> dict[str, str]:
    """Versions of everything that takes part in the numbers."""
    return {"torch": torch.__version__, "torchvision": torchvision.__version__, "numpy": numpy.__version__,
            "transformers": transformers.__version__, "safetensors": safetensors.__version__}


def script_hash() -> str:
    """SHA-256 of this file, so that a golden says which script made it."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=MODELS, nargs="+", default=list(MODELS), help="models to make")
    parser.add_argument("--sensitivity", action="store_true", help="report which epsilons the goldens can see")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the order of summation is part of the reference
    print(f"script {script_hash()[:16]}, {versions()}")
    for name in arguments.only:
        with torch.no_grad():
            (sensitivity if arguments.sensitivity else make)(name, MODELS[name])


if __name__ == "__main__":
    main()
