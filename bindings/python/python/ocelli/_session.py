"""Videos in which objects are found, followed, corrected and removed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from . import _decode, _ocelli
from ._detector import ChannelOrder, DetectorKeywords, DetectorOptions, PathLike, Prompt
from ._errors import InvalidArgument
from ._objects import Box
from ._images import ImageLike, is_file, pixels
from ._results import BoolArray, Detections, FloatArray, IntArray, Mask
from ._video import InputOptions, image_files

Direction: TypeAlias = Literal["both", "forward", "backward"]


@dataclass(frozen=True, slots=True, eq=False)
class TrackedFrame:
    """A frame of a `VideoSession` with its n objects, by id."""

    index: int
    """The number of the frame, from 0."""
    object_ids: IntArray
    """[n] ids, the same in all frames."""
    scores: FloatArray
    """[n] scores of the detections that started the objects, 0 to 1; 1 for an object that was clicked."""
    xyxy: FloatArray
    """[n, 4] boxes around the masks, before pixels were left to other objects: left, top, right, bottom in pixels."""
    run_lengths: list[Mask]
    """n masks as run lengths. Each pixel belongs to one object."""
    size: tuple[int, int]
    """Width and height of the video."""
    label: str = "object"
    """The text that found the objects."""

    def __len__(self) -> int:
        return len(self.object_ids)

    @property
    def masks(self) -> BoolArray:
        """The masks as a bool array [n, height, width], made anew each time."""
        arrays = [mask.to_array() for mask in self.run_lengths]
        return np.stack(arrays) if arrays else np.zeros((0, *self.size[::-1]), np.bool_)

    @property
    def detections(self) -> Detections:
        """The objects as `Detections`, whose `tracker_id` is the object's id: to draw them, or for other formats."""
        return Detections(
            self.xyxy,
            self.scores,
            np.zeros(len(self), np.int64),
            [self.label] * len(self),
            masks=self.run_lengths,
            tracker_id=self.object_ids,
            size=self.size,
            classes=[self.label],
        )


