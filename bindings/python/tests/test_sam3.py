"""Meta's interface, on the small random model with a tracker, by the calls of Meta's example."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ocelli
from ocelli.sam3 import Sam3VideoPredictor, build_sam3_video_predictor

WIDTH, HEIGHT, COUNT = 96, 72, 6
KEYS = {"out_obj_ids", "out_probs", "out_boxes_xywh", "out_binary_masks", "frame_stats"}


@pytest.fixture(scope="module")
def predictor(tracker_model: Path) -> Sam3VideoPredictor:
    return build_sam3_video_predictor(tracker_model, engine="embedded", threads=1, confidence=0.0)


@pytest.fixture
def ask(predictor: Sam3VideoPredictor, noise_folder: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Sends a request to a session on the folder."""
    name = predictor.handle_request(request=dict(type="start_session", resource_path=str(noise_folder)))["session_id"]

    def ask(kind: str, **fields: Any) -> dict[str, Any]:
        return predictor.handle_request(request=dict(type=kind, session_id=name, **fields))

    ask.run = lambda **fields: {  # type: ignore[attr-defined]
        answer["frame_index"]: checked(answer)
        for answer in predictor.handle_stream_request(
            request=dict(type="propagate_in_video", session_id=name, **fields)
        )
    }
    yield ask
    assert ask("close_session") == {"is_success": True}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The paths that were asked for on a server on this machine, which has the small model as facebook/sam3."""
    folder = Path(__file__).resolve().parents[3] / "tests" / "golden" / "parity" / "tracker_odd"
    names = ("config.json", "model.safetensors", "tokenizer.json")
    files = {name: (folder / name).read_bytes() for name in names}
    hashes = {name: hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() for name, data in files.items()}
    listing = {
        "id": "facebook/sam3",
        "sha": "0123456789abcdef0123456789abcdef01234567",
        "siblings": [{"rfilename": name, "size": len(files[name]), "blobId": hashes[name]} for name in names],
    }
    paths: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            name = self.path.rsplit("/", 1)[-1]
            body = json.dumps(listing).encode() if self.path.startswith("/api/") else files.get(name)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Length", str(len(body or b"")))
            self.send_header("X-Repo-Commit", str(listing["sha"]))
            self.send_header("ETag", f'"{hashes.get(name)}"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path_factory.mktemp("hub")))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield paths
    server.shutdown()
    server.server_close()


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """The outputs of an answer, which have the keys, types and shapes of Meta's."""
    assert answer.keys() == {"frame_index", "outputs"} and type(answer["frame_index"]) is int
    outputs: dict[str, Any] = answer["outputs"]
    assert outputs.keys() == KEYS and outputs["frame_stats"] is None
    ids, masks = outputs["out_obj_ids"], outputs["out_binary_masks"]
    n = len(ids)
    found = {name: (value.dtype, value.shape) for name, value in outputs.items() if name != "frame_stats"}
    assert found == {
        "out_obj_ids": (np.int64, (n,)),
        "out_probs": (np.float32, (n,)),
        "out_boxes_xywh": (np.float32, (n, 4)),
        "out_binary_masks": (np.bool_, (n, HEIGHT, WIDTH)),
    }
    assert sorted(ids.tolist()) == ids.tolist() and masks.sum(0).max(initial=0) <= 1
    for mask, (x, y, width, height) in zip(masks, outputs["out_boxes_xywh"], strict=True):
        rows, columns = np.nonzero(mask)
        margin = 1e-4
        assert x * WIDTH <= columns.min() + margin and columns.max() <= (x + width) * WIDTH + margin
        assert y * HEIGHT <= rows.min() + margin and rows.max() <= (y + height) * HEIGHT + margin
    return outputs


def ids(frames: dict[int, dict[str, Any]]) -> set[int]:
    return {one for outputs in frames.values() for one in outputs["out_obj_ids"].tolist()}


