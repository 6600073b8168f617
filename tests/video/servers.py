#!/usr/bin/env python3
"""Reads from live servers and writes to them, with servers of FFmpeg, GStreamer and Python on this machine.

    servers.py FOLDER PROGRAM [NAME…]

A line for each protocol and check, and exit status 1 if one fails. Names select protocols: `rtsp`, `to-rtsp`, …
"""

import concurrent.futures
import functools
import http.server
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

RATE, SECONDS = 25, 8
FRAMES = RATE * SECONDS
QUIET = ["-hide_banner", "-loglevel", "error", "-nostdin", "-y"]
# What a stream has after a loss, and when its server is stopped.
AFTER, BEFORE = 80, 20
# After Ctrl-C.
PATIENCE_S = 0.5


class Failed(Exception):
    pass


def expect(is_so, what):
    if not is_so:
        raise Failed(what)


def until(is_so, what, seconds=30):
    """Waits for what happens in another process."""
    limit = time.monotonic() + seconds
    while not is_so():
        expect(time.monotonic() < limit, f"{what}: not within {seconds} s")
        time.sleep(0.01)


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def has_socket(port, table="tcp", states=("0A",)):
    """Whether a socket of this local port is in one of these states; 0A listens, 01 is connected, 07 is bound (UDP)."""
    for name in (table, table + "6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if int(words[1].rsplit(":", 1)[1], 16) == port and words[3] in states:
                return True
    return False


def serve_rtsp(port, file):
    """An RTSP server with one file, from its start for each client, at its pace."""
    import gi

    gi.require_version("Gst", "1.0")
    gi.require_version("GstRtspServer", "1.0")
    from gi.repository import GLib, Gst, GstRtspServer

    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(port)
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(f"( filesrc location={file} ! matroskademux ! h264parse ! rtph264pay name=pay0 config-interval=-1 )")
    server.get_mount_points().add_factory("/x", factory)
    server.attach(None)
    GLib.MainLoop().run()


def serve_http(port, folder):
    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), functools.partial(Handler, directory=folder)).serve_forever()


