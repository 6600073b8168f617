#!/usr/bin/env python3
"""Makes the goldens of the checkpoint readers: small random models in every layout that SAM3 weights circulate in.

    python make.py                  all of them, written beside this script
    python make.py --only containers

Needs what ../parity/make.py needs (torch 2.11.0, torchvision 0.26.0, transformers 5.23.0, safetensors, numpy) and takes
its models, inputs and reference outputs from there. The files:

    sam3/            sam3.pt in Meta's names, written by torch.save; pruned.pt, an image backbone pruned as DART does
    sam31/           sam3.1.safetensors in Meta's names: three levels, three necks, no rotary tables
    lite_s0/         Sam3LiteText with RepMixer blocks, a table of 16; the same model in EfficientSAM3's names
    lite_s1/         Sam3LiteText without RepMixer blocks, a table of 77
    containers/      archives of torch.save: number formats, offsets, strides, shared storages, wrappers, classes

Each folder of a model has golden.safetensors with the inputs and outputs of `transformers` in float32. The names are
turned round by the regular expressions below, which share nothing with the reader's own table.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("parity", HERE.parent / "parity" / "make.py")
parity = importlib.util.module_from_spec(spec)
spec.loader.exec_module(parity)

SAM3 = dict(
    seed=31, stored=torch.float16, image=112, patch=14, pretrain=56, window=4, width=64, depth=4, heads=2, ffn=96,
    globals=[1, 3], eps=1e-5, theta=10000.0, dim=32, dim_heads=8, dim_ffn=48, queries=11, context=12, text_width=128,
    text_heads=2, text_layers=2, text_ffn=80, text_act="gelu", geometry_layers=2, encoder_layers=3, decoder_layers=2,
    pruned=[("0", "2:attn")],
)
# Without rotary tables: heads of 64, windows of 24, a global block at the end of every quarter.
SAM31 = dict(
    seed=32, stored=torch.bfloat16, image=112, patch=14, pretrain=112, window=24, width=128, depth=8, heads=2, ffn=48,
    globals=[1, 3, 5, 7], eps=1e-5, theta=10000.0, dim=16, dim_heads=8, dim_ffn=40, queries=9, context=10,
    text_width=64, text_heads=1, text_layers=1, text_ffn=72, text_act="gelu", geometry_layers=1, encoder_layers=1,
    decoder_layers=3, pruned=[("0", "")],
)
LITE = dict(
    stored=torch.float16, image=112, patch=14, pretrain=56, window=4, width=32, depth=4, heads=1, ffn=40,
    globals=[1, 3], eps=1e-5, theta=10000.0, dim=24, dim_heads=8, dim_ffn=48, queries=8, geometry_layers=1,
    encoder_layers=1, decoder_layers=1, text_act="gelu", text_ffn=72,
)


def digest() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


# From the names of transformers to Meta's; applied one after the other to every name.
TO_META = [
    (r"^vision_encoder\.backbone\.embeddings\.patch_embeddings\.projection", "backbone.vision_backbone.trunk.patch_embed.proj"),
    (r"^vision_encoder\.backbone\.embeddings\.position_embeddings", "backbone.vision_backbone.trunk.pos_embed"),
    (r"^vision_encoder\.backbone\.layer_norm\.", "backbone.vision_backbone.trunk.ln_pre."),
    (r"^vision_encoder\.backbone\.layers\.(\d+)\.attention\.o_proj", r"backbone.vision_backbone.trunk.blocks.\1.attn.proj"),
    (r"^vision_encoder\.backbone\.layers\.(\d+)\.layer_norm", r"backbone.vision_backbone.trunk.blocks.\1.norm"),
    (r"^vision_encoder\.backbone\.layers\.", "backbone.vision_backbone.trunk.blocks."),
    (r"^vision_encoder\.neck\.fpn_layers\.0\.scale_layers\.0", "backbone.vision_backbone.convs.0.dconv_2x2_0"),
    (r"^vision_encoder\.neck\.fpn_layers\.0\.scale_layers\.2", "backbone.vision_backbone.convs.0.dconv_2x2_1"),
    (r"^vision_encoder\.neck\.fpn_layers\.1\.scale_layers\.0", "backbone.vision_backbone.convs.1.dconv_2x2"),
    (r"^vision_encoder\.neck\.fpn_layers\.(\d)\.proj1", r"backbone.vision_backbone.convs.\1.conv_1x1"),
    (r"^vision_encoder\.neck\.fpn_layers\.(\d)\.proj2", r"backbone.vision_backbone.convs.\1.conv_3x3"),
    (r"^text_encoder\.text_model\.embeddings\.token_embedding", "backbone.language_backbone.encoder.token_embedding"),
    (r"^text_encoder\.text_model\.embeddings\.position_embedding\.weight", "backbone.language_backbone.encoder.positional_embedding"),
    (r"^text_encoder\.text_model\.final_layer_norm", "backbone.language_backbone.encoder.ln_final"),
    (r"^text_encoder\.text_projection\.weight", "backbone.language_backbone.encoder.text_projection"),
    (r"^text_encoder\.text_model\.encoder\.layers\.(\d+)\.", r"backbone.language_backbone.encoder.transformer.resblocks.\1."),
    (r"(resblocks\.\d+)\.self_attn\.", r"\1.attn."),
    (r"(resblocks\.\d+)\.layer_norm", r"\1.ln_"),
    (r"(resblocks\.\d+)\.mlp\.fc1", r"\1.mlp.c_fc"),
    (r"(resblocks\.\d+)\.mlp\.fc2", r"\1.mlp.c_proj"),
    (r"^text_projection\.", "backbone.language_backbone.resizer."),
    (r"^geometry_encoder\.layers\.", "geometry_encoder.encode."),
    (r"^geometry_encoder\.vision_layer_norm", "geometry_encoder.img_pre_norm"),
    (r"^geometry_encoder\.prompt_layer_norm", "geometry_encoder.norm"),
    (r"^geometry_encoder\.output_layer_norm", "geometry_encoder.encode_norm"),
    (r"^detr_encoder\.", "transformer.encoder."),
    (r"^(geometry_encoder\.encode|transformer\.encoder\.layers)\.(\d+)\.cross_attn\.", r"\1.\2.cross_attn_image."),
    (r"^(geometry_encoder\.encode|transformer\.encoder\.layers)\.(\d+)\.layer_norm", r"\1.\2.norm"),
    (r"^detr_decoder\.", "transformer.decoder."),
    (r"^(transformer\.decoder\.layers\.\d+)\.vision_cross_attn_layer_norm", r"\1.norm1"),
    (r"^(transformer\.decoder\.layers\.\d+)\.self_attn_layer_norm", r"\1.norm2"),
    (r"^(transformer\.decoder\.layers\.\d+)\.mlp_layer_norm", r"\1.norm3"),
    (r"^(transformer\.decoder\.layers\.\d+)\.text_cross_attn_layer_norm", r"\1.catext_norm"),
    (r"^(transformer\.decoder\.layers\.\d+)\.text_cross_attn\.", r"\1.ca_text."),
    (r"^(transformer\.decoder\.layers\.\d+)\.vision_cross_attn\.", r"\1.cross_attn."),
    (r"^transformer\.decoder\.output_layer_norm", "transformer.decoder.norm"),
    (r"^transformer\.decoder\.presence_layer_norm", "transformer.decoder.presence_token_out_norm"),
    (r"^transformer\.decoder\.box_head", "transformer.decoder.bbox_embed"),
    (r"^transformer\.decoder\.presence_head", "transformer.decoder.presence_token_head"),
    (r"^transformer\.decoder\.box_rpb_embed_", "transformer.decoder.boxRPB_embed_"),
    (r"^(transformer\.decoder\.\w+)\.layer(\d)\.", lambda m: f"{m[1]}.layers.{int(m[2]) - 1}."),
    (r"^((?:geometry_encoder|transformer)\..*)\.mlp\.fc(\d)", r"\1.linear\2"),
    (r"^dot_product_scoring\.text_mlp_out_norm", "dot_prod_scoring.prompt_mlp.out_norm"),
    (r"^dot_product_scoring\.text_mlp\.layer(\d)", lambda m: f"dot_prod_scoring.prompt_mlp.layers.{int(m[1]) - 1}"),
    (r"^dot_product_scoring\.text_proj", "dot_prod_scoring.prompt_proj"),
    (r"^dot_product_scoring\.query_proj", "dot_prod_scoring.hs_proj"),
    (r"^mask_decoder\.mask_embedder", "segmentation_head.mask_predictor.mask_embed"),
    (r"^mask_decoder\.instance_projection", "segmentation_head.instance_seg_head"),
    (r"^mask_decoder\.semantic_projection", "segmentation_head.semantic_seg_head"),
    (r"^mask_decoder\.prompt_cross_attn_norm", "segmentation_head.cross_attn_norm"),
    (r"^mask_decoder\.prompt_cross_attn", "segmentation_head.cross_attend_prompt"),
    (r"^mask_decoder\.", "segmentation_head."),
    # torch.nn.MultiheadAttention; CLIP's keeps the name out_proj.
    (r"\.o_proj\.", ".out_proj."),
]
# Sam3LiteText's text encoder in EfficientSAM3's names.
TO_MOBILE_CLIP = [
    (r"^text_encoder\.embeddings\.token_embedding", "backbone.language_backbone.encoder.embedding_layer"),
    (r"^text_encoder\.embeddings\.position_embedding\.position_embedding", "backbone.language_backbone.encoder.positional_embedding.pos_embed.pos_embed"),
    (r"^text_encoder\.final_layer_norm", "backbone.language_backbone.encoder.final_layer_norm"),
    (r"^text_encoder\.projection\.weight", "backbone.language_backbone.encoder.projection_layer"),
    (r"^text_encoder\.layers\.", "backbone.language_backbone.encoder.transformer."),
    (r"(encoder\.transformer\.\d+)\.layer_norm1", r"\1.pre_norm_mha.0"),
    (r"(encoder\.transformer\.\d+)\.self_attn\.", r"\1.pre_norm_mha.1."),
    (r"(encoder\.transformer\.\d+)\.layer_norm2", r"\1.pre_norm_ffn.0"),
    (r"(encoder\.transformer\.\d+)\.mlp\.fc1", r"\1.pre_norm_ffn.1"),
    (r"(encoder\.transformer\.\d+)\.mlp\.fc2", r"\1.pre_norm_ffn.4"),
    (r"\.token_mixer\.reference_batchnorm\.", ".token_mixer.norm.rbr_skip."),
    (r"\.token_mixer\.mixer\.batchnorm_skip\.", ".token_mixer.mixer.rbr_skip."),
    (r"\.token_mixer\.mixer\.conv\.", ".token_mixer.mixer.rbr_conv.0.conv."),
    (r"\.token_mixer\.mixer\.batchnorm_conv\.", ".token_mixer.mixer.rbr_conv.0.bn."),
    (r"\.conv_feed_forward\.depthwise_conv\.", ".convffn.conv.conv."),
    (r"\.conv_feed_forward\.depthwise_batchnorm\.", ".convffn.conv.bn."),
    (r"\.conv_feed_forward\.mlp\.", ".convffn."),
    (r"^text_projection\.", "backbone.language_backbone.projector."),
]
# What one fused tensor is called whose rows are queries, keys and values.
FUSED = [
    (r"^(.*trunk\.blocks\.\d+)\.attention\.q_proj\.(\w+)$", r"\1.attn.qkv.\2"),
    (r"^(.*\.pre_norm_mha\.1)\.q_proj\.(\w+)$", r"\1.qkv_proj.\2"),
    (r"^(.*)\.q_proj\.(\w+)$", r"\1.in_proj_\2"),
]


def renamed(name: str, rules: list) -> str:
    for pattern, new in rules:
        name = re.sub(pattern, new, name)
    return name


def to_meta(weights: dict[str, Tensor], rules: list = TO_META) -> dict[str, Tensor]:
    """The tensors of transformers' detector as Meta's code stores them."""
    meta: dict[str, Tensor] = {}
    for name, value in weights.items():
        new = renamed(name, rules)
        if ".k_proj." in new or ".v_proj." in new:
            continue
        if ".q_proj." in new:
            value = torch.cat([weights[name.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"])
            pattern, fused = next((p, f) for p, f in FUSED if re.match(p, new))
            new = re.sub(pattern, fused, new)
        elif new.endswith("trunk.pos_embed"):
            value = torch.cat([torch.full_like(value[:, :1], 7.5), value], 1)
        elif new.endswith(("encoder.text_projection", "encoder.projection_layer")):
            value = value.t().contiguous()
        assert new not in meta, new
        meta[new] = value
    return meta


def noise(meta: dict[str, Tensor], model: dict, generator: torch.Generator, rotary: bool) -> None:
    """Adds what Meta's files hold beside the image detector."""
    draw = lambda *shape: torch.randn(shape, generator=generator).to(model["stored"])  # noqa: E731
    dim = model["dim"]
    for points in ("direct_project", "pool_project", "pos_enc_project"):
        meta[f"geometry_encoder.points_{points}.weight"] = draw(dim, dim)
        meta[f"geometry_encoder.points_{points}.bias"] = draw(dim)
    if rotary:
        grid, window, columns = model["image"] // model["patch"], model["window"], model["width"] // model["heads"] // 2
        for block in range(model["depth"]):
            rows = grid**2 if block in model["globals"] else window**2
            table = torch.randn(rows, columns, dtype=torch.complex64, generator=generator)
            meta[f"backbone.vision_backbone.trunk.blocks.{block}.attn.freqs_cis"] = table


