#!/usr/bin/env python3
"""Runs the calls of Meta's example on Meta's own video predictor and on `ocelli.sam3`, and compares every answer.

    python compare.py WORK

Both run on the CPU in 32 bits on small models with random weights, whose checkpoints have Meta's names. Meta's package, `sam3` 0.1.4,
is downloaded by pip into WORK and changed where it names a GPU (`PATCHES`). It sees the frames rounded to 16 bits, and keeps
memories in bfloat16, as Ocelli does in host memory; so ids and frames are the same, scores and boxes are close, and masks differ in
pixels at the threshold. The script fails where more differs.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 336
FRAMES = 10
# Many objects; an object that is removed as false, and one in a box.
SEEDS = (11, 1)
# File, pattern, replacement, and how often it must be found.
PATCHES = (
    ("model/decoder.py", r'device="cuda"\n', 'device="cpu"\n', 1),
    ("model/position_encoding.py", r'device="cuda"', 'device="cpu"', 1),
    ("model/vl_combiner.py", r'device="cuda"', 'device="cpu"', 2),
    ("model/sam3_tracking_predictor.py", r'torch\.device\("cuda"\)', 'torch.device("cpu")', 1),
    # Autocast to bfloat16, entered in the constructor and never left.
    ("model/sam3_tracking_predictor.py", r"self\.bf16_context\.__enter__\(\)", "pass", 1),
    ("model/sam3_image.py", r'\[x\.to\(torch\.bfloat16\) for x in feats\["backbone_fpn"\]\]', '[x for x in feats["backbone_fpn"]]', 1),
    ("model/sam3_video_predictor.py", r"\n\s+\.cuda\(\)\n", "\n", 1),
    # Labelling on a CPU fails if no object is new on a frame.
    ("perflib/connected_components.py", r"    batch_size = input_tensor\.shape\[0\]\n",
     "    batch_size = input_tensor.shape[0]\n    if batch_size == 0: return (input_tensor.view(out_shape).int(),) * 2\n", 1),
    ("*", r"\.pin_memory\(\)", "", 3),
    ("*", r"\.cuda\((non_blocking=True)?\)", '.to("cpu")', 8),
)  # fmt: skip
# The builders of the model with smaller sizes: pattern, replacement, and how often it must be found.
SIZES = (
    (r"\b1008\b", f"{SIDE}", 7),
    (r"pretrain_img_size=336", "pretrain_img_size=84", 1),
    (r"feat_sizes=\[72, 72\]", f"feat_sizes=[{SIDE // 14}, {SIDE // 14}]", 2),
    (r"interpol_size=\[1152, 1152\]", f"interpol_size=[{16 * (SIDE // 14)}, {16 * (SIDE // 14)}]", 1),
    (r"embed_dim=1024", "embed_dim=128", 1),
    (r"depth=32", "depth=4", 1),
    (r"num_heads=16", "num_heads=4", 1),
    (r"global_att_blocks=\(7, 15, 23, 31\)", "global_att_blocks=(1, 3)", 1),
    (r"window_size=24", "window_size=8", 1),
    (r"width=1024,\n        heads=16,\n        layers=24", "width=128,\n        heads=2,\n        layers=2", 1),
    (r"num_layers=6", "num_layers=2", 2),
    (r"num_queries=200", "num_queries=24", 1),
    (r"dim_feedforward=2048", "dim_feedforward=256", 4),
)


def replaced(text: str, changes: tuple[tuple[str, str, int], ...]) -> str:
    for pattern, replacement, least in changes:
        text, count = re.subn(pattern, replacement, text)
        assert count >= least, f"{pattern} was found {count} times: expected at least {least}"
    return text


def prepare(work: Path) -> Path:
    """Meta's package for a CPU."""
    source = work / "meta"
    if (source / "changed").exists():
        return source
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(work / "wheels")]
    subprocess.check_call([*pip, "sam3==0.1.4", "open_clip_torch==3.3.0"])
    zipfile.ZipFile(next((work / "wheels").glob("sam3-*.whl"))).extractall(source)
    # The wheel lacks CLIP's merges.
    clip = zipfile.ZipFile(next((work / "wheels").glob("open_clip*.whl")))
    merges = next(name for name in clip.namelist() if name.endswith("vocab_16e6.txt.gz"))
    (source / "assets").mkdir(exist_ok=True)
    (source / "assets" / "bpe_simple_vocab_16e6.txt.gz").write_bytes(clip.read(merges))
    for name, pattern, replacement, least in PATCHES:
        count = 0
        for path in sorted((source / "sam3").rglob("*.py")) if name == "*" else [source / "sam3" / name]:
            text, found = re.subn(pattern, replacement, path.read_text())
            count += found
            path.write_text(text)
        assert count >= least, f"{name}, {pattern}: found {count} times, expected at least {least}"
    (source / "changed").touch()
    return source


