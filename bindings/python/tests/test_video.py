import json
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from conftest import Run

import ocelli
from ocelli._detector import DetectorKeywords

Frame = npt.NDArray[np.uint8]
SIZE = (320, 192)
OPTIONS: DetectorKeywords = {"engine": "embedded"}


@pytest.fixture(scope="session")
def frames(park: Frame) -> list[Frame]:
    """A window that moves over a scene."""
    return [park[40:232, 4 * step : 4 * step + 320] for step in range(12)]


@pytest.fixture(scope="session")
def clip(frames: list[Frame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a video file of 10 frames a second."""
    av = pytest.importorskip("av")
    path = tmp_path_factory.mktemp("video") / "park.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        stream.options = {"crf": "10"}
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.fixture(scope="session")
def folder(frames: list[Frame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a folder of pictures."""
    import PIL.Image

    path = tmp_path_factory.mktemp("pictures")
    for number, frame in enumerate(frames):
        PIL.Image.fromarray(frame).save(path / f"frame {number}.png")
    return path


def test_frames_of_an_iterable(frames: list[Frame], detector: ocelli.Detector) -> None:
    results = list(ocelli.Video(iter(frames), ["dog", "tree"], **OPTIONS, fps=10))
    assert [one.index for one in results] == list(range(12))
    assert [round(one.time_s, 6) for one in results] == [round(step / 10, 6) for step in range(12)]
    for one, frame in zip(results, frames, strict=True):
        assert one.image is frame and one.detected and one.tracks == ()
        assert one.detections == detector.detect(frame, ["dog", "tree"])


def test_the_lines_are_those_of_the_program(folder: Path, program: Run, tmp_path: Path) -> None:
    ran = program(
        "demo-video", "--engine", "embedded", "--video", folder, "--classes", "dog", "tree", "--track",
        "--jsonl", tmp_path / "lines.jsonl", "--quiet",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    with ocelli.Video(folder, ["dog", "tree"], track=True, **OPTIONS) as video:
        assert [one.to_dict() for one in video] == lines
    assert len(lines) == 12 and all(line["tracks"] for line in lines[2:])


def test_the_same_tracks_by_hand(frames: list[Frame], detector: ocelli.Detector) -> None:
    tracker = ocelli.Tracker()
    seen = set[int]()
    for one in ocelli.Video(frames, ["dog", "tree"], track=True, **OPTIONS):
        found = tracker.update(detector.detect(one.image, ["dog", "tree"]))
        assert found == one.detections and tuple(tracker.tracks) == one.tracks
        assert found.tracker_id is not None and (found.tracked.tracker_id >= 1).all()  # type: ignore[operator]
        seen.update(track.tracker_id for track in one.tracks)
        drawn = one.plot()
        assert drawn.shape == one.image.shape and (drawn != one.image).any()
        assert pickle.loads(pickle.dumps(one)).to_dict() == one.to_dict()
    assert 1 <= len(seen) <= 4
    tracker.reset()
    assert tracker.tracks == []


def test_pushed_frames(frames: list[Frame]) -> None:
    with ocelli.Video(None, ["dog"], track=True, channel_order="bgr", keep_images=False, **OPTIONS) as video:
        assert video.receive(timeout=0.05) is None

        def push() -> None:
            for number, frame in enumerate(frames):
                assert video.push(frame[..., ::-1], time_s=number * 0.04) == number
            video.finish()

        thread = threading.Thread(target=push)
        thread.start()
        results = list(video)
        thread.join()
        assert [one.index for one in results] == list(range(12))
        assert results[3].time_s == pytest.approx(0.12) and results[3].image is None
        stats = video.stats
        assert (stats["frames_in"], stats["frames_out"], stats["frames_dropped"]) == (12, 12, 0)
        assert stats["latency_ms"]["p50"] > 0 and {stage["stage"] for stage in stats["stages"]} >= {"backbone", "decode"}
        with pytest.raises(ocelli.InvalidArgument, match="closed"):
            video.push(frames[0])


def test_the_latest_frame_wins(frames: list[Frame]) -> None:
    with ocelli.Video(None, ["dog"], policy="latest", **OPTIONS) as video:
        for number in range(200):
            video.push(frames[number % 12])
        video.finish()
        results = list(video)
        indices = [one.index for one in results]
        assert indices == sorted(set(indices)) and len(indices) < 200
        assert all(one.image is frames[one.index % 12] for one in results)
        assert video.stats["frames_dropped"] == 200 - len(indices)


def test_every_third_frame_and_a_class_budget(frames: list[Frame]) -> None:
    results = list(ocelli.Video(frames, ["dog", "tree", "car"], track=True, detect_every=3, class_budget=2, **OPTIONS))
    assert [one.detected for one in results] == [index % 3 == 0 for index in range(12)]


def test_options_of_sources(frames: list[Frame]) -> None:
    timed = [(index / 10, frame) for index, frame in enumerate(frames)]
    video = ocelli.Video(timed, ["dog"], start=0.2, end=1.0, stride=2, max_frames=3, **OPTIONS)
    assert [round(one.time_s, 3) for one in video] == [0.2, 0.4, 0.6]


def test_an_error_of_the_source_comes_after_its_frames(frames: list[Frame]) -> None:
    def broken() -> Iterator[Frame]:
        yield from frames[:3]
        raise RuntimeError("the camera is gone")

    received = []
    with pytest.raises(RuntimeError, match="the camera is gone"):
        for one in ocelli.Video(broken(), ["dog"], **OPTIONS):
            received.append(one.index)
    assert received == [0, 1, 2]
    with pytest.raises(ocelli.InvalidArgument, match="expected shape"):
        list(ocelli.Video([np.zeros((4, 4), np.uint8)], ["dog"], **OPTIONS))


def test_to_stop_in_the_middle(frames: list[Frame]) -> None:
    def endless() -> Iterator[Frame]:
        while True:
            yield from frames

    before = threading.active_count()
    start = time.monotonic()
    for one in ocelli.Video(endless(), ["dog"], **OPTIONS):
        if one.index == 3:
            break
    assert time.monotonic() - start < 30
    assert threading.active_count() == before


def test_sources_that_are_none(tmp_path: Path) -> None:
    for source, kind, message in [
        (tmp_path, ocelli.InvalidArgument, "no pictures"),
        (tmp_path / "*.png", ocelli.InvalidArgument, "no pictures"),
    ]:
        with pytest.raises(kind, match=message):
            ocelli.Video(source, ["dog"], **OPTIONS)
    with pytest.raises(ocelli.InvalidArgument, match="policy"):
        ocelli.Video(None, ["dog"], policy="some", **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(ocelli.InvalidArgument, match="min_hits"):
        ocelli.Tracker(min_hits=0)
    with pytest.raises(ocelli.InvalidArgument, match="match_classes"):
        ocelli.Tracker(match_classes="none")  # type: ignore[arg-type]


def test_a_video_file(clip: Path, frames: list[Frame]) -> None:
    results = list(ocelli.Video(clip, ["dog", "tree"], track=True, **OPTIONS))
    assert [round(one.time_s, 3) for one in results] == [round(step / 10, 3) for step in range(12)]
    for one, frame in zip(results, frames, strict=True):
        assert one.image.shape == frame.shape
        assert np.abs(one.image.astype(int) - frame).mean() < 8
    assert len(results[-1].tracks) >= 1
    pytest.importorskip("av")
    with pytest.raises(ocelli.InvalidArgument, match="no such file"):
        ocelli.Video("nowhere.mp4", ["dog"], **OPTIONS)
    broken = clip.with_name("broken.mp4")
    broken.write_bytes(b"no video at all")
    with pytest.raises(ocelli.InvalidData, match=r"broken\.mp4"):
        ocelli.Video(broken, ["dog"], **OPTIONS)


def test_the_program_reads_and_writes_videos(clip: Path, program: Run, tmp_path: Path) -> None:
    ran = program(
        "demo-video", "--engine", "embedded", "--video", clip, "--classes", "dog", "tree", "--track",
        "--jsonl", tmp_path / "lines.jsonl", "-o", tmp_path / "out.mp4",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    results = list(ocelli.Video(clip, ["dog", "tree"], track=True, **OPTIONS))
    assert [one.to_dict() for one in results] == lines
    import av

    with av.open(str(tmp_path / "out.mp4")) as container:
        stream = container.streams.video[0]
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert stream.average_rate == 10
    assert len(pictures) == 12
    drawn = results[6].plot()
    assert np.abs(pictures[6].astype(int) - drawn).mean() < 12
    truncated = tmp_path / "truncated.mp4"
    truncated.write_bytes(clip.read_bytes()[:200])
    ran = program("demo-video", "--video", truncated, "--classes", "dog")
    assert ran.returncode == 1 and ran.stderr.startswith("error: cannot open the video"), ran.stderr
    ran = program("demo-video", "--video", tmp_path / "none.mp4", "--classes", "dog")
    assert ran.returncode == 2 and "no such file" in ran.stderr
