"""The configuration of a detector from the shapes of its tensors, for `sam3.pt`, which has none."""

from __future__ import annotations

import math
import re

from torch import Tensor
from transformers import Sam3Config

from ..errors import InputError

# As `ocelli export` reads such files: Meta's own epsilon, and what no tensor tells.
EPSILON, HEAD, HEADS, WINDOW, GRID = 1e-5, 64, 8, 24, 72
VIT = "vision_encoder.backbone"


def layers(names: list[str], prefix: str) -> int:
    """One more than the largest number after `prefix`."""
    numbers = [int(found[1]) for name in names if (found := re.match(rf"{re.escape(prefix)}(\d+)\.", name))]
    return max(numbers, default=-1) + 1


def rotary(tables: dict[int, tuple[int, ...]], blocks: int, width: int) -> dict:
    """Heads, window, grid and global blocks, from the shapes of the rotary tables by block.

    A table has a row for each token that attends together and a column for each pair of a head's channels. Without tables
    they are those of the released models.
    """
    if not tables:
        return {"num_attention_heads": width // HEAD, "window_size": WINDOW, "grid": GRID,
                "global_attn_indexes": [part * blocks // 4 - 1 for part in range(1, 5)]}
    rows = {block: shape[0] for block, shape in tables.items()}
    smallest, largest = min(rows.values()), max(rows.values())
    columns = next(iter(tables.values()))[1]
    return {"num_attention_heads": width // (2 * columns), "window_size": math.isqrt(smallest), "grid": math.isqrt(largest),
            "global_attn_indexes": sorted(block for block, count in rows.items() if count == largest > smallest)}


def configuration(weights: dict[str, Tensor], tables: dict[int, tuple[int, ...]], path: str) -> Sam3Config:
    """The configuration of the tensors, named as in `transformers`. Raises `InputError` if one that tells a size is missing."""
    names = list(weights)

    def shape(name: str, axes: int) -> tuple[int, ...]:
        if name not in weights:
            raise InputError(f"{path}: tensor {name} is missing")
        if weights[name].ndim != axes:
            raise InputError(f"{path}: tensor {name} has shape {list(weights[name].shape)}: expected {axes} axes")
        return tuple(weights[name].shape)

    def stack(prefix: str, heads: int) -> dict:
        return {"num_layers": layers(names, f"{prefix}.layers."), "num_attention_heads": heads, "hidden_size": width,
                "intermediate_size": shape(f"{prefix}.layers.0.mlp.fc1.weight", 2)[0]}

    hidden, _, patch, _ = shape(f"{VIT}.embeddings.patch_embeddings.projection.weight", 4)
    table = math.isqrt(shape(f"{VIT}.embeddings.position_embeddings", 3)[1])
    width = shape("vision_encoder.neck.fpn_layers.2.proj1.weight", 4)[0]
    blocks = layers(names, f"{VIT}.layers.")
    found = rotary(tables, blocks, hidden)
    grid = found.pop("grid")
    clip = "text_encoder.text_model"
    vocabulary, text = shape(f"{clip}.embeddings.token_embedding.weight", 2)
    decoder_heads = shape("detr_decoder.box_rpb_embed_x.layer2.weight", 2)[0]
    return Sam3Config(
        vision_config=dict(
            backbone_config=dict(
                model_type="sam3_vit_model", hidden_size=hidden, num_hidden_layers=blocks, image_size=grid * patch,
                intermediate_size=shape(f"{VIT}.layers.0.mlp.fc1.weight", 2)[0], patch_size=patch,
                pretrain_image_size=table * patch, layer_norm_eps=EPSILON, **found),
            fpn_hidden_size=width, backbone_feature_sizes=[[grid * scale] * 2 for scale in (4, 2, 1)],
        ),
        text_config=dict(
            vocab_size=vocabulary, hidden_size=text, num_attention_heads=text // HEAD, hidden_act="gelu",
            num_hidden_layers=layers(names, f"{clip}.encoder.layers."),
            intermediate_size=shape(f"{clip}.encoder.layers.0.mlp.fc1.weight", 2)[0], layer_norm_eps=EPSILON,
            max_position_embeddings=shape(f"{clip}.embeddings.position_embedding.weight", 2)[0],
            projection_dim=shape("text_encoder.text_projection.weight", 2)[0],
            bos_token_id=vocabulary - 2, eos_token_id=vocabulary - 1,
        ),
        geometry_encoder_config=stack("geometry_encoder", HEADS)
        | {"roi_size": shape("geometry_encoder.boxes_pool_project.weight", 4)[2]},
        detr_encoder_config=stack("detr_encoder", HEADS),
        detr_decoder_config=stack("detr_decoder", decoder_heads)
        | {"num_queries": shape("detr_decoder.query_embed.weight", 2)[0]},
        mask_decoder_config=dict(hidden_size=width, num_attention_heads=HEADS,
                                 num_upsampling_stages=layers(names, "mask_decoder.pixel_decoder.conv_layers.")),
    )
