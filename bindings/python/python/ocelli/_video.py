"""Video: the pipelined loop as an iterator."""

from __future__ import annotations

import atexit
import glob
import itertools
import json
import os
import re
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from . import _decode, _ocelli
from ._detector import ChannelOrder, Classes, DetectorKeywords, DetectorOptions, PathLike, as_prompts
from ._errors import Cancelled, InvalidArgument
from ._images import ImageLike, is_file, pixels
from ._results import Detections, Track, as_json, rounded, tracks_from_native
from ._tracker import Tracker, as_form, given

_IMAGES = frozenset(".png .jpg .jpeg .jpe .jfif .webp .bmp .dib .tif .tiff .pnm .ppm .pgm .pbm .pam .mpo .apng".split())
_IMAGE_RATE = 30.0

TimedFrame: TypeAlias = tuple[float, ImageLike]
"""A time in seconds, and an image."""
VideoSource: TypeAlias = PathLike | int | Iterable[ImageLike] | Iterable[TimedFrame] | None


@dataclass(frozen=True, slots=True)
class VideoFrame:
    """The results of one frame."""

    index: int
    """From 0; frames that were dropped leave gaps."""
    time_s: float
    """When it was taken, in seconds."""
    image: Any
    """The frame as it was read or pushed; None with `keep_images=False`."""
    detections: Detections
    """What was detected; with a tracker, with ids."""
    tracks: tuple[Track, ...]
    """The confirmed tracks; empty without a tracker."""
    detected: bool
    """Whether the detector ran on this frame."""
    source: str | None = None
    """The name of the video, if it has one."""
    file: str | None = None
    """The image file that the frame was read from; None for others."""
    wall_time: float | None = None
    """When the frame of a live source was taken, in seconds since 1970-01-01 00:00 UTC; None for recorded frames."""
    retracted: tuple[int, ...] = ()
    """The ids of tracks that earlier frames had and that turned out to be false; only by memory, without a hotstart."""

    def to_json(self) -> str:
        """A line in the form of `ocelli video --jsonl`."""
        found = self.detections
        labels = dict(enumerate(found._names()))
        width, height = found.size
        report = {
            "source": self.source,
            "frame": self.index,
            "time_s": rounded(self.time_s, 1e6),
            "wall_time": None if self.wall_time is None else rounded(self.wall_time, 1e6),
            # A name that is not UTF-8 has no JSON form.
            "file": None if self.file is None else os.fsencode(self.file).decode(errors="replace"),
            "width": width,
            "height": height,
            "detected": self.detected,
            "detections": found._records(),
            "tracks": [{**one._record(), "label": labels.get(one.class_id, "")} for one in self.tracks],
            "retracted": self.retracted,
        }
        return _ocelli.frame_json(as_json(report))

    def to_dict(self) -> dict[str, Any]:
        """The same as Python values."""
        frame: dict[str, Any] = json.loads(self.to_json())
        return frame

    def plot(self, *, channel_order: ChannelOrder = "rgb", show_scores: bool = True, mask_opacity: float = 0.4) -> Any:
        """The frame with the results drawn in."""
        if self.image is None:
            raise InvalidArgument("the frame has no image: build the video with keep_images=True")
        return self.detections.plot(
            self.image, channel_order=channel_order, show_scores=show_scores, mask_opacity=mask_opacity
        )