class VideoSession:
    """A video in which objects are found, followed, corrected and removed, by SAM 3's memory tracker.

        session = ocelli.VideoSession("sam3.pt", "street.mp4")
        session.add_text(0, "person")
        for frame in session.propagate():
            print(frame.index, frame.object_ids, frame.masks.shape)

    `model` is a checkpoint or an exported model that has the tracker. `source` is the path of a video (needs the video library or `ocelli-vision[video]`),
    a folder or pattern of images of one size, or an iterable of frames, which stay in memory; `push` appends more of them.

    `add_text`, `add_exemplars` and `add_box` start the session over and find objects; `add_points` and `add_mask` refine them and
    add others. The first `propagate` after a text detects in every frame; one after clicks follows the clicked objects alone, and
    one after a removal shows what is left. A session that only has clicks and masks detects nothing, and follows all objects.

    Coordinates are pixels of the video. Dropping the session frees everything. Memory grows with the video: see
    `docs/memory.md`.
    """

    def __init__(
        self,
        model: PathLike,
        source: PathLike | Iterable[ImageLike],
        *,
        channel_order: ChannelOrder = "rgb",
        temporal_disambiguation: bool = True,
        keep_features: Literal["device", "host"] | None = None,
        kept_frames: int = 32,
        window: int | None = None,
        stream: int | None = None,
        ffmpeg_options: Mapping[str, str] | None = None,
        hwaccel: str | None = None,
        **detector: Unpack[DetectorKeywords],
    ) -> None:
        """Opens the model and the video.

        channel_order: of arrays.
        temporal_disambiguation: whether objects that turn out to be false are removed, and objects prompted again with their
        detections. Frames then leave 14 frames late.
        keep_features: where the features of the last `kept_frames` frames are kept, so that a frame that is passed again is not
        computed again: in the memory of the backbone's device or of the host; by default nowhere.
        window: of pushed frames, how many of the latest the session has; earlier ones leave it with their results, and the
        others are what they would be without. By default all stay.
        stream, ffmpeg_options, hwaccel: of a video file, as for `Video`.
        further arguments: those of `Detector`. `confidence` replaces both thresholds: of detections that start objects, 0.7, and
        of those that keep them, 0.5.
        """
        if kept_frames < 0:
            raise InvalidArgument(f"kept_frames is {kept_frames}: expected at least 0")
        if window is not None and window < 1:
            raise InvalidArgument(f"window is {window}: expected at least 1, or None for all frames")
        self._order: ChannelOrder = channel_order
        self._label = "object"
        self._run: object = None
        options: dict[str, Any] = {
            "temporal_disambiguation": temporal_disambiguation,
            "keep_features": keep_features,
            "kept_frames": kept_frames,
            "window": window,
        }
        parts, others = self._source(source, InputOptions(stream, ffmpeg_options or {}, hwaccel))
        self._native = _ocelli.VideoSession(DetectorOptions(model, **detector).native, parts, options)
        self._size = self._native.state()[1]
        self._push_all(others)

    def open(
        self,
        source: PathLike | Iterable[ImageLike],
        *,
        stream: int | None = None,
        ffmpeg_options: Mapping[str, str] | None = None,
        hwaccel: str | None = None,
    ) -> None:
        """Goes on to another video, without objects. The model stays loaded; all else of the video before is freed."""
        parts, others = self._source(source, InputOptions(stream, ffmpeg_options or {}, hwaccel))
        self._native.open(parts)
        self._size = self._native.state()[1]
        self._label, self._run = "object", None
        self._push_all(others)

    def _source(
        self, source: PathLike | Iterable[ImageLike], options: InputOptions
    ) -> tuple[dict[str, Any], Iterator[ImageLike]]:
        number, ffmpeg, hwaccel = options.parts()
        parts: dict[str, Any] = {
            "name": "pushed frames", "frame": None, "channel_order": self._order, "files": None, "videos": _decode.instead(),
            "stream": number, "ffmpeg": ffmpeg, "hwaccel": hwaccel,
        }  # fmt: skip
        if isinstance(source, (str, os.PathLike)):
            name = os.fspath(source)
            if "://" in name or name.isdigit():
                message = "a session needs a video that can be read again: expected a file or a folder"
                raise InvalidArgument(f"{_ocelli.without_secrets(name)}: {message}")
            parts["name"], parts["files"] = name, image_files(name)
            if parts["files"] is None:
                _decode.check_exists(name)
            else:
                options.check_unused()
            return parts, iter(())
        options.check_unused()
        frames = iter(source)
        first = next(frames, None)
        if first is None:
            raise InvalidArgument("source has no frames: expected at least one")
        parts["frame"] = pixels(first)
        parts["channel_order"] = "rgb" if is_file(first) else self._order
        return parts, frames

    def _push_all(self, frames: Iterator[ImageLike]) -> None:
        for frame in frames:
            self.push(frame)

    def __repr__(self) -> str:
        width, height = self.size
        return f"VideoSession({self.frame_count} frames of {width}x{height}, objects {self.objects})"

    @property
    def engine(self) -> str:
        """What runs the model."""
        return self._native.engine

    @property
    def frame_count(self) -> int:
        """The number of frames."""
        return self._native.state()[0]

    @property
    def frames(self) -> range:
        """The frames that can be prompted, clicked and passed: all, or those of the window."""
        return range(*self._native.frames())

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the frames in pixels."""
        return self._size

    @property
    def objects(self) -> list[int]:
        """The ids of the objects that are tracked."""
        return self._native.state()[2]

    @property
    def next_object(self) -> int:
        """An id that no object of this session ever had."""
        return self._native.state()[3]

    def push(self, image: ImageLike) -> int:
        """Appends a frame to a video that began with an iterable, and returns its number.

        A run goes on over it when it is asked for again. No other thread may write to an array before this returns.
        """
        return self._native.push(pixels(image), "rgb" if is_file(image) else self._order)

    def add_text(self, frame: int, text: str) -> TrackedFrame:
        """Starts over: finds the objects that a text describes on a frame. Runs look for them in every frame."""
        return self._start(frame, Prompt(text), " ".join(text.split()))

    def add_exemplars(self, frame: int, prompt: Prompt) -> TrackedFrame:
        """Starts over: finds objects like those in the boxes of a prompt, which are in this frame.

        Runs look for them in every frame. A prompt with a phrase as well is more reliable.
        """
        if not prompt.exemplars:
            raise InvalidArgument("the prompt has no exemplars: expected at least one box")
        return self._start(frame, prompt, prompt.name)

    def _start(self, frame: int, prompt: Prompt, label: str) -> TrackedFrame:
        found = self._native.add_prompt(_at_least_0("frame", frame), prompt._parts())
        self._label = label
        return self._frame(found)

    def add_box(self, frame: int, box: Box) -> TrackedFrame:
        """Starts over: finds what is in a box of this frame, and objects like it. Runs follow them without looking for others."""
        edges = [float(edge) for edge in box]
        if len(edges) != 4:
            raise InvalidArgument(f"box {box}: expected four numbers, x1, y1, x2, y2")
        found = self._native.add_box(_at_least_0("frame", frame), edges)
        self._label = "object"
        return self._frame(found)

    def add_points(
        self,
        object_id: int,
        frame: int,
        points: Sequence[Sequence[float]] = (),
        negative_points: Sequence[Sequence[float]] = (),
    ) -> TrackedFrame:
        """Clicks on an object of a frame, and beside it: one that is tracked is refined, another one is added under this id.

        With a text, exemplars or a box, the frame has to have been shown. More clicks on the same frame refine the mask that it
        has by then: give earlier clicks again where they should still count.
        """
        width, height = self.size
        clicks: list[tuple[float, float, bool]] = []
        for group, positive in ((points, True), (negative_points, False)):
            for point in group:
                if len(point) != 2:
                    raise InvalidArgument(f"point {point}: expected two numbers, x and y")
                clicks.append((float(point[0]) / width, float(point[1]) / height, positive))
        return self._click(object_id, frame, clicks)

    def _click(self, object_id: int, frame: int, clicks: Sequence[tuple[float, float, bool]]) -> TrackedFrame:
        """Clicks at shares of the frame's width and height."""
        number = _at_least_0("object_id", object_id)
        return self._frame(self._native.add_points(number, _at_least_0("frame", frame), clicks))

    def add_mask(self, object_id: int, frame: int, mask: Mask | npt.NDArray[Any]) -> TrackedFrame:
        """Adds an object by its mask on a frame, as large as the video, where the next run shows this mask."""
        given = Mask.from_array(mask) if isinstance(mask, np.ndarray) else mask
        parts = (given.counts, given.width, given.height)
        number = _at_least_0("object_id", object_id)
        return self._frame(self._native.add_mask(number, _at_least_0("frame", frame), parts))

    def propagate(
        self, direction: Direction = "both", start: int | None = None, max_frames: int | None = None
    ) -> Iterator[TrackedFrame]:
        """Follows the objects, in place of a run that has not ended, and returns an iterator over the frames as they leave.

        start: the first frame, by default the first one with results. max_frames: the most frames after it, and before it; by
        default to both ends of the video. A backward run begins with the frame before the start; `both` runs forward first.

        With a text, frames leave 14 frames late, so that objects that turn out to be false are never shown. After an error the run
        has ended; the frames that were held back come before it. Ctrl-C drops the frame that is being computed: ask for the run
        again.
        """
        first = None if start is None else _at_least_0("start", start)
        most = None if max_frames is None else _at_least_0("max_frames", max_frames)
        self._native.propagate(direction, first, most)
        self._run = run = [direction]
        return self._frames(run)

    def _frames(self, run: object) -> Iterator[TrackedFrame]:
        # An iterator of an earlier run ends where a later one begins.
        while self._run is run and (found := self._native.next_frame()) is not None:
            yield self._frame(found)

    def remove(self, object_id: int) -> None:
        """Removes an object from all frames; its id is not used again."""
        self._native.remove(_at_least_0("object_id", object_id))

    def reset(self) -> None:
        """Forgets what was asked for, all objects and all results. Features that are kept stay."""
        self._native.reset()
        self._label = "object"

    def _frame(self, found: _ocelli._TrackedFrame) -> TrackedFrame:
        index, ids, scores, boxes, masks = found
        return TrackedFrame(index, ids, scores, boxes, [Mask(*mask) for mask in masks], self._size, self._label)


def _at_least_0(name: str, number: int) -> int:
    if number < 0:
        raise InvalidArgument(f"{name} is {number}: expected at least 0")
    return int(number)
