import base64
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from conftest import Run

import ocelli


def test_the_programs_say_what_they_are(program: Run) -> None:
    for name in ("ocelli", "demo-image", "demo-video"):
        ran = program(name, "--version")
        assert (ran.returncode, ran.stdout) == (0, f"{name} {ocelli.__version__}\n")
    ran = program("ocelli", "detect", "--help")
    assert ran.returncode == 0 and "--classes" in ran.stdout


def test_exit_statuses(program: Run, scenes: Path, tmp_path: Path) -> None:
    park = scenes / "park.png"
    broken = tmp_path / "broken.png"
    broken.write_text("no image")
    for arguments, status, said in [
        (["detect", "--image", park, "--classes", "dog", "--engine", "embedded"], 0, "engine: "),
        (["detect", "--image", broken, "--classes", "dog", "--engine", "embedded"], 1, "error: "),
        (["detect", "--image", park, "--nonsense"], 2, "error: unexpected argument '--nonsense'"),
        (["detect", "--image", park, "--classes", "dog", "--confidence", "7"], 2, "error: --confidence is 7"),
    ]:
        ran = program("ocelli", *arguments)
        assert (ran.returncode, said in ran.stderr) == (status, True), (arguments, ran.stderr)


def test_ctrl_c_ends_a_program(scenes: Path, tmp_path: Path) -> None:
    for number in range(300):
        os.link(scenes / "park.png", tmp_path / f"{number}.png") if os.stat(scenes).st_dev == os.stat(
            tmp_path
        ).st_dev else (tmp_path / f"{number}.png").write_bytes((scenes / "park.png").read_bytes())
    lines = tmp_path / "found.json"
    command = [Path(sys.executable).parent / "demo-image", "--engine", "embedded", "--image", tmp_path]
    process = subprocess.Popen(
        [*map(str, command), "--classes", *ocelli.vocabulary(), "--json", str(lines)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert 1 <= len(json.loads(lines.read_text())["images"]) < 300


def test_the_page_is_served(scenes: Path) -> None:
    command = [Path(sys.executable).parent / "ocelli", "serve", "--engine", "embedded", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(url, timeout=60) as page:
            assert "<title>" in page.read().decode()
        image = base64.b64encode((scenes / "park.png").read_bytes()).decode()
        body = json.dumps({"image": image, "classes": ["dog"]}).encode()
        request = urllib.request.Request(
            url + "v1/detect", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "dog" in json.dumps(found)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) in (0, 130)


def test_the_doctor_finds_the_libraries_of_this_environment(program: Run) -> None:
    ran = program("ocelli", "doctor")
    assert ran.returncode == 0
    for package in ("onnxruntime", "openvino"):
        found = [path for path in Path(sys.prefix).glob(f"lib/python3*/site-packages/{package}") if path.is_dir()]
        assert (str(found[0]) in ran.stdout) if found else True, ran.stdout
    reads_videos = ("reads           FFmpeg", "PyAV", "ocelli-vision[video]")
    assert any(words in ran.stdout for words in reads_videos), ran.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="TensorRT needs Linux here")
def test_the_wheel_carries_the_parts_for_tensorrt(program: Run, tmp_path: Path) -> None:
    ran = program("ocelli", "doctor")
    for part in ("libocelli_tensorrt.so", "libocelli_tensorrt_rtx.so"):
        assert f"{Path(ocelli.__file__).parent / part} (Python package), version 1" in ran.stdout, ran.stdout
    engine = tmp_path / "x.engine"
    engine.write_text("a plan")
    ran = program("demo-video", "--trt", str(engine), "--classes", "person", "car")
    assert ran.returncode == 1 and "NVIDIA" in ran.stderr, ran.stderr


def test_python_finds_the_libraries_of_this_environment() -> None:
    for package, engine in (("onnxruntime", "ONNX Runtime"), ("openvino", "OpenVINO")):
        if not list(Path(sys.prefix).glob(f"lib/python3*/site-packages/{package}")):
            continue
        detector = ocelli.Detector(engine=package)
        assert engine in detector.engine
        assert str(Path(sys.prefix).resolve()) in Path("/proc/self/maps").read_text()


def test_export(tmp_path: Path) -> None:
    checkpoint = Path(__file__).resolve().parents[3] / "tests" / "golden" / "parity" / "plain"
    steps: list[tuple[int, int, str]] = []
    manifest = ocelli.export(
        checkpoint, tmp_path / "model", imgsz=112, progress=lambda *step: steps.append(step)
    )
    assert manifest["imgsz"] == 112
    assert json.loads((tmp_path / "model" / "model.json").read_text()) == manifest
    assert len(steps) >= 4 and steps[0][:2] == (0, steps[0][1])
    found = ocelli.Detector(tmp_path / "model", engine="embedded")
    assert found.imgsz == 112 and found.model == tmp_path / "model"
    image = checkpoint.parents[1] / "scenes" / "00.png"
    calibrated = {"target": "tensorrt", "calibrate": image, "calibrate_classes": ["dog"]}
    for precision, name in [("fp8", "fp8"), ("int8", "int8-static")]:
        manifest = ocelli.export(checkpoint, tmp_path / precision, precision=precision, **calibrated)  # type: ignore[arg-type]
        assert manifest["precision"] == name and manifest["calibration"]["ranges"]
    for options, words in [
        ({"target": "abacus"}, "target"),
        ({"imgsz": 113}, "imgsz"),
        ({"precision": "fp8", "target": "tensorrt"}, "calibrate"),
        (calibrated | {"precision": "fp16"}, "calibrate"),
        (calibrated | {"precision": "fp8", "target": "onnxruntime"}, "tensorrt"),
        (calibrated | {"precision": "fp8", "calibrate": "nowhere.png"}, "nowhere.png"),
    ]:
        try:
            ocelli.export(checkpoint, tmp_path / "other", **options)  # type: ignore[arg-type]
        except ocelli.InvalidArgument as error:
            assert "\n" not in str(error) and words in str(error)
        else:
            raise AssertionError(options)


def test_label(program: Run, scenes: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for name in ("park", "street", "coast"):
        (images / f"{name}.png").write_bytes((scenes / f"{name}.png").read_bytes())
    (images / "broken.png").write_text("no image")
    classes = ["dog", "car", "boat"]
    steps: list[int] = []
    summary = ocelli.label(
        images, classes, tmp_path / "ours", model="built-in", formats=["yolo", "coco"], image_mode="copy",
        engine="embedded,embedded", progress=lambda done, total, name: steps.append(done),
    )  # fmt: skip
    assert (summary["images"], summary["failed"]) == (3, 1) and steps == [1, 2, 3, 4]
    assert [one["name"] for one in summary["classes"]] == classes
    assert list(summary["failures"]) == [str(images / "broken.png")]
    ran = program(
        "ocelli", "label", "--images", images, "--classes", *classes, "-o", tmp_path / "theirs", "--model", "built-in",
        "--format", "yolo,coco", "--copy", "--engine", "embedded",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    files = [
        path.relative_to(tmp_path / "theirs")
        for part in ("labels", "images")
        for path in sorted((tmp_path / "theirs" / part).rglob("*.*"))
    ]
    assert len(files) == 6
    for file in [*files, Path("annotations.json"), Path("classes.txt")]:
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes(), file
    again = ocelli.label(
        images, classes, tmp_path / "ours", model="built-in", formats=["yolo", "coco"], image_mode="copy", engine="embedded"
    )
    assert again["images"] == 3


def test_evaluate(program: Run, tmp_path: Path) -> None:
    report = ocelli.evaluate(scenes=6, engine="embedded", masks=True, save_predictions=tmp_path / "found.json")
    ran = program("ocelli", "eval", "--scenes", "6", "--engine", "embedded", "--masks", "--json", "-", "--quiet")
    assert ran.returncode == 0, ran.stderr
    theirs = json.loads(ran.stdout)
    for one in (report, theirs):
        for model in one["models"]:
            del model["timing_ms"]
    # Of the program's own process.
    assert theirs.pop("peak_memory_mib") > 0
    assert report == theirs
    assert report["models"][0]["bbox"]["ap"] > 0.4
    found = tmp_path / "found.json"
    saved = ocelli.evaluate(scenes=8, predictions=found, masks=True)
    ran = program("ocelli", "eval", "--scenes", "8", "--predictions", str(found), "--masks", "--json", "-", "--quiet")
    assert ran.returncode == 0, ran.stderr
    assert saved == json.loads(ran.stdout)
    assert saved["models"][0]["without_detections"] == ["scene 0006", "scene 0007"]


def test_a_comparison_is_that_of_the_program(program: Run, tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    report = ocelli.verify(engine="embedded", scenes=1, random_inputs=1, progress=lambda *step: told.append(step))
    ran = program(
        "ocelli", "verify", "--engine", "embedded", "--scenes", "1", "--random-inputs", "1", "--json", tmp_path / "report.json",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert report == json.loads((tmp_path / "report.json").read_text()) and report["accepted"] is True
    assert {side for _, _, side in told} == {"reference", "candidate"} and all(done < total for done, total, _ in told)
    for options, message in [
        ({}, "candidate is the reference"),
        ({"graphs": ["decoder"]}, "unknown variant `decoder`"),
        ({"engine": "embedded", "min_cosine": 2}, "min_cosine is 2: expected a number from -1 to 1"),
    ]:
        with pytest.raises(ocelli.InvalidArgument, match=message):
            ocelli.verify(**options)  # type: ignore[arg-type]