def images(folder: Path) -> None:
    """Coloured discs on noise, as large as the model's input, so that nobody resizes them."""
    from PIL import Image

    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(3)
    background = generator.integers(0, 120, (SIDE, SIDE, 3))
    y, x = np.mgrid[:SIDE, :SIDE]
    discs = ((70, 95, 14, 5, (250, 40, 40)), (245, 230, -14, -9, (40, 250, 40)), (105, 255, 7, 0, (60, 60, 250)))
    for frame in range(FRAMES):
        image = background.copy()
        for left, top, right, down, colour in discs:
            image[(x - left - right * frame) ** 2 + (y - top - down * frame) ** 2 < 52**2] = colour
        Image.fromarray(image.astype(np.uint8)).save(folder / f"{frame:05d}.png")


def randomise(model: Any, seed: int) -> None:
    """Random weights, those that begin at zero included; objects are mostly present."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise, last = torch.randn(value.shape, generator=generator), name.rsplit(".", 1)[-1]
            if ("norm" in name and last == "weight") or last == "gamma":
                value.copy_(1 + 0.1 * noise)
            elif "embed" in last or "embedding" in name or last in ("maskmem_tpos_enc", "no_obj_ptr", "no_mem_pos_enc"):
                value.copy_((1.0 if "reference" in name else 0.3) * noise)
            else:
                value.copy_(noise * (value[0].numel() ** -0.5 if value.ndim >= 2 else 0.1))
        for name, value in model.named_buffers():
            if name.endswith("positional_encoding_gaussian_matrix"):
                value.copy_(torch.randn(value.shape, generator=generator))
        for name, value in model.named_parameters():
            # Otherwise softmax is an argmax, and multiplies rounding.
            if "sam_mask_decoder.transformer" in name and re.search(r"cross_attn.*\.(q|k)_proj\.weight", name):
                value.mul_(0.25)
        model.detector.transformer.decoder.presence_token_head.layers[-1].bias.fill_(4.0)
        model.tracker.sam_mask_decoder.pred_obj_score_head.layers[-1].bias.fill_(1.5)


def meta_predictor(work: Path, seed: int) -> Any:
    """Meta's predictor with a small random model."""
    sys.path.insert(0, str(prepare(work)))
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import sam3.model.sam3_video_inference as inference
    import sam3.model_builder as builder
    import torch
    from sam3.model.sam3_video_predictor import Sam3VideoPredictor

    torch.set_num_threads(2)
    small = types.ModuleType("small_builder")
    small.__file__ = builder.__file__
    text = replaced(Path(builder.__file__).read_text(), SIZES)
    exec(compile(text, "small_builder", "exec"), small.__dict__)
    model = small.build_sam3_video_model(load_from_HF=False, device="cpu")
    randomise(model, seed)
    model.eval()
    inference.tqdm = lambda frames, **_: frames
    # Autocast hides on a GPU that frames are float16.
    build = model._construct_initial_input_batch
    model._construct_initial_input_batch = lambda state, images: build(state, images.float())
    predictor = object.__new__(Sam3VideoPredictor)
    predictor.model, predictor.async_loading_frames, predictor.video_loader_type = model, False, "cv2"
    predictor._get_torch_and_gpu_properties = predictor._get_session_stats = lambda: ""
    return predictor


