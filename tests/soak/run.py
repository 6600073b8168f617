#!/usr/bin/env python3
"""Runs `ocelli video` for hours on a live stream that ends every minute, and watches its memory, files and threads.

    python3 tests/soak/run.py target/debug/ocelli --minutes 120 --output benchmarks/runs/DATE-soak-reconnecting

A camera of this script sends JPEG images over HTTP and closes the connection every minute; the program tracks, computes
masks and writes JSON lines. Every ten seconds its resident memory, open files and threads are read from /proc. The run
fails if, after the warm-up, memory grows by more than `--growth` MiB, or if there are more open files or threads in the
last third than in the first. The samples and a README.md go into the output folder, also if the run fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Sent at once when a client connects, as cameras with a buffer do: a decoder looks at the first images before it starts.
BURST = 8


class Camera(ThreadingHTTPServer):
    """Sends images at a rate and closes each connection after some seconds."""

    daemon_threads = True

    def __init__(self, images: list[bytes], rate: float, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.images, self.rate, self.seconds = images, rate, seconds
        self.connections = self.sent = 0

    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/stream"


class Connection(BaseHTTPRequestHandler):
    """One client of the camera."""

    server: Camera

    def do_GET(self) -> None:
        camera = self.server
        camera.connections += 1
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace;boundary=frame")
        self.end_headers()
        began, number = time.monotonic(), 0
        try:
            while (now := time.monotonic() - began) < camera.seconds:
                image = camera.images[camera.sent % len(camera.images)]
                head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(image)}\r\n\r\n"
                self.wfile.write(head.encode() + image + b"\r\n")
                camera.sent += 1
                number += 1
                time.sleep(max(0.0, (number - BURST) / camera.rate - now))
        except OSError:
            pass  # The program ended.

    def log_message(self, *_: object) -> None:
        pass


def sample(process: int, seconds: float, lines: Path) -> dict:
    """What the kernel says about a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line)
    times = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return {
        "seconds": round(seconds, 1),
        "resident_mib": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "files": len(os.listdir(f"/proc/{process}/fd")),
        "threads": int(status["Threads"]),
        "cpu_seconds": round((int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"), 1),
        "json_bytes": lines.stat().st_size if lines.exists() else 0,
    }


def judge(samples: list[dict], warm_up: float, growth_mib: float) -> tuple[list[str], float]:
    """What is not flat after the warm-up, and by how many MiB memory grew."""
    rest = [one for one in samples if one["seconds"] >= warm_up]
    if len(rest) < 9:
        return [f"{len(rest)} samples after the warm-up: expected at least 9"], 0.0
    third = len(rest) // 3
    first, last = rest[:third], rest[-third:]
    growth = statistics.median(one["resident_mib"] for one in last) - statistics.median(one["resident_mib"] for one in first)
    wrong = [f"resident memory grew by {growth:.1f} MiB: expected at most {growth_mib} MiB"] if growth > growth_mib else []
    for what in ("files", "threads"):
        before, after = (max(one[what] for one in part) for part in (first, last))
        if after > before:
            wrong.append(f"{after} {what} in the last third, {before} in the first")
    return wrong, growth


def report(folder: Path, command: str, samples: list[dict], figures: dict, wrong: list[str]) -> None:
    """Writes the run: the samples as JSON lines, and a page about them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "samples.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in samples))
    end = samples[-1]["seconds"]
    rows = [min(samples, key=lambda one: abs(one["seconds"] - end * part / 8)) for part in range(9)]
    table = "\n".join(
        f"| {one['seconds'] / 60:.0f} min | {one['resident_mib']} | {one['files']} | {one['threads']} | {one['cpu_seconds']:.0f} |" for one in rows
    )
    verdict = "Flat." if not wrong else "Not flat: " + "; ".join(wrong) + "."
    (folder / "README.md").write_text(
        f"# {end / 60:.0f} minutes of a stream that ends every {figures['connection_seconds']:.0f} seconds, {figures['date']}\n\n"
        f"`{command}`, by `tests/soak/run.py`; {figures['version']}; {figures['machine']}. The built-in model, two classes,\n"
        f"{figures['size']}, {figures['rate']:g} frames a second, tracks and masks, JSON lines into a file.\n\n"
        f"{verdict} {figures['connections']} connections, {figures['frames']} frames, {samples[-1]['json_bytes']:,} bytes of JSON lines;\n"
        f"after the first {figures['warm_up_minutes']:g} minutes resident memory grew by {figures['growth_mib']:.1f} MiB (the medians of the first and the\n"
        f"last third; allowed: {figures['allowed_mib']:g} MiB).\n\n"
        f"| after | resident MiB | open files | threads | CPU seconds |\n|---|---|---|---|---|\n{table}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ocelli", type=Path)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--warm-up", type=float, default=10, metavar="MINUTES", help="not judged [default: 10]")
    parser.add_argument("--rate", type=float, default=2, help="frames per second [default: 2]")
    parser.add_argument("--connection", type=float, default=60, metavar="SECONDS", help="until the stream ends [default: 60]")
    parser.add_argument("--growth", type=float, default=8, metavar="MIB", help="allowed after the warm-up [default: 8]")
    parser.add_argument("--every", type=float, default=10, metavar="SECONDS", help="between samples [default: 10]")
    parser.add_argument("--output", type=Path, required=True, help="folder of the samples and the page")
    arguments = parser.parse_args()
    ocelli = arguments.ocelli.resolve()
    with tempfile.TemporaryDirectory(prefix="ocelli-soak-") as place:
        work = Path(place)
        size = "640x480"
        # With a score that no detection has, nothing is drawn into the images.
        subprocess.run(
            [ocelli, "video", "--classes", "dog", "car", "--scene-size", size, "--max-frames", "100", "--confidence", "1", "-q",
             "-o", work / "images/%04d.jpg"], check=True,
        )
        camera = Camera([path.read_bytes() for path in sorted((work / "images").iterdir())], arguments.rate, arguments.connection)
        threading.Thread(target=camera.serve_forever, daemon=True).start()
        lines, messages = work / "lines.jsonl", work / "messages.txt"
        command = ["video", "--video", camera.url(), "--live", "--policy", "all", "--classes", "dog", "car", "--track", "--masks", "--engine",
                   "embedded", "--threads", "1", "--jsonl", "lines.jsonl"]
        with messages.open("w") as stderr:
            child = subprocess.Popen([ocelli, *command], cwd=work, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        samples, began, wrong = [], time.monotonic(), []
        try:
            while time.monotonic() - began < arguments.minutes * 60:
                time.sleep(arguments.every)
                if child.poll() is not None:
                    wrong.append(f"it ended after {time.monotonic() - began:.0f} s with status {child.returncode}")
                    break
                samples.append(sample(child.pid, time.monotonic() - began, lines))
                print(json.dumps({**samples[-1], "connections": camera.connections, "sent": camera.sent}), flush=True)
        except KeyboardInterrupt:
            pass  # What was sampled is judged.
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            try:
                status = child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                status = child.wait()
            if status != 130:
                wrong.append(f"status {status} after Ctrl-C: expected 130")
        frames = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        if [frame["frame"] for frame in frames] != list(range(len(frames))):
            wrong.append("frames are not numbered on")
        # A decoder keeps a few images of each connection.
        if len(frames) < 0.8 * camera.sent or not any(frame["tracks"] for frame in frames):
            wrong.append(f"{len(frames)} frames of {camera.sent} that were sent, or no tracks")
        print(messages.read_text()[-2000:])
    if not samples:
        raise SystemExit("; ".join(wrong) or "no sample")
    unsteady, growth = judge(samples, arguments.warm_up * 60, arguments.growth)
    wrong += unsteady
    figures = {
        "date": time.strftime("%Y-%m-%d"),
        "version": subprocess.run([ocelli, "--version"], capture_output=True, text=True, check=True).stdout.strip(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "size": size, "rate": arguments.rate, "connection_seconds": arguments.connection, "connections": camera.connections,
        "frames": len(frames), "warm_up_minutes": arguments.warm_up, "growth_mib": growth, "allowed_mib": arguments.growth,
    }
    shown = " ".join(["ocelli", *command]).replace(camera.url(), "http://…/stream")
    report(arguments.output, shown, samples, figures, wrong)
    if wrong:
        raise SystemExit("; ".join(wrong))


if __name__ == "__main__":
    main()
