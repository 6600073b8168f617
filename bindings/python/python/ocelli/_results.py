"""What was found: detections, masks and tracks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from . import _ocelli
from ._errors import InvalidArgument
from ._images import ImageLike, pixels

if TYPE_CHECKING:
    import rerun
    import supervision

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
StrArray: TypeAlias = npt.NDArray[np.str_]
Uint8Array: TypeAlias = npt.NDArray[np.uint8]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = slice | Sequence[int] | Sequence[bool] | npt.NDArray[np.bool_] | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Mask:
    """The pixels of an instance, in COCO's compressed run-length encoding."""

    counts: str
    """COCO's string of run lengths."""
    width: int
    """Width of the image."""
    height: int
    """Height of the image."""

    @classmethod
    def from_array(cls, array: npt.NDArray[Any]) -> Mask:
        """A mask from an array of shape (height, width); a pixel is inside unless it is 0 or False."""
        if array.ndim != 2:
            raise InvalidArgument(f"mask, array of shape {array.shape}: expected shape (height, width)")
        return cls(*_ocelli.mask_from_array((array != 0).astype(np.uint8)))

    def to_array(self) -> BoolArray:
        """The mask as a bool array of shape (height, width)."""
        return _ocelli.mask_to_array(self.counts, self.width, self.height).view(np.bool_)

    @property
    def area(self) -> int:
        """The number of pixels inside."""
        return _ocelli.mask_area(self.counts, self.width, self.height)

    def to_coco(self) -> dict[str, Any]:
        """COCO's form: `{"size": [height, width], "counts": "…"}`."""
        return {"size": [self.height, self.width], "counts": self.counts}


@dataclass(frozen=True, slots=True)
class Detection:
    """One instance of a class."""

    class_id: int
    """The index of its class among those that were asked for."""
    class_name: str
    """The label of its class."""
    confidence: float
    """0 to 1."""
    xyxy: tuple[float, float, float, float]
    """Left, top, right and bottom edge in pixels of the image."""
    mask: Mask | None = None
    """Its pixels, if the detector was built with masks."""
    tracker_id: int | None = None
    """The id of its track, if it has one."""


@dataclass(frozen=True, slots=True)
class Track:
    """One object over time, as of one frame."""

    tracker_id: int
    """Its id from 1, the same in all frames."""
    class_id: int
    """The class, by majority vote of its detections."""
    confidence: float
    """The smoothed score."""
    xyxy: tuple[float, float, float, float]
    """The filtered box."""
    age_frames: float
    """Frames since its first detection."""
    hits: int
    """The number of frames in which it was detected."""
    state: Literal["tentative", "tracked", "lost"]
    """`lost` if it was not detected in this frame; its box is predicted then."""
    velocity: tuple[float, float]
    """Of its centre, in pixels per frame."""
    frames_since_seen: float
    """Frames since its last detection."""
    detection: int | None
    """The index of its detection in this frame."""

    def _record(self) -> dict[str, Any]:
        """The form of the native module's JSON."""
        return {
            "id": self.tracker_id, "class_id": self.class_id, "score": self.confidence, "box": self.xyxy,
            "age_frames": self.age_frames, "hits": self.hits, "state": self.state, "velocity": self.velocity,
            "frames_since_seen": self.frames_since_seen, "detection": self.detection,
        }  # fmt: skip


