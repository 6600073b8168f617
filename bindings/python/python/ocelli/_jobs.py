"""Exporting, labelling and evaluating: the work of the programs as functions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack

from . import _ocelli
from ._detector import DetectorOptions, EngineKeywords, LabelKeywords, PathLike
from ._errors import InvalidArgument
from ._tracker import as_form

Progress: TypeAlias = Callable[[int, int, str], object]
"""Called with the number of steps that are done, the number of all, and the name of a file."""

_Job: TypeAlias = Callable[[dict[str, Any], dict[str, Any], Progress | None], str]


def _run(job: _Job, arguments: dict[str, Any], detector: DetectorOptions, progress: Progress | None) -> dict[str, Any]:
    """What a function of the native module returns as JSON."""
    returned: dict[str, Any] = json.loads(job(arguments, detector.native, progress))
    return returned


def export(
    checkpoint: PathLike,
    output: PathLike,
    *,
    imgsz: int | None = None,
    precision: Literal["fp32", "fp16", "bf16", "int8", "fp8"] = "fp32",
    calibrate: PathLike | Sequence[PathLike] = (),
    calibrate_classes: Sequence[str] = (),
    mixed_precision: Literal[
        "none", "accumulate", "bf16-attention", "accumulate-linear", "attention"
    ]
    | None = None,
    keep_fp32: Sequence[str] = (),
    target: Literal["onnxruntime", "tensorrt"] = "onnxruntime",
    prompt: Literal["official", "text"] = "official",
    detection_only: bool = False,
    screen: bool = False,
    skip_blocks: Sequence[int] = (),
    mask_blocks: Sequence[str] = (),
    split_block: int | None = None,
    tokenizer: PathLike | None = None,
    base: PathLike | None = None,
    norm_eps: Literal["configured", "original"] | None = None,
    text_padding: Literal["training", "transformers"] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Exports a checkpoint to ONNX, as `ocelli export` does, and returns the content of `model.json`.

    calibrate: images like those to be searched, on which the scales of fp8, and of int8 for TensorRT, are measured.
    calibrate_classes: what is searched for in them; COCO's eighty classes if there is none.
    """
    arguments = {
        "imgsz": imgsz,
        "precision": precision,
        "calibrate": [calibrate] if isinstance(calibrate, (str, os.PathLike)) else list(calibrate),
        "calibrate_classes": list(calibrate_classes),
        "mixed_precision": mixed_precision,
        "keep_fp32": list(keep_fp32),
        "target": target,
        "prompt": prompt,
        "detection_only": detection_only,
        "screen": screen,
        "skip_blocks": list(skip_blocks),
        "mask_blocks": list(mask_blocks),
        "split_block": split_block,
        "force": force,
        "tokenizer": tokenizer,
        "base": base,
        "norm_eps": norm_eps,
        "text_padding": text_padding,
    }
    manifest: dict[str, Any] = json.loads(_ocelli.export(checkpoint, output, arguments, progress))
    return manifest


def label(
    images: PathLike | Sequence[PathLike],
    classes: Sequence[str] | PathLike,
    output: PathLike,
    *,
    model: PathLike,
    formats: str | Sequence[str] = "yolo",
    image_mode: Literal["link", "copy", "none"] | None = None,
    validation_share: float = 0.1,
    polygons: bool = False,
    masks: bool = True,
    min_area: float = 0.0,
    review: int | None = None,
    review_below: float = 0.5,
    shard: tuple[int, int] | None = None,
    restart: bool = False,
    discard_corrections: bool = False,
    low_memory: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    **detector: Unpack[LabelKeywords],
) -> dict[str, Any]:
    """Labels images, as `ocelli label` does, and returns a summary.

    images: files, folders with their subfolders, patterns. classes: names, or the path of a class map (YAML). formats: yolo,
    yolo-seg, coco. shard: part i of n, from 1. Other arguments are those of `Detector`; `engine` may be a list of devices that
    take turns, such as cuda:0,1. A call that was stopped continues where it was; files that a person has corrected stay.

    The summary has `images`, `failed`, `classes` (name, instances, images), `files`, `kept` and `failures` (why, by path).
    """
    is_map = isinstance(classes, (str, os.PathLike))
    if isinstance(classes, str) and Path(classes).suffix not in {".yaml", ".yml"}:
        raise InvalidArgument(f"classes is {classes!r}: expected a list of names, or the path of a .yaml file")
    arguments = {
        "images": [images] if isinstance(images, (str, os.PathLike)) else list(images),
        "classes": [] if is_map else list(classes),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "class_map": classes if is_map else None,
        "output": output,
        "formats": [formats] if isinstance(formats, str) else list(formats),
        "image_mode": image_mode,
        "validation_share": validation_share,
        "polygons": polygons,
        "masks": masks,
        "min_area": min_area,
        "review": review,
        "review_below": review_below,
        "shard": None if shard is None else f"{shard[0]}/{shard[1]}",
        "restart": restart,
        "discard_corrections": discard_corrections,
        "low_memory": low_memory,
        "workers": workers,
    }
    return _run(_ocelli.label, arguments, DetectorOptions(model, **detector), progress)


