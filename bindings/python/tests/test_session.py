"""Sessions on a small random model with a tracker, which finds something in any image."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import Run

import ocelli
from ocelli._detector import DetectorKeywords

Frame = npt.NDArray[np.uint8]
WIDTH, HEIGHT = 96, 72
OPTIONS: DetectorKeywords = {"engine": "embedded", "threads": 1, "confidence": 0.0}
LEFT = np.arange(WIDTH)[None].repeat(HEIGHT, 0) < 40


@pytest.fixture
def session(tracker_model: Path, noise_frames: list[Frame]) -> ocelli.VideoSession:
    return ocelli.VideoSession(tracker_model, noise_frames, **OPTIONS)


def write_video(path: Path, frames: list[Frame]) -> Path:
    """A video whose header comes first and says how many frames there are."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def same(left: ocelli.TrackedFrame, right: ocelli.TrackedFrame) -> bool:
    arrays = ("object_ids", "scores", "xyxy")
    equal = all(np.array_equal(getattr(left, name), getattr(right, name)) for name in arrays)
    return equal and (left.index, left.run_lengths) == (right.index, right.run_lengths)


def test_a_text_and_a_run(session: ocelli.VideoSession) -> None:
    assert (session.frame_count, session.size, session.objects) == (6, (WIDTH, HEIGHT), [])
    first = session.add_text(1, " red  apple ")
    assert first.index == 1 and len(first) > 0 and first.label == "red apple"
    run = list(session.propagate())
    assert [frame.index for frame in run] == [1, 2, 3, 4, 5, 0]
    for frame in run:
        n = len(frame)
        assert (frame.object_ids.dtype, frame.scores.dtype, frame.xyxy.dtype) == (np.int64, np.float32, np.float32)
        assert (frame.object_ids.shape, frame.scores.shape, frame.xyxy.shape) == ((n,), (n,), (n, 4))
        masks = frame.masks
        assert (masks.shape, masks.dtype) == ((n, HEIGHT, WIDTH), np.bool_)
        assert masks.sum(0).max(initial=0) <= 1, "no pixel has two objects"
        for mask, (left, top, right, bottom) in zip(masks, frame.xyxy, strict=True):
            rows, columns = np.nonzero(mask)
            assert left <= columns.min() and columns.max() <= right and top <= rows.min() and rows.max() <= bottom
        found = frame.detections
        assert found.tracker_id is not None and found.tracker_id.tolist() == frame.object_ids.tolist()
        assert found.class_name.tolist() == ["red apple"] * n and found.plot(np.zeros((HEIGHT, WIDTH, 3), np.uint8)).any()
    assert sorted(session.objects) == session.objects and session.next_object > session.objects[-1]
    assert sum(len(frame) for frame in run) > 6


def test_sources_and_kept_features_change_nothing(tracker_model: Path, noise_frames: list[Frame], noise_folder: Path) -> None:
    files = [noise_folder / f"{number:05d}.png" for number in range(6)]
    bgr = [frame[..., ::-1] for frame in noise_frames]
    sources: dict[str, tuple[Any, dict[str, Any]]] = {
        "folder": (noise_folder, {}),
        "pattern": (str(noise_folder / "0000?.png"), {"keep_features": "device"}),
        "frames": (iter(noise_frames), {"keep_features": "host", "kept_frames": 2}),
        "files": (files, {}),
        "BGR": (bgr, {"channel_order": "bgr"}),
    }
    expected: list[ocelli.TrackedFrame] = []
    for name, (source, options) in sources.items():
        session = ocelli.VideoSession(tracker_model, source, **options, **OPTIONS)
        run = [session.add_text(1, "dog"), *session.propagate()]
        expected = expected or run
        assert len(run) == len(expected) == 7 and all(map(same, run, expected)), name


