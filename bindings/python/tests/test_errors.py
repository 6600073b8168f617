import importlib.metadata
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import ocelli


def test_there_is_an_exception_for_each_kind() -> None:
    kinds = [
        ocelli.InvalidArgument, ocelli.InvalidData, ocelli.Mismatch, ocelli.Unavailable, ocelli.Io, ocelli.Execution,
        ocelli.Cancelled, ocelli.Internal,
    ]  # fmt: skip
    assert all(issubclass(kind, ocelli.Error) for kind in kinds)
    assert issubclass(ocelli.InvalidArgument, ValueError) and issubclass(ocelli.Io, OSError)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"engine": "abacus"}, ocelli.InvalidArgument, "abacus"),
        ({"engine": "embedded,embedded"}, ocelli.InvalidArgument, "list of devices"),
        ({"confidence": 7}, ocelli.InvalidArgument, "confidence is 7: expected a number from 0 to 1"),
        ({"nms": -0.5}, ocelli.InvalidArgument, "nms is -0.5"),
        ({"threads": 0}, ocelli.InvalidArgument, "threads is 0"),
        ({"screen": 1.5}, ocelli.InvalidArgument, "screen is 1.5"),
        ({"tile": 8}, ocelli.InvalidArgument, "tile is 8: expected auto, or a size of at least 32 pixels"),
        ({"tile": "auto", "tile_overlap": 2}, ocelli.InvalidArgument, "tile_overlap is 2: expected 0 to 0.8"),
        ({"imgsz": 99}, ocelli.InvalidArgument, "99"),
        ({"class_chunk": 0}, ocelli.InvalidArgument, "class_chunk is 0"),
        ({"precision": "fp7"}, ocelli.InvalidArgument, "precision"),
        ({"model": "/nowhere"}, ocelli.InvalidArgument, "/nowhere"),
        ({"engine": "onnxruntime", "onnxruntime": "/nowhere/libonnxruntime.so"}, ocelli.Unavailable, "/nowhere"),
        ({"engine": "tensorrt"}, ocelli.Unavailable, "engine tensorrt: "),
    ],
)
def test_options_that_do_not_fit(options: dict[str, object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as raised:
        ocelli.Detector(**options)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value) and len(str(raised.value)) > 10 and "--" not in str(raised.value)


def test_a_missing_engine_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a process of its own: where to search is set once.
    text = """
        import ocelli, ocelli._ocelli, sys
        ocelli._ocelli.set_python_packages([sys.argv[1]])
        try:
            ocelli.Detector(engine="openvino")
        except ocelli.Unavailable as error:
            print(error)
    """
    environment = {"HOME": str(tmp_path), "OCELLI_HOME": str(tmp_path), "PATH": "/usr/bin", "LD_LIBRARY_PATH": ""}
    ran = _python(text, str(tmp_path), environment=environment)
    assert 'pip install "ocelli-vision[cpu]"' in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4), np.uint8), "uint8 array of shape"),
        (np.zeros((4, 4, 4), np.uint8), "expected shape"),
        (np.zeros((4, 4, 3), np.float32), "float32 array"),
        (np.zeros((4, 4, 3), np.int8), "int8 array"),
        (np.zeros((0, 4, 3), np.uint8), "at least one pixel"),
        ([[1, 2, 3]], "list"),
        (None, "NoneType"),
    ],
)
def test_images_that_are_none(detector: ocelli.Detector, image: object, message: str) -> None:
    with pytest.raises(ocelli.InvalidArgument, match=message):
        detector.detect(image, ["dog"])  # type: ignore[arg-type]


def test_other_arguments(detector: ocelli.Detector, park: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(ocelli.InvalidArgument, match="no prompts"):
        detector.detect(park, [])
    with pytest.raises(ocelli.InvalidArgument, match="blank"):
        detector.detect(park, ["dog", " "])
    with pytest.raises(ocelli.InvalidArgument, match="channel_order"):
        detector.detect(park, ["dog"], channel_order="rbg")  # type: ignore[arg-type]
    with pytest.raises(ocelli.InvalidArgument, match="no area"):
        detector.detect(park, ocelli.Prompt("dog", exemplars=[(9, 9, 2, 2)]))
    with pytest.raises(ocelli.InvalidArgument, match="expected one of them"):
        detector.detect(park, ocelli.Prompt())
    with pytest.raises(ocelli.Io, match="none.png"):
        detector.detect(tmp_path / "none.png", ["dog"])
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ocelli.InvalidData, match="text.png"):
        detector.detect(tmp_path / "text.png", ["dog"])
    with pytest.raises(ocelli.InvalidData):
        ocelli.Mask("nonsense", 4, 4).to_array()
    with pytest.raises(ocelli.InvalidArgument, match="rows"):
        ocelli.Detections([[0, 0, 1, 1]], [], [], [])
    # The detector goes on.
    assert len(detector.detect(park, ["dog"])) == 2


def _python(
    text: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def _interrupted(text: str, delay: float) -> tuple[int, str, float]:
    """Sends Ctrl-C some time after the line `ready`; the status, stderr, and the seconds until the end."""
    # A shell starts what runs in the background with the signal ignored, and Python leaves it so.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", heard + textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, said = process.communicate(timeout=120)
    return process.returncode, said, time.monotonic() - start


def test_ctrl_c_ends_a_long_detection() -> None:
    text = """
        import numpy, ocelli, time
        detector = ocelli.Detector(engine="embedded", confidence=0.0)
        frame = numpy.zeros((64, 64, 3), numpy.uint8)
        detector.prepare(ocelli.vocabulary())
        words = [f"{word} {number}" for word in ocelli.vocabulary() for number in range(40)]
        print("ready")
        detector.detect(frame, words)
    """
    status, said, seconds = _interrupted(text, 1.0)
    assert "KeyboardInterrupt" in said, (status, said)
    assert seconds < 5


def test_after_ctrl_c_the_array_is_free() -> None:
    text = """
        import ocelli
        detector = ocelli.Detector(engine="embedded", confidence=0.0)
        detector.prepare(ocelli.vocabulary())
        words = [f"{word} {number}" for word in ocelli.vocabulary() for number in range(40)]
        frame = memoryview(bytearray(64 * 64 * 3)).cast("B", (64, 64, 3))
        print("ready")
        try:
            detector.detect(frame, words)
        except KeyboardInterrupt:
            # A BufferError if anything still refers to the memory.
            frame.release()
            raise
    """
    status, said, _ = _interrupted(text, 1.0)
    assert "KeyboardInterrupt" in said and "BufferError" not in said, (status, said)


def test_ctrl_c_ends_an_evaluation() -> None:
    text = """
        import ocelli
        ready = lambda done, total, name: print("ready") if done == 1 else None
        ocelli.evaluate(scenes=400, engine="embedded", progress=ready)
    """
    status, said, seconds = _interrupted(text, 0.2)
    assert "KeyboardInterrupt" in said, (status, said)
    assert seconds < 20


def test_ray_is_not_needed() -> None:
    text = """
        import sys
        sys.modules["ray"] = None
        import ocelli
        print(ocelli.Detector(engine="embedded").engine)
        try:
            import ocelli.ray
        except ocelli.Unavailable as error:
            print(error)
    """
    ran = _python(text)
    assert ran.stdout.splitlines()[1:] == ['ray is not installed: run `pip install "ocelli-vision[ray]"`'], ran.stderr
    assert any(line.startswith("ray[data]") for line in importlib.metadata.requires("ocelli-vision") or [])