def evaluate(
    annotations: PathLike | None = None,
    images: PathLike | None = None,
    *,
    scenes: int | None = None,
    predictions: PathLike | None = None,
    protocol: Literal["practical", "dart"] = "practical",
    masks: bool = False,
    confidence: float = 0.3,
    max_images: int | None = None,
    save_predictions: PathLike | None = None,
    progress: Progress | None = None,
    model: PathLike | None = None,
    **detector: Unpack[EngineKeywords],
) -> dict[str, Any]:
    """Computes average precision, as `ocelli eval` does, and returns the report of `ocelli eval --json`.

    annotations, images: COCO ground truth and the folder of its images, or a data set of YOLO or Pascal VOC, which has them;
    or scenes: the number of drawn scenes.
    predictions: a COCO results file to evaluate instead of a model. confidence: threshold for precision and recall. Other
    arguments are those of `Detector`.
    """
    arguments = {
        "annotations": annotations,
        "images": images,
        "scenes": scenes,
        "predictions": predictions,
        "protocol": protocol,
        "masks": masks,
        "confidence": confidence,
        "max_images": max_images,
        "save_predictions": save_predictions,
    }
    return _run(_ocelli.evaluate, arguments, DetectorOptions(model, **detector), progress)


def verify(
    model: PathLike | None = None,
    candidate: PathLike | None = None,
    *,
    engine: str = "cpu",
    graphs: Sequence[str] = (),
    max_classes: int = 4,
    scenes: int = 8,
    random_inputs: int = 2,
    seed: int = 0,
    min_cosine: float = 0.999,
    max_box_difference: float = 0.01,
    max_score_difference: float = 0.02,
    min_iou: float = 0.7,
    confidence: float | None = None,
    onnxruntime: PathLike | None = None,
    openvino: PathLike | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compares two ways of running a model, as `ocelli verify` does, and returns the report of `ocelli verify --json`.

    model: the reference, an exported model or a checkpoint, which runs on the CPU; the built-in model by default.
    candidate: the model to compare with it; the reference by default, to compare engines. engine: that of the candidate.
    graphs: those of the candidate that run in place of the reference's, all by default. confidence: detections with a higher score
    are kept, by default as the model says.

    `accepted` says whether they agree within the limits, `failures` why not, `outputs` and `detections` how closely.
    """
    limits = {
        "min_cosine": min_cosine, "max_box_difference": max_box_difference,
        "max_score_difference": max_score_difference, "min_iou": min_iou,
    }  # fmt: skip
    options = {
        "graphs": list(graphs), "max_classes": max_classes, "scenes": scenes, "random_inputs": random_inputs, "seed": seed,
        "limits": limits, "confidence": confidence,
    }  # fmt: skip
    libraries = {"kind": engine, "onnxruntime": _text(onnxruntime), "openvino": _text(openvino), "threads": threads}
    request = {
        "model": "built-in" if model is None else _text(model), "candidate": _text(candidate), "engine": libraries, "options": options,
    }  # fmt: skip
    report: dict[str, Any] = json.loads(_ocelli.verify(as_form(request), progress))
    return report


def _text(path: PathLike | None) -> str | None:
    return None if path is None else os.fspath(path)