def test_a_video_file_is_read_in_any_order(tracker_model: Path, noise_frames: list[Frame], tmp_path: Path) -> None:
    path = write_video(tmp_path / "noise.mp4", noise_frames)
    with ocelli.Video(path, ["dog"], engine="embedded") as video:
        decoded = [frame.image for frame in video]
    runs: list[list[ocelli.TrackedFrame]] = []
    for source in (path, decoded):
        session = ocelli.VideoSession(tracker_model, source, **OPTIONS)
        session.add_mask(7, 4, LEFT)
        runs.append(list(session.propagate()))
    assert [frame.index for frame in runs[0]] == [4, 5, 3, 2, 1, 0]
    assert all(map(same, *runs))


def test_clicks_masks_and_boxes(session: ocelli.VideoSession) -> None:
    given = session.add_mask(3, 0, LEFT)
    assert given.object_ids.tolist() == [3] and np.array_equal(given.masks[0], LEFT) and given.scores.tolist() == [1]
    # Object 3 has no results on this frame yet.
    clicked = session.add_points(5, 2, [(80, 30)], [(5, 5)])
    assert clicked.object_ids.tolist() == [5] and session.objects == [3, 5]
    run = list(session.propagate("forward", 2, 2))
    assert [frame.index for frame in run] == [2, 3, 4] and run[0].object_ids.tolist() == [3, 5]
    assert run[0].run_lengths[1] == clicked.run_lengths[0]
    refined = session.add_points(5, 2, [(80, 30), (60, 60)])
    assert not same(refined, clicked)
    session.remove(3)
    assert session.objects == [5] and session.next_object == 6
    assert all(set(frame.object_ids.tolist()) <= {5} for frame in session.propagate("backward", 2))
    of_box = session.add_box(1, (10, 8, 60, 50))
    of_exemplar = session.add_exemplars(1, ocelli.Prompt("dog", exemplars=[(10, 8, 60, 50)], label="hound"))
    assert len(of_box) > 0 and len(of_exemplar) > 0 and of_exemplar.label == "hound"
    session.reset()
    assert session.objects == [] and session.add_mask(3, 0, as_mask(LEFT)).object_ids.tolist() == [3]


def test_devices_share_the_objects(tracker_model: Path, noise_frames: list[Frame]) -> None:
    runs: list[list[ocelli.TrackedFrame]] = []
    for engine in ["embedded", "embedded,embedded"]:
        options: DetectorKeywords = {**OPTIONS, "engine": engine}
        session = ocelli.VideoSession(tracker_model, noise_frames, **options)
        assert session.engine.count("rten") == engine.count("embedded"), session.engine
        session.add_mask(3, 0, LEFT)
        session.add_points(5, 0, [(80, 30)])
        runs.append(list(session.propagate()))
        assert session.objects == [3, 5]
    assert all(same(one, other) for one, other in zip(*runs, strict=True))


def as_mask(array: npt.NDArray[np.bool_]) -> ocelli.Mask:
    return ocelli.Mask.from_array(array)


