"""The names of a detector's tensors: Meta's, in `sam3.pt` and DART's pruned files, and those of `transformers`."""

from __future__ import annotations

import re
from typing import Callable

import torch
from torch import Tensor

Rule = tuple[str, str | Callable[[re.Match], str]]

TRUNK, VIT = r"backbone\.vision_backbone\.trunk", "vision_encoder.backbone"
CLIP = r"backbone\.language_backbone\.encoder"

# From Meta's names, without `detector.`, to those of `transformers`; the first that fits a start or a part is applied, and
# then the next ones. Fused projections are called `qkv_proj` in between.
RULES: list[Rule] = [
    (rf"^{TRUNK}\.pos_embed$", f"{VIT}.embeddings.position_embeddings"),
    (rf"^{TRUNK}\.patch_embed\.proj\.", f"{VIT}.embeddings.patch_embeddings.projection."),
    (rf"^{TRUNK}\.ln_pre\.", f"{VIT}.layer_norm."),
    (rf"^{TRUNK}\.blocks\.(\d+)\.norm(\d)\.", rf"{VIT}.layers.\1.layer_norm\2."),
    (rf"^{TRUNK}\.blocks\.(\d+)\.attn\.proj\.", rf"{VIT}.layers.\1.attention.o_proj."),
    (rf"^{TRUNK}\.blocks\.(\d+)\.attn\.qkv\.", rf"{VIT}.layers.\1.attention.qkv_proj."),
    (rf"^{TRUNK}\.blocks\.(\d+)\.mlp\.", rf"{VIT}.layers.\1.mlp."),
    (r"^backbone\.vision_backbone\.convs\.(\d)\.dconv_2x2(?:_0)?\.", r"vision_encoder.neck.fpn_layers.\1.scale_layers.0."),
    (r"^backbone\.vision_backbone\.convs\.(\d)\.dconv_2x2_1\.", r"vision_encoder.neck.fpn_layers.\1.scale_layers.2."),
    (r"^backbone\.vision_backbone\.convs\.(\d)\.conv_1x1\.", r"vision_encoder.neck.fpn_layers.\1.proj1."),
    (r"^backbone\.vision_backbone\.convs\.(\d)\.conv_3x3\.", r"vision_encoder.neck.fpn_layers.\1.proj2."),
    (rf"^{CLIP}\.token_embedding\.", "text_encoder.text_model.embeddings.token_embedding."),
    (rf"^{CLIP}\.positional_embedding$", "text_encoder.text_model.embeddings.position_embedding.weight"),
    (rf"^{CLIP}\.ln_final\.", "text_encoder.text_model.final_layer_norm."),
    (rf"^{CLIP}\.text_projection$", "text_encoder.text_projection.weight"),
    (rf"^{CLIP}\.transformer\.resblocks\.", "text_encoder.text_model.encoder.layers."),
    (r"^(text_encoder\..*layers\.\d+)\.attn\.", r"\1.self_attn."),
    (r"^(text_encoder\..*layers\.\d+)\.ln_", r"\1.layer_norm"),
    (r"^(text_encoder\..*layers\.\d+)\.mlp\.c_fc\.", r"\1.mlp.fc1."),
    (r"^(text_encoder\..*layers\.\d+)\.mlp\.c_proj\.", r"\1.mlp.fc2."),
    (r"^backbone\.language_backbone\.resizer\.", "text_projection."),
    (r"^geometry_encoder\.img_pre_norm\.", "geometry_encoder.vision_layer_norm."),
    (r"^geometry_encoder\.norm\.", "geometry_encoder.prompt_layer_norm."),
    (r"^geometry_encoder\.encode_norm\.", "geometry_encoder.output_layer_norm."),
    (r"^geometry_encoder\.encode\.", "geometry_encoder.layers."),
    (r"^transformer\.encoder\.", "detr_encoder."),
    (r"^((?:geometry_encoder|detr_encoder)\.layers\.\d+)\.cross_attn_image\.", r"\1.cross_attn."),
    (r"^((?:geometry_encoder|detr_encoder)\.layers\.\d+)\.norm(\d)\.", r"\1.layer_norm\2."),
    (r"^transformer\.decoder\.", "detr_decoder."),
    (r"^(detr_decoder\.layers\.\d+)\.cross_attn\.", r"\1.vision_cross_attn."),
    (r"^(detr_decoder\.layers\.\d+)\.ca_text\.", r"\1.text_cross_attn."),
    (r"^(detr_decoder\.layers\.\d+)\.norm1\.", r"\1.vision_cross_attn_layer_norm."),
    (r"^(detr_decoder\.layers\.\d+)\.catext_norm\.", r"\1.text_cross_attn_layer_norm."),
    (r"^(detr_decoder\.layers\.\d+)\.norm2\.", r"\1.self_attn_layer_norm."),
    (r"^(detr_decoder\.layers\.\d+)\.norm3\.", r"\1.mlp_layer_norm."),
    (r"^detr_decoder\.norm\.", "detr_decoder.output_layer_norm."),
    (r"^detr_decoder\.presence_token_out_norm\.", "detr_decoder.presence_layer_norm."),
    (r"^detr_decoder\.bbox_embed\.", "detr_decoder.box_head."),
    (r"^detr_decoder\.presence_token_head\.", "detr_decoder.presence_head."),
    (r"^detr_decoder\.boxRPB_embed_", "detr_decoder.box_rpb_embed_"),
    (r"^(detr_decoder\.(?!layers)\w+)\.layers\.(\d)\.", lambda found: f"{found[1]}.layer{int(found[2]) + 1}."),
    (r"^((?:geometry_encoder|detr_encoder|detr_decoder)\.layers\.\d+)\.linear(\d)\.", r"\1.mlp.fc\2."),
    (r"^dot_prod_scoring\.prompt_mlp\.out_norm\.", "dot_product_scoring.text_mlp_out_norm."),
    (r"^dot_prod_scoring\.prompt_mlp\.layers\.(\d)\.", lambda found: f"dot_product_scoring.text_mlp.layer{int(found[1]) + 1}."),
    (r"^dot_prod_scoring\.prompt_proj\.", "dot_product_scoring.text_proj."),
    (r"^dot_prod_scoring\.hs_proj\.", "dot_product_scoring.query_proj."),
    (r"^segmentation_head\.", "mask_decoder."),
    (r"^mask_decoder\.mask_predictor\.mask_embed\.", "mask_decoder.mask_embedder."),
    (r"^mask_decoder\.instance_seg_head\.", "mask_decoder.instance_projection."),
    (r"^mask_decoder\.semantic_seg_head\.", "mask_decoder.semantic_projection."),
    (r"^mask_decoder\.cross_attend_prompt\.", "mask_decoder.prompt_cross_attn."),
    (r"^mask_decoder\.cross_attn_norm\.", "mask_decoder.prompt_cross_attn_norm."),
    (r"\.in_proj_(weight|bias)$", r".qkv_proj.\1"),
    (r"^((?!text_encoder).*)\.out_proj\.", r"\1.o_proj."),
]