class Video:
    """Detects, and tracks, in a stream of frames; iterate over it for the results, in order.

    `source` is the path of a video (needs the video library or `ocelli-vision[video]`), a folder or pattern of images, a URL, the number of a camera,
    or an iterable of frames or of (seconds, frame). Without a source, push frames from another thread or between two results:

        video = ocelli.Video(None, ["person"], track=True)
        video.push(frame, time_s=0.04)
        result = video.receive(timeout=1.0)

    Reading, preprocessing, the backbone and the decoder work on different frames at the same time.
    """

    def __init__(
        self,
        source: VideoSource,
        classes: Classes,
        *,
        track: bool | Tracker = False,
        memory: bool = False,
        no_hotstart: bool = False,
        max_objects: int | None = None,
        camera_motion: bool = False,
        appearance: bool = False,
        policy: Literal["all", "latest"] | None = None,
        latency: Literal["low", "balanced", "throughput"] | None = None,
        detect_every: int = 1,
        class_budget: int | None = None,
        queue_depth: int | None = None,
        sequential: bool = False,
        fps: float | None = None,
        start: float | None = None,
        end: float | None = None,
        stride: int = 1,
        max_frames: int | None = None,
        channel_order: ChannelOrder = "rgb",
        keep_images: bool = True,
        name: str | None = None,
        stream: int | None = None,
        ffmpeg_options: Mapping[str, str] | None = None,
        hwaccel: str | None = None,
        model: PathLike | None = None,
        **detector: Unpack[DetectorKeywords],
    ) -> None:
        """Opens the source and starts the pipeline.

        track: whether to track; a `Tracker` gives its options.
        memory: follow objects with masks by the model's memory of them, in place of boxes; the model needs a tracker, as SAM 3 has.
        Objects start at a score of 0.7, or of `confidence`, and results leave 14 frames late.
        no_hotstart: with memory, every result leaves at once; objects that turn out to be false are `retracted` by a later frame.
        max_objects: with memory, the most objects of a class at a time; by default the model's: SAM 3 10000, SAM 3.1 16.
        camera_motion: estimate how the camera moves, and move the tracks with it.
        appearance: find objects again that were hidden, by where they can be and what they look like.
        policy: process all frames, or the latest and drop others; by default latest for cameras and streams.
        latency: what to favour: results soon after the frame, low (one frame at a time) or balanced, or frames per second,
        throughput; by default balanced for cameras and streams, else throughput.
        detect_every: run the detector on every nth frame.
        class_budget: decode at most this many classes a frame.
        queue_depth: frames that wait before each stage.
        sequential: one stage at a time, on one thread.
        fps: frames per second of images and of frames without times [30].
        start, end: seconds; stride: every nth frame; max_frames: the most frames.
        channel_order: of arrays from an iterable or `push`.
        keep_images: whether results have the frame.
        name: the `source` of all results, for programs with several videos.
        stream: which of a file's video streams, from 0; ffmpeg_options: options of FFmpeg for a file, a URL or a camera. PyAV does
        not say which of these nothing has taken.
        hwaccel: what decodes, auto, cuda, vaapi or another name of FFmpeg, with the video library; by default the CPU.
        model and further arguments: those of `Detector`; engine may be a list of devices that take turns, such as cuda:0,1.
        """
        if stride < 1 or detect_every < 1:
            raise InvalidArgument(f"stride and detect_every are {stride} and {detect_every}: expected at least 1")
        numbers = {
            "max_frames": max_frames, "class_budget": class_budget, "queue_depth": queue_depth, "max_objects": max_objects,
        }  # fmt: skip
        for option, number in numbers.items():
            if number is not None and number < 0:
                raise InvalidArgument(f"{option} is {number}: expected at least 0")
        if max_objects == 0:
            raise InvalidArgument("max_objects is 0: expected at least 1")
        if (camera_motion or appearance) and track is False and not memory:
            raise InvalidArgument("camera_motion and appearance are options of tracks: set track as well")
        if (no_hotstart or max_objects is not None) and not memory:
            raise InvalidArgument("no_hotstart and max_objects are options of memory: set memory as well")
        self._classes = [prompt.name for prompt in as_prompts(classes)]
        self._order: ChannelOrder = channel_order
        self._keep_images = keep_images
        self._name = name
        self._taken: dict[int, _Frame] = {}
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._feeder: threading.Thread | None = None
        self._closed = False
        self._tracked = memory or track is not False
        self._reader: _ocelli.VideoReader | None = None
        frames, rate, live = self._open(source, fps, InputOptions(stream, ffmpeg_options or {}, hwaccel))
        tracker = given(track.options) if isinstance(track, Tracker) else {} if track else None
        try:
            self._native = _ocelli.Pipeline(
                DetectorOptions(model, **detector).native,
                [prompt._parts() for prompt in as_prompts(classes)],
                as_form({
                    "tracker": tracker,
                    "camera_motion": camera_motion,
                    "appearance": appearance,
                    "policy": policy or ("latest" if live else "all"),
                    "latency": latency or ("balanced" if live else None),
                    "queue_depth": queue_depth,
                    "detect_every": detect_every,
                    "class_budget": class_budget,
                    "sequential": sequential,
                    "frame_rate": rate,
                }),  # fmt: skip
                (no_hotstart, max_objects) if memory else None,
            )
        except BaseException:
            if self._reader is not None:
                self._reader.close()
            raise
        self._rate = rate or _IMAGE_RATE
        self._pushed = 0
        _OPEN.add(self)
        if frames is not None:
            chosen = _select(frames, self._rate, start, end, stride, max_frames)
            self._feeder = threading.Thread(target=self._feed, args=(chosen,), name="ocelli-reader", daemon=True)
            self._feeder.start()

    def _open(
        self, source: VideoSource, fps: float | None, options: InputOptions
    ) -> tuple[_Frames | None, float | None, bool]:
        """The frames with their times, the rate if it is known, and whether they come at their own pace."""
        if isinstance(source, (int, str, os.PathLike)):
            name = str(source) if isinstance(source, int) else os.fspath(source)
            images = None if isinstance(source, int) else image_files(name)
            if images is None:
                reader = _decode.open_input(name, *options.parts())
                self._reader = reader if isinstance(reader, _ocelli.VideoReader) else None
                return _read(reader, fps)
            options.check_unused()
            rate = fps or _IMAGE_RATE
            return (_Frame(index / rate, path, path) for index, path in enumerate(images)), rate, False
        options.check_unused()
        return None if source is None else _timed(source), fps, False

    @property
    def engine(self) -> str:
        """What runs the model."""
        return self._native.engine

    def push(self, image: ImageLike, *, time_s: float | None = None, wall_time: float | None = None) -> int:
        """Pushes a frame and returns its index; without a time, it follows at the rate of `fps`. Waits for room.

        wall_time: when a live frame was taken, in seconds since 1970, for the results.

        No other thread may write to the array before this returns. Afterwards it is free for reuse, unless results keep
        their images.
        """
        if self._feeder is not None:
            raise InvalidArgument("push: this video has a source; build one without, Video(None, …)")
        return self._push(_Frame(time_s, image, _file(image), wall_time))

    def _push(self, frame: _Frame) -> int:
        array = pixels(frame.image)
        order = "rgb" if is_file(frame.image) else self._order
        with self._lock:
            index = self._pushed
            # Before the frame can be received.
            self._taken[index] = replace(frame, image=array if self._keep_images else None)
            try:
                self._native.push(array, index / self._rate if frame.time_s is None else frame.time_s, order)
            except BaseException:
                self._taken.pop(index, None)
                raise
            self._pushed += 1
            return index

    def finish(self) -> None:
        """Marks the end of pushed frames: what was pushed is finished, then the iteration ends."""
        self._native.close()

    def _feed(self, frames: Iterator[_Frame]) -> None:
        try:
            for frame in frames:
                self._push(frame)
        except Cancelled:
            pass
        except BaseException as failure:
            self._failure = failure
        finally:
            self._native.close()

    def receive(self, timeout: float | None = None) -> VideoFrame | None:
        """The next result; None after `timeout` seconds without one, and at the end."""
        try:
            found = None if self._closed else self._native.receive(timeout)
        except Cancelled:
            if self._closed:
                return None
            raise
        if found is None:
            if self._native.is_ended and self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            return None
        index, time_s, size, detected, arrays, text, retracted = found
        tracks = tuple(tracks_from_native(text))
        detections = Detections._from_native(arrays, size, self._classes)
        if self._tracked:
            detections = detections._with_tracks(tracks)
        taken = self._taken.pop(index, _NOTHING)
        # Frames that were dropped.
        for older in [one for one in list(self._taken) if one < index]:
            self._taken.pop(older, None)
        return VideoFrame(
            index, time_s, taken.image, detections, tracks, detected, self._name, taken.file, taken.wall_time,
            tuple(retracted),
        )  # fmt: skip

    def __iter__(self) -> Iterator[VideoFrame]:
        try:
            while (frame := self.receive()) is not None:
                yield frame
        finally:
            if self._feeder is not None:
                self.close()

    @property
    def stats(self) -> dict[str, Any]:
        """Statistics so far: frames in, out and dropped, rate, latency, time and queue of each stage."""
        found: dict[str, Any] = json.loads(self._native.stats())
        return found

    def close(self) -> None:
        """Stops; frames that wait are dropped. Ending the iteration, or the `with` block, does so too."""
        if self._closed:
            return
        self._closed = True
        self._native.cancel()
        if self._reader is not None:
            self._reader.close()
        feeder = self._feeder
        if feeder is not None and feeder is not threading.current_thread():
            # A source that waits for its next frame is left to end by itself.
            feeder.join(timeout=2.0)
        self._taken.clear()

    def __enter__(self) -> Video:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_OPEN: weakref.WeakSet[Video] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for video in list(_OPEN):
        video.close()


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame before it is detected in."""

    time_s: float | None
    image: Any
    file: str | None = None
    wall_time: float | None = None


_NOTHING = _Frame(None, None)
_Frames: TypeAlias = Iterator[_Frame]


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How a video is opened."""

    stream: int | None
    ffmpeg: Mapping[str, str]
    hwaccel: str | None

    def __post_init__(self) -> None:
        if self.stream is not None and self.stream < 0:
            raise InvalidArgument(f"stream is {self.stream}: expected at least 0")

    def check_unused(self) -> None:
        """Refuses options of what FFmpeg does not read."""
        if self.stream is not None or self.ffmpeg or self.hwaccel is not None:
            raise InvalidArgument("stream, ffmpeg_options and hwaccel: these frames are not read by FFmpeg; expected a video")

    def parts(self) -> tuple[int | None, list[tuple[str, str]], str | None]:
        """The stream, names and values, and what decodes."""
        return self.stream, list(self.ffmpeg.items()), self.hwaccel


