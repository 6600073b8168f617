"""Videos, streams and cameras: through the video library where it is installed, else through PyAV, the extra `ocelli-vision[video]`."""

from __future__ import annotations

import math
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _ocelli
from ._errors import InvalidArgument, InvalidData, Io, Unavailable

_LONGEST_GAP_S = 10.0
"""At most this much of a gap in time is filled: a stream may have been down for an hour."""
_ATTEMPTS = 64
"""A live stream goes on after fewer packets in a row that cannot be decoded."""
_LEAST_SIDE = 16
"""Encoders reject smaller images."""
_LIVE = re.compile(r"^(rtsps?|rtmps?|rtp|udp|srt|mms|tcp)://", re.IGNORECASE)


def _pyav(what: str) -> Any:
    """PyAV, without types: those of its packets and arrays differ between versions."""
    try:
        import av
        import av.logging
    except ImportError as why:
        raise Unavailable(
            f'{what}: videos need PyAV, run `pip install "ocelli-vision[video]"`, or the video library: '
            f"{_ocelli.why_no_video_library()}; folders of images work without them"
        ) from why
    # Errors are raised; FFmpeg's own lines would appear between ours on stderr.
    av.logging.set_level(av.logging.PANIC)
    return av


def library() -> str | None:
    """What reads and writes videos, with its version; None if it is not installed."""
    try:
        import av
    except ImportError:
        return None
    codecs = ".".join(str(part) for part in av.library_versions["libavcodec"])
    return f"PyAV {av.__version__}, libavcodec {codecs}"


class VideoReader:
    """The frames of a video, upright, in order."""

    def __init__(
        self,
        name: str,
        *,
        live: bool | None = None,
        stream: int | None = None,
        ffmpeg: Iterable[tuple[str, str]] = (),
    ) -> None:
        address = name
        # The name is part of errors and results, which must not contain passwords.
        name = _ocelli.without_secrets(address)
        av = _pyav(f"cannot open the video, {name}")
        self.name = name
        self._camera = address.isdigit()
        is_url = "://" in address and not address.startswith("file://")
        target, options, form = address.removeprefix("file://"), {}, None
        if self._camera:
            if not sys.platform.startswith("linux"):
                raise Unavailable(f"cannot open the camera, {name}: cameras by number work on Linux only; pass frames")
            target, form = f"/dev/video{name}", "v4l2"
        if target.lower().startswith("rtsp"):
            options = {"rtsp_transport": "tcp"}
        options |= dict(ffmpeg)
        if not is_url and not self._camera:
            check_exists(target)
        try:
            self._container: Any = av.open(
                target, format=form, options=options, timeout=(10.0, 5.0) if is_url else None
            )
        except (av.error.FFmpegError, OSError, ValueError) as why:
            # PyAV's own exception would show the address with its password.
            raise InvalidData(f"cannot open the video, {name}: {_reason(why)}") from None
        streams = self._container.streams.video
        number = 0 if stream is None else stream
        if number >= len(streams):
            self._container.close()
            reason = "it has no images"
            if streams:
                reason = f"no video stream {number}: it has {len(streams)}, and the first is 0"
            raise InvalidData(f"cannot open the video, {name}: {reason}")
        self._stream = streams[number]
        self._stream.thread_type = "AUTO"
        self._stream.codec_context.options = dict(ffmpeg)
        length = self._container.duration
        if live is None:
            live = self._camera or bool(_LIVE.match(address)) or (is_url and not length)
        self.live = live
        self.has_sound = bool(self._container.streams.audio)
        rate = self._stream.average_rate or self._stream.guessed_rate
        self.frame_rate = float(rate) if rate else None
        self.frame_count = None if live else (self._stream.frames or None)
        # Known once the first frame is upright.
        self._frames = self._decode(av)
        self._first = next(self._frames, None)
        self.size: tuple[int, int] | None = None
        if self._first is not None:
            height, width = self._image(self._first[1]).shape[:2]
            self.size = (width, height)

    def _decode(self, av: Any) -> Iterator[tuple[float, Any]]:
        start: float | None = None
        latest = 0.0
        step = 1.0 / (self.frame_rate or 30.0)
        count = failed = 0
        try:
            for packet in self._container.demux(self._stream):
                try:
                    frames = packet.decode()
                except av.error.InvalidDataError:
                    # A live stream has lost a frame, and not its connection.
                    failed += 1
                    if not self.live or failed == _ATTEMPTS:
                        raise
                    continue
                for frame in frames:
                    failed = 0
                    time = count * step if frame.time is None else float(frame.time)
                    start = time if start is None else start
                    latest = max(latest, time - start)
                    count += 1
                    yield latest, frame
        except (av.error.FFmpegError, OSError, ValueError) as why:
            if count == 0:
                raise InvalidData(f"cannot open the video, {self.name}: {_reason(why)}") from None
            raise InvalidData(f"cannot read frame {count}, {self.name}: {_reason(why)}") from None
        expected = self.frame_count
        if expected is not None and count < expected * 0.95 - 2:
            raise InvalidData(f"{self.name}: it ends after {count} of {expected} frames; the file is truncated")

    @staticmethod
    def _image(frame: Any) -> npt.NDArray[np.uint8]:
        image: npt.NDArray[np.uint8] = frame.to_ndarray(format="rgb24")
        turns = round(frame.rotation / 90) % 4
        return np.ascontiguousarray(np.rot90(image, turns)) if turns else image

    _index = 0

    def read(self, with_pixels: bool = True) -> tuple[int, float, npt.NDArray[np.uint8] | None] | None:
        """Index, time in seconds and pixels (height, width, rgb) of the next frame; None at the end."""
        if self._first is not None:
            following, self._first = self._first, None
        else:
            found = next(self._frames, None)
            if found is None:
                self.close()
                return None
            following = found
        time, frame = following
        index = self._index
        self._index += 1
        return index, time, self._image(frame) if with_pixels else None

    def close(self) -> None:
        """Closes the file."""
        self._container.close()


