import json
import os
import pickle
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import Run

import ocelli
from ocelli import _decode, _ocelli
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
    """The same as a folder of images."""
    import PIL.Image

    path = tmp_path_factory.mktemp("images")
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
    with ocelli.Video(folder, ["dog", "tree"], track=True, engine="embedded,embedded") as several:
        assert [one.to_dict() for one in several] == lines
        assert several.engine.count("mbedded") == 2


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


def test_the_motion_of_the_camera(park: Frame) -> None:
    # The image jumps back and forth, further than the boxes of a resting object overlap.
    shaken = [park[:, 50 * (index % 2) : 50 * (index % 2) + 640] for index in range(12)]
    ids = {}
    for camera_motion in (False, True):
        video = ocelli.Video(shaken, ["dog", "tree", "car"], track=True, camera_motion=camera_motion, **OPTIONS)
        ids[camera_motion] = {track.tracker_id for one in video for track in one.tracks}
    assert 0 < 2 * len(ids[True]) < len(ids[False]), ids
    with pytest.raises(ocelli.InvalidArgument, match="camera_motion and appearance are options of tracks"):
        ocelli.Video(shaken, ["dog"], camera_motion=True, **OPTIONS)


def test_numbers_of_any_type_and_wrong_ones(frames: list[Frame]) -> None:
    thirtieths = ocelli.Video(frames, ["dog"], fps=Fraction(30000, 1001), max_frames=np.int64(2), **OPTIONS)  # type: ignore[arg-type]
    assert [round(one.time_s, 4) for one in thirtieths] == [0.0, 0.0334]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"latency": "soon"}, "latency: unknown variant `soon`, expected one of"),
        ({"class_budget": 2.5}, "class_budget: invalid type"),
        ({"fps": float("nan")}, "frame_rate is nan: expected a number"),
        ({"fps": Path("x")}, "expected finite numbers and texts"),
    ]
    for options, message in cases:
        with pytest.raises(ocelli.InvalidArgument, match=message):
            ocelli.Video(None, ["dog"], **options, **OPTIONS)


def test_what_objects_look_like(park: Frame) -> None:
    # They are hidden, and then elsewhere.
    grey = np.full_like(park[:, :640], 128)
    hidden = [park[:, :640]] * 4 + [grey] * 6 + [park[:, 70:710]] * 4
    ids = {}
    for appearance in (False, True):
        video = ocelli.Video(hidden, ["dog", "tree", "car"], track=True, appearance=appearance, **OPTIONS)
        ids[appearance] = {track.tracker_id for one in video for track in one.tracks}
    assert 0 < len(ids[True]) < len(ids[False]), ids
    with pytest.raises(ocelli.InvalidArgument, match="camera_motion and appearance are options of tracks"):
        ocelli.Video(hidden, ["dog"], appearance=True, **OPTIONS)


def test_options_of_sources(frames: list[Frame]) -> None:
    timed = [(index / 10, frame) for index, frame in enumerate(frames)]
    video = ocelli.Video(timed, ["dog"], start=0.2, end=1.0, stride=2, max_frames=3, **OPTIONS)
    assert [round(one.time_s, 3) for one in video] == [0.2, 0.4, 0.6]


def test_options_of_frames_without_times(frames: list[Frame]) -> None:
    video = ocelli.Video(frames, ["dog"], fps=10, start=0.2, end=1.0, stride=3, **OPTIONS)
    results = list(video)
    assert [round(one.time_s, 3) for one in results] == [0.2, 0.5, 0.8]
    assert [one.image is frames[place] for one, place in zip(results, (2, 5, 8), strict=True)] == [True] * 3

    def ends_after(count: int) -> Iterator[Frame]:
        yield from frames[:count]
        raise RuntimeError("read too far")

    assert len(list(ocelli.Video(ends_after(4), ["dog"], stride=3, max_frames=2, **OPTIONS))) == 2


def test_where_a_frame_is_from(frames: list[Frame], folder: Path) -> None:
    with ocelli.Video(None, ["dog"], name="gate", **OPTIONS) as video:
        video.push(frames[0], wall_time=1_700_000_000.25)
        video.push(folder / "frame 3.png")
        video.finish()
        taken, read = video
    assert (taken.source, taken.file, taken.wall_time) == ("gate", None, 1_700_000_000.25)
    line = taken.to_dict()
    assert (line["source"], line["wall_time"], "file" in line) == ("gate", 1_700_000_000.25, False)
    line = read.to_dict()
    assert (line["source"], line["file"], "wall_time" in line) == ("gate", str(folder / "frame 3.png"), False)
    assert pickle.loads(pickle.dumps(read)).to_dict() == line