# The other way, for an image backbone as DART's pruning saves it: `trunk.` and `convs.`, without a prefix.
BACKBONE_RULES: list[Rule] = [
    (r"^backbone\.embeddings\.position_embeddings$", "trunk.pos_embed"),
    (r"^backbone\.embeddings\.patch_embeddings\.projection\.", "trunk.patch_embed.proj."),
    (r"^backbone\.layer_norm\.", "trunk.ln_pre."),
    (r"^backbone\.layers\.(\d+)\.layer_norm(\d)\.", r"trunk.blocks.\1.norm\2."),
    (r"^backbone\.layers\.(\d+)\.attention\.o_proj\.", r"trunk.blocks.\1.attn.proj."),
    (r"^backbone\.layers\.(\d+)\.attention\.q_proj\.", r"trunk.blocks.\1.attn.qkv."),
    (r"^backbone\.layers\.(\d+)\.mlp\.", r"trunk.blocks.\1.mlp."),
    (r"^neck\.fpn_layers\.0\.scale_layers\.0\.", "convs.0.dconv_2x2_0."),
    (r"^neck\.fpn_layers\.0\.scale_layers\.2\.", "convs.0.dconv_2x2_1."),
    (r"^neck\.fpn_layers\.1\.scale_layers\.0\.", "convs.1.dconv_2x2."),
    (r"^neck\.fpn_layers\.(\d)\.proj1\.", r"convs.\1.conv_1x1."),
    (r"^neck\.fpn_layers\.(\d)\.proj2\.", r"convs.\1.conv_3x3."),
]


def renamed(name: str, rules: list[Rule]) -> str:
    """The name after all rules, one after the other."""
    for pattern, new in rules:
        name = re.sub(pattern, new, name)
    return name


def to_transformers(meta: dict[str, Tensor]) -> dict[str, Tensor]:
    """Meta's tensors, without `detector.`, by their names and in the shapes of `transformers`.

    Rows of queries, keys and values become three tensors; the position of the class token is dropped; CLIP's projection is
    transposed. Names that no rule knows stay as they are.
    """
    weights: dict[str, Tensor] = {}
    for name, value in meta.items():
        new = renamed(name, RULES)
        if ".qkv_proj." in new:
            for part, rows in zip("qkv", value.chunk(3)):
                weights[new.replace(".qkv_proj.", f".{part}_proj.")] = rows
        elif new == f"{VIT}.embeddings.position_embeddings":
            weights[new] = value[:, 1:]
        elif new == "text_encoder.text_projection.weight":
            weights[new] = value.t()
        else:
            weights[new] = value
    return weights


def to_backbone_file(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a `Sam3VisionModel` as DART's pruning saves them. The class token's position, which is unused, is 0."""
    named: dict[str, Tensor] = {}
    for name, value in weights.items():
        if ".k_proj." in name or ".v_proj." in name:
            continue
        if ".q_proj." in name:
            value = torch.cat([weights[name.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"])
        elif name == "backbone.embeddings.position_embeddings":
            value = torch.cat([torch.zeros_like(value[:, :1]), value], 1)
        named[renamed(name, BACKBONE_RULES)] = value
    return named
