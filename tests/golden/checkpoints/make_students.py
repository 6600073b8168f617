#!/usr/bin/env python3
"""Makes the goldens of convolutional image backbones: small random networks of `timm` in the layouts of DART and EfficientSAM3.

    python make_students.py                   all of them, written beside this script
    python make_students.py --only students

Needs timm 1.0.31 beside what make.py needs, and takes its models, names and inputs from there. The files:

    students/                 student backbones as DART saves them, for sam3/sam3.pt; two with changes of low rank
    efficient_rep_vit/        EfficientSAM3: RepViT, MobileCLIP's text encoder, no encoder of exemplars
    efficient_vit/            EfficientSAM3: EfficientViT-B, SAM 3's text encoder
    efficient_tiny_vit/       EfficientSAM3: TinyViT, SAM 3's text encoder

Every parameter and every statistic of a batch norm is drawn; variances are small, so that an epsilon matters.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("checkpoints", HERE / "make.py")
checkpoints = importlib.util.module_from_spec(spec)
spec.loader.exec_module(checkpoints)
parity = checkpoints.parity

GRID = 8
# The released architectures with fewer channels and blocks.
DART = {
    "rep_vit": ("repvit_m2_3", dict(embed_dim=(8, 16, 24), depth=(2, 1, 3))),
    "efficient_vit": ("efficientvit_l1", dict(widths=(4, 8, 8, 16, 16), depths=(1, 1, 1, 2, 1), head_dim=8)),
    "tiny_vit": ("tiny_vit_21m_224", dict(embed_dims=(8, 12, 24, 24), depths=(1, 2, 2, 1), num_heads=(1, 2, 3, 3), window_sizes=(7, 3, 5, 7))),
}
LITE = checkpoints.LITE | dict(width=24, ffn=40, dim=16, dim_heads=8, dim_ffn=24, text_ffn=48)
CLIP = LITE | dict(context=8, text_width=64, text_heads=1, text_layers=1)
EFFICIENT = {
    "efficient_rep_vit": ("repvit_m1_1", dict(embed_dim=(8, 16, 24, 16), depth=(2, 2, 3, 1)),
                          LITE | dict(seed=41, context=16, table=16, text_width=64, text_heads=1, text_layers=2, rep_mixer=False)),
    "efficient_vit": ("efficientvit_b1", dict(widths=(8, 8, 16, 16, 32), depths=(1, 2, 2, 1, 2), head_dim=8), CLIP | dict(seed=42)),
    "efficient_tiny_vit": ("tiny_vit_5m_224", dict(embed_dims=(8, 12, 24, 16), depths=(1, 2, 1, 2), num_heads=(1, 2, 3, 2), window_sizes=(7, 3, 5, 7)),
                           CLIP | dict(seed=43)),
}
STORED = torch.float16


def draw(network: nn.Module, pixels: Tensor, generator: torch.Generator) -> None:
    """Draws every parameter and statistic, and scales what layers give for `pixels`."""
    normal = lambda like, scale=1.0: torch.randn(like.shape, generator=generator) * scale  # noqa: E731
    for name, module in network.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.weight.copy_(normal(module.weight, module.weight[0].numel() ** -0.5))
            if module.bias is not None:
                module.bias.copy_(normal(module.bias, 0.3))
        elif isinstance(module, nn.BatchNorm2d):
            module.weight.copy_(1 + normal(module.weight, 0.25))
            module.bias.copy_(normal(module.bias, 0.3))
            module.running_mean.copy_(normal(module.running_mean, 0.1))
            module.running_var.copy_(torch.rand(module.running_var.shape, generator=generator) * 0.02 + 0.002)
        elif isinstance(module, nn.LayerNorm):
            module.weight.copy_(1 + normal(module.weight, 0.25))
            module.bias.copy_(normal(module.bias, 0.3))
        if hasattr(module, "attention_biases"):
            module.attention_biases.copy_(normal(module.attention_biases))

    def fit(target: float):
        def hook(module: nn.Module, _: tuple, output: Tensor) -> Tensor:
            bias = 0 if module.bias is None else module.bias.view([1, -1] + [1] * (output.dim() - 2))
            if isinstance(module, nn.Linear):
                bias = module.bias
            factor = target / rms(output - bias)
            module.weight.mul_(factor)
            return (output - bias) * factor + bias

        return hook

    handles = []
    for name, module in network.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            # Small before a batch norm, and before products of queries and keys, so that epsilons would be seen.
            target = 0.01 if "main.qkv" in name or "aggreg" in name else 0.1 if module.bias is None else 1.0
            handles.append(module.register_forward_hook(fit(target)))
        elif isinstance(module, nn.BatchNorm2d):
            handles.append(module.register_forward_hook(fit(1.0)))
    network(pixels)
    for handle in handles:
        handle.remove()


def round_to_stored(network: nn.Module) -> None:
    for value in network.state_dict().values():
        if value.is_floating_point():
            value.copy_(value.to(STORED))
    for module in network.modules():
        # TinyViT keeps what it has gathered from the values before.
        if hasattr(module, "attention_bias_cache"):
            module.attention_bias_cache = {}


def stored(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.to(STORED).contiguous() if value.is_floating_point() else value for name, value in weights.items()}


def rms(x: Tensor) -> Tensor:
    return x.pow(2).mean().sqrt()


class Adapter(nn.Module):
    """A level of the pyramid from the features of a stage."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, 1)
        self.refine = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor, side: int) -> Tensor:
        return self.refine(F.interpolate(self.proj(x), size=(side, side), mode="bilinear", align_corners=False))