def test_latency(frames: list[Frame]) -> None:
    expected = [one.to_dict() for one in ocelli.Video(frames, ["dog", "tree"], track=True, **OPTIONS)]
    for latency in ("low", "balanced", "throughput"):
        video = ocelli.Video(frames, ["dog", "tree"], track=True, latency=latency, **OPTIONS)  # type: ignore[arg-type]
        assert [one.to_dict() for one in video] == expected, latency
    # One frame at a time: the result is there when the frame is pushed.
    with ocelli.Video(None, ["dog"], latency="low", **OPTIONS) as video:
        for frame in frames:
            index = video.push(frame)
            found = video.receive(timeout=0)
            assert found is not None and found.index == index
    for latency, most in (("low", 2), ("balanced", 3)):
        with ocelli.Video(None, ["dog"], policy="latest", latency=latency, **OPTIONS) as video:  # type: ignore[arg-type]
            for number in range(200):
                video.push(frames[number % 12])
            stats = video.stats
            video.finish()
            inside = stats["frames_in"] - stats["frames_out"] - stats["frames_dropped"]
            assert inside <= most and stats["frames_dropped"] > 0, (latency, stats)
            indices = [one.index for one in video]
            assert indices[-1] == 199 and indices == sorted(set(indices))
    with pytest.raises(ocelli.InvalidArgument, match="unknown variant `soon`, expected one of `low`"):
        ocelli.Video(None, ["dog"], latency="soon", **OPTIONS)  # type: ignore[arg-type]


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
        (tmp_path, ocelli.InvalidArgument, "no images"),
        (tmp_path / "*.png", ocelli.InvalidArgument, "no images"),
    ]:
        with pytest.raises(kind, match=message):
            ocelli.Video(source, ["dog"], **OPTIONS)
    with pytest.raises(ocelli.InvalidArgument, match="policy"):
        ocelli.Video(None, ["dog"], policy="some", **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(ocelli.InvalidArgument, match="min_hits"):
        ocelli.Tracker(min_hits=0)
    with pytest.raises(ocelli.InvalidArgument, match="match_classes.*unknown variant `none`"):
        ocelli.Tracker(match_classes="none")  # type: ignore[arg-type]
    with pytest.raises(ocelli.InvalidArgument, match="match_iou"):
        ocelli.Tracker(match_iou=float("nan"))
    assert ocelli.Tracker(min_hits=np.int64(3), match_iou=np.float32(0.5)).tracks == []  # type: ignore[arg-type]


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
        images = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert stream.average_rate == 10
    assert len(images) == 12
    drawn = results[6].plot()
    assert np.abs(images[6].astype(int) - drawn).mean() < 12
    truncated = tmp_path / "truncated.mp4"
    truncated.write_bytes(clip.read_bytes()[:200])
    ran = program("demo-video", "--video", truncated, "--classes", "dog")
    assert ran.returncode == 1 and ran.stderr.startswith("error: cannot open the video"), ran.stderr
    ran = program("demo-video", "--video", tmp_path / "none.mp4", "--classes", "dog")
    assert ran.returncode == 2 and "no such file" in ran.stderr


def test_a_video_in_the_current_folder(
    clip: Path, program: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Written beside its place: the folder of temporary files may be another file system.
    writer = _decode.create_video("new.mp4", 10)
    assert [path.suffix for path in tmp_path.iterdir()] == [".mp4"]
    writer.finish()
    assert list(tmp_path.iterdir()) == []
    ran = program(
        "demo-video", "--engine", "embedded", "--video", clip, "--classes", "dog", "--start", "0:00.5", "-o", "out.mp4", "--quiet"
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    # From the first frame that was asked for: nothing is repeated before it.
    assert len(_images(Path("out.mp4"))) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["out.mp4"]


@pytest.mark.parametrize(
    "address",
    [
        "rtsp://admin:secret@127.0.0.1:1/x",
        "rtsp://admin:a/secret@127.0.0.1:1/x",
        "http://127.0.0.1:1/x?user=a&pwd=secret",
        "http://127.0.0.1:1/user=a&password=secret&channel=1",
    ],
)
def test_no_error_has_a_password(program: Run, address: str) -> None:
    pytest.importorskip("av")
    for reader in readers():
        with pytest.raises(ocelli.Error) as raised:
            reader(address)
        assert "127.0.0.1" in str(raised.value)
        assert "secret" not in "".join(traceback.format_exception(raised.value))
    for missing in ("rtsp:/u:secret@h/x", "admin:secret@10.0.0.7/x"):
        with pytest.raises(ocelli.InvalidArgument) as raised:
            ocelli.Video(missing, ["dog"], **OPTIONS)
        assert "secret" not in str(raised.value)
    ran = program(
        "ocelli", "video", "--engine", "embedded", "--video", address, "--classes", "dog", "-v", "--reconnect", "1"
    )  # fmt: skip
    assert ran.returncode != 0
    assert "secret" not in ran.stderr + ran.stdout


def test_a_live_stream_goes_on_after_a_frame_that_cannot_be_decoded(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "broken.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuvj420p"
        for number in range(12):
            image = np.full((48, 64, 3), 20 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    content = bytearray(path.read_bytes())
    starts = [at for at in range(len(content) - 2) if content[at : at + 3] == b"\xff\xd8\xff"]
    content[starts[5] : starts[6] - 8] = bytes(starts[6] - 8 - starts[5])
    path.write_bytes(content)

    def read(live: bool) -> int:
        reader = _decode.open_video(str(path), live)
        return sum(1 for _ in iter(reader.read, None))

    assert read(live=True) == 11
    with pytest.raises(ocelli.InvalidData, match="cannot read frame"):
        read(live=False)


def test_another_stream_and_an_option_of_ffmpeg(tmp_path: Path, frames: list[Frame]) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "two.mkv"
    with av.open(str(path), "w") as container:
        sizes = ((64, 48), (96, 32))
        streams = [container.add_stream("mpeg4", rate=10) for _ in sizes]
        for stream, (width, height) in zip(streams, sizes, strict=True):
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for _ in range(4):
            for stream, (width, height) in zip(streams, sizes, strict=True):
                image = np.zeros((height, width, 3), np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        for stream in streams:
            container.mux(stream.encode(None))
    for reader in readers():
        found = [_shape(reader(str(path), stream=number)) for number in (None, 0, 1)]
        assert found == [(48, 64, 3), (48, 64, 3), (32, 96, 3)]
        with pytest.raises(ocelli.InvalidData, match="no video stream 2: it has 2, and the first is 0"):
            reader(str(path), stream=2)
        # Key frames alone: of four frames, the first. A live stream may end early.
        keys = reader(str(path), live=True, stream=1, ffmpeg=[("skip_frame", "nokey")])
        assert _shape(keys) == (32, 96, 3)
    with pytest.raises(ocelli.InvalidArgument, match="not read by FFmpeg"):
        ocelli.Video(iter(frames), ["dog"], stream=1, **OPTIONS)


def readers() -> list[Callable[..., Any]]:
    """What opens videos here: PyAV, and the video library if it is installed."""
    native = [_with_library] if _ocelli.why_no_video_library() is None else []
    return [_decode.VideoReader, *native]


def _with_library(
    name: str, *, live: bool | None = None, stream: int | None = None, ffmpeg: Sequence[tuple[str, str]] = ()
) -> _ocelli.VideoReader:
    return _ocelli.VideoReader(name, live, stream, ffmpeg, None)


def _shape(reader: Any) -> tuple[int, ...]:
    found = reader.read()
    reader.close()
    shape: tuple[int, ...] = found[2].shape
    return shape


def test_the_video_library_reads_what_pyav_reads(clip: Path) -> None:
    if _ocelli.why_no_video_library() is not None:
        pytest.skip("the video library is not installed")
    reader = _with_library(str(clip))
    assert (reader.frame_rate, reader.live) == (10.0, False)
    both = list(zip(iter(reader.read, None), iter(_decode.VideoReader(str(clip)).read, None), strict=True))
    assert len(both) == 12
    for mine, theirs in both:
        assert mine[0] == theirs[0] and abs(mine[1] - theirs[1]) < 1e-3
        assert np.abs(mine[2].astype(int) - theirs[2]).max() <= 3
        assert mine[2].flags.writeable and mine[2].flags.c_contiguous
    # What was read stays; what is closed ends.
    reader = _with_library(str(clip))
    first, kept = reader.read(), None
    assert first is not None
    kept = first[2].copy()
    second = reader.read()
    assert second is not None and np.array_equal(first[2], kept) and not np.array_equal(second[2], kept)
    reader.close()
    assert reader.read() is None
    with pytest.raises(ocelli.InvalidData, match="hwaccel nonsense"):
        _ocelli.VideoReader(str(clip), None, None, [], "nonsense")


def test_a_read_that_waits_for_a_server_ends_when_the_video_is_closed(frames: list[Frame], tmp_path: Path) -> None:
    if _ocelli.why_no_video_library() is not None:
        pytest.skip("the video library is not installed")
    av = pytest.importorskip("av")
    path = tmp_path / "part.ts"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg2video", rate=10)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for frame in frames * 4:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode(None))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/part.ts"
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\n\r\n" + path.read_bytes())

        threading.Thread(target=serve, daemon=True).start()
        reader = _ocelli.VideoReader(address, True, None, [], None)
        assert reader.read() is not None
        thread = threading.Thread(target=lambda: list(iter(reader.read, None)), daemon=True)
        thread.start()
        # It has read what there is, and waits.
        thread.join(1.0)
        began = time.monotonic()
        reader.close()
        thread.join(4.0)
        assert not thread.is_alive() and time.monotonic() - began < 3.0
    for connection in held:
        connection.close()


def test_a_session_reads_through_the_video_library(clip: Path, tracker_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if _ocelli.why_no_video_library() is not None:
        pytest.skip("the video library is not installed")

    def never(*_: object) -> object:
        raise AssertionError("PyAV was asked")

    monkeypatch.setattr(_decode, "open_video", never)
    session = ocelli.VideoSession(tracker_model, clip, **OPTIONS)
    assert session.frame_count == 12
    assert sum(1 for _ in ocelli.Video(clip, ["dog"], **OPTIONS)) == 12


def test_the_umask_decides_who_can_read_a_video(tmp_path: Path, frames: list[Frame]) -> None:
    before = os.umask(0o077)
    try:
        _written(tmp_path / "private.mp4", 10, [(0.0, frames[0])])
    finally:
        os.umask(before)
    assert (tmp_path / "private.mp4").stat().st_mode & 0o777 == 0o600


def _images(path: Path) -> list[Frame]:
    import av

    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def _written(path: Path, rate: float, times_and_images: list[tuple[float, Frame]]) -> list[Frame]:
    """The images of a video that these were written to."""
    pytest.importorskip("av")
    writer = _decode.create_video(path, rate)
    for time_s, image in times_and_images:
        writer.write(time_s, image)
    writer.finish()
    return _images(path)


def _grey(level: int, width: int = 64, height: int = 48) -> Frame:
    return np.full((height, width, 3), level, np.uint8)


def _levels(images: list[Frame]) -> list[int]:
    return [round(float(image.mean()) / 20) * 20 for image in images]


def test_the_first_frame_of_a_video_is_its_start(tmp_path: Path) -> None:
    timed = [(60.0 + number / 10, _grey(40 + 20 * number)) for number in range(4)]
    assert _levels(_written(tmp_path / "late.mp4", 10, timed)) == [40, 60, 80, 100]


def test_a_long_gap_of_a_video_is_cut(tmp_path: Path) -> None:
    timed = [(0.0, _grey(40)), (0.3, _grey(80)), (3600.0, _grey(120)), (3600.1, _grey(160)), (3600.3, _grey(200))]
    levels = _levels(_written(tmp_path / "gap.mp4", 10, timed))
    assert levels == [40] * 3 + [80] * 101 + [120, 160, 160, 200]


def test_frames_that_arrive_faster_are_left_out(tmp_path: Path) -> None:
    timed = [(number / 60, _grey(40 + number)) for number in range(120)]
    # Two seconds at 30 frames a second.
    images = _written(tmp_path / "fast.mp4", 30, timed)
    assert 60 <= len(images) <= 61
    # Each is shown within an interval of its time.
    for number, image in enumerate(images):
        assert abs(float(image.mean()) - (40 + 2 * number)) <= 4


def test_images_of_other_sizes_fit_into_a_video(tmp_path: Path) -> None:
    sizes = [(63, 47), (128, 48), (32, 96), (20, 20), (1, 400)]
    timed = [(number / 10, _grey(200, *size)) for number, size in enumerate(sizes)]
    images = _written(tmp_path / "sizes.mp4", 10, timed)
    assert {image.shape for image in images} == {(48, 64, 3)} and len(images) == len(sizes)
    bright = [(image[:47, :63] > 100).any(axis=2) for image in images]
    lit = [(int(one.any(axis=0).sum()), int(one.any(axis=1).sum())) for one in bright]
    # Scaled to touch two sides, on black.
    for found, wanted in zip(lit, [(63, 47), (63, 24), (16, 47), (47, 47)], strict=False):
        assert abs(found[0] - wanted[0]) <= 2 and abs(found[1] - wanted[1]) <= 2, (found, wanted)
    assert lit[-1][1] >= 40
    # Odd sides are completed, and nothing is scaled.
    stripes = np.zeros((47, 63, 3), np.uint8)
    stripes[:, np.arange(63) // 4 % 2 == 1] = 255
    back = _written(tmp_path / "stripes.mp4", 10, [(0.0, stripes)])[0][:47, :63]
    assert np.abs(back.astype(int) - stripes).mean() < 12
    # The encoder's smallest.
    assert _written(tmp_path / "tiny.mp4", 10, [(0.0, _grey(90, 5, 3))])[0].shape == (16, 16, 3)
