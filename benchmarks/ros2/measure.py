"""Latency of nodes on ROS 2's wire: from the stamp of an image to the arrival of its detections at a subscriber.

measure.py OCELLI-ROS2 MODEL SCENE [--threads N] [--frames N] [--rounds N]

The nodes take turns. Prints a line of JSON for each round. Needs multicast on one interface, as integrations/check.sh sets it up
for the checks, and

    pip install -r integrations/peers.txt onnxruntime==1.32.0 supervision==0.27.0 tokenizers
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image as PilImage

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "integrations" / "ros2" / "tests"))
from peer import Peer, stop  # noqa: E402

CLASSES = ["dog", "tree", "bicycle", "person"]
VERSIONS = ["onnxruntime", "supervision", "numpy", "pillow", "cyclonedds"]
WARM_UP = 10


def node(name: str, arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    if name == "ocelli":
        options = [f"classes:=[{', '.join(CLASSES)}]", f"model:={arguments.model}", "engine:=onnxruntime"]
        options.append(f"threads:={arguments.threads}")
        flags = [flag for option in options for flag in ("-p", option)]
        return subprocess.Popen([arguments.program, "--ros-args", *flags], stderr=subprocess.DEVNULL)
    script = Path(__file__).with_name("node.py")
    return subprocess.Popen([sys.executable, script, arguments.model, str(arguments.threads), *CLASSES])


def measure(name: str, image: np.ndarray, arguments: argparse.Namespace) -> dict[str, object]:
    peer = Peer()
    running = node(name, arguments)
    try:
        peer.detect(image, tries=60)
        times, found = [], []
        for number in range(WARM_UP + arguments.frames):
            sent = peer.send(image)
            while got := peer.receive(5):
                stamp = got[0].header.stamp
                if (stamp.sec, stamp.nanosec) == sent:
                    if number >= WARM_UP:
                        times.append((got[1] - sent[0] * 10**9 - sent[1]) / 1e6)
                        found.append(len(got[0].detections))
                    break
        cpu = cpu_seconds(running.pid)
    finally:
        stop(running)
    p50, p90, p99 = np.percentile(times, [50, 90, 99]).round(2)
    return {
        "node": name, "n": len(times), "lost": arguments.frames - len(times), "p50_ms": p50, "p90_ms": p90, "p99_ms": p99,
        "detections": float(np.median(found)), "cpu_s": cpu,
    }  # fmt: skip


def cpu_seconds(process: int) -> float:
    """The CPU time of a process so far, its start included."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("scene")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rgb = np.asarray(PilImage.open(arguments.scene).convert("RGB"))[:480, :640]
    image = np.ascontiguousarray(rgb[..., ::-1])
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    machine = {
        "commit": commit, "date": time.strftime("%Y-%m-%d"), "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS},
        "width": image.shape[1], "height": image.shape[0], "threads": arguments.threads, "classes": len(CLASSES),
    }  # fmt: skip
    for round_ in range(arguments.rounds):
        for name in ["ocelli", "python"]:
            load = os.getloadavg()[0]
            line = {"round": round_, **measure(name, image, arguments), "load": round(load, 1), **machine}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