def test_the_calls_of_the_example(ask: Any, tracker_model: Path, noise_folder: Path) -> None:
    assert ask("reset_session") == {"is_success": True}
    first = checked(ask("add_prompt", frame_index=0, text="dog"))
    frames = ask.run()
    assert list(frames) == list(range(COUNT)) and len(first["out_obj_ids"]) and len(ids(frames)) > 2
    session = ocelli.VideoSession(tracker_model, noise_folder, engine="embedded", threads=1, confidence=0.0)
    session.add_text(0, "dog")
    for expected in session.propagate():
        assert expected.object_ids.tolist() == frames[expected.index]["out_obj_ids"].tolist()
        assert np.array_equal(expected.masks, frames[expected.index]["out_binary_masks"])
        boxes = frames[expected.index]["out_boxes_xywh"] * np.array([WIDTH, HEIGHT, WIDTH, HEIGHT])
        boxes[:, 2:] += boxes[:, :2]
        np.testing.assert_allclose(boxes, expected.xyxy, atol=1e-3)

    # An object is removed, and added again under its id.
    gone = next(iter(frames[0]["out_obj_ids"].tolist()))
    assert ask("remove_object", obj_id=gone) == {"is_success": True}
    without = ask.run()
    assert list(without) == list(frames) and ids(without) == ids(frames) - {gone}
    clicks = dict(points=np.array([[0.8, 0.4]], np.float32), point_labels=np.array([1], np.int32))
    clicked = checked(ask("add_prompt", frame_index=0, obj_id=gone, **clicks))
    assert gone in clicked["out_obj_ids"].tolist()
    assert gone in ids(ask.run())
    clicks = dict(points=[[0.8, 0.4], [0.1, 0.1]], point_labels=[1, 0])
    refined = checked(ask("add_prompt", frame_index=0, obj_id=gone, **clicks))
    assert not np.array_equal(refined["out_binary_masks"], clicked["out_binary_masks"])
    again = ask.run(propagation_direction="forward", start_frame_index=0, max_frame_num_to_track=2)
    assert list(again) == [0, 1, 2]
    assert np.array_equal(again[0]["out_binary_masks"], refined["out_binary_masks"])
    assert ask("remove_object", obj_id=gone) == {"is_success": True}
    assert gone not in ids(ask.run())


def test_boxes_and_directions(ask: Any, tracker_model: Path, noise_folder: Path) -> None:
    box, label = [[0.1, 0.1, 0.5, 0.6]], [1]
    assert len(checked(ask("add_prompt", frame_index=2, bounding_boxes=box, bounding_box_labels=label))["out_obj_ids"])
    frames = ask.run()
    assert list(frames) == [2, 3, 4, 5, 1, 0]
    session = ocelli.VideoSession(tracker_model, noise_folder, engine="embedded", threads=1, confidence=0.0)
    session.add_box(2, (0.1 * WIDTH, 0.1 * HEIGHT, 0.6 * WIDTH, 0.7 * HEIGHT))
    for expected in session.propagate():
        assert np.array_equal(expected.masks, frames[expected.index]["out_binary_masks"])
    assert list(ask.run(propagation_direction="backward", start_frame_index=2, max_frame_num_to_track=1)) == [1]
    several = dict(bounding_boxes=[*box, [0.7, 0.7, 0.2, 0.2]], bounding_box_labels=[1, 0])
    assert len(checked(ask("add_prompt", frame_index=2, text="dog", **several))["out_obj_ids"])
    assert len(checked(ask("add_prompt", frame_index=2, text="visual", **several))["out_obj_ids"])


def test_sessions_are_independent(predictor: Sam3VideoPredictor, noise_folder: Path) -> None:
    import PIL.Image

    image = noise_folder / "00000.png"
    resources = [str(noise_folder), str(image), [PIL.Image.open(image)] * 2]
    names = [f"session {number}" for number in range(3)]
    for name, resource in zip(names, resources, strict=True):
        request = dict(type="start_session", resource_path=resource, session_id=name)
        assert predictor.handle_request(request) == {"session_id": name}
    found: list[dict[str, Any]] = []
    for name in names:
        request = dict(type="add_prompt", session_id=name, frame_index=0, text="dog")
        found.append(checked(predictor.handle_request(request)))
    for other in found[1:]:
        assert np.array_equal(other["out_binary_masks"], found[0]["out_binary_masks"])
    lengths = [
        len(list(predictor.handle_stream_request(dict(type="propagate_in_video", session_id=name)))) for name in names
    ]
    assert lengths == [COUNT, 1, 2]
    for name in [*names, names[0]]:
        assert predictor.handle_request(dict(type="close_session", session_id=name)) == {"is_success": True}
    # One model is left, for the next session.
    left = predictor._idle
    predictor.start_session(str(noise_folder), names[0])
    assert left is not None and predictor._sessions[names[0]].video is left
    predictor.close_session(names[0])


