"""Results in the Rerun viewer, live or in a recording (.rrd).

    import ocelli.rerun
    import rerun

    rerun.init("street", spawn=True)                    # or rerun.save("street.rrd")
    rerun.send_blueprint(ocelli.rerun.blueprint())
    log = ocelli.rerun.VideoLog()
    with ocelli.Video("street.mp4", ["person", "car"], track=True) as video:
        for frame in video:
            log(frame)

`Detections.log_to_rerun` logs one image, a `VideoLog` the frames of a video with the trails of its tracks. Below the entity,
`ocelli` by default, they write:

    image                 the image
    image/boxes           boxes with their labels
    image/masks           a class id for each pixel, the highest score on top; 0 where there is none
    image/trails/ID       the latest centres of the track with this id
    latency_ms/STAGE      how long a stage took, in milliseconds

Class ids are those of tracks with a tracker, else the detector's plus 1. Needs the package `rerun-sdk`, which the extra
`ocelli-vision[rerun]` installs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ._detector import ChannelOrder
from ._errors import InvalidArgument, Unavailable
from ._images import ImageLike, is_file, pixels
from ._results import Detections, FloatArray, Mask
from ._session import TrackedFrame
from ._video import VideoFrame

__all__ = ["VideoLog", "blueprint"]

Recording: TypeAlias = Any
"""A `rerun.RecordingStream`."""

# Rerun's class ids have 16 bits, and 0 is for pixels without an instance.
_IDS = 0xFFFF


def _load(module: str = "rerun") -> Any:
    try:
        return import_module(module)
    except ImportError as why:
        raise Unavailable('rerun-sdk is not installed: run `pip install "ocelli-vision[rerun]"`') from why


def blueprint(*entities: str) -> Any:
    """A layout for what is logged: for each entity its image with boxes, masks and trails, above a plot of its latency.

    Returns a `rerun.blueprint.Blueprint` for `rerun.send_blueprint` or `rerun.save`. Without entities, it shows `ocelli`.
    """
    rrb = _load("rerun.blueprint")
    videos = [
        rrb.Vertical(
            rrb.Spatial2DView(origin=f"/{entity}/image", name=entity),
            rrb.TimeSeriesView(origin=f"/{entity}/latency_ms", name=f"{entity}: latency in ms"),
            row_shares=[3, 1],
        )
        for entity in map(_entity, entities or ["ocelli"])
    ]
    return rrb.Blueprint(videos[0] if len(videos) == 1 else rrb.Grid(*videos), collapse_panels=True)


@dataclass(frozen=True, slots=True)
class _Instances:
    """What is drawn into an image, the highest score first."""

    xyxy: npt.NDArray[np.floating[Any]]
    ids: list[int]
    names: list[str]
    scores: list[float]
    masks: list[Mask] | None

    @classmethod
    def of(cls, found: Detections) -> _Instances:
        """The detections; with a tracker, those that have a track."""
        if found.tracker_id is None:
            ids, names = [one + 1 for one in found.class_id.tolist()], found.class_name.tolist()
        else:
            found = found.tracked
            assert found.tracker_id is not None
            ids = found.tracker_id.tolist()
            names = _numbered(ids, found.class_name.tolist())
        return cls(found.xyxy, [_class_id(one) for one in ids], names, found.confidence.tolist(), found.masks)

    @classmethod
    def of_tracks(cls, frame: VideoFrame) -> _Instances:
        """The tracks of a frame. They have a box on frames without detections as well, and the masks of their detections."""
        found, tracks = frame.detections, sorted(frame.tracks, key=lambda track: -track.confidence)
        classes = found._names()
        names = _numbered([one.tracker_id for one in tracks], [classes[one.class_id] for one in tracks])
        masks: list[Mask] | None = None
        if found.masks is not None:
            size = found.size
            nothing = Mask.from_array(np.zeros(size[::-1], np.bool_))
            masks = [nothing if one.detection is None else found.masks[one.detection] for one in tracks]
        xyxy = np.array([one.xyxy for one in tracks], np.float64).reshape(-1, 4)
        ids = [_class_id(one.tracker_id) for one in tracks]
        return cls(xyxy, ids, names, [one.confidence for one in tracks], masks)

    def segmentation(self) -> npt.NDArray[np.uint16] | None:
        """The class id of each pixel, [height, width]."""
        if not self.masks:
            return None
        whole = np.zeros((self.masks[0].height, self.masks[0].width), np.uint16)
        for number, mask in zip(reversed(self.ids), reversed(self.masks), strict=True):
            whole[mask.to_array()] = number
        return whole


def log_detections(
    found: Detections,
    image: ImageLike | None,
    entity: str,
    recording: Recording | None,
    channel_order: ChannelOrder,
    jpeg_quality: int | None,
) -> None:
    """What `Detections.log_to_rerun` does."""
    _Writer(entity, recording, channel_order, jpeg_quality).write(found, _Instances.of(found), image)


class VideoLog:
    """Logs the frames of a video: images, boxes, masks, latency, and the trails of tracks.

        log = ocelli.rerun.VideoLog()
        for frame in video:
            log(frame)

    The timelines are `frame`, the index; `time`, in seconds since the start; and `wall_time` for live frames. Frames are logged
    in order. An object has one entity to log to; several videos have one each.
    """

    def __init__(
        self,
        entity: str = "ocelli",
        *,
        recording: Recording | None = None,
        trail_frames: int = 30,
        channel_order: ChannelOrder = "rgb",
        jpeg_quality: int | None = 80,
    ) -> None:
        """
        entity: where to log.
        recording: a `rerun.RecordingStream`; by default the one of `rerun.init`.
        trail_frames: how many frames back the trail of a track goes; 0 for no trails.
        channel_order: of images in arrays.
        jpeg_quality: 1 to 100, or None for the pixels as they are.

        Raises `Unavailable` without the package `rerun-sdk`, `InvalidArgument` for a value that is out of range.
        """
        if trail_frames < 0:
            raise InvalidArgument(f"trail_frames is {trail_frames}: expected at least 0")
        self._writer = _Writer(entity, recording, channel_order, jpeg_quality)
        self._trail_frames = trail_frames
        self._trails: dict[int, deque[tuple[int, FloatArray]]] = {}

    def __call__(self, frame: VideoFrame | TrackedFrame, image: ImageLike | None = None) -> None:
        """Logs a frame of a `Video` or a `VideoSession`.

        image: the image, for frames that do not have one: those of sessions, and of videos with `keep_images=False`.
        """
        writer, found = self._writer, frame.detections
        if isinstance(frame, VideoFrame):
            image = frame.image if image is None else image
            writer.at(frame.index, frame.time_s, frame.wall_time)
            tracked = found.tracker_id is not None
            instances = _Instances.of_tracks(frame) if tracked else _Instances.of(found)
            ids = [one.tracker_id for one in frame.tracks]
            centres = [_centre(one.xyxy) for one in frame.tracks]
        else:
            writer.at(frame.index)
            instances = _Instances.of(found)
            ids, centres = frame.object_ids.tolist(), [_centre(one) for one in frame.xyxy]
        writer.write(found, instances, image)
        if self._trail_frames > 0:
            self._extend(frame.index, ids, centres)

    def _extend(self, index: int, ids: list[int], centres: list[FloatArray]) -> None:
        for number, centre in zip(ids, centres, strict=True):
            self._trails.setdefault(number, deque()).append((index, centre))
        for number, trail in list(self._trails.items()):
            while trail and trail[0][0] < index - self._trail_frames:
                trail.popleft()
            if not trail:
                del self._trails[number]
            self._writer.trail(number, [centre for _, centre in trail])


class _Writer:
    """What writes to one entity of a recording."""

    def __init__(
        self, entity: str, recording: Recording | None, channel_order: ChannelOrder, jpeg_quality: int | None
    ) -> None:
        if jpeg_quality is not None and not 1 <= jpeg_quality <= 100:
            raise InvalidArgument(f"jpeg_quality is {jpeg_quality}: expected 1 to 100, or None")
        if channel_order not in ("rgb", "bgr"):
            raise InvalidArgument(f"channel_order is {channel_order!r}: expected rgb or bgr")
        self._rr = _load()
        self._entity = _entity(entity)
        self._recording = self._rr.get_data_recording(recording)
        if self._recording is None:
            raise InvalidArgument("recording is None: call rerun.init first, or pass a rerun.RecordingStream")
        self._channel_order = channel_order
        self._jpeg_quality = jpeg_quality

    def at(self, index: int, time_s: float | None = None, wall_time: float | None = None) -> None:
        """Sets when what follows belongs."""
        self._recording.set_time("frame", sequence=index)
        if time_s is not None:
            self._recording.set_time("time", duration=time_s)
        if wall_time is not None:
            self._recording.set_time("wall_time", timestamp=wall_time)

    def write(self, found: Detections, instances: _Instances, image: ImageLike | None) -> None:
        rr = self._rr
        if image is not None:
            self._log("image", self._image(found, image))
        # Classes have names until they change, tracks while they are seen.
        names = dict(zip(instances.ids, instances.names, strict=True))
        annotations = [rr.AnnotationInfo(id=number, label=name) for number, name in names.items()]
        self._log("image", rr.AnnotationContext(annotations))
        labels = [f"{name} {score:.2f}" for name, score in zip(instances.names, instances.scores, strict=True)]
        boxes = rr.Boxes2D(
            array=instances.xyxy,
            array_format=rr.Box2DFormat.XYXY,
            labels=labels,
            class_ids=instances.ids,
            show_labels=True,
        )
        self._log("image/boxes", boxes)
        masks = instances.segmentation()
        self._log("image/masks", rr.Clear(recursive=False) if masks is None else rr.SegmentationImage(masks))
        for stage, milliseconds in found.times_ms.items():
            self._log(f"latency_ms/{stage}", rr.Scalars(milliseconds))

    def trail(self, number: int, centres: list[FloatArray]) -> None:
        """The latest centres of a track, the oldest first; none for one that has ended."""
        rr = self._rr
        # A line has two points.
        is_line = len(centres) > 1
        line = rr.LineStrips2D([np.array(centres)], class_ids=[_class_id(number)]) if is_line else rr.Clear(recursive=False)
        self._log(f"image/trails/{number}", line)

    def _log(self, below: str, what: Any) -> None:
        self._recording.log(f"{self._entity}/{below}", what)

    def _image(self, found: Detections, image: ImageLike) -> Any:
        array = np.asarray(pixels(image))
        if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
            raise InvalidArgument(
                f"image, array of {array.dtype} with shape {array.shape}: expected uint8 with shape (height, width, 3)"
            )
        height, width = array.shape[:2]
        if found.size not in ((0, 0), (width, height)):
            raise InvalidArgument(
                f"image of {width}x{height}: the detections are those of {found.size[0]}x{found.size[1]}"
            )
        model = "RGB" if is_file(image) or self._channel_order == "rgb" else "BGR"
        logged = self._rr.Image(array, color_model=model)
        return logged if self._jpeg_quality is None else logged.compress(jpeg_quality=self._jpeg_quality)


def _entity(path: str) -> str:
    entity = path.strip("/")
    if not entity:
        raise InvalidArgument(f"entity is {path!r}: expected a path such as ocelli or robot/camera")
    return entity


def _class_id(number: int) -> int:
    """A track's or a class's number from 1 as a class id of Rerun."""
    return 1 + (number - 1) % _IDS


def _numbered(ids: list[int], names: list[str]) -> list[str]:
    return [f"{number} {name}" for number, name in zip(ids, names, strict=True)]


def _centre(xyxy: Any) -> FloatArray:
    left, top, right, bottom = xyxy
    return np.array([(left + right) / 2, (top + bottom) / 2], np.float32)