def golden_of(model: dict, variants: bool = True) -> tuple[transformers.Sam3Model, dict[str, Tensor], dict[str, str]]:
    """The random model, its golden, and the golden's metadata."""
    network, inputs = parity.build(model)
    golden = parity.evaluate(parity.Reference(network), inputs)
    facts = parity.check(network, inputs, golden)
    golden = {key: value for key, value in golden.items() if not key.startswith("check.")}
    listed = []
    for index, (skip, mask) in enumerate(model["pruned"] if variants else []):
        pruned = parity.Reference(parity.prune(network, skip, mask)).backbone(inputs["pixel_values"])
        golden[f"pruned.{index}.fpn_2"] = pruned["fpn_2"]
        assert parity.distance(pruned["fpn_2"], golden["backbone.fpn_2"]) > 0.01
        listed.append({"skip_blocks": skip, "mask_blocks": mask})
    return network, inputs | golden, metadata(model, facts, listed)


def metadata(model: dict, facts: dict, pruned: list) -> dict[str, str]:
    meta = {
        "image_size": model["image"], "patch": model["patch"], "grid": model["image"] // model["patch"],
        "model_width": model["dim"], "queries": model["queries"], "context": model["context"], "seed": model["seed"],
        "versions": parity.versions(), "script_sha256": digest(), "facts": facts,
    }
    return {"meta": json.dumps(meta), "pruned": json.dumps(pruned)}