class Processes:
    """What a check started; all of it ends with the check."""

    def __init__(self, log):
        self.all, self.log = [], log

    def start(self, *command, **options):
        with open(self.log, "ab") as log:
            self.all.append(subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, **{"stdout": log, "stderr": log, **options}))
        return self.all[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        for one in self.all:
            one.kill()
        for one in self.all:
            one.wait()
        self.all = []


class Protocol:
    """A server, and how the program names it."""

    def __init__(self, work, name):
        self.name, self.work = name, work / name
        self.table = "udp" if name in ("udp", "srt") else "tcp"
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.port = free_port(socket.SOCK_DGRAM if self.table == "udp" else socket.SOCK_STREAM)
        path = {"http-file": "video.mp4", "hls": "index.m3u8", "hls-file": "index.m3u8", "srt": "", "udp": "", "tcp": ""}.get(name, "x")
        scheme = {"http-file": "http", "hls": "http", "hls-file": "http", "mjpeg": "http", "rtsp-udp": "rtsp"}.get(name, name)
        self.url = f"{scheme}://127.0.0.1:{self.port}" + (f"/{path}" if path else "")
        self.is_file = name.endswith("-file")
        # The last frames of UDP are not known to be whole before others come; SRT and RTSP over UDP may lose the last at the end; of a growing playlist the last segments are read first.
        self.frames = {"udp": FRAMES - 2, "srt": FRAMES - RATE, "rtsp-udp": FRAMES - RATE, "hls": FRAMES - 3 * RATE}.get(name, FRAMES)

    def serve(self, servers, video):
        """Starts the server; it listens when this returns. A sender of UDP waits for a receiver."""
        if self.name == "udp":
            until(lambda: has_socket(self.port, "udp", ("07",)), "the program listens")
        send = ["ffmpeg", *QUIET, "-re", "-i", video, "-c", "copy"]
        here = [sys.executable, __file__]
        if self.name.startswith("rtsp"):
            # The system's Python has the bindings of GStreamer.
            servers.start("/usr/bin/python3", __file__, "--rtsp", self.port, video)
        elif self.name == "http-file":
            if not (self.work / "video.mp4").exists():
                subprocess.run(["ffmpeg", *QUIET, "-i", video, "-c", "copy", "-movflags", "faststart", self.work / "video.mp4"], check=True)
            servers.start(*here, "--http", self.port, self.work)
        elif self.name.startswith("hls"):
            options = ["-f", "hls", "-hls_time", "0.4", "-hls_flags", "temp_file+omit_endlist", "-hls_list_size", "0", self.work / "index.m3u8"]
            (self.work / "index.m3u8").unlink(missing_ok=True)
            if self.is_file:
                options[5] = "temp_file"
                subprocess.run(["ffmpeg", *QUIET, "-i", video, "-c", "copy", *options], check=True)
            else:
                servers.start(*send, *options)
            until((self.work / "index.m3u8").exists, "a first segment")
            servers.start(*here, "--http", self.port, self.work)
        else:
            options = {
                "http": ["-f", "mpegts", "-listen", "1", self.url],
                "mjpeg": ["-c:v", "mjpeg", "-f", "mpjpeg", "-listen", "1", "-content_type", "multipart/x-mixed-replace;boundary=ffmpeg", self.url],
                "rtmp": ["-f", "flv", "-listen", "1", self.url],
                "tcp": ["-f", "mpegts", self.url + "?listen=1"],
                "srt": ["-f", "mpegts", self.url + "?mode=listener"],
                "udp": ["-f", "mpegts", self.url + "?pkt_size=1316"],
            }[self.name]
            servers.start(*send, *options)
        if self.name != "udp":
            until(lambda: has_socket(self.port, self.table, ("0A", "07")), "the server listens")


class Program:
    """A run of `ocelli video`."""

    def __init__(self, program, processes, work, *options):
        self.lines = work / "lines.jsonl"
        self.lines.unlink(missing_ok=True)
        self.process = processes.start(program, "video", "--quiet", "--engine", "embedded", "--model", "built-in", "--imgsz", "112", "--classes", "dog",
                                       "--detect-every", "100000", "--jsonl", self.lines, *options, stderr=subprocess.PIPE, text=True)

    def count(self):
        return self.lines.read_bytes().count(b"\n") if self.lines.exists() else 0

    def wait_for(self, frames):
        until(lambda: self.count() >= frames or self.process.poll() is not None, f"frame {frames}")
        if self.process.poll() is not None:
            raise Failed(f"status {self.process.returncode} after {self.count()} frames: {self.end()[1]!r}")

    def end(self, seconds=60):
        """The status, what it wrote to stderr, and its lines."""
        try:
            said = self.process.communicate(timeout=seconds)[1].strip()
        except subprocess.TimeoutExpired:
            raise Failed(f"no end within {seconds} s, {self.count()} frames") from None
        lines = self.lines.read_text().splitlines() if self.lines.exists() else []
        return self.process.returncode, said, [json.loads(line) for line in lines]

    def interrupt(self):
        """Ctrl-C: the run ends at once."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        status, said, _ = self.end()
        took = time.monotonic() - began
        expect(status == 130, f"Ctrl-C: status {status}, {said!r}")
        expect(took < PATIENCE_S, f"Ctrl-C took {took:.2f} s")
        return f"{took:.2f} s"


def reads(protocol, program, video):
    """The checks of a protocol that is read: name and function."""

    def start(processes, *options):
        # FFmpeg waits five seconds for sound in RTMP, unless told.
        option = {"rtsp-udp": "rtsp_transport=udp", "rtmp": "analyzeduration=500000"}.get(protocol.name)
        more = ["--ffmpeg-option", option] if option else []
        return Program(program, processes, protocol.work, "--video", protocol.url, "--policy", "all", *more, *options)

    def run(processes, servers, *options):
        if protocol.name != "udp":
            protocol.serve(servers, video)
        run = start(processes, *options)
        if protocol.name == "udp":
            protocol.serve(servers, video)
        return run

    def frames(processes, servers):
        status, said, lines = run(processes, servers, "--max-frames", protocol.frames, "--reconnect", "0").end()
        expect((status, len(lines)) == (0, protocol.frames), f"status {status}, {len(lines)} frames of {protocol.frames}: {said!r}")
        expect([line["frame"] for line in lines] == list(range(protocol.frames)), "frames are not numbered in order")
        expect({(line["width"], line["height"]) for line in lines} == {(96, 64)}, "sizes")
        expect(all(("wall_time" in line) != protocol.is_file for line in lines), "a live stream alone has wall_time")
        times = [line["time_s"] for line in lines]
        expect(all(a <= b for a, b in zip(times, times[1:])), "times decrease")
        if protocol.is_file:
            off = max(abs(at - frame / RATE) for frame, at in enumerate(times))
            expect(off < 0.0011, f"times differ by {off * 1000:.1f} ms")
            return f"{len(lines)} frames, times within {off * 1000:.1f} ms"
        # Timed by arrival at first, later by the stream's clock.
        steps = [b - a for a, b in zip(times[-2 * RATE :], times[-2 * RATE + 1 :])]
        rate = len(steps) / sum(steps)
        # A segment of HLS has many frames at once.
        expect(abs(rate - RATE) < (5 if protocol.name == "hls" else 1), f"the last two seconds have {rate:.1f} frames a second")
        expect(times[-1] < SECONDS + 1, f"the last frame is at {times[-1]} s")
        return f"{len(lines)} frames, {rate:.2f} a second, steps of {statistics.median(steps) * 1000:.0f} ms, the last at {times[-1]:.2f} s"

    def back(processes, servers):
        one = run(processes, servers, "--max-frames", BEFORE + AFTER, "--reconnect", "30")
        one.wait_for(BEFORE)
        servers.kill()
        if protocol.name == "udp":
            # The program's socket is there still: what comes into it does so after the loss.
            until(lambda: not has_socket(protocol.port, "udp", ("07",)), "the loss is noticed")
        protocol.serve(servers, video)
        status, said, lines = one.end()
        expect(status == 0, f"status {status} after {len(lines)} frames: {said!r}")
        expect([line["frame"] for line in lines] == list(range(BEFORE + AFTER)), f"{len(lines)} frames")
        times = [line["time_s"] for line in lines]
        expect(all(a <= b for a, b in zip(times, times[1:])), "times decrease")
        return f"{len(lines)} frames"

    def gone(processes, servers):
        one = run(processes, servers, "--reconnect", "1")
        one.wait_for(BEFORE)
        servers.kill()
        began = time.monotonic()
        status, said, lines = one.end()
        expect(status == 1 and said.startswith("error: ") and len(said.splitlines()) == 1, f"status {status}, {said!r}: expected one line")
        expect(len(lines) >= BEFORE and "lost" in said, f"{len(lines)} frames, {said!r}")
        return f"{time.monotonic() - began:.1f} s, {said}"

    def silent(processes, servers):
        one = run(processes, servers)
        one.wait_for(BEFORE)
        for server in servers.all:
            server.send_signal(signal.SIGSTOP)
        seen = [-1, 0.0]

        def is_blocked():
            if one.count() != seen[0]:
                seen[:] = one.count(), time.monotonic()
            return time.monotonic() > seen[1] + 0.4

        until(is_blocked, "the source is silent")
        return one.interrupt()

    def opening(processes, servers):
        kind = socket.SOCK_DGRAM if protocol.table == "udp" else socket.SOCK_STREAM
        with socket.socket(socket.AF_INET, kind) as mute:
            if protocol.name != "udp":
                mute.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                mute.bind(("127.0.0.1", protocol.port))
            if kind == socket.SOCK_STREAM:
                mute.listen()
            one = start(processes)
            if kind == socket.SOCK_STREAM:
                mute.settimeout(30)
                connection, _ = mute.accept()
            elif protocol.name == "udp":
                until(lambda: has_socket(protocol.port, "udp", ("07",)), "the program listens")
            else:
                mute.settimeout(30)
                mute.recv(2048)
            took = one.interrupt()
            if kind == socket.SOCK_STREAM:
                connection.close()
            return took

    if protocol.is_file:
        return {"frames": frames, "opening": opening}
    return {"frames": frames, "back": back, "gone": gone, "silent": silent, "opening": opening}


def probe(file):
    shown = ["-show_entries", "packet=codec_type,pts_time,duration_time", "-show_packets", file]
    packets = json.loads(subprocess.run(["ffprobe", "-v", "error", "-of", "json", *shown], check=True, stdout=subprocess.PIPE).stdout)["packets"]
    return {kind: sorted(float(one["pts_time"]) for one in packets if one["codec_type"] == kind) for kind in ("video", "audio")}


def writes(protocol, program, video):
    """The checks of a protocol that is written."""
    address = protocol.url
    recorded = protocol.work / "recorded.mkv"

    def receive(servers):
        options = {
            "rtsp": ["-rtsp_flags", "listen", "-i", address],
            "rtmp": ["-f", "flv", "-listen", "1", "-i", address],
            "srt": ["-i", address + "?mode=listener"],
            "udp": ["-i", address + "?timeout=3000000"],
            "tcp": ["-i", address + "?listen=1"],
        }[protocol.name]
        receiver = servers.start("ffmpeg", *QUIET, *options, "-c", "copy", "-flush_packets", "1", recorded)
        until(lambda: has_socket(protocol.port, protocol.table, ("0A", "07")), "the receiver listens")
        return receiver

    def frames(processes, servers):
        for source, has_sound in [(video.with_name("sound.mp4"), True), (video, False)]:
            receiver = receive(servers)
            status, said, lines = Program(program, processes, protocol.work, "--video", source, "-o", address).end()
            expect((status, said, len(lines)) == (0, "", FRAMES), f"{source.name}: status {status}, {len(lines)} frames: {said!r}")
            receiver.wait(timeout=30)
            found = probe(recorded)
            steps = [b - a for a, b in zip(found["video"], found["video"][1:])]
            # Without an end, the last frame is not known to be whole.
            expect(FRAMES - (protocol.name == "udp") <= len(found["video"]) <= FRAMES, f"{source.name}: {len(found['video'])} frames of {FRAMES} arrived")
            # FFmpeg gives the first two packets of RTSP the same time, those of its own server too.
            steps = steps[protocol.name == "rtsp" :]
            expect(all(abs(step - 1 / RATE) < 0.0021 for step in steps), f"{source.name}: steps of {min(steps)} to {max(steps)} s")
            heard = found["audio"]
            expect(bool(heard) == has_sound, f"{source.name}: {len(heard)} packets of sound")
            if has_sound:
                at = heard[0] - found["video"][0], heard[-1] - found["video"][-1]
                expect(all(abs(off) < 0.15 for off in at), f"sound begins {at[0]:.3f} s after the images, and ends {at[1]:.3f} s after them")
                sounds = len(heard)
        return f"{len(found['video'])} frames, {sounds} packets of sound"

    def gone(processes, servers):
        receive(servers)
        one = Program(program, processes, protocol.work, "-o", address, "--scene-size", "320x240", "--max-frames", "1000000")
        one.wait_for(BEFORE)
        until(lambda: recorded.exists() and recorded.stat().st_size > 1000, "something was received")
        servers.kill()
        status, said, lines = one.end()
        expect(status == 1 and said.startswith("error: ") and len(said.splitlines()) == 1, f"status {status}, {said!r}: expected one line")
        return said

    return {"frames": frames} if protocol.name == "udp" else {"frames": frames, "gone": gone}


READ = ["http-file", "hls-file", "hls", "http", "mjpeg", "rtsp", "rtsp-udp", "rtmp", "srt", "udp", "tcp"]
WRITTEN = ["rtsp", "rtmp", "srt", "udp", "tcp"]


def check(folder, program, video, name):
    """Lines, and how many checks failed."""
    direction, _, what = name.rpartition("to-")
    protocol = Protocol(folder / ("to" if direction or name.startswith("to-") else "from"), what)
    failed = 0
    for title, run in (writes if name.startswith("to-") else reads)(protocol, program, video).items():
        began = time.monotonic()
        log = protocol.work / f"{title}.log"
        with Processes(log) as processes, Processes(log) as servers:
            try:
                note = run(processes, servers)
            except (Failed, subprocess.SubprocessError, OSError) as error:
                failed += 1
                note = f"FAILED: {error}"
        print(f"{name}, {title}: {note} ({time.monotonic() - began:.1f} s)", flush=True)
    return failed


def main():
    if sys.argv[1] in ("--rtsp", "--http"):
        (serve_rtsp if sys.argv[1] == "--rtsp" else serve_http)(*sys.argv[2:])
        return
    folder, program, *names = sys.argv[1:]
    folder, program = Path(folder).resolve(), Path(program).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    names = names or READ + [f"to-{name}" for name in WRITTEN]
    video = folder / "video.mkv"
    drawn = ["ffmpeg", *QUIET, "-f", "lavfi", "-i", f"testsrc2=size=96x64:rate={RATE}:duration={SECONDS}"]
    h264 = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "0", "-g", "10", "-pix_fmt", "yuv420p"]
    subprocess.run([*drawn, *h264, video], check=True)
    subprocess.run([*drawn, "-f", "lavfi", "-i", f"sine=frequency=440:duration={SECONDS}", *h264, "-c:a", "aac", video.with_name("sound.mp4")], check=True)
    # Waiting is most of it.
    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        failed = sum(pool.map(lambda name: check(folder, program, video, name), names))
    print(f"{len(names)} protocols, {failed} checks failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
