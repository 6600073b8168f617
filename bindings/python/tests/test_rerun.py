"""What the Rerun viewer shows, read from recordings with Rerun's dataframe API."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ocelli
import ocelli.rerun

rr: Any = pytest.importorskip("rerun", reason="rerun-sdk is not installed: pip install ocelli-vision[rerun]")
pytest.importorskip("datafusion", reason='the readers are missing: pip install "rerun-sdk[catalog]"')

Frame = npt.NDArray[np.uint8]
Row = dict[str, Any]


def recorded(path: Path) -> Any:
    recording = rr.RecordingStream("ocelli-test")
    recording.save(str(path), default_blueprint=ocelli.rerun.blueprint("ocelli"))
    return recording


def rows(path: Path, index: str = "frame") -> list[Row]:
    """A row for each time, with the components that were logged then, by entity."""
    with rr.server.Server(datasets={"recording": [str(path)]}) as server:
        # The reader needs its client.
        client = server.client()
        reader = client.get_dataset("recording").reader(index=index)
        table: list[Row] = reader.to_arrow_table().to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in table]


def boxes(row: Row) -> npt.NDArray[np.float32]:
    centres, halves = (row[f"/ocelli/image/boxes:Boxes2D:{part}"] for part in ("centers", "half_sizes"))
    both = np.array(centres, np.float32).reshape(-1, 2), np.array(halves, np.float32).reshape(-1, 2)
    return np.concatenate([both[0] - both[1], both[0] + both[1]], axis=1)


def test_an_image(park: Frame, masking: ocelli.Detector, tmp_path: Path) -> None:
    found = masking.detect(park, ["dog", "tree"])
    recording = recorded(tmp_path / "park.rrd")
    recording.set_time("frame", sequence=7)
    found.log_to_rerun(park, recording=recording, jpeg_quality=None)
    recording.set_time("frame", sequence=8)
    found[:0].log_to_rerun(park[..., ::-1], recording=recording, channel_order="bgr", jpeg_quality=None)
    recording.disconnect()

    full, empty = rows(tmp_path / "park.rrd")
    assert (full["frame"], empty["frame"]) == (7, 8)
    np.testing.assert_allclose(boxes(full), found.xyxy, atol=1e-3)
    labels = [f"{one.class_name} {one.confidence:.2f}" for one in found]
    assert full["/ocelli/image/boxes:Boxes2D:labels"] == labels and len(labels) >= 4
    assert full["/ocelli/image/boxes:Boxes2D:class_ids"] == (found.class_id + 1).tolist()
    assert bytes(np.array(full["/ocelli/image:Image:buffer"][0], np.uint8)) == park.tobytes()
    assert bytes(np.array(empty["/ocelli/image:Image:buffer"][0], np.uint8)) == park[..., ::-1].tobytes()
    models = [row["/ocelli/image:Image:format"][0]["color_model"] for row in (full, empty)]
    assert models == [rr.ColorModel.RGB.value, rr.ColorModel.BGR.value]
    context = full["/ocelli/image:AnnotationContext:context"][0]
    assert {one["class_id"]: one["class_description"]["info"]["label"] for one in context} == {1: "dog", 2: "tree"}

    masks = np.array(full["/ocelli/image/masks:SegmentationImage:buffer"][0], np.uint8).view(np.uint16)
    expected = np.zeros(park.shape[:2], np.uint16)
    assert found.masks is not None
    for one in reversed(list(found)):
        assert one.mask is not None
        expected[one.mask.to_array()] = one.class_id + 1
    assert np.array_equal(masks.reshape(expected.shape), expected) and set(np.unique(masks)) == {0, 1, 2}

    for stage, milliseconds in found.times_ms.items():
        assert full[f"/ocelli/latency_ms/{stage}:Scalars:scalars"] == [milliseconds], stage
    assert len(boxes(empty)) == 0 and not empty["/ocelli/image/masks:SegmentationImage:buffer"], "both are cleared"


def test_a_tracked_video_has_trails_by_track_over_time(park: Frame, tmp_path: Path) -> None:
    views = [park[:, 4 * step : 4 * step + 640] for step in range(12)]
    # The view is covered: tracks are lost for a while, and their trails with them.
    views[6:10] = [np.full_like(views[0], 114)] * 4
    recording = recorded(tmp_path / "video.rrd")
    log = ocelli.rerun.VideoLog(recording=recording, trail_frames=3)
    frames = []
    with ocelli.Video(views, ["dog", "tree"], engine="embedded", track=True, fps=10) as video:
        for frame in video:
            log(frame)
            frames.append(frame)
    recording.disconnect()

    read = rows(tmp_path / "video.rrd")
    assert [row["frame"] for row in read] == list(range(12))
    times = [row["time"] for row in read]
    assert [round(one.total_seconds(), 6) for one in times] == [round(one.time_s, 6) for one in frames]
    centres: dict[int, dict[int, list[float]]] = {}
    lines = 0
    for frame, row in zip(frames, read, strict=True):
        tracks = sorted(frame.tracks, key=lambda track: -track.confidence)
        np.testing.assert_allclose(boxes(row), np.array([one.xyxy for one in tracks]).reshape(-1, 4), atol=1e-3)
        assert row["/ocelli/image/boxes:Boxes2D:class_ids"] == [one.tracker_id for one in tracks]
        named = [f"{one.tracker_id} {frame.detections.classes[one.class_id]} {one.confidence:.2f}" for one in tracks]
        assert row["/ocelli/image/boxes:Boxes2D:labels"] == named
        assert row["/ocelli/image:EncodedImage:media_type"] == ["image/jpeg"]
        for one in tracks:
            left, top, right, bottom = one.xyxy
            centres.setdefault(one.tracker_id, {})[frame.index] = [(left + right) / 2, (top + bottom) / 2]
        for number, seen in centres.items():
            latest = [centre for index, centre in seen.items() if frame.index - 3 <= index]
            line = row.get(f"/ocelli/image/trails/{number}:LineStrips2D:strips")
            assert bool(line) == (len(latest) > 1), (frame.index, number)
            if line:
                np.testing.assert_allclose(line[0], latest, atol=1e-3)
                lines += 1
    assert len(centres) >= 2 and lines > 10
    assert read[3]["/ocelli/latency_ms/total:Scalars:scalars"] == [frames[3].detections.times_ms["total"]]


def test_objects_of_a_session_have_trails(tmp_path: Path) -> None:
    size = (8, 4)
    square = np.zeros(size[::-1], np.bool_)
    square[1:3, 2:4] = True
    recording = recorded(tmp_path / "session.rrd")
    log = ocelli.rerun.VideoLog(recording=recording)
    for index in range(3):
        mask = ocelli.Mask.from_array(np.roll(square, index, axis=1))
        box = np.array([[2 + index, 1, 4 + index, 3]], np.float32)
        frame = ocelli.TrackedFrame(index, np.array([70_000]), np.ones(1, np.float32), box, [mask], size, "cup")
        log(frame, np.zeros((4, 8, 3), np.uint8))
    recording.disconnect()
    last = rows(tmp_path / "session.rrd")[-1]
    assert last["/ocelli/image/trails/70000:LineStrips2D:strips"] == [[[3.0, 2.0], [4.0, 2.0], [5.0, 2.0]]]
    assert last["/ocelli/image/boxes:Boxes2D:labels"] == ["70000 cup 1.00"]
    # Class ids have 16 bits.
    masks = np.array(last["/ocelli/image/masks:SegmentationImage:buffer"][0], np.uint8).view(np.uint16)
    assert np.array_equal(masks.reshape(4, 8), np.roll(square, 2, axis=1) * (70_000 - 0xFFFF))


def test_the_layout_is_in_the_recording(tmp_path: Path) -> None:
    from rerun.chunk import RrdReader

    path = tmp_path / "layout.rrd"
    recording = recorded(path)
    recording.set_time("frame", sequence=0)
    ocelli.Detections([], [], [], [], times_ms={"total": 5.0}).log_to_rerun(recording=recording)
    recording.disconnect()
    reader = RrdReader(str(path))
    (layout,) = reader.blueprints()
    views = {}
    for chunk in reader.stream(store=layout):
        columns = chunk.to_record_batch().to_pydict()
        if origin := columns.get("ViewBlueprint:space_origin"):
            views[origin[0][0]] = columns["ViewBlueprint:class_identifier"][0][0]
    assert views == {"/ocelli/image": "2D", "/ocelli/latency_ms": "TimeSeries"}
    assert len(ocelli.rerun.blueprint("left", "right").root_container.contents) == 2


def test_a_missing_package_is_one_clear_line() -> None:
    text = """