def folder_for(name: str) -> Path:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def write_tokenizer(folder: Path, context: int) -> None:
    tokenizer = json.loads(parity.TOKENIZER.read_text())
    tokenizer["truncation"]["max_length"] = context
    tokenizer["padding"]["strategy"] = {"Fixed": context}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")))


def write_expected(folder: Path, weights: dict[str, Tensor]) -> None:
    rows = {name: [list(value.shape), hashlib.sha256(value.float().contiguous().numpy().tobytes()).hexdigest()]
            for name, value in weights.items()}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    (folder / "expected.json").write_text("{\n" + lines + "\n}\n")


def save_golden(folder: Path, golden: dict[str, Tensor], meta: dict[str, str]) -> None:
    save_file({key: value.contiguous().clone() for key, value in golden.items()}, folder / "golden.safetensors", metadata=meta)
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{folder.name}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.2f} MB")


def make_sam3() -> None:
    network, golden, meta = golden_of(SAM3)
    folder = folder_for("sam3")
    weights = {name: value.to(SAM3["stored"]) for name, value in network.state_dict().items()}
    # What the reader must make of the file, exactly: the shape and the hash of every tensor in float32.
    write_expected(folder, weights)
    named = to_meta(weights)
    generator = torch.Generator().manual_seed(1)
    noise(named, SAM3, generator, rotary=True)
    necks = {name.replace(".convs.", ".sam2_convs."): value + 1 for name, value in named.items() if ".convs." in name}
    released = {f"detector.{name}": value for name, value in (named | necks).items()}
    released["tracker.maskmem_tpos_enc"] = torch.randn(7, 1, 1, 8, generator=generator).half()
    released["tracker.transformer.encoder.layers.0.linear1.weight"] = torch.randn(6, 4, generator=generator).half()
    torch.save(released, folder / "sam3.pt")
    trunk = {name.removeprefix("backbone.vision_backbone."): value for name, value in named.items()
             if name.startswith("backbone.vision_backbone.")}
    (skip, mask), = SAM3["pruned"]
    gone = [f"trunk.blocks.{block}." for block in skip.split(",")]
    for item in mask.split(","):
        block, branch = item.split(":")
        gone += [f"trunk.blocks.{block}.{part}." for part in {"attn": ("attn", "norm1"), "mlp": ("mlp", "norm2")}[branch]]
    removed = [name for name in trunk if name.startswith(tuple(gone))]
    kept = {name: value for name, value in trunk.items() if name not in removed}
    parameter = torch.nn.Parameter(torch.zeros(3, 2))
    optimizer = torch.optim.AdamW([parameter])
    with torch.enable_grad():
        parameter.sum().backward()
    optimizer.step()
    torch.save({"pruned_state_dict": kept, "skip_blocks": [int(block) for block in skip.split(",")],
                "mask_blocks": mask.split(","), "removed_keys": removed, "epoch": 3, "loss": 0.25,
                "optimizer_state_dict": optimizer.state_dict()}, folder / "pruned.pt")
    write_tokenizer(folder, SAM3["context"])
    save_golden(folder, golden, meta)