class Detections:
    """What was found in one image, the highest score first. Can be pickled, indexed and iterated.

    An index returns a `Detection`; a slice, a list of indices or an array of bools returns `Detections`:
    `found[found.confidence > 0.5]`.
    """

    __slots__ = ("class_id", "class_name", "classes", "confidence", "masks", "size", "times_ms", "tracker_id", "xyxy")

    xyxy: FloatArray
    """[n, 4] boxes: left, top, right, bottom in pixels of the image."""
    confidence: FloatArray
    """[n] scores, 0 to 1."""
    class_id: IntArray
    """[n] indices of the classes."""
    class_name: StrArray
    """[n] labels."""
    masks: list[Mask] | None
    """n masks, if the detector was built with masks and found anything."""
    tracker_id: IntArray | None
    """[n] ids of tracks, -1 for a detection without one; None without a tracker."""
    size: tuple[int, int]
    """Width and height of the image."""
    classes: tuple[str, ...]
    """The labels by class id, of classes that were not found as well."""
    times_ms: dict[str, float]
    """How long each stage took, in milliseconds."""

    def __init__(
        self,
        xyxy: npt.ArrayLike,
        confidence: npt.ArrayLike,
        class_id: npt.ArrayLike,
        class_name: Sequence[str] | StrArray,
        *,
        masks: list[Mask] | None = None,
        tracker_id: npt.ArrayLike | None = None,
        size: tuple[int, int] = (0, 0),
        classes: Sequence[str] = (),
        times_ms: dict[str, float] | None = None,
    ) -> None:
        self.xyxy = np.asarray(xyxy, dtype=np.float32).reshape(-1, 4)
        self.confidence = np.asarray(confidence, dtype=np.float32)
        self.class_id = np.asarray(class_id, dtype=np.int64)
        self.class_name = np.asarray(class_name, dtype=np.str_)
        self.masks = masks
        self.tracker_id = None if tracker_id is None else np.asarray(tracker_id, dtype=np.int64)
        self.size = size
        self.classes = tuple(classes)
        self.times_ms = {} if times_ms is None else times_ms
        columns: list[tuple[str, int]] = [
            ("confidence", len(self.confidence)),
            ("class_id", len(self.class_id)),
            ("class_name", len(self.class_name)),
        ]
        if self.masks is not None:
            columns.append(("masks", len(self.masks)))
        if self.tracker_id is not None:
            columns.append(("tracker_id", len(self.tracker_id)))
        for name, length in columns:
            if length != len(self.xyxy):
                raise InvalidArgument(f"detections: {name} has {length} rows, xyxy has {len(self.xyxy)}")

    @classmethod
    def _from_native(
        cls, found: _ocelli._Found, size: tuple[int, int], classes: Sequence[str]
    ) -> Detections:
        # Not through `__init__`, whose conversions and checks cost more than all else that Python does for a frame.
        new = cls.__new__(cls)
        new.xyxy, new.confidence, new.class_id, class_name, masks, new.times_ms = found
        new.class_name = np.array(class_name, dtype=np.str_)
        new.masks = None if masks is None else [Mask(*mask) for mask in masks]
        new.tracker_id = None
        new.size = size
        new.classes = tuple(classes)
        return new

    def __len__(self) -> int:
        return len(self.xyxy)

    def __iter__(self) -> Iterator[Detection]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Detection: ...
    @overload
    def __getitem__(self, index: Rows) -> Detections: ...
    def __getitem__(self, index: int | Rows) -> Detection | Detections:
        if isinstance(index, (int, np.integer)):
            return self._detection(int(index))
        rows: npt.NDArray[np.intp] = np.arange(len(self))[index]
        masks: list[Mask] | None = None
        if self.masks is not None:
            masks = [self.masks[int(row)] for row in rows]
        return Detections(
            self.xyxy[rows],
            self.confidence[rows],
            self.class_id[rows],
            self.class_name[rows],
            masks=masks,
            tracker_id=None if self.tracker_id is None else self.tracker_id[rows],
            size=self.size,
            classes=self.classes,
            times_ms=dict(self.times_ms),
        )

    def _detection(self, index: int) -> Detection:
        if not -len(self) <= index < len(self):
            raise IndexError(f"detection {index}: there are {len(self)}")
        left, top, right, bottom = (float(edge) for edge in self.xyxy[index])
        tracker_id = None if self.tracker_id is None else int(self.tracker_id[index])
        return Detection(
            int(self.class_id[index]),
            str(self.class_name[index]),
            float(self.confidence[index]),
            (left, top, right, bottom),
            None if self.masks is None else self.masks[index],
            None if tracker_id == -1 else tracker_id,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Detections):
            return NotImplemented
        same_ids = (self.tracker_id is None) == (other.tracker_id is None)
        if same_ids and self.tracker_id is not None and other.tracker_id is not None:
            same_ids = np.array_equal(self.tracker_id, other.tracker_id)
        return (
            same_ids
            and np.array_equal(self.xyxy, other.xyxy)
            and np.array_equal(self.confidence, other.confidence)
            and np.array_equal(self.class_id, other.class_id)
            and np.array_equal(self.class_name, other.class_name)
            and (self.masks, self.size, self.classes) == (other.masks, other.size, other.classes)
        )

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        shown = ", ".join(f"{one.class_name} {one.confidence:.2f}" for one in self[:4])
        more = f", and {len(self) - 4} more" if len(self) > 4 else ""
        return f"Detections({len(self)}: {shown}{more})" if len(self) else "Detections(0)"

    @property
    def tracked(self) -> Detections:
        """The detections that have a track."""
        if self.tracker_id is None:
            return self[:0]
        return self[self.tracker_id >= 0]

    @property
    def mask_array(self) -> BoolArray | None:
        """The masks as a bool array [n, height, width]; None without masks."""
        if self.masks is None:
            return None
        return np.stack([mask.to_array() for mask in self.masks]) if self.masks else np.zeros((0, *self.size[::-1]), np.bool_)

    def _records(self) -> list[dict[str, Any]]:
        """The form of `to_dict` with all digits."""
        masks: list[Any] = [None] * len(self) if self.masks is None else [mask.to_coco() for mask in self.masks]
        labels, boxes = self.class_name.tolist(), self.xyxy.tolist()
        rows = zip(self.class_id.tolist(), labels, self.confidence.tolist(), boxes, masks, strict=True)
        return [
            {"class_id": class_id, "label": label, "score": score, "box": box, "mask": mask}
            for class_id, label, score, box, mask in rows
        ]

    def to_json(self) -> str:
        """A JSON list in the form of `ocelli detect --json`: scores with five decimals, boxes with two."""
        return _ocelli.detections_json(as_json(self._records()))

    def to_dict(self) -> list[dict[str, Any]]:
        """The same as Python values: a dict for each detection, with `class_id`, `label`, `score`, `box` and `mask`."""
        records: list[dict[str, Any]] = json.loads(self.to_json())
        return records

    def to_coco(self, *, image_id: int = 1, first_id: int = 1) -> list[dict[str, Any]]:
        """Annotations of a COCO file, in the form of `ocelli label --format coco`; category ids count from 1."""
        annotations: list[dict[str, Any]] = []
        for number, (one, xyxy) in enumerate(zip(self, self.xyxy.astype(np.float64).tolist(), strict=True)):
            left, top, right, bottom = xyxy
            area = (right - left) * (bottom - top) if one.mask is None else float(one.mask.area)
            annotation: dict[str, Any] = {
                "id": first_id + number,
                "image_id": image_id,
                "category_id": one.class_id + 1,
                "bbox": [rounded(value, 100.0) for value in (left, top, right - left, bottom - top)],
                "area": rounded(area, 100.0),
                "iscrowd": 0,
            }
            if one.mask is not None:
                annotation["segmentation"] = one.mask.to_coco()
            annotation["score"] = rounded(one.confidence, 1e5)
            annotations.append(annotation)
        return annotations

    def to_supervision(self) -> supervision.Detections:
        """The detections as the type of the package `supervision`, which has to be installed."""
        try:
            import supervision
        except ImportError as why:
            from ._errors import Unavailable

            raise Unavailable('supervision is not installed: run `pip install "ocelli-vision[supervision]"`') from why
        return supervision.Detections(
            xyxy=self.xyxy,
            mask=self.mask_array,
            confidence=self.confidence,
            class_id=self.class_id,
            tracker_id=self.tracker_id,
            data={"class_name": self.class_name},
        )

    def log_to_rerun(
        self,
        image: ImageLike | None = None,
        *,
        entity: str = "ocelli",
        recording: rerun.RecordingStream | None = None,
        channel_order: Literal["rgb", "bgr"] = "rgb",
        jpeg_quality: int | None = 80,
    ) -> None:
        """Logs the detections, and the image if there is one, to the Rerun viewer or a recording: boxes with labels, masks,
        and the latency of each stage. `ocelli.rerun` names the entities, has a layout for them, and logs videos.

        entity: where to log.
        recording: by default the one of `rerun.init`.
        channel_order: of an image in an array.
        jpeg_quality: 1 to 100, or None for the pixels as they are.

        Raises `Unavailable` without the package `rerun-sdk`, `InvalidArgument` without a recording and for an image of another
        size.
        """
        from .rerun import log_detections

        log_detections(self, image, entity, recording, channel_order, jpeg_quality)

    def plot(
        self,
        image: ImageLike,
        *,
        channel_order: Literal["rgb", "bgr"] = "rgb",
        show_scores: bool = True,
        mask_opacity: float = 0.4,
        line_width: float | None = None,
        font_size: float | None = None,
    ) -> Uint8Array:
        """A copy of the image with boxes, labels and masks drawn in, in the same channel order.

        With a tracker, labels have the ids of tracks, and only what has a track is drawn. No other thread may write to an
        array before this returns.
        """
        tracks: str | None = None
        if self.tracker_id is not None:
            # What is not drawn is left at zero.
            tracks = as_json([
                Track(one.tracker_id, one.class_id, one.confidence, one.xyxy, 0.0, 1, "tracked", (0.0, 0.0), 0.0, index)._record()
                for index, one in enumerate(self)
                if one.tracker_id is not None
            ])  # fmt: skip
        style = (show_scores, mask_opacity, line_width, font_size)
        names = self._names()
        return _ocelli.plot(pixels(image), channel_order, as_json(self._records()), tracks, names, style)

    def _names(self) -> list[str]:
        """A label for each class id that occurs."""
        names = list(self.classes)
        for class_id, name in zip(self.class_id.tolist(), self.class_name.tolist(), strict=True):
            names.extend("" for _ in range(len(names), class_id + 1))
            names[class_id] = name
        return names

    def _with_tracks(self, tracks: Sequence[Track]) -> Detections:
        """A copy with the ids of tracks."""
        tracker_id: IntArray = np.full(len(self), -1, dtype=np.int64)
        for track in tracks:
            if track.detection is not None:
                tracker_id[track.detection] = track.tracker_id
        found = self[:]
        found.tracker_id = tracker_id
        return found