import sys
sys.modules["rerun"] = None
import numpy as np, ocelli, ocelli.rerun
found = ocelli.Detections([], [], [], [])
for call in (found.log_to_rerun, ocelli.rerun.VideoLog, ocelli.rerun.blueprint):
    try:
        call()
    except ocelli.Unavailable as error:
        print(error)
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert ran.stdout == 'rerun-sdk is not installed: run `pip install "ocelli-vision[rerun]"`\n' * 3, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recording": None}, "recording is None: call rerun.init first"),
        ({"jpeg_quality": 0}, "jpeg_quality is 0: expected 1 to 100"),
        ({"entity": "/"}, "entity is '/': expected a path"),
        ({"channel_order": "rgba"}, "channel_order is 'rgba': expected rgb or bgr"),
        ({"image": np.zeros((4, 4, 3), np.uint8)}, "image of 4x4: the detections are those of 8x6"),
        ({"image": np.zeros((6, 8), np.uint8)}, r"image, array of uint8 with shape \(6, 8\)"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    found = ocelli.Detections([], [], [], [], size=(8, 6))
    with pytest.raises(ocelli.InvalidArgument, match=message):
        found.log_to_rerun(**{"recording": rr.RecordingStream("ocelli-test"), **options})


def test_a_trail_has_a_length() -> None:
    with pytest.raises(ocelli.InvalidArgument, match="trail_frames is -1: expected at least 0"):
        ocelli.rerun.VideoLog(recording=rr.RecordingStream("ocelli-test"), trail_frames=-1)
