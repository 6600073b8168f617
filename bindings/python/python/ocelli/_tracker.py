"""The tracker."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from . import _ocelli
from ._errors import InvalidArgument
from ._results import Detections, Track, as_json, tracks_from_native


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None; the library has the defaults of the others."""
    return {name: value for name, value in options.items() if value is not None}


def as_form(options: Mapping[str, Any]) -> str:
    """Options as JSON for the library, without those that are None."""
    for name, value in given(options).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidArgument(f"{name} is {value}: expected a number")
    return as_json(given(options))


class Tracker:
    """Follows objects from frame to frame (ByteTrack). Overlaps are least IoUs, 0 to 1."""

    __slots__ = ("_native", "_tracks", "options")

    def __init__(
        self,
        *,
        track_threshold: float | None = None,
        low_threshold: float | None = None,
        new_track_threshold: float | None = None,
        match_iou: float | None = None,
        low_match_iou: float | None = None,
        lost_match_iou: float | None = None,
        min_hits: int | None = None,
        sure_threshold: float | None = None,
        max_time_lost: int | None = None,
        coast_frames: int | None = None,
        match_classes: Literal["same", "any"] = "same",
    ) -> None:
        """Options that are not given have the defaults of `ocelli video --track`.

        track_threshold: least score of detections that are matched first [0.5].
        low_threshold: least score of detections that continue a track [0.1].
        new_track_threshold: least score that starts a track [0.05 above track_threshold].
        match_iou: least overlap with a detection of high score [0.5].
        low_match_iou: least overlap with a detection of low score [0.4].
        lost_match_iou: least overlap of a lost track [0.5].
        min_hits: consecutive detections that confirm a track [2].
        sure_threshold: score that confirms a track at once [0.8; none with min_hits].
        max_time_lost: frames after which a lost track is deleted [30].
        coast_frames: frames for which a lost track is still listed, at its predicted place [0].
        match_classes: whether a track may match detections of any class.
        """
        self.options: dict[str, Any] = {
            "track_threshold": track_threshold,
            "low_threshold": low_threshold,
            "new_track_threshold": new_track_threshold,
            "match_iou": match_iou,
            "low_match_iou": low_match_iou,
            "lost_match_iou": lost_match_iou,
            "min_hits": min_hits,
            "sure_threshold": sure_threshold,
            "max_time_lost": max_time_lost,
            "coast_frames": coast_frames,
            "match_classes": match_classes,
        }
        for name in ("min_hits", "max_time_lost", "coast_frames"):
            number = self.options[name]
            if number is not None and number < 0:
                raise InvalidArgument(f"{name} is {number}: expected at least 0")
        self._native = _ocelli.Tracker(as_form(self.options))
        self._tracks: list[Track] = []

    def update(self, detections: Detections, *, frames: float = 1.0) -> Detections:
        """Updates the tracks with the detections of a frame, and returns these with `tracker_id`: -1 without a track.

        Call it for every frame on which a detector ran, even without detections. `frames` is the time since the last call.
        """
        tracks = self._native.update(
            detections.class_id.tolist(), detections.confidence.tolist(), detections.xyxy.tolist(), frames
        )
        self._tracks = tracks_from_native(tracks)
        return detections._with_tracks(self._tracks)

    @property
    def tracks(self) -> list[Track]:
        """The confirmed tracks as of the latest frame."""
        return list(self._tracks)

    def reset(self) -> None:
        """Forgets all tracks, for another video; ids start at 1 again."""
        self._native.reset()
        self._tracks = []
