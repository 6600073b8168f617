# The extension module, written in Rust. Private: the classes of the package wrap it.

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

__version__: str

_Path: TypeAlias = str | PathLike[str]
_Prompt: TypeAlias = tuple[str | None, str | None, Sequence[tuple[Sequence[float], bool]]]
_Mask: TypeAlias = tuple[str, int, int]
_Object: TypeAlias = tuple[
    str,
    Sequence[tuple[float, float, bool]],
    Sequence[float] | None,
    _Mask | None,
    npt.NDArray[np.float32] | None,
]
_ObjectMask: TypeAlias = tuple[_Mask, float, float, npt.NDArray[np.float32]]
_Found: TypeAlias = tuple[
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.int64],
    list[str],
    list[_Mask] | None,
    dict[str, float],
]
_Track: TypeAlias = tuple[
    int, int, float, list[float], float, int, str, list[float], float, int | None
]
_TrackRow: TypeAlias = tuple[int, int, float, Sequence[float], str, int | None]
_Options: TypeAlias = Mapping[str, Any]
_Progress: TypeAlias = Callable[[int, int, str], object] | None

@final
class Detector:
    def __new__(cls, options: _Options) -> Detector: ...
    @property
    def engine(self) -> str: ...
    @property
    def model(self) -> Path: ...
    @property
    def imgsz(self) -> int: ...
    def prepare(self, classes: Sequence[_Prompt]) -> None: ...
    def detect(self, image: object, classes: Sequence[_Prompt], channel_order: str) -> _Found: ...
    def encode(self, image: object, channel_order: str) -> Features: ...
    def detect_features(self, features: Features, classes: Sequence[_Prompt]) -> _Found: ...
    def segment(
        self, features: Features, shown: Sequence[_Object], multimask: bool
    ) -> list[list[_ObjectMask]]: ...
    def detect_like(
        self, image: object, classes: Sequence[_Prompt], channel_order: str, exemplar_image: object
    ) -> _Found: ...

@final
class Features:
    @property
    def size(self) -> tuple[int, int]: ...

@final
class Tracker:
    def __new__(cls, options: _Options) -> Tracker: ...
    def update(
        self,
        class_id: Sequence[int],
        confidence: Sequence[float],
        xyxy: Sequence[Sequence[float]],
        frames: float,
    ) -> list[_Track]: ...
    def reset(self) -> None: ...

@final
class Pipeline:
    def __new__(cls, detector: _Options, classes: Sequence[_Prompt], options: _Options) -> Pipeline: ...
    @property
    def engine(self) -> str: ...
    @property
    def is_ended(self) -> bool: ...
    def push(self, image: object, time_s: float, channel_order: str) -> int: ...
    def receive(
        self, timeout_s: float | None
    ) -> tuple[int, float, tuple[int, int], bool, _Found, list[_Track]] | None: ...
    def close(self) -> None: ...
    def cancel(self) -> None: ...
    def stats(self) -> str: ...

def export(checkpoint: _Path, output: _Path, arguments: _Options, progress: _Progress) -> str: ...
def label(arguments: _Options, detector: _Options, progress: _Progress) -> str: ...
def evaluate(arguments: _Options, detector: _Options, progress: _Progress) -> str: ...
def read_image(path: _Path) -> npt.NDArray[np.uint8]: ...
def plot(
    image: object,
    channel_order: str,
    rows: _Options,
    tracks: Sequence[_TrackRow] | None,
    labels: Sequence[str],
    style: tuple[bool, float, float | None, float | None],
) -> npt.NDArray[np.uint8]: ...
def vocabulary() -> list[str]: ...
def detections_json(rows: _Options) -> str: ...
def frame_json(
    index: int,
    time_s: float,
    size: tuple[int, int],
    detected: bool,
    rows: _Options,
    tracks: Sequence[_TrackRow],
    labels: Sequence[str],
    origin: tuple[str | None, _Path | None, float | None],
) -> str: ...
def mask_to_array(counts: str, width: int, height: int) -> npt.NDArray[np.uint8]: ...
def mask_from_array(bitmap: npt.NDArray[np.uint8]) -> _Mask: ...
def mask_area(counts: str, width: int, height: int) -> int: ...
def without_secrets(text: str) -> str: ...
def set_python_packages(folders: Sequence[_Path]) -> None: ...
def run_program(name: str, arguments: Sequence[str], videos: object | None) -> int: ...