def rounded(value: float, scale: float) -> float:
    """Half away from zero, as the programs round."""
    scaled = value * scale
    return float(np.copysign(np.floor(abs(scaled) + 0.5), scaled)) / scale


def as_json(value: Any) -> str:
    """JSON for the native module, with numbers of any type.

    Raises `InvalidArgument` for NaN, infinities and what is neither a number nor a text.
    """
    try:
        return json.dumps(value, allow_nan=False, default=_number)
    except (TypeError, ValueError) as why:
        raise InvalidArgument(f"expected finite numbers and texts: {why}") from why


def _number(one: Any) -> Any:
    """NumPy's numbers have an item that JSON knows; fractions and decimals become floats."""
    return one.item() if hasattr(one, "item") else float(one)


def tracks_from_native(text: str) -> list[Track]:
    """The tracks of the native module's JSON, whose numbers are those of detections: all digits of 32 bits."""
    return [_track(one) for one in json.loads(text)]


def _track(one: dict[str, Any]) -> Track:
    left, top, right, bottom = map(_wide, one["box"])
    across, down = map(_wide, one["velocity"])
    return Track(
        one["id"], one["class_id"], _wide(one["score"]), (left, top, right, bottom), _wide(one["age_frames"]), one["hits"],
        one["state"], (across, down), _wide(one["frames_since_seen"]), one["detection"],
    )  # fmt: skip


def _wide(number: float) -> float:
    return float(np.float32(number))