def test_what_is_refused(ask: Any, predictor: Sam3VideoPredictor, tmp_path: Path) -> None:
    point = dict(points=[[0.5, 0.5]], point_labels=[1])
    box = dict(bounding_boxes=[[0.1, 0.1, 0.5, 0.5]], bounding_box_labels=[1])
    add: list[tuple[str, dict[str, Any]]] = [
        ("frame 6 is not in the video: expected 0 to 5", dict(frame_index=6, text="dog")),
        ("frame 6 is not in the video", dict(frame_index=6, obj_id=1, **point)),
        ("expected a text, bounding_boxes or points", dict(frame_index=0)),
        ("expected a text, bounding_boxes or points", dict(frame_index=0, text="visual")),
        ("expected points alone", dict(frame_index=0, text="dog", obj_id=1, **point)),
        ("points without obj_id", dict(frame_index=0, **point)),
        (r"points has shape \(2,\): expected \(n, 2\)", dict(frame_index=0, obj_id=1, **{**point, "points": [0.5, 0.5]})),
        ("point_labels is .*: expected 1 or 0", dict(frame_index=0, obj_id=1, **{**point, "point_labels": [2]})),
        ("points and point_labels: expected both", dict(frame_index=0, obj_id=1, points=[[0.5, 0.5]])),
        ("bounding_boxes: expected coordinates of 0 to 1", dict(frame_index=0, **{**box, "bounding_boxes": [[9, 9, 50, 50]]})),
        ("bounding_boxes and bounding_box_labels: expected both", dict(frame_index=0, bounding_boxes=[[0, 0, 1, 1]])),
        ("no exemplars", dict(frame_index=0, text="dog", **{**box, "bounding_box_labels": [0]})),
    ]
    calls: list[tuple[str, type[Exception], Callable[[], object]]] = [
        (words, ocelli.InvalidArgument, lambda fields=fields: ask("add_prompt", **fields))  # type: ignore[misc]
        for words, fields in add
    ]
    calls += [
        ("the session has no prompt", ocelli.InvalidArgument, lambda: ask.run()),
        ("there is no object 9", ocelli.InvalidArgument, lambda: ask("remove_object", obj_id=9)),
        ("direction is .*up", ValueError, lambda: ask.run(propagation_direction="up")),
        ("invalid request type: sing", RuntimeError, lambda: ask("sing")),
        ("invalid request type: add_prompt", RuntimeError, lambda: list(predictor.handle_stream_request(dict(type="add_prompt")))),
        ("Cannot find session x", RuntimeError, lambda: predictor.handle_request(dict(type="reset_session", session_id="x"))),
        ("none.mp4", ocelli.InvalidArgument, lambda: predictor.start_session(tmp_path / "none.mp4")),
    ]
    failures: list[str] = []
    for words, kind, call in calls:
        with pytest.raises(kind, match=words) as raised:
            call()
        if "\n" in str(raised.value):
            failures.append(f"{words}: {raised.value}")
    assert not failures
    # The predictor goes on.
    assert len(checked(ask("add_prompt", frame_index=0, text="dog"))["out_obj_ids"])


def test_disambiguation_can_be_switched_off(tracker_model: Path, noise_frames: list[Any]) -> None:
    runs: dict[bool, list[list[int]]] = {}
    # Long enough for objects to be removed as false.
    frames = noise_frames * 3
    for on in (True, False):
        predictor = build_sam3_video_predictor(
            checkpoint_path=tracker_model, apply_temporal_disambiguation=on, engine="embedded", confidence=0.0
        )
        name = predictor.start_session(frames)["session_id"]
        predictor.add_prompt(name, 0, "dog")
        runs[on] = [answer["outputs"]["out_obj_ids"].tolist() for answer in predictor.propagate_in_video(name)]
    session = ocelli.VideoSession(
        tracker_model, frames, temporal_disambiguation=False, engine="embedded", confidence=0.0
    )
    session.add_text(0, "dog")
    assert runs[False] == [frame.object_ids.tolist() for frame in session.propagate()] != runs[True]


def test_models_that_do_not_fit(masking: ocelli.Detector, tracker_model: Path) -> None:
    with pytest.raises(ocelli.Mismatch, match="has no tracker"):
        build_sam3_video_predictor(checkpoint_path=masking.model, engine="embedded")
    with pytest.raises(ocelli.InvalidArgument, match="load_from_HF is False"):
        build_sam3_video_predictor(load_from_HF=False)
    with pytest.raises(ocelli.InvalidArgument, match="expected True"):
        build_sam3_video_predictor(tracker_model, has_presence_token=False)


def test_the_calls_that_build_a_predictor(
    hub: list[str], tracker_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build_sam3_video_predictor().shutdown()
    assert any("/facebook/sam3/resolve/" in path for path in hub), hub
    # The second time nothing is asked for.
    hub.clear()
    predictor = build_sam3_video_predictor(apply_temporal_disambiguation=False)
    predictor.shutdown()
    predictor.shutdown()
    assert hub == []
    with pytest.warns(UserWarning, match="compile is True: it has no effect"):
        build_sam3_video_predictor(
            checkpoint_path=tracker_model, load_from_HF=False, compile=True, device="cpu"
        ).shutdown()
    with pytest.raises(ocelli.Error, match="none.gz"):
        build_sam3_video_predictor(bpe_path="none.gz")
    # Four GPUs, none of which is here.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ocelli.Unavailable, match="CUDA"):
        build_sam3_video_predictor(tracker_model, device="cuda")
    with pytest.raises(ocelli.Unavailable, match="CUDA"):
        build_sam3_video_predictor(tracker_model, gpus_to_use=[0, 1, 2, 3])
    with pytest.raises(ocelli.InvalidArgument, match="gpus_to_use is empty"):
        build_sam3_video_predictor(tracker_model, gpus_to_use=[])
    build_sam3_video_predictor(tracker_model, gpus_to_use=[0], engine="embedded").shutdown()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ocelli.Error, match="HF_HUB_OFFLINE"):
        build_sam3_video_predictor()
