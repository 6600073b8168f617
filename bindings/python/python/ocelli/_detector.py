"""The detector and what it is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast, overload

from . import _ocelli
from ._errors import InvalidArgument
from ._objects import Box, ObjectMask, ObjectPrompt
from ._images import ImageLike, is_file, pixels
from ._results import Detections

PathLike: TypeAlias = str | os.PathLike[str]
Precision: TypeAlias = Literal["auto", "fp32", "fp16", "bf16", "int8"]
ChannelOrder: TypeAlias = Literal["rgb", "bgr"]
Tile: TypeAlias = Literal["auto"] | int | tuple[int, int]
"""The size of tiles in pixels: a side, width and height, or auto."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One class to detect: a word or a short phrase, boxes around examples, or both.

    Boxes are in pixels of the image that is searched, or of `exemplar_image`. Without a phrase, the boxes alone say what
    to detect.
    """

    phrase: str | None = None
    """A noun or a short phrase."""
    label: str | None = None
    """The name of the class in results; the phrase by default."""
    exemplars: Sequence[Box] = ()
    """Boxes around instances to detect."""
    counterexamples: Sequence[Box] = ()
    """Boxes around what not to detect."""

    def _parts(self) -> tuple[str | None, str | None, list[tuple[list[float], bool]]]:
        if self.phrase is None and not self.exemplars:
            raise InvalidArgument("prompt without phrase and exemplars: expected one of them")
        boxes: list[tuple[list[float], bool]] = []
        for group, wanted in ((self.exemplars, True), (self.counterexamples, False)):
            for box in group:
                edges = [float(edge) for edge in box]
                if len(edges) != 4:
                    raise InvalidArgument(f"exemplar {box}: expected four numbers, x1, y1, x2, y2")
                boxes.append((edges, wanted))
        return self.phrase, self.label, boxes

    @property
    def name(self) -> str:
        """The name of the class in results."""
        if self.label is not None:
            return self.label
        return "visual" if self.phrase is None else " ".join(self.phrase.split())


Classes: TypeAlias = str | Prompt | Sequence[str | Prompt]
"""The classes to detect: words, short phrases, or `Prompt`s. The id of a class is its index."""


def as_prompts(classes: Classes) -> list[Prompt]:
    """The classes as prompts."""
    given: Sequence[str | Prompt] = [classes] if isinstance(classes, (str, Prompt)) else classes
    return [Prompt(one) if isinstance(one, str) else one for one in given]


class EngineKeywords(TypedDict, total=False):
    """The keyword arguments of `Detector` that concern the model and what runs it."""

    engine: str
    precision: Precision | None
    imgsz: int | None
    class_chunk: int | None
    threads: int | None
    text_cache: PathLike | None
    tokenizer: PathLike | None
    onnxruntime: PathLike | None
    openvino: PathLike | None
    tensorrt: PathLike | None
    trt: PathLike | None
    trt_enc_dec: PathLike | None
    allow_partial: bool
    tf32: bool


class LabelKeywords(EngineKeywords, total=False):
    """Those, and the thresholds that a data set has."""

    confidence: float | None
    nms: float | None
    class_agnostic_nms: float | None
    tile: Tile | None
    tile_overlap: float


class DetectorKeywords(LabelKeywords, total=False):
    """All keyword arguments of `Detector`, for functions that pass them on."""

    masks: bool
    max_detections: int | None
    screen: bool | float


class DetectorOptions:
    """The keyword arguments of a detector, checked and passed on by `Detector`, `Video` and the functions."""

    __slots__ = ("native",)

    def __init__(
        self, model: PathLike | None = None, **options: Unpack[DetectorKeywords]
    ) -> None:
        if unknown := sorted(options.keys() - DetectorKeywords.__optional_keys__):
            raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
        for name in ("imgsz", "max_detections", "class_chunk", "threads"):
            number = cast(int | None, options.get(name))
            if number is not None and number < 1:
                raise InvalidArgument(f"{name} is {number}: expected at least 1")
        screen = options.get("screen", False)
        tile = options.get("tile")
        self.native: dict[str, Any] = {
            **dict.fromkeys(DetectorKeywords.__optional_keys__),
            "model": model,
            "engine": "auto",
            "masks": False,
            "allow_partial": False,
            "tf32": False,
            "tile_overlap": 0.2,
            **options,
            "tile": "x".join(str(side) for side in tile) if isinstance(tile, tuple) else tile and str(tile),
            "screen": screen is not False,
            "screen_threshold": None if isinstance(screen, bool) else float(screen),
        }


class Detector:
    """An open-vocabulary detector: a model, what runs it, and its buffers.

    `model` is the folder of a Hugging Face checkpoint, Meta's `sam3.pt` or an exported model; without it, the small built-in
    model, which knows eighty drawn pictograms (`ocelli.vocabulary()`) and nothing of photographs. A checkpoint is exported
    once, into the cache.

    Several threads may use one detector: they take turns. For work at the same time, give each thread its own.
    """

    __slots__ = ("_native",)

    def __init__(
        self,
        model: PathLike | None = None,
        *,
        engine: str = "auto",
        precision: Precision | None = None,
        imgsz: int | None = None,
        masks: bool = False,
        confidence: float | None = None,
        nms: float | None = None,
        class_agnostic_nms: float | None = None,
        max_detections: int | None = None,
        class_chunk: int | None = None,
        threads: int | None = None,
        text_cache: PathLike | None = None,
        tokenizer: PathLike | None = None,
        onnxruntime: PathLike | None = None,
        openvino: PathLike | None = None,
        tensorrt: PathLike | None = None,
        trt: PathLike | None = None,
        trt_enc_dec: PathLike | None = None,
        allow_partial: bool = False,
        tf32: bool = False,
        screen: bool | float = False,
        tile: Tile | None = None,
        tile_overlap: float = 0.2,
    ) -> None:
        """Opens the model and loads the engine's library.

        engine: auto, embedded, openvino, onnxruntime, cuda, tensorrt, …, as `ocelli detect --engine`.
        precision: number format of a checkpoint's export, or of OpenVINO's computation; auto is the fastest close one.
        imgsz: side of the model's square input in pixels.
        masks: whether detections have masks.
        confidence: detections with a higher score are kept, 0.3 by default.
        nms: of two boxes of a class with a higher IoU, the better one is kept; 0.7 by default.
        class_agnostic_nms: the same limit for boxes of any classes; off by default.
        max_detections: the most detections of an image.
        class_chunk: classes that are decoded at once, 4 by default.
        threads: CPU threads, one per physical core by default.
        text_cache: file of encoded phrases, created if missing.
        tokenizer: tokeniser of a checkpoint that has none beside it.
        onnxruntime, openvino, tensorrt: paths of the engines' libraries.
        trt, trt_enc_dec: TensorRT engine files.
        allow_partial: whether operators that the engine lacks run on the CPU.
        tf32: whether CUDA may multiply in TF32.
        screen: whether a coarse first pass rules out absent classes; a number from 0 to 1 is its threshold.
        tile: size of the overlapping tiles in which large images are searched as well; none by default.
        tile_overlap: least overlap of neighbouring tiles, as a share of their side.
        """
        options = DetectorOptions(
            model,
            engine=engine,
            precision=precision,
            imgsz=imgsz,
            masks=masks,
            confidence=confidence,
            nms=nms,
            class_agnostic_nms=class_agnostic_nms,
            max_detections=max_detections,
            class_chunk=class_chunk,
            threads=threads,
            text_cache=text_cache,
            tokenizer=tokenizer,
            onnxruntime=onnxruntime,
            openvino=openvino,
            tensorrt=tensorrt,
            trt=trt,
            trt_enc_dec=trt_enc_dec,
            allow_partial=allow_partial,
            tf32=tf32,
            screen=screen,
            tile=tile,
            tile_overlap=tile_overlap,
        )
        self._native = _ocelli.Detector(options.native)

    def __repr__(self) -> str:
        return f"Detector({str(self.model)!r}, {self.engine})"

    @property
    def engine(self) -> str:
        """What runs the model: `ONNX Runtime 1.31.1, CPU, 2 threads`."""
        return self._native.engine

    @property
    def model(self) -> Path:
        """The folder of the exported model."""
        return self._native.model

    @property
    def imgsz(self) -> int:
        """The side of the model's square input in pixels."""
        return self._native.imgsz

    def prepare(self, classes: Classes) -> None:
        """Loads everything that detecting these classes needs, so that the first image takes no longer than others."""
        self._native.prepare([prompt._parts() for prompt in as_prompts(classes)])

    def detect(
        self,
        image: ImageLike,
        classes: Classes,
        *,
        channel_order: ChannelOrder = "rgb",
        exemplar_image: ImageLike | None = None,
    ) -> Detections:
        """Detects the instances of the classes in an image.

        An array is copied first; no other thread may write to it before this returns or raises. Arrays from OpenCV are
        `channel_order="bgr"`; it has no effect on paths and PIL images. With `exemplar_image`, the boxes of the prompts are
        in that image, which has the same kind of channels.
        """
        prompts = as_prompts(classes)
        parts = [prompt._parts() for prompt in prompts]
        order = "rgb" if is_file(image) else channel_order
        array = pixels(image)
        examples = None
        if exemplar_image is not None:
            if is_file(exemplar_image) != is_file(image) and order != channel_order:
                raise InvalidArgument("image and exemplar_image differ in channel_order: pass both as arrays or as files")
            examples = pixels(exemplar_image)
        found = self._native.detect(array, parts, order, examples)
        height, width = array.shape[:2]
        return Detections._from_native(
            found, (width, height), [prompt.name for prompt in prompts]
        )

    def encode(self, image: ImageLike, *, channel_order: ChannelOrder = "rgb") -> Features:
        """Computes the features of an image: the costly part of detection, which does not depend on the classes.

        Each `detect_features` then costs the decoder alone. An array is treated as by `detect`.
        """
        order = "rgb" if is_file(image) else channel_order
        return Features(self._native.encode(pixels(image), order))

    def detect_features(self, features: Features, classes: Classes) -> Detections:
        """As `detect`, in an image that this detector has encoded."""
        prompts = as_prompts(classes)
        found = self._native.detect_features(features._native, [prompt._parts() for prompt in prompts])
        return Detections._from_native(found, features.size, [prompt.name for prompt in prompts])

    @overload
    def segment(
        self,
        features: Features,
        objects: ObjectPrompt | Sequence[ObjectPrompt],
        *,
        multimask: Literal[False] = False,
    ) -> list[ObjectMask]: ...
    @overload
    def segment(
        self,
        features: Features,
        objects: ObjectPrompt | Sequence[ObjectPrompt],
        *,
        multimask: Literal[True],
    ) -> list[list[ObjectMask]]: ...
    def segment(
        self,
        features: Features,
        objects: ObjectPrompt | Sequence[ObjectPrompt],
        *,
        multimask: bool = False,
    ) -> list[ObjectMask] | list[list[ObjectMask]]:
        """The mask of each object that clicks, a box or a mask show, in an image that this detector has encoded.

        The model needs a tracker, as Meta's `sam3.pt` and facebook/sam3 have; pass `masks=True` to the detector if it exports a
        checkpoint. Objects are independent of each other. With `multimask`, three masks for each object, such as a part, the
        whole and a group.
        """
        given = [objects] if isinstance(objects, ObjectPrompt) else objects
        parts = [one._parts() for one in given]
        found = [
            [ObjectMask._from_native(mask) for mask in masks]
            for masks in self._native.segment(features._native, parts, multimask)
        ]
        return found if multimask else [masks[0] for masks in found]


class Features:
    """The features of an image, from `Detector.encode`."""

    __slots__ = ("_native",)

    def __init__(self, native: _ocelli.Features) -> None:
        self._native = native

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image."""
        return self._native.size
