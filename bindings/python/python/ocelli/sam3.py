"""The interface of Meta's SAM 3 video predictor, for programs that were written for it.

    from ocelli.sam3 import build_sam3_video_predictor     # in place of sam3.model_builder

Requests and answers are those of Meta's `sam3` 0.1.4; `ocelli.VideoSession` does the work, and is the better choice for a new
program. What differs:

- A text with boxes finds objects like those in the boxes in all frames, and may have several boxes.
- What a single box finds is kept, however long no detection matches it.
- A run shows a clicked object on its frame exactly as the click did.
- `frame_stats` of the outputs is None.
- Points are clicks: labels are 1 and 0. Coordinates are 0 to 1, as in Meta's requests.
- What Meta's code asserts is `ocelli.InvalidArgument` here. A second session at the same time loads the model again.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Unpack, cast

import numpy as np
import numpy.typing as npt

from ._detector import DetectorKeywords, PathLike, Prompt
from ._errors import InvalidArgument
from ._images import ImageLike
from ._session import Direction, TrackedFrame, VideoSession

__all__ = ["Sam3VideoPredictor", "build_sam3_video_predictor"]


def build_sam3_video_predictor(
    checkpoint_path: PathLike | None = None,
    bpe_path: PathLike | None = None,
    has_presence_token: bool = True,
    geo_encoder_use_img_cross_attn: bool = True,
    strict_state_dict_loading: bool = True,
    async_loading_frames: bool = False,
    video_loader_type: str = "cv2",
    apply_temporal_disambiguation: bool = True,
    *,
    load_from_HF: bool = True,
    compile: bool = False,
    device: object = None,
    gpus_to_use: Sequence[int] | None = None,
    **options: Unpack[DetectorKeywords],
) -> Sam3VideoPredictor:
    """Loads a checkpoint, `sam3.pt` or a folder of Hugging Face, or an exported model; without a path `facebook/sam3`.

    That is downloaded once into the cache of `huggingface_hub`, if load_from_HF says so. A checkpoint is exported once, into the
    cache. bpe_path: the tokeniser. device: `cuda`, `cuda:1` or `cpu`; gpus_to_use: the first of them finds objects, and all follow
    them. Both choose the engine where options name none. apply_temporal_disambiguation: without it no object is removed as false, and frames leave at
    once. Meta's other arguments have no effect. options: those of `ocelli.Detector`, such as `engine`.
    """
    if checkpoint_path is None and not load_from_HF:
        raise InvalidArgument("checkpoint_path is None and load_from_HF is False: expected the path of sam3.pt or of its folder")
    if not (has_presence_token and geo_encoder_use_img_cross_attn):
        raise InvalidArgument("has_presence_token and geo_encoder_use_img_cross_attn: expected True, as in the released model")
    if compile:
        warnings.warn("compile is True: it has no effect, since every engine compiles the model when it loads it", stacklevel=2)
    if bpe_path is not None:
        options.setdefault("tokenizer", bpe_path)
    if gpus_to_use is not None:
        if len(gpus_to_use) == 0:
            raise InvalidArgument("gpus_to_use is empty: expected the numbers of one or more GPUs")
        device = "cuda:" + ",".join(map(str, gpus_to_use))
    if device is not None:
        options.setdefault("engine", str(device))
    model = "sam3" if checkpoint_path is None else checkpoint_path
    return Sam3VideoPredictor(model, apply_temporal_disambiguation, options)


class Sam3VideoPredictor:
    """Sessions on videos, by requests, as Meta's `Sam3VideoPredictor`."""

    def __init__(self, checkpoint_path: PathLike, temporal_disambiguation: bool, options: DetectorKeywords) -> None:
        self._checkpoint = checkpoint_path
        self._temporal_disambiguation = temporal_disambiguation
        self._options = options
        self._sessions: dict[str, _Session] = {}
        # Loads the model, and shows what is wrong with it before the first request.
        self._idle: VideoSession | None = self._new([np.zeros((1, 1, 3), np.uint8)])

    def _new(self, source: PathLike | list[ImageLike]) -> VideoSession:
        return VideoSession(
            self._checkpoint, source, temporal_disambiguation=self._temporal_disambiguation, **self._options
        )

    def handle_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answers `start_session`, `add_prompt`, `remove_object`, `reset_session` or `close_session`."""
        kind = request["type"]
        if kind == "start_session":
            return self.start_session(request["resource_path"], request.get("session_id"))
        if kind == "add_prompt":
            return self.add_prompt(
                request["session_id"],
                request["frame_index"],
                request.get("text"),
                request.get("points"),
                request.get("point_labels"),
                request.get("bounding_boxes"),
                request.get("bounding_box_labels"),
                request.get("obj_id"),
            )
        if kind == "remove_object":
            return self.remove_object(request["session_id"], request["obj_id"])
        if kind == "reset_session":
            return self.reset_session(request["session_id"])
        if kind == "close_session":
            return self.close_session(request["session_id"])
        raise RuntimeError(f"invalid request type: {kind}")

    def handle_stream_request(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Answers `propagate_in_video`, a frame at a time."""
        if request["type"] != "propagate_in_video":
            raise RuntimeError(f"invalid request type: {request['type']}")
        yield from self.propagate_in_video(
            request["session_id"],
            request.get("propagation_direction", "both"),
            request.get("start_frame_index"),
            request.get("max_frame_num_to_track"),
        )

    def start_session(
        self, resource_path: PathLike | list[ImageLike], session_id: str | None = None
    ) -> dict[str, Any]:
        """Opens a video file, a folder of images, an image or a list of them."""
        session, self._idle = self._idle, None
        if session is None:
            session = self._new(resource_path)
        else:
            try:
                session.open(resource_path)
            except BaseException:
                self._idle = session
                raise
        name = session_id or str(uuid.uuid4())
        self._sessions[name] = _Session(session)
        return {"session_id": name}

    def add_prompt(
        self,
        session_id: str,
        frame_idx: int,
        text: str | None = None,
        points: npt.ArrayLike | None = None,
        point_labels: npt.ArrayLike | None = None,
        bounding_boxes: npt.ArrayLike | None = None,
        bounding_box_labels: npt.ArrayLike | None = None,
        obj_id: int | None = None,
    ) -> dict[str, Any]:
        """Starts over with a text, boxes (x, y, width, height) or both; or clicks on an object."""
        session = self._session(session_id)
        if points is not None:
            if text is not None or bounding_boxes is not None:
                raise InvalidArgument("points with a text or bounding_boxes: expected points alone")
            if obj_id is None:
                raise InvalidArgument("points without obj_id: expected the id of the object")
            found = session.click(frame_idx, obj_id, *_rows("points", points, point_labels, 2))
        else:
            found = session.start(frame_idx, text, *_rows("bounding_boxes", bounding_boxes, bounding_box_labels, 4))
        return session.answer(found)

    def remove_object(self, session_id: str, obj_id: int, is_user_action: bool = True) -> dict[str, Any]:
        """Removes an object from all frames."""
        session = self._session(session_id)
        session.video.remove(session.own(obj_id))
        return {"is_success": True}

    def propagate_in_video(
        self,
        session_id: str,
        propagation_direction: str = "both",
        start_frame_idx: int | None = None,
        max_frame_num_to_track: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Follows the objects."""
        session = self._session(session_id)
        direction = cast(Direction, propagation_direction)
        for found in session.video.propagate(direction, start_frame_idx, max_frame_num_to_track):
            yield session.answer(found)

    def reset_session(self, session_id: str) -> dict[str, Any]:
        """Forgets all prompts, objects and results."""
        self._session(session_id).reset()
        return {"is_success": True}

    def close_session(self, session_id: str) -> dict[str, Any]:
        """Frees a session; does nothing if there is none."""
        session = self._sessions.pop(session_id, None)
        if session is not None and self._idle is None:
            # The model is for the next session; the video is freed now.
            session.video.open([np.zeros((1, 1, 3), np.uint8)])
            self._idle = session.video
        return {"is_success": True}

    def shutdown(self) -> None:
        """Frees all sessions and the model."""
        self._sessions.clear()
        self._idle = None

    def _session(self, session_id: str) -> _Session:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise RuntimeError(f"Cannot find session {session_id}; it might have expired") from None


class _Session:
    """A session, and the ids of objects that were added again under an earlier id."""

    def __init__(self, video: VideoSession) -> None:
        self.video = video
        self._again: dict[int, int] = {}

    def own(self, obj_id: int) -> int:
        """The id of an object in `video`."""
        return self._again.get(obj_id, obj_id)

    def start(
        self, frame: int, text: str | None, boxes: list[list[float]], labels: list[int]
    ) -> TrackedFrame:
        text = None if text == "visual" else text
        if text is None and not boxes:
            raise InvalidArgument("add_prompt: expected a text, bounding_boxes or points")
        width, height = self.video.size
        edges = [(x * width, y * height, (x + w) * width, (y + h) * height) for x, y, w, h in boxes]
        self._again.clear()
        if text is None and labels == [1]:
            return self.video.add_box(frame, edges[0])
        if text is not None and not boxes:
            return self.video.add_text(frame, text)
        wanted, unwanted = ([box for box, label in zip(edges, labels, strict=True) if label == kind] for kind in (1, 0))
        return self.video.add_exemplars(frame, Prompt(text, exemplars=wanted, counterexamples=unwanted))

    def click(self, frame: int, obj_id: int, points: list[list[float]], labels: list[int]) -> TrackedFrame:
        number = self.own(obj_id)
        next_object = self.video.next_object
        if number < next_object and number not in self.video.objects:
            # It was removed: its id is not used again.
            number = next_object
        clicks = [(x, y, label == 1) for (x, y), label in zip(points, labels, strict=True)]
        found = self.video._click(number, frame, clicks)
        if number != obj_id:
            self._again[obj_id] = number
        return found

    def reset(self) -> None:
        self._again.clear()
        self.video.reset()

    def answer(self, found: TrackedFrame) -> dict[str, Any]:
        """A frame in the form of Meta's predictor."""
        names = {number: obj_id for obj_id, number in self._again.items()}
        ids = np.array([names.get(one, one) for one in found.object_ids.tolist()], np.int64)
        order = np.argsort(ids)
        boxes = found.xyxy / np.array([*found.size, *found.size], np.float32)
        boxes[:, 2:] -= boxes[:, :2]
        outputs: dict[str, Any] = {
            "out_obj_ids": ids[order],
            "out_probs": found.scores[order],
            "out_boxes_xywh": boxes[order],
            "out_binary_masks": found.masks[order],
            "frame_stats": None,
        }
        return {"frame_index": found.index, "outputs": outputs}


def _rows(
    name: str, rows: npt.ArrayLike | None, labels: npt.ArrayLike | None, width: int
) -> tuple[list[list[float]], list[int]]:
    """Rows of numbers, 0 to 1, and a label of 1 or 0 for each; arrays, lists or tensors."""
    if rows is None and labels is None:
        return [], []
    kind = name.removesuffix("es").removesuffix("s")
    if rows is None or labels is None:
        raise InvalidArgument(f"{name} and {kind}_labels: expected both")
    values, marks = np.asarray(rows, np.float64), np.asarray(labels)
    if values.ndim != 2 or values.shape[1] != width or len(values) == 0:
        raise InvalidArgument(f"{name} has shape {values.shape}: expected (n, {width})")
    if marks.shape != (len(values),) or not np.isin(marks, (0, 1)).all():
        raise InvalidArgument(f"{kind}_labels is {marks.tolist()}: expected 1 or 0 for each of {len(values)} rows")
    if not ((values >= 0) & (values <= 1)).all():
        raise InvalidArgument(f"{name}: expected coordinates of 0 to 1, as shares of the frame's width and height")
    return values.tolist(), [int(mark) for mark in marks]