def calibrate(predictor: Any, folder: Path, text: str, gain: float = 40.0, top: int = 3, above: float = 1.2) -> None:
    """Random queries score almost alike: stretches their logits and lifts the best above the thresholds."""
    import torch

    scoring, seen = predictor.model.detector.dot_prod_scoring, {}
    hooks = [
        scoring.prompt_proj.register_forward_hook(lambda module, given, found: seen.update(prompt=found.detach())),
        scoring.register_forward_hook(lambda module, given, found: seen.update(logits=found.detach()[-1])),
    ]
    session = predictor.handle_request(dict(type="start_session", resource_path=str(folder)))["session_id"]
    with torch.no_grad():
        scoring.hs_proj.weight.mul_(gain)
        predictor.handle_request(dict(type="add_prompt", session_id=session, frame_index=0, text=text))
        prompt, logits = seen["prompt"].reshape(-1), seen["logits"].reshape(-1).sort(descending=True)[0]
        scoring.hs_proj.bias.add_(prompt * ((above - logits[top]) / scoring.scale / (prompt @ prompt)))
    for hook in hooks:
        hook.remove()
    predictor.handle_request(dict(type="close_session", session_id=session))


def example(predictor: Any, folder: Path, tensor: Callable[[Any], Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The calls of Meta's example notebook, and each answer with outputs."""
    session = predictor.handle_request(request=dict(type="start_session", resource_path=str(folder)))["session_id"]

    def ask(kind: str, **fields: Any) -> dict[str, Any]:
        return predictor.handle_request(request=dict(type=kind, session_id=session, **fields))

    def run(step: str, **fields: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        request = dict(type="propagate_in_video", session_id=session, **fields)
        for answer in predictor.handle_stream_request(request=request):
            yield f"{step}, frame {answer['frame_index']}", answer

    assert ask("reset_session") == {"is_success": True}
    found = ask("add_prompt", frame_index=0, text="red apple")
    yield "text", found
    last: dict[str, Any] = found
    for step in run("text, run"):
        last = step[1] if len(step[1]["outputs"]["out_obj_ids"]) else last
        yield step
    gone = int(last["outputs"]["out_obj_ids"][0])
    assert ask("remove_object", obj_id=gone) == {"is_success": True}
    yield from run("removed, run")
    points, labels = tensor([[0.3, 0.4]]), tensor([1])
    yield "click", ask("add_prompt", frame_index=0, points=points, point_labels=labels, obj_id=gone)
    yield from run("click, run")
    points, labels = tensor([[0.3, 0.4], [0.8, 0.1]]), tensor([1, 0])
    yield "clicks", ask("add_prompt", frame_index=4, points=points, point_labels=labels, obj_id=gone)
    yield from run("clicks, run", propagation_direction="both", start_frame_index=4, max_frame_num_to_track=3)
    assert ask("reset_session") == {"is_success": True}
    box = dict(bounding_boxes=[[0.1, 0.1, 0.3, 0.3]], bounding_box_labels=[1])
    yield "box", ask("add_prompt", frame_index=1, **box)
    yield from run("box, run", start_frame_index=1, max_frame_num_to_track=3)
    for _ in range(2):
        assert ask("close_session") == {"is_success": True}


class Comparison:
    """What differs between the answers."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.answers = self.masks = self.large = 0
        self.worst = {"score": 0.0, "box, pixels": 0.0, "1 - IoU": 0.0}

    def compare(self, step: str, meta: dict[str, Any], ours: dict[str, Any], is_clicked: bool) -> None:
        """`is_clicked`: a run shows a frame on which was clicked; Meta's mask is not that of the click, ours is."""
        self.answers += 1
        here = len(self.problems)
        expected, found = meta["outputs"], ours["outputs"]
        forms = [
            # Ocelli has no statistics of a frame.
            {name: name == "frame_stats" or (value.dtype, value.shape[1:]) for name, value in outputs.items()}
            for outputs in (expected, found)
        ]
        self.expect(meta.keys() == ours.keys() and forms[0] == forms[1], f"{step}: other keys, types or shapes: {forms}")
        self.expect(meta["frame_index"] == ours["frame_index"], f"{step}: frame {ours['frame_index']}")
        ids = [outputs["out_obj_ids"].tolist() for outputs in (expected, found)]
        self.expect(ids[0] == ids[1], f"{step}: objects {ids[1]}, expected {ids[0]}")
        if len(self.problems) > here:
            return
        for row, number in enumerate(ids[0]):
            what = f"{step}, object {number}"
            score, box = (abs(expected[name][row] - found[name][row]).max() for name in ("out_probs", "out_boxes_xywh"))
            self.measure("score", float(score), 1e-3, what)
            if is_clicked:
                continue
            one, other = expected["out_binary_masks"][row], found["out_binary_masks"][row]
            differing, area = int((one ^ other).sum()), int((one | other).sum())
            self.masks += 1
            if area < 100:
                self.expect(differing <= 5, f"{what}: {differing} of {area} pixels differ")
                continue
            self.large += 1
            self.measure("box, pixels", float(box) * SIDE, 3.0, what)
            self.measure("1 - IoU", differing / area, 0.03, what)

    def measure(self, name: str, value: float, most: float, what: str) -> None:
        self.worst[name] = max(self.worst[name], value)
        self.expect(value <= most, f"{what}: {name} differs by {value:.4f}, expected at most {most}")

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


def main() -> None:
    import torch
    from ocelli.sam3 import build_sam3_video_predictor

    work = Path(sys.argv[1]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    folder = work / "frames"
    images(folder)
    merges = "bpe_simple_vocab_16e6.txt.gz"
    comparison, shown = Comparison(), set[str]()
    for seed in SEEDS:
        meta = meta_predictor(work, seed)
        calibrate(meta, folder, "red apple")
        checkpoint = work / str(seed) / "sam3.pt"
        checkpoint.parent.mkdir(exist_ok=True)
        torch.save({"model": meta.model.state_dict()}, checkpoint)
        (checkpoint.parent / merges).write_bytes((work / "meta" / "assets" / merges).read_bytes())
        expected = list(example(meta, folder, torch.tensor))
        ours = build_sam3_video_predictor(checkpoint_path=checkpoint, gpus_to_use=[0], engine="embedded")
        found = list(example(ours, folder, torch.tensor))
        comparison.expect(len(expected) == len(found), f"seed {seed}: {len(found)} answers, expected {len(expected)}")
        for (step, one), (_, other) in zip(expected, found, strict=False):
            is_clicked = step in ("click, run, frame 0", "clicks, run, frame 4")
            comparison.compare(f"seed {seed}, {step}", one, other, is_clicked)
            if len(one["outputs"]["out_obj_ids"]):
                shown.add(step)
    # A comparison of nothing would succeed.
    comparison.expect(comparison.large >= 80, f"{comparison.large} masks of at least 100 pixels, expected 80")
    missing = {"text", "text, run, frame 9", "click", "clicks", "box", "box, run, frame 4"} - shown
    comparison.expect(not missing, f"nothing is found in {sorted(missing)}")
    print(f"{comparison.answers} answers, {comparison.masks} masks, {comparison.large} of them of at least 100 pixels")
    print("largest differences:", ", ".join(f"{name} {value:.4f}" for name, value in comparison.worst.items()))
    sys.exit("\n".join(comparison.problems) or 0)


if __name__ == "__main__":
    main()
