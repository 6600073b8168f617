"""Runs dataflows of dora with `ocelli-dora`, and takes part in them as a node in Python.

check.py OCELLI-DORA OCELLI SCENES FOLDER

pip install dora-rs==1.1.0 dora-rs-cli==1.1.0 pyarrow==26.0.1 numpy==2.4.6 pillow==13.0.0 pyyaml==6.0.4
"""

import json
import os
import signal
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image as PilImage

HERE = Path(__file__).resolve().parent
CLASSES = ["dog", "tree", "bicycle"]
FRAMES = 6
MARK = "OCELLI_CHECK"

IMAGE = pa.struct([("width", pa.uint32()), ("height", pa.uint32()), ("encoding", pa.utf8()), ("data", pa.large_binary())])
BOX = pa.struct([(name, pa.float32()) for name in ["x", "y", "width", "height", "confidence"]] + [("label", pa.utf8())])
DETECTION = pa.struct([("boxes", pa.large_list(pa.field("item", BOX)))])


def views(scenes):
    park = PilImage.open(Path(scenes) / "park.png").convert("RGB")
    return [park.crop((8 * index, 0, 8 * index + 480, 360)) for index in range(FRAMES)]


def run(*arguments, code=0, **options):
    done = subprocess.run([str(one) for one in arguments], capture_output=True, text=True, timeout=300, **options)
    assert (done.returncode == 0) == (code == 0), f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def expect(holds, what):
    assert holds, what
    print(f"ok: {what}", flush=True)


# The node.


class Peer:
    """A camera, and what listens to the detector."""

    def __init__(self, scenes, expected):
        from dora import Node

        self.node = Node()
        self.views = views(scenes)
        self.expected = [json.loads(line) for line in Path(expected).read_text().splitlines()]
        self.number = 0

    def send(self, array, **metadata):
        self.number += 1
        self.node.send_output("image", array, {"number": self.number, **metadata})
        return self.number

    def struct(self, index, encoding="rgb8"):
        view = self.views[index]
        if encoding in ("rgb8", "bgr8"):
            pixels = np.asarray(view)
            data = (pixels if encoding == "rgb8" else pixels[..., ::-1]).tobytes()
        else:
            data = self.file(index, encoding)
        return pa.array([{"width": view.width, "height": view.height, "encoding": encoding, "data": data}], IMAGE)

    def file(self, index, kind="png"):
        file = BytesIO()
        self.views[index].save(file, kind.upper())
        return file.getvalue()

    def receive(self, timeout):
        """The next detections with their metadata."""
        end = time.time() + timeout
        while time.time() < end:
            event = self.node.next(timeout=max(0.01, end - time.time()))
            if event is not None and event["type"] == "INPUT" and event["id"] == "detections":
                return event["value"], event["metadata"]
        return None

    def detect(self, array, timeout=20, **metadata):
        number = self.send(array, **metadata)
        while got := self.receive(timeout):
            if got[1]["number"] == number:
                return got
        raise AssertionError(f"no detections of image {number}")

    def found(self, array, **metadata):
        """Rounded detections of one image."""
        value, _ = self.detect(array, **metadata)
        return rounded(value)

    def of_frame(self, index):
        return [(d["label"], d["score"], *d["box"]) for d in self.expected[index]["detections"]]

    def change(self, classes, label):
        """Changes the classes, and waits until images show it."""
        self.node.send_output("classes", pa.array(classes), {})
        for _ in range(50):
            if {name for name, *_ in self.found(self.struct(0))} == label:
                return
        raise AssertionError(f"classes did not change to {classes}")


def rounded(value):
    boxes = value[0].as_py()["boxes"]
    corners = [(b["x"], b["y"], b["x"] + b["width"], b["y"] + b["height"]) for b in boxes]
    return [
        (b["label"], round(b["confidence"], 5), *(round(side, 2) for side in corner))
        for b, corner in zip(boxes, corners, strict=True)
    ]