def test_runs_take_the_place_of_each_other(session: ocelli.VideoSession, noise_frames: list[Frame]) -> None:
    session.add_mask(0, 0, LEFT)
    earlier = session.propagate("forward")
    assert next(earlier).index == 0
    # Other calls come between the frames of a run.
    assert session.push(noise_frames[0]) == 6
    assert next(earlier).index == 1
    later = session.propagate("forward", 3)
    assert next(later).index == 3 and list(earlier) == []
    assert [frame.index for frame in later] == [4, 5, 6]
    session.open([frame[::2] for frame in noise_frames[:3]])
    assert (session.frame_count, session.size, session.objects) == (3, (WIDTH, HEIGHT // 2), [])
    session.add_mask(0, 0, LEFT[::2])
    assert [frame.index for frame in session.propagate()] == [0, 1, 2]


def test_a_window_of_pushed_frames(tracker_model: Path, noise_frames: list[Frame]) -> None:
    shown: list[list[ocelli.TrackedFrame]] = []
    for window in (None, 3):
        session = ocelli.VideoSession(tracker_model, noise_frames[:1], window=window, **OPTIONS)
        frames = [session.add_text(0, "dog")]
        for frame in noise_frames[1:]:
            number = session.push(frame)
            frames.extend(session.propagate("forward", start=number, max_frames=0))
        shown.append(frames)
        assert (session.frames, session.frame_count) == (range(0 if window is None else 3, 6), 6)
    assert len(shown[0]) == 6 and all(same(one, other) for one, other in zip(*shown, strict=True))
    with pytest.raises(ocelli.InvalidArgument, match="frame 2 has left the window: expected 3 to 5"):
        session.add_points(0, 2, [(1, 1)])
    with pytest.raises(ocelli.InvalidArgument, match="window is 0"):
        ocelli.VideoSession(tracker_model, noise_frames[:1], window=0, **OPTIONS)


def test_a_model_of_sam_3_1(multiplex_model: Path, noise_frames: list[Frame]) -> None:
    """Sixteen objects share a pass; sessions are used as with SAM 3, by Meta's interface as well."""
    session = ocelli.VideoSession(multiplex_model, noise_frames[:3], **OPTIONS)
    found = session.add_text(0, "dog")
    assert len(found) > 0
    frames = list(session.propagate())
    assert [frame.index for frame in frames] == [0, 1, 2]
    clicked = session.add_points(7, 1, [(20, 20)])
    assert {0, 7} <= set(clicked.object_ids)
    session.remove(0)
    after = list(session.propagate("backward", start=2))
    assert [frame.index for frame in after] == [1, 0]
    assert all(0 not in frame.object_ids and 7 in frame.object_ids for frame in after)

    from ocelli.sam3 import build_sam3_video_predictor

    predictor = build_sam3_video_predictor(multiplex_model, engine="embedded", threads=1, confidence=0.0)
    started = predictor.handle_request({"type": "start_session", "resource_path": noise_frames[:3]})
    asked = {"session_id": started["session_id"], "frame_index": 0, "text": "dog"}
    outputs = predictor.handle_request({"type": "add_prompt", **asked})["outputs"]
    assert np.array_equal(outputs["out_obj_ids"], found.object_ids)
    assert np.array_equal(outputs["out_binary_masks"], found.masks)
    stream = predictor.handle_stream_request({"type": "propagate_in_video", "session_id": started["session_id"]})
    for theirs, ours in zip(stream, frames, strict=True):
        assert theirs["frame_index"] == ours.index
        assert np.array_equal(theirs["outputs"]["out_obj_ids"], ours.object_ids)
        assert np.array_equal(theirs["outputs"]["out_binary_masks"], ours.masks)


def test_other_threads_run_meanwhile(tracker_model: Path, noise_frames: list[Frame]) -> None:
    """The second frame waits for another Python thread, which needs the GIL."""
    asked, passed = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asked.wait() and passed.set())

    class Reader:
        """What `ocelli._decode` opens."""

        name, size, frame_rate, frame_count, live, has_sound = "two frames", (WIDTH, HEIGHT), 10.0, 2, False, False

        def __init__(self) -> None:
            self._frames = iter(enumerate(noise_frames[:2]))

        def read(self, with_pixels: bool) -> tuple[int, float, Frame | None] | None:
            index, frame = next(self._frames)
            if index == 1:
                asked.set()
                assert passed.wait(60)
            return index, index / 10, frame if with_pixels else None

    class Videos:
        @staticmethod
        def open_video(name: str, live: bool | None, stream: int | None, ffmpeg: list[tuple[str, str]]) -> Reader:
            assert (stream, ffmpeg) == (1, [("threads", "2")])
            return Reader()

    from ocelli import _ocelli
    from ocelli._detector import DetectorOptions

    source = {
        "name": "video", "frame": None, "channel_order": "rgb", "files": None, "videos": Videos,
        "stream": 1, "ffmpeg": [("threads", "2")], "hwaccel": None,
    }  # fmt: skip
    options = {"temporal_disambiguation": True, "keep_features": None, "kept_frames": 0, "window": None}
    native = _ocelli.VideoSession(DetectorOptions(tracker_model, **OPTIONS).native, source, options)
    thread.start()
    native.add_mask(0, 0, (as_mask(LEFT).counts, WIDTH, HEIGHT))
    native.propagate("forward", None, None)
    seen: list[int] = []
    while (found := native.next_frame()) is not None:
        seen.append(found[0])
    thread.join()
    assert seen == [0, 1]


def test_what_is_refused(session: ocelli.VideoSession, noise_frames: list[Frame]) -> None:
    session.add_mask(3, 0, LEFT)
    session.remove(3)
    out, gone = "frame 6 is not in the video: expected 0 to 5", "object 3 was removed: .*or a new one, 4"
    box = (10, 8, 60, 50)
    calls: list[tuple[str, Callable[[], object]]] = [
        (out, lambda: session.add_text(6, "dog")),
        (out, lambda: session.add_box(6, box)),
        (out, lambda: session.add_points(0, 6, [(1, 1)])),
        (out, lambda: session.add_mask(0, 6, LEFT)),
        (out, lambda: session.propagate(start=6)),
        ("frame is -1: expected at least 0", lambda: session.add_text(-1, "dog")),
        ("start is -1: expected at least 0", lambda: session.propagate(start=-1)),
        ("object_id is -1: expected at least 0", lambda: session.remove(-1)),
        ("direction is 'up': expected|direction is \"up\": expected", lambda: session.propagate("up")),  # type: ignore[arg-type]
        (gone, lambda: session.remove(3)),
        (gone, lambda: session.add_points(3, 0, [(1, 1)])),
        (gone, lambda: session.add_mask(3, 0, LEFT)),
        (r"there is no object 9: expected one of \[\]", lambda: session.remove(9)),
        ("blank", lambda: session.add_text(0, " ")),
        ("has no exemplars", lambda: session.add_exemplars(0, ocelli.Prompt("dog"))),
        ("expected four numbers", lambda: session.add_box(0, (1, 2, 3))),
        ("outside the image", lambda: session.add_box(0, (200, 10, 230, 20))),
        ("expected two numbers", lambda: session.add_points(0, 0, [(1, 2, 3)])),
        ("click", lambda: session.add_points(0, 0)),
        ("4 × 3 pixels: expected 96 × 72", lambda: session.add_mask(0, 0, np.ones((3, 4)))),
        ("too few pixels", lambda: session.add_mask(0, 0, ~(LEFT | True))),
        ("it has 48×72 pixels", lambda: session.push(noise_frames[0][:, ::2].copy())),
        ("has no frames", lambda: session.open([])),
        ("expected a file or a folder", lambda: session.open("rtsp://camera/1")),
        ("stream is -1: expected at least 0", lambda: session.open("street.mp4", stream=-1)),
        ("not read by FFmpeg", lambda: session.open(noise_frames[:1], ffmpeg_options={"threads": "1"})),
    ]
    failures: list[str] = []
    for words, call in calls:
        try:
            call()
            failures.append(f"{words}: nothing was raised")
        except ocelli.InvalidArgument as error:
            if not _says(error, words):
                failures.append(f"{words}: {error}")
    assert not failures, "\n".join(failures)
    # The session goes on.
    assert len(session.add_text(0, "dog")) > 0


def _says(error: Exception, words: str) -> bool:
    import re

    return "\n" not in str(error) and re.search(words, str(error)) is not None


def test_models_and_options_that_do_not_fit(
    masking: ocelli.Detector, tracker_model: Path, noise_frames: list[Frame], tmp_path: Path
) -> None:
    with pytest.raises(ocelli.Mismatch, match="has no tracker"):
        ocelli.VideoSession(masking.model, noise_frames, engine="embedded")
    with pytest.raises(ocelli.InvalidArgument, match="keep_features"):
        ocelli.VideoSession(tracker_model, noise_frames, keep_features="disk")  # type: ignore[arg-type]
    with pytest.raises(ocelli.InvalidArgument, match="kept_frames is -1"):
        ocelli.VideoSession(tracker_model, noise_frames, kept_frames=-1)
    with pytest.raises(ocelli.InvalidArgument, match="none.mp4"):
        ocelli.VideoSession(tracker_model, tmp_path / "none.mp4", **OPTIONS)
    with pytest.raises(ocelli.InvalidArgument, match="has no images|has none"):
        ocelli.VideoSession(tracker_model, tmp_path, **OPTIONS)


def test_a_video_that_ends_early(tracker_model: Path, noise_frames: list[Frame], tmp_path: Path) -> None:
    path = write_video(tmp_path / "noise.mp4", noise_frames * 6)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    session = ocelli.VideoSession(tracker_model, path, **OPTIONS)
    assert session.frame_count == 36
    session.add_mask(0, 0, LEFT)
    run, seen = session.propagate("forward"), list[int]()
    with pytest.raises(ocelli.InvalidData, match="noise.mp4.*(ends after|cannot read|frame)") as raised:
        _collect(run, seen)
    assert "\n" not in str(raised.value)
    assert seen == list(range(len(seen))) and 0 < len(seen) < 36, "what was found before is shown"
    assert list(run) == [], "the run has ended"


def _collect(run: Iterator[ocelli.TrackedFrame], seen: list[int]) -> None:
    for frame in run:
        seen.append(frame.index)


def test_a_video_with_memory_has_the_lines_of_the_program(
    tracker_model: Path, noise_folder: Path, program: Run, tmp_path: Path
) -> None:
    shared = ("--engine", "embedded", "--threads", "1", "--confidence", "0", "--quiet")
    cases: list[tuple[list[str], dict[str, Any]]] = [
        ([], {}),
        (["--no-hotstart", "--max-objects", "2"], {"no_hotstart": True, "max_objects": 2}),
    ]
    for flags, options in cases:
        ran = program(
            "ocelli", "video", "--model", tracker_model, "--video", noise_folder, "--classes", "dog", "tree", "--memory",
            *flags, *shared, "--jsonl", tmp_path / "lines.jsonl",
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
        with ocelli.Video(noise_folder, ["dog", "tree"], model=tracker_model, memory=True, **options, **OPTIONS) as video:
            frames = list(video)
        assert [frame.to_dict() for frame in frames] == lines and len(lines) == 6
        for frame in frames:
            found = frame.detections
            assert found.masks is not None and len(frame.tracks) == len(found) > 0
            assert found.tracker_id is not None and sorted(found.tracker_id) == [one.tracker_id for one in frame.tracks]
            assert "max_objects" not in options or len(found) <= 4


def test_what_does_not_go_with_memory(tracker_model: Path, noise_frames: list[Frame]) -> None:
    cases: list[tuple[dict[str, Any], type[ocelli.Error], str]] = [
        ({"track": True}, ocelli.InvalidArgument, "tracker beside memory"),
        ({"appearance": True}, ocelli.InvalidArgument, "appearance beside memory"),
        ({"tile": "auto"}, ocelli.InvalidArgument, "tile beside memory"),
        ({"max_objects": 0}, ocelli.InvalidArgument, "max_objects is 0: expected at least 1"),
        ({"sequential": True}, ocelli.InvalidArgument, "leave out sequential"),
        ({"memory": False, "max_objects": 2}, ocelli.InvalidArgument, "set memory as well"),
        ({"memory": False, "no_hotstart": True}, ocelli.InvalidArgument, "set memory as well"),
        ({"model": None}, ocelli.Mismatch, "has no tracker"),
    ]
    for options, kind, message in cases:
        given: dict[str, Any] = {"model": tracker_model, "memory": True, **OPTIONS, **options}
        with pytest.raises(kind, match=message):
            ocelli.Video(noise_frames, ["dog"], **given)