class Student(nn.Module):
    """A network with DART's adapters."""

    def __init__(self, name: str, sizes: dict, width: int) -> None:
        super().__init__()
        self.backbone = timm.create_model(name, features_only=True, out_indices=(0, 1, 2), **sizes)
        self.adapters = nn.ModuleList(Adapter(channels, width) for channels in self.backbone.feature_info.channels())

    def forward(self, x: Tensor) -> list[Tensor]:
        return [adapter(features, GRID << (2 - level))
                for level, (features, adapter) in enumerate(zip(self.backbone(x), self.adapters))]


def of_low_rank(weights: dict[str, Tensor], generator: torch.Generator) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights with changes of rank 2 in layers of single pixels and rows: as saved, and merged."""
    saved, merged = {}, dict(weights)
    for name, value in weights.items():
        layer = name.removesuffix(".weight")
        points = value.ndim == 2 or (value.ndim == 4 and value.shape[1] > 1 and value.shape[2:] == (1, 1))
        is_layer = name.startswith("backbone.") and points and name.endswith(".weight")
        if is_layer:
            rest = (1, 1) if value.ndim == 4 else ()
            a = (torch.randn(2, value.shape[1], *rest, generator=generator) * 0.2).to(STORED)
            b = (torch.randn(value.shape[0], 2, *rest, generator=generator) * 0.2).to(STORED)
            saved |= {f"{layer}.original.weight": value, f"{layer}.lora_A": a, f"{layer}.lora_B": b}
            merged[name] = (value.double() + (b.double().flatten(1) @ a.double().flatten(1)).view(value.shape)).float()
        elif name.endswith(".bias") and f"{name.removesuffix('.bias')}.lora_A" in saved:
            saved[f"{name.removesuffix('.bias')}.original.bias"] = value
        else:
            saved[name] = value
    return saved, merged


def make_students() -> None:
    model = checkpoints.SAM3
    network, inputs = parity.build(model)
    reference = parity.Reference(network)
    image = reference.backbone(inputs["pixel_values"])
    folder = checkpoints.folder_for("students")
    golden = {"pixel_values": inputs["pixel_values"]}
    boxes, labels = inputs["pixel_values"].new_zeros(1, 0, 4), torch.zeros(1, 0, dtype=torch.long)

    def add(name: str, student: Student, levels: tuple[int, ...]) -> None:
        pyramid = student(inputs["pixel_values"])
        for level in levels:
            golden[f"{name}.fpn_{level}"] = pyramid[level]
        golden[f"{name}.image_prompt"] = reference.exemplar({"fpn_2": pyramid[2], "position": image["position"]}, boxes, labels)

    for index, (name, (architecture, sizes)) in enumerate(DART.items()):
        generator = torch.Generator().manual_seed(61 + index)
        student = Student(architecture, sizes, model["dim"]).eval()
        draw(student, inputs["pixel_values"], generator)
        for level, features in enumerate(student(inputs["pixel_values"])):
            factor = rms(image[f"fpn_{level}"]) / rms(features)
            student.adapters[level].refine.weight.mul_(factor)
            student.adapters[level].refine.bias.mul_(factor)
        round_to_stored(student)
        add(name, student, (0, 1, 2))
        weights = stored(student.state_dict())
        torch.save({"epoch": 4, "student_state_dict": weights}, folder / f"{name}.pt")
        if name == "efficient_vit":
            continue
        saved, merged = of_low_rank(weights, generator)
        student.load_state_dict(merged)
        add(f"{name}_low_rank", student, (2,))
        assert parity.distance(golden[f"{name}_low_rank.fpn_2"], golden[f"{name}.fpn_2"]) > 0.01
        adapters = {key: value for key, value in saved.items() if key.startswith("adapters.")}
        parameter = nn.Parameter(torch.zeros(2))
        torch.save({"epoch": 2, "loss": 0.5, "student_state_dict": saved, "adapter_state_dict": adapters, "mask_blocks": ["1:attn"],
                    "optimizer_state_dict": torch.optim.AdamW([parameter]).state_dict()}, folder / f"{name}_low_rank.pt")
    checkpoints.save_golden(folder, golden, metadata(model))


class Trunk(nn.Module):
    """A network with EfficientSAM3's head, in the place of the vision transformer."""

    def __init__(self, name: str, sizes: dict, width: int) -> None:
        super().__init__()
        self.network = timm.create_model(name, num_classes=0, global_pool="" if "tiny" in name else "avg", **sizes)
        for module in self.network.modules():
            if type(module).__name__ == "LiteMLA":
                module.eps = 1e-15
        channels = self.network.feature_info[-1]["num_chs"]
        self.head = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.GELU(),
                                  nn.Conv2d(width, width, 3, padding=1))

    def features(self, x: Tensor) -> Tensor:
        network = self.network
        x = network.patch_embed(x) if hasattr(network, "patch_embed") else network.stem(x)
        return network.stages(x)

    def forward(self, pixel_values: Tensor, **_: object) -> BaseModelOutput:
        x = F.interpolate(self.head(self.features(pixel_values)), size=(GRID, GRID), mode="bilinear", align_corners=False)
        return BaseModelOutput(last_hidden_state=x.flatten(2).transpose(1, 2))