def make_sam31() -> None:
    network, golden, meta = golden_of(SAM31)
    folder = folder_for("sam31")
    weights = {name: value.to(SAM31["stored"]) for name, value in network.state_dict().items()}
    named = to_meta(weights)
    generator = torch.Generator().manual_seed(2)
    noise(named, SAM31, generator, rotary=False)
    named = {name: value for name, value in named.items()
             if ".convs.3." not in name and not name.endswith("encoder.text_projection")}
    heads = {name.replace(".convs.", f".{head}_convs."): value + 1 for name, value in named.items() if ".convs." in name
             for head in ("interactive", "propagation")}
    released = {f"detector.{name}": value.contiguous() for name, value in (named | heads).items()}
    released["tracker.model.maskmem_tpos_enc"] = torch.zeros(7, 1, 1, 8, dtype=torch.bfloat16)
    save_file(released, folder / "sam3.1.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder, SAM31["context"])
    save_golden(folder, golden, meta)


def make_containers() -> None:
    folder = folder_for("containers")
    values = torch.arange(24)
    formats = {
        "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
        "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "complex": torch.complex64,
    }
    tensors = {name: values.to(dtype).reshape(2, 3, 4) for name, dtype in formats.items()}
    tensors["bool"] = values.reshape(2, 3, 4) > 3
    torch.save(tensors, folder / "formats.pt")
    base = torch.arange(60, dtype=torch.float32).reshape(5, 12)
    torch.save({
        "whole": base, "rows": base[1:4], "columns": base[:, 3:7], "transposed": base.t(), "every_second": base[::2, ::3],
        "permuted": base.reshape(5, 3, 4).permute(2, 0, 1), "expanded": base[2:3, 1:2].expand(3, 4),
        "scalar": base[4, 11], "empty": base[:, :0], "parameter": torch.nn.Parameter(base[1] * 2),
    }, folder / "views.pt")
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = torch.optim.SGD([parameter], momentum=0.9)
    parameter.sum().backward()
    optimizer.step()
    torch.save({"model": {"layer.weight": parameter.detach(), "layer.bias": torch.zeros(2)},
                "optimizer": optimizer.state_dict(), "epoch": 4, "names": ["a", "b:c"],
                "config": argparse.Namespace(rate=0.1, device=torch.device("cpu"), dtype=torch.float16)}, folder / "wrapped.pt")
    torch.save({"layer.weight": torch.ones(2)}, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(2, 2), folder / "module.pt")
    torch.save({"layer.weight": torch.arange(4.0)}, folder / "protocol4.pt", pickle_protocol=4)
    torch.jit.script(torch.nn.ReLU()).save(folder / "script.pt")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"containers: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.2f} MB")


