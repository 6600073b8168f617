"""Objects that are shown by clicks, boxes and masks, and their masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _ocelli
from ._errors import InvalidArgument
from ._results import Mask

Box: TypeAlias = Sequence[float]
"""Left, top, right and bottom edge in pixels."""


@dataclass(frozen=True, slots=True, eq=False)
class ObjectMask:
    """The mask of an object that was shown, from `Detector.segment`."""

    mask: Mask
    """Its pixels. There may be none."""
    predicted_iou: float
    """The model's estimate of how well the mask fits the object, 0 to 1."""
    object_score: float
    """Whether the object is in the image, a logit: above 0 the model believes so."""
    logits: npt.NDArray[np.float32]
    """The mask as the model returned it, to refine it with more clicks."""

    @classmethod
    def _from_native(cls, found: _ocelli._ObjectMask) -> ObjectMask:
        mask, predicted_iou, object_score, logits = found
        return cls(Mask(*mask), predicted_iou, object_score, logits)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectPrompt:
    """One object in an image: points on it and beside it, a box around it, a mask, or several of these.

    Coordinates are in pixels of the image. To refine an answer, pass it as `mask` with the earlier points and the new ones.
    """

    points: Sequence[Sequence[float]] = ()
    """Points (x, y) on the object."""
    negative_points: Sequence[Sequence[float]] = ()
    """Points (x, y) on what is not the object."""
    box: Box | None = None
    """The box around the object."""
    mask: Mask | ObjectMask | npt.NDArray[Any] | None = None
    """A rough mask, as large as the image, or an earlier answer."""
    label: str = "object"
    """The name of the object in errors."""

    def _parts(self) -> _ocelli._Object:
        points: list[tuple[float, float, bool]] = []
        for group, positive in ((self.points, True), (self.negative_points, False)):
            for point in group:
                if len(point) != 2:
                    raise InvalidArgument(f"point {point}: expected two numbers, x and y")
                points.append((float(point[0]), float(point[1]), positive))
        box = None if self.box is None else [float(edge) for edge in self.box]
        if box is not None and len(box) != 4:
            raise InvalidArgument(f"box {self.box}: expected four numbers, x1, y1, x2, y2")
        if isinstance(self.mask, ObjectMask):
            return self.label, points, box, None, np.asarray(self.mask.logits, np.float32)
        mask = Mask.from_array(self.mask) if isinstance(self.mask, np.ndarray) else self.mask
        parts = None if mask is None else (mask.counts, mask.width, mask.height)
        return self.label, points, box, parts, None