def original_names(architecture: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm's weights in the names of the networks' own code."""
    rules: list[tuple[str, str]] = []
    if architecture.startswith("repvit"):
        depths: dict[int, int] = {}
        for name in weights:
            if match := re.match(r"stages\.(\d+)\.blocks\.(\d+)\.", name):
                depths[int(match[1])] = max(depths.get(int(match[1]), 0), int(match[2]) + 1)
        number = 1
        rules = [(r"^stem\.conv1\.", "features.0.0."), (r"^stem\.conv2\.", "features.0.2.")]
        for stage, depth in sorted(depths.items()):
            if stage:
                down = rf"^stages\.{stage}\.downsample"
                rules += [(rf"{down}\.pre_block\.", f"features.{number}."),
                          (rf"{down}\.spatial_downsample\.", f"features.{number + 1}.token_mixer.0."),
                          (rf"{down}\.channel_downsample\.", f"features.{number + 1}.token_mixer.2."),
                          (rf"{down}\.ffn\.", f"features.{number + 1}.channel_mixer.")]
                number += 2
            for block in range(depth):
                rules.append((rf"^stages\.{stage}\.blocks\.{block}\.", f"features.{number}."))
                number += 1
        rules += [(r"^(features\.\d+)\.token_mixer\.(?=conv|bn)", r"\1.token_mixer.0."), (r"^(features\.\d+)\.se\.", r"\1.token_mixer.1."),
                  (r"\.channel_mixer\.conv1\.", ".channel_mixer.m.0."), (r"\.channel_mixer\.conv2\.", ".channel_mixer.m.2.")]
    elif architecture.startswith("efficientvit"):
        rules = [(r"^stem\.in_conv\.", "input_stem.op_list.0."), (r"^stem\.res0\.", "input_stem.op_list.1."), (r"\.blocks\.", ".op_list.")]
    else:
        rules = [(r"^patch_embed\.conv1\.", "patch_embed.seq.0."), (r"^patch_embed\.conv2\.", "patch_embed.seq.2."),
                 (r"^stages\.(\d+)\.downsample\.", lambda m: f"layers.{int(m[1]) - 1}.downsample."), (r"^stages\.", "layers."),
                 (r"\.conv\.(?=weight$)", ".c.")]
    return {checkpoints.renamed(name, rules): value for name, value in weights.items() if not name.startswith(("head.", "norm_head."))}


def trunk_names(architecture: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a `Trunk` as EfficientSAM3 names them, without `detector.`."""
    place = "backbone.vision_backbone.trunk.model."
    own = {key.removeprefix("network."): value for key, value in weights.items() if key.startswith("network.")}
    named = {f"{place}backbone.model.{key}": value for key, value in original_names(architecture, own).items()}
    return named | {place + key: value for key, value in weights.items() if key.startswith("head.")}


def make_efficient(name: str) -> None:
    architecture, sizes, model = EFFICIENT[name]
    generator = torch.Generator().manual_seed(model["seed"])
    lite = "table" in model
    if lite:
        network = checkpoints.transformers.Sam3LiteTextModel(checkpoints.lite_configuration(model)).eval()
    else:
        network = parity.Sam3Model(parity.configuration(model)).eval()
    inputs = parity.draw_inputs(model, generator)
    parity.randomise(network, inputs, generator)
    before = network.vision_encoder.backbone(inputs["pixel_values"]).last_hidden_state
    trunk = Trunk(architecture, sizes, model["width"]).eval()
    draw(trunk, inputs["pixel_values"], generator)
    factor = rms(before) / rms(trunk(inputs["pixel_values"]).last_hidden_state)
    trunk.head[3].weight.mul_(factor)
    trunk.head[3].bias.mul_(factor)
    network.vision_encoder.backbone = trunk
    round_to_stored(network)
    reference = (checkpoints.LiteReference if lite else parity.Reference)(network)
    if name == "efficient_rep_vit":
        golden = parity.evaluate(reference, inputs)
        keep = ("backbone.fpn", "text.", "encdec.text", "mask.text")
        golden = {key: value for key, value in golden.items() if key.startswith(keep)}
        if lite:
            inputs["text.input_ids"] = inputs["text.input_ids"] * inputs["text.attention_mask"]
        inputs = {key: value for key, value in inputs.items() if not key.startswith("exemplar.")}
    else:
        image = reference.backbone(inputs["pixel_values"])
        golden = {f"backbone.{key}": image[key] for key in ("fpn_0", "fpn_1", "fpn_2", "image_prompt")}
        inputs = {"pixel_values": inputs["pixel_values"]}
    folder = checkpoints.folder_for(name)
    weights = stored({key: value for key, value in network.state_dict().items()})
    inside = "vision_encoder.backbone."
    rest = {key: value for key, value in weights.items() if not key.startswith(inside)}
    named = checkpoints.to_meta(rest, checkpoints.TO_MOBILE_CLIP + checkpoints.TO_META if lite else checkpoints.TO_META)
    checkpoints.noise(named, model, generator, rotary=False)
    named |= trunk_names(architecture, {key.removeprefix(inside): value for key, value in weights.items() if key.startswith(inside)})
    if name == "efficient_rep_vit":
        named = {key: value for key, value in named.items() if not key.startswith("geometry_encoder.")}
        named = {key.replace(".trunk.", ".student_trunk.trunk."): value for key, value in named.items()}
    torch.save({"model": {f"detector.{key}": value for key, value in named.items()}}, folder / f"{name}.pt")
    checkpoints.write_tokenizer(folder, model["context"])
    checkpoints.save_golden(folder, inputs | golden, metadata(model))


def metadata(model: dict) -> dict[str, str]:
    facts = {"timm": timm.__version__, "students_script_sha256": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}
    return checkpoints.metadata(model, facts, [])


MAKERS = {"students": make_students, **{name: lambda name=name: make_efficient(name) for name in EFFICIENT}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=MAKERS, nargs="+", default=list(MAKERS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    checkpoints.transformers.logging.set_verbosity_error()
    checkpoints.transformers.logging.disable_progress_bar()
    with torch.no_grad():
        for name in arguments.only:
            MAKERS[name]()


if __name__ == "__main__":
    main()