def same(found, wanted):
    if [a[0] for a in found] != [b[0] for b in wanted]:
        return False
    return len(wanted) > 1 and all(np.allclose(a[1:], b[1:], atol=0.011) for a, b in zip(found, wanted, strict=True))


def detectors():
    """The processes of the detector of this check."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = mark in (process / "environ").read_bytes().split(b"\0")
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_ours and Path(command[0].decode()).name == "ocelli-dora":
            found.append(int(process.name))
    return found


def take_part(scenes, expected):
    peer = Peer(scenes, expected)
    metadata = {"camera": "front/ü", "exposure": 0.125, "raw": True, "gains": [1.5, 2.5], "shape": [3, 4], "tags": ["a"]}
    before = time.time_ns()
    value, found = peer.detect(peer.struct(0), timeout=60, **metadata)
    expect(value.type == DETECTION, "detections are of dora's standard type")
    expect(same(rounded(value), peer.of_frame(0)), "raw images: the boxes of `ocelli video`")
    expect({name: found[name] for name in metadata} == metadata, "metadata of the image is copied")
    expect(before <= found["image_time_ns"] <= time.time_ns(), "and has the time at which it was sent")
    _, found = peer.detect(peer.struct(0), image_time_ns=5)
    expect(found["image_time_ns"] == 5, "unless the image came with one")

    for index, (name, array, extra) in enumerate(
        [
            ("bgr8", peer.struct(1, "bgr8"), {}),
            ("files in std/media/v1/Image", peer.struct(2, "png"), {}),
            ("std/media/v1/CompressedImage", pa.array([peer.file(3)], pa.large_binary()), {}),
            ("bytes with metadata", pa.array(np.asarray(peer.views[4]).ravel()), dict(encoding="rgb8", width=480, height=360)),
        ]
    ):
        expect(same(peer.found(array, **extra), peer.of_frame(index + 1)), name)

    peer.send(peer.struct(0, "rgb8").slice(0, 0))
    peer.send(pa.array([1, 2, 3], pa.uint32()))
    peer.send(pa.array([b"no image"], pa.large_binary()))
    expect(same(peer.found(peer.struct(0)), peer.of_frame(0)), "what is no image harms nothing")

    peer.change(["dog"], set())
    peer.change(["bicycle, tree"], {"tree"})
    peer.change(["dog", "pizza"], set())
    peer.change(["tree"], {"tree"})
    print("ok: classes change while it runs", flush=True)
    peer.node.send_output("classes", pa.array([" , "]), {})
    found = peer.found(peer.struct(0))
    expect({name for name, *_ in found} == {"tree"}, "classes that are refused change nothing")

    # A camera that is faster than the detector.
    sent = [peer.send(peer.struct(index % FRAMES)) for index in range(40)]
    arrived = []
    while got := peer.receive(3):
        arrived.append(got[1]["number"])
    expect(arrived == sorted(arrived) and arrived[-1] == sent[-1], "the newest image is detected")
    expect(len(arrived) < len(sent), f"older ones are dropped: {len(arrived)} of {len(sent)} have results")

    times = []
    for _ in range(30):
        start = time.time_ns()
        peer.detect(peer.struct(0))
        times.append((time.time_ns() - start) / 1e6)
    p50, p90, p99 = np.percentile(times, [50, 90, 99])
    print(f"latency of 480x360: p50 {p50:.1f} ms, p90 {p90:.1f} ms, p99 {p99:.1f} ms, n {len(times)}", flush=True)

    (process,) = detectors()
    os.kill(process, signal.SIGKILL)
    for _ in range(60):
        peer.send(peer.struct(5))
        got = peer.receive(1)
        if got and got[1]["number"] == peer.number and detectors() not in ([], [process]):
            break
    expect(same(rounded(got[0]), peer.of_frame(5)), "a detector that was killed is started again")


# What starts it.


def dataflow(folder, program, source, queue_size, peer=None):
    """Our example with other programs and inputs."""
    import yaml

    flow = yaml.safe_load((HERE.parent / "dataflow.yml").read_text())
    camera, detector, recorder = flow["nodes"]
    for node in flow["nodes"]:
        node.pop("build", None)
        node["path"] = str(program)
    camera["args"] = source
    detector["inputs"]["image"]["queue_size"] = queue_size
    detector["env"] |= {"OCELLI_ENGINE": "embedded", "OCELLI_THREADS": "1"}
    recorder["args"] = "record objects.jsonl"
    if peer:
        flow["nodes"] = [peer, detector]
        detector["inputs"] |= {"image": {"source": "peer/image", "queue_size": 1}, "classes": "peer/classes"}
        detector["input_types"]["classes"] = "std/core/v1/String"
        detector["env"][MARK] = os.environ[MARK]
        detector["env"]["OCELLI_MASKS"] = False
    folder.mkdir()
    (folder / "types").symlink_to(HERE.parent / "types")
    file = folder / "dataflow.yml"
    file.write_text(yaml.safe_dump(flow))
    return file


def main(program, ocelli, scenes, folder):
    program, scenes, folder = Path(program).resolve(), Path(scenes).resolve(), Path(folder).resolve()
    dora = Path(sys.executable).parent / "dora"
    os.environ["PATH"] = f"{dora.parent}:{os.environ['PATH']}"
    os.environ[MARK] = str(os.getpid())

    run(dora, "validate", "--strict-types", HERE.parent / "dataflow.yml")
    print("ok: the example passes the strict check of types")

    images = folder / "images"
    images.mkdir()
    for index, view in enumerate(views(scenes)):
        view.save(images / f"{index}.png")
    expected = folder / "expected.jsonl"
    video = [ocelli, "video", "--video", images, "--classes", *CLASSES, "--track", "--engine", "embedded"]
    run(*video, "--masks", "--jsonl", expected)
    file = dataflow(folder / "all", program, f"source {images}", 100)
    run(dora, "run", file, cwd=folder)
    written = (file.parent / "objects.jsonl").read_text()
    expect(written == expected.read_text() and '"counts"' in written, f"the JSON lines of `ocelli video`, {FRAMES} frames")

    # All frames within less time than one takes.
    file = dataflow(folder / "newest", program, f"source {images} --frame-rate 1000", 1)
    run(dora, "run", file, cwd=folder)
    frames = [json.loads(line)["frame"] for line in (file.parent / "objects.jsonl").read_text().splitlines()]
    expect(frames == sorted(set(frames)) and frames[-1] == FRAMES - 1, "the last frame of a fast source is detected")
    expect(len(frames) < FRAMES, f"older ones are dropped: {len(frames)} of {FRAMES} have results")

    # A source without an end is stopped from outside.
    file = dataflow(folder / "endless", program, f"source {images} --repeat", 1)
    run(dora, "run", "--stop-after", "3s", file, cwd=folder)
    expect((file.parent / "objects.jsonl").read_text().endswith("}\n"), "a dataflow that is stopped has whole lines")

    peer = {
        "id": "peer",
        "path": str(Path(__file__).resolve()),
        "args": f"--peer {scenes} {expected}",
        "inputs": {"detections": {"source": "ocelli/detections", "queue_size": 100}},
        "input_types": {"detections": "std/vision/v1/Detection"},
        "outputs": ["image", "classes"],
        "output_types": {"image": "std/media/v1/Image", "classes": "std/core/v1/String"},
    }
    file = dataflow(folder / "peer", program, "", 1, peer)
    run(dora, "validate", "--strict-types", file)
    said = run(dora, "run", file, cwd=folder)
    print("\n".join(line for line in said.splitlines() if "ok: " in line or "latency of" in line))
    expect("a detector that was killed is started again" in said, "the node in Python has seen all of it")

    refused = run(program, code=1, env={**os.environ, "OCELLI_CONFIDENCE": "7"})
    expect("OCELLI_CONFIDENCE: confidence is 7" in refused, "an invalid parameter is one line")
    expect("no dataflow has started this program" in run(program, "record", folder / "x.jsonl", code=1), "and so is no dataflow")


if sys.argv[1] == "--peer":
    take_part(*sys.argv[2:])
else:
    main(*sys.argv[1:])