class VideoWriter:
    """A video of constant frame rate from the first frame on; each frame is shown within one frame interval of its time.

    Where the source has no frame, the one before is repeated for at most ten seconds. Of frames that arrive faster than the
    rate, those are left out that would be shown later. Frames of another size than the first are scaled to fit.
    """

    def __init__(self, path: str | os.PathLike[str], frame_rate: float) -> None:
        self._path = Path(path)
        self._av = _pyav(f"cannot write the video, {self._path}")
        self._rate = Fraction(frame_rate).limit_denominator(65535)
        endings = {".mp4", ".mov", ".mkv", ".avi", ".webm"}
        if self._path.suffix.lower() not in endings:
            names = ", ".join(sorted(endings))
            raise InvalidArgument(f"cannot write the video, {self._path}: expected a name that ends in {names}")
        # The target of a link is replaced, not the link.
        target = self._path.resolve()
        # Written beside its place, so that it appears whole.
        try:
            part = target.parent / f".ocelli-{secrets.token_hex(8)}{self._path.suffix}"
            # The umask decides who can read the video, as for any file; `tempfile` would make a private one.
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileNotFoundError as why:
            raise Io(f"cannot write the video, {self._path}: its folder does not exist") from why
        except OSError as why:
            raise Io(f"cannot write the video, {self._path}: {_reason(why)}") from why
        os.close(handle)
        self._target = target
        self._part: Path | None = part
        self._container: Any = None
        self._stream: Any = None
        self._start_s = 0.0
        self._frames = 0
        self._size = (0, 0)
        self._previous: Any = None

    def _start(self, width: int, height: int, time_s: float) -> None:
        webm = self._path.suffix.lower() == ".webm"
        codecs = ("libvpx-vp9",) if webm else ("libx264", "mpeg4")
        codec = next((name for name in codecs if _has_encoder(self._av, name)), None)
        if codec is None:
            raise Unavailable(f"cannot write the video, {self._path}: this PyAV has no encoder for it")
        container = self._av.open(str(self._part), "w")
        self._container = container
        self._stream = container.add_stream(codec, rate=self._rate)
        width, height = max(width, _LEAST_SIDE), max(height, _LEAST_SIDE)
        self._stream.width, self._stream.height = width + width % 2, height + height % 2
        self._stream.pix_fmt = "yuv420p"
        self._start_s = time_s

    def write(self, time_s: float, image: npt.NDArray[np.uint8]) -> None:
        """Adds a frame, (height, width, rgb)."""
        height, width = image.shape[:2]
        try:
            if self._container is None:
                self._start(width, height, time_s)
                self._size = (width, height)
            rate = float(self._rate)
            # The previous frame is shown until this one was taken.
            gap = math.floor((time_s - self._start_s) * rate + 0.5) - self._frames
            if self._previous is not None and gap > 0:
                longest = int(_LONGEST_GAP_S * rate)
                for _ in range(min(gap, longest)):
                    self._encode(self._previous)
                # The rest of a long gap is left out for good.
                self._start_s += max(0, gap - longest) / rate
            # Half a millisecond for times that are rounded to milliseconds.
            if self._start_s + self._frames / rate - time_s > 1.0 / rate + 5e-4:
                return
            self._previous = self._padded(image)
            self._encode(self._previous)
        except (self._av.error.FFmpegError, OSError) as why:
            self._discard()
            raise Io(f"cannot write the video, {self._path}: {_reason(why)}") from why

    def _padded(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The encoder's input: the first frame's size, and the last row and column again up to even sides."""
        if (image.shape[1], image.shape[0]) != self._size:
            image = self._fitted(image)
        below, right = self._stream.height - image.shape[0], self._stream.width - image.shape[1]
        if below or right:
            image = np.pad(image, ((0, below), (0, right), (0, 0)), mode="edge")
        return np.ascontiguousarray(image)

    def _fitted(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """An image, scaled to fit into a black page of the first frame's size, centred."""
        (height, width), (page_width, page_height) = image.shape[:2], self._size
        scale = min(page_width / width, page_height / height)
        w, h = (min(max(1, round(side * scale)), most) for side, most in ((width, page_width), (height, page_height)))
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
        page = np.zeros((page_height, page_width, 3), np.uint8)
        top, left = (page_height - h) // 2, (page_width - w) // 2
        page[top : top + h, left : left + w] = frame.reformat(width=w, height=h, format="rgb24").to_ndarray()
        return page

    def _encode(self, image: npt.NDArray[np.uint8]) -> None:
        frame = self._av.VideoFrame.from_ndarray(image, format="rgb24")
        frame.pts, frame.time_base = self._frames, 1 / self._rate
        self._frames += 1
        self._container.mux(self._stream.encode(frame))

    def finish(self) -> None:
        """Completes the file; without a frame there is none."""
        if self._container is None or self._part is None:
            self._discard()
            return
        try:
            self._container.mux(self._stream.encode(None))
            self._container.close()
            self._part.replace(self._target)
            self._part = None
        except (self._av.error.FFmpegError, OSError) as why:
            self._discard()
            raise Io(f"cannot write the video, {self._path}: {_reason(why)}") from why

    def _discard(self) -> None:
        if self._part is not None:
            self._part.unlink(missing_ok=True)
            self._part = None

    def __del__(self) -> None:
        if getattr(self, "_part", None) is not None:
            self._discard()


def _has_encoder(av: Any, name: str) -> bool:
    try:
        av.codec.Codec(name, "w")
    except (av.error.FFmpegError, ValueError):
        return False
    return True


def _reason(why: BaseException) -> str:
    return _ocelli.without_secrets(str(getattr(why, "strerror", None) or why))


def instead() -> ModuleType | None:
    """This module, if it has to stand in for the video library."""
    return None if _ocelli.why_no_video_library() is None else sys.modules[__name__]


def check_exists(name: str) -> None:
    """Refuses a file that does not exist."""
    if not os.path.exists(name):
        raise InvalidArgument(f"no video, {_ocelli.without_secrets(name)}: no such file or folder")


def open_input(
    name: str, stream: int | None, ffmpeg: list[tuple[str, str]], hwaccel: str | None
) -> VideoReader | _ocelli.VideoReader:
    """Opens a video file, a URL, or a camera by its number; with PyAV if there is no video library."""
    if instead() is None:
        file = name.removeprefix("file://")
        if "://" not in file and not name.isdigit():
            check_exists(file)
        return _ocelli.VideoReader(name, None, stream, ffmpeg, hwaccel)
    if hwaccel is not None:
        raise Unavailable(f"hwaccel needs the video library, PyAV decodes on the CPU: {_ocelli.why_no_video_library()}")
    return open_video(name, None, stream, ffmpeg)


def open_video(
    name: str, live: bool | None = None, stream: int | None = None, ffmpeg: Iterable[tuple[str, str]] = ()
) -> VideoReader:
    """Opens a video file, a URL, or a camera by its number with PyAV: another of its streams, or with options of FFmpeg."""
    return VideoReader(name, live=live, stream=stream, ffmpeg=ffmpeg)


def create_video(path: str | os.PathLike[str], frame_rate: float) -> VideoWriter:
    """Creates a video file."""
    return VideoWriter(path, frame_rate)