LITE_MODELS = {
    "lite_s0": LITE | dict(seed=33, context=16, table=16, text_width=64, text_heads=1, text_layers=4, rep_mixer=True),
    # A table longer than the context: resized.
    "lite_s1": LITE | dict(seed=34, context=32, table=77, text_width=128, text_heads=2, text_layers=2, rep_mixer=False),
}


class LiteReference(parity.Reference):
    """Sam3LiteText with the padding of the training: token 0, and no mask in the text encoder."""

    def text(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.model.get_text_features(input_ids=ids * mask, attention_mask=None).pooler_output


def lite_configuration(model: dict) -> transformers.Sam3LiteTextConfig:
    plain = parity.configuration(model).to_dict()
    parts = {name: {key: value for key, value in part.items() if key != "model_type"} for name, part in plain.items()
             if name.endswith("_config") and name not in ("vision_config", "text_config")}
    text = dict(
        vocab_size=parity.VOCABULARY_SIZE, hidden_size=model["text_width"], intermediate_size=model["text_ffn"],
        num_hidden_layers=model["text_layers"], num_attention_heads=model["text_heads"], projection_dim=20,
        max_position_embeddings=model["table"], use_repmixer_blocks=model["rep_mixer"],
    )
    config = transformers.Sam3LiteTextConfig(vision_config=plain["vision_config"], text_config=text, **parts)
    config._attn_implementation = "eager"
    return config


def make_lite(name: str) -> None:
    model = LITE_MODELS[name]
    generator = torch.Generator().manual_seed(model["seed"])
    network = transformers.Sam3LiteTextModel(lite_configuration(model)).eval()
    inputs = parity.draw_inputs(model, generator)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=generator) * 0.3)
            module.running_var.copy_(torch.rand(module.running_var.shape, generator=generator) + 0.5)
    parity.randomise(network, inputs, generator)
    for value in network.state_dict().values():
        if value.is_floating_point():
            value.copy_(value.to(model["stored"]))
    golden = parity.evaluate(LiteReference(network), inputs)
    golden = {key: value for key, value in golden.items() if not key.startswith("check.")}
    # The other convention: the end token, masked, and 32 tokens.
    ids, mask = (torch.nn.functional.pad(inputs[f"text.{key}"][:, :32], (0, max(0, 32 - model["context"])), value=fill)
                 for key, fill in (("input_ids", 1), ("attention_mask", 0)))
    other = network.get_text_features(input_ids=ids, attention_mask=mask).pooler_output
    assert parity.distance(other[:, :8], golden["text.text_features"][:, :8]) > 0.01, "the conventions do not differ"
    golden |= {"transformers.input_ids": ids, "transformers.attention_mask": mask, "transformers.text_features": other}
    inputs["text.input_ids"] = inputs["text.input_ids"] * inputs["text.attention_mask"]
    folder = folder_for(name)
    weights = {key: value.to(model["stored"]) if value.is_floating_point() else value
               for key, value in network.state_dict().items()}
    save_file({key: value.contiguous() for key, value in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(network.config.to_json_string(use_diff=False) + "\n")
    named = to_meta(weights, TO_MOBILE_CLIP + TO_META)
    noise(named, model, generator, rotary=True)
    if model["rep_mixer"]:
        write_expected(folder, {key: value for key, value in weights.items()
                                if value.is_floating_point() and key != "text_encoder.projection.weight"})
        torch.save({f"detector.{key}": value for key, value in named.items()}, folder / "efficient_sam3.pt")
    write_tokenizer(folder, model["context"])
    save_golden(folder, inputs | golden, metadata(model, {}, []))


MAKERS = {"sam3": make_sam3, "sam31": make_sam31, "containers": make_containers,
          **{name: lambda name=name: make_lite(name) for name in LITE_MODELS}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=MAKERS, nargs="+", default=list(MAKERS))
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for name in arguments.only:
        with torch.set_grad_enabled(True) if name == "containers" else torch.no_grad():
            MAKERS[name]()


if __name__ == "__main__":
    main()