def _read(reader: _decode.VideoReader | _ocelli.VideoReader, fps: float | None) -> tuple[_Frames, float | None, bool]:
    def frames() -> _Frames:
        try:
            while (found := reader.read()) is not None:
                image: npt.NDArray[np.uint8] | None = found[2]
                assert image is not None
                yield _Frame(found[1], image, wall_time=time.time() if reader.live else None)
        finally:
            reader.close()

    return frames(), reader.frame_rate or fps, reader.live


def _timed(source: Iterable[ImageLike] | Iterable[TimedFrame]) -> _Frames:
    for one in source:
        if isinstance(one, tuple):
            yield _Frame(float(one[0]), one[1], _file(one[1]))
        else:
            yield _Frame(None, one, _file(one))


def _file(image: ImageLike) -> str | None:
    return os.fspath(image) if isinstance(image, (str, os.PathLike)) else None


def image_files(name: str) -> list[str] | None:
    """The images of a folder, a pattern or a file, in natural order; None for a video."""
    if os.path.isdir(name):
        found = [
            os.path.join(folder, file)
            for folder, _, files in os.walk(name)
            for file in files
            if os.path.splitext(file)[1].lower() in _IMAGES
        ]
    elif not os.path.exists(name) and "://" not in name and glob.has_magic(name):
        found = glob.glob(name, recursive=True)
    elif os.path.splitext(name)[1].lower() in _IMAGES and "://" not in name:
        found = [name]
    else:
        return None
    if not found:
        raise InvalidArgument(f"no images, {name}: the folder or pattern has none")
    return sorted(found, key=_natural)


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", name)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]


def _select(
    frames: _Frames, rate: float, start: float | None, end: float | None, stride: int, max_frames: int | None
) -> _Frames:
    # Before any frame is left out: its place among all gives a frame without a time its own.
    frames = (
        frame if frame.time_s is not None else replace(frame, time_s=index / rate) for index, frame in enumerate(frames)
    )
    if start is not None:
        frames = itertools.dropwhile(lambda one: (one.time_s or 0.0) < start, frames)
    if end is not None:
        frames = itertools.takewhile(lambda one: (one.time_s or 0.0) < end, frames)
    # No further than the last one: the next may never come.
    stop = None if max_frames is None else max(0, (max_frames - 1) * stride + 1)
    return itertools.islice(frames, 0, stop, stride)
