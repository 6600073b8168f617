#!/usr/bin/env python3
"""Runs `ocelli` into faults and writes a table: what happened, what is kept, the message, the exit status.

    python3 tests/faults/run.py target/debug/ocelli [--output docs/faults.md]

Needs root for the small file systems (rows without them are left out and said to be). Every row has its expectation here,
and the script fails if one does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SIDE = (320, 240)
FRAME = bytes(SIDE[0] * SIDE[1] * 3)
RAW = ["--video", "-", "--raw", f"{SIDE[0]}x{SIDE[1]}:bgr@30"]
# Every run ends by itself or by a signal within this many seconds.
LIMIT = 120.0


class Run:
    """A finished program."""

    def __init__(self, status: int, stderr: str, seconds: float) -> None:
        self.status, self.stderr, self.seconds = status, stderr, seconds

    def message(self) -> str:
        """The line that says what went wrong."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        return lines[-1].removeprefix("error: ") if lines else ""


class Matrix:
    """The rows, and what failed."""

    def __init__(self, ocelli: Path, work: Path) -> None:
        self.ocelli, self.work = ocelli, work
        self.rows: list[tuple[str, str, str, str]] = []
        self.wrong: list[str] = []
        self.skipped: list[str] = []
        scenes = Path(__file__).resolve().parents[2] / "demos" / "scenes"
        self.images = work / "images"
        shutil.copytree(scenes, self.images)

    def start(self, *arguments: str | Path, stdin: int | None = None, **variables: str) -> subprocess.Popen[str]:
        """Starts the program; its stdin is empty unless it is given."""
        return subprocess.Popen(
            [self.ocelli, *map(str, arguments)], cwd=self.work, text=True, env={**os.environ, **variables},
            stdin=subprocess.DEVNULL if stdin is None else stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def wait(self, child: subprocess.Popen[str]) -> Run:
        started = time.monotonic()
        try:
            _, stderr = child.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            child.kill()
            _, stderr = child.communicate()
            return Run(-9, stderr + f"\nerror: it did not end within {LIMIT:.0f} s", LIMIT)
        return Run(child.returncode, stderr, time.monotonic() - started)

    def run(self, *arguments: str | Path, **variables: str) -> Run:
        return self.wait(self.start(*arguments, **variables))

    def row(self, fault: str, run: Run, status: int | tuple[int, ...], words: list[str], kept: str, holds: bool = True) -> None:
        """Adds a row; `words` are in the message, `kept` is what `holds` has checked."""
        statuses = status if isinstance(status, tuple) else (status,)
        missing = [word for word in words if word.lower() not in run.stderr.lower()]
        if run.status not in statuses or missing or not holds or "panicked" in run.stderr:
            self.wrong.append(f"{fault}: status {run.status}, expected {statuses}; missing {missing}; {kept}: {holds}\n{run.stderr}")
        message = run.message().replace(f"{self.work}/", "").replace("|", "\\|")
        # Names that differ from run to run: temporary folders, and the built-in model's key.
        message = re.sub(r"\btmp\w{8}/", "", message)
        message = re.sub(r"(-export-|builtin-)[\w-]+", r"\1…", message)
        self.rows.append((fault, kept, message or "–", str(run.status)))
        print(f"{'FAILED ' if self.wrong and self.wrong[-1].startswith(fault) else ''}{fault}: {run.status} {message}", file=sys.stderr)

    @contextmanager
    def small_disk(self, size: str, read_only: bool = False) -> Iterator[Path | None]:
        """A file system of a size; `None` where one cannot be mounted."""
        folder = Path(tempfile.mkdtemp(dir=self.work))
        options = f"size={'64k' if size == 'full' else size}" + (",ro" if read_only else "")
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True)
        if size == "full" and mounted.returncode == 0:
            try:
                (folder / "filler").write_bytes(bytes(1 << 20))
            except OSError:
                pass
        try:
            yield folder if mounted.returncode == 0 else None
        finally:
            if mounted.returncode == 0:
                subprocess.run(["umount", "-l", folder], check=True)


def lines(path: Path) -> list[dict]:
    """The JSON lines of a file: every one is whole."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def feed(child: subprocess.Popen[str], frames: int, rate: float | None, closes: bool = True) -> threading.Thread:
    """Writes raw frames into the program's stdin, at a rate or as fast as it reads."""

    # `communicate` would close the pipe, and so would dropping it.
    kept, child.stdin = child.stdin, None

    def write() -> None:
        pipe = kept.buffer  # type: ignore[union-attr]
        try:
            for _ in range(frames):
                pipe.write(FRAME)
                pipe.flush()
                if rate:
                    time.sleep(1 / rate)
            if closes:
                pipe.close()
            else:
                child.wait()
        except (BrokenPipeError, ValueError):
            pass

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def full_disks(matrix: Matrix) -> None:
    detect = ["detect", "--image", matrix.images, "--classes", "dog", "person", "car"]
    video = ["video", "--classes", "dog", "person", "--track", "--max-frames", "400"]
    sinks = {
        "`video --jsonl`": ([*video, "--jsonl"], "out.jsonl", "16k"),
        "`video --mot`": ([*video, "--mot"], "out.txt", "4k"),
        "`video -o out.avi`": ([*video, "-o"], "out.avi", "256k"),
        "`video --crops`": ([*video, "--crops"], "crops", "64k"),
        "`detect -o`": ([*detect, "-o"], "images/", "256k"),
        "`detect --json`": ([*detect, "--json"], "out.json", "full"),
        "`label`": (["label", "--model", "built-in", "--images", matrix.images, "--classes", "dog", "car", "--copy", "--output"],
                    "set", "96k"),
        "`export`": (["export", "--checkpoint", matrix.checkpoint, "--output"], "model", "256k"),
    }
    for name, (command, file, size) in sinks.items():
        with matrix.small_disk(size) as disk:
            if disk is None:
                matrix.skipped.append(f"disk full: {name}")
                continue
            run = matrix.run(*command, disk / file)
            rest = [path.name for path in disk.rglob(".ocelli-*") if path.name != ".ocelli-label"]
            whole = all(json.loads(line) is not None for path in disk.glob("*.jsonl") for line in path.read_text().splitlines()[:-1])
            begun = name != "`video --jsonl`" or (disk / file).stat().st_size > 1000
            matrix.row(f"disk full: {name}", run, 1, ["No space left"], "what was written before; no temporary file",
                       not rest and whole and begun)
    with matrix.small_disk("4m") as disk:
        if disk is None:
            matrix.skipped.append("no space in the cache folder")
        else:
            run = matrix.run(*detect, XDG_CACHE_HOME=str(disk))
            left = sum(path.stat().st_size for path in disk.rglob("*") if path.is_file())
            matrix.row("no space in the cache folder", run, 1, ["No space left"], "nothing: the cache holds no half of a model", left < 64 * 1024)
    with matrix.small_disk("4m", read_only=True) as disk:
        if disk is None:
            matrix.skipped.append("read-only output")
            return
        for name, command in {
            "`detect -o`": [*detect, "-o", disk / "images/"],
            "`video --jsonl`": [*video, "--jsonl", disk / "out.jsonl"],
            "`label`": ["label", "--model", "built-in", "--images", matrix.images, "--classes", "dog", "--output", disk / "set"],
        }.items():
            run = matrix.run(*command)
            matrix.row(f"read-only output: {name}", run, (1, 2), ["Read-only file system"], "nothing: refused before the model runs", run.seconds < 60)


def two_at_once(matrix: Matrix) -> None:
    cache = matrix.work / "shared-cache"
    command = ["detect", "--image", matrix.images, "--classes", "dog", "car", "--json"]
    children = [matrix.start(*command, f"both-{n}.json", XDG_CACHE_HOME=str(cache)) for n in range(2)]
    runs = [matrix.wait(child) for child in children]
    results = [json.loads((matrix.work / f"both-{n}.json").read_text())["images"] for n in range(2)]

    def found(images: list[dict]) -> list:
        return [[(one["label"], round(one["score"], 4)) for one in image["detections"]] for image in images]

    same = found(results[0]) == found(results[1]) and runs[1].status == 0
    parts = list(cache.rglob("*.part"))
    matrix.row("two programs export into one cache at once", runs[0], 0, [], "one exports, the other waits; equal results", same and not parts)


def signals(matrix: Matrix) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        out = matrix.work / f"{number.name}.jsonl"
        child = matrix.start("video", *RAW, "--classes", "dog", "--jsonl", out, "-o", matrix.work / f"{number.name}.avi", stdin=subprocess.PIPE)
        feed(child, 10_000, 25.0)
        wait_for(lambda: out.exists() and len(out.read_text().splitlines()) > 5)
        child.send_signal(number)
        run = matrix.wait(child)
        count = len(lines(out))
        video = (matrix.work / f"{number.name}.avi").stat().st_size > 0
        matrix.row(f"{number.name} while frames arrive", run, 130, [], "whole lines and a complete video", count > 0 and video)

        child = matrix.start("video", *RAW, "--classes", "dog", "--jsonl", matrix.work / "silent.jsonl", stdin=subprocess.PIPE)
        feed(child, 3, None, closes=False)
        silent = matrix.work / "silent.jsonl"
        wait_for(lambda: len(silent.read_text().splitlines()) >= 3 if silent.exists() else False)
        time.sleep(0.3)
        started = time.monotonic()
        child.send_signal(number)
        run = matrix.wait(child)
        matrix.row(f"{number.name} while the source is silent", run, 130, [], "the three lines; ended within 5 s",
                   len(lines(silent)) == 3 and time.monotonic() - started < 5)
        silent.unlink()

        child = matrix.start("label", "--model", "built-in", "--images", matrix.many, "--classes", "dog", "car", "--output", matrix.work / f"set-{number.name}")
        wait_for(lambda: len(list((matrix.work / f"set-{number.name}").rglob("labels/**/*.txt"))) >= 3)
        child.send_signal(number)
        run = matrix.wait(child)
        done = len(list((matrix.work / f"set-{number.name}").rglob("labels/**/*.txt")))
        again = matrix.run("label", "--model", "built-in", "--images", matrix.many, "--classes", "dog", "car", "--output", matrix.work / f"set-{number.name}")
        matrix.row(f"{number.name} while labelling", run, 130, [], "finished label files; the next run goes on from there",
                   done >= 3 and again.status == 0)

    # The cache is empty: the signal comes while the model is exported and loaded.
    child = matrix.start("detect", "--image", matrix.images, "--classes", "dog", XDG_CACHE_HOME=str(matrix.work / "cold"))
    wait_for(lambda: any((matrix.work / "cold").rglob("*.part")))
    child.send_signal(signal.SIGINT)
    run = matrix.wait(child)
    again = matrix.run("detect", "--image", matrix.images, "--classes", "dog", XDG_CACHE_HOME=str(matrix.work / "cold"))
    matrix.row("SIGINT while the model is exported", run, (130, 0), [], "the cache is whole or empty; the next run works", again.status == 0)

    child = matrix.start("video", *RAW, "--classes", "dog", "--jsonl", "-", stdin=subprocess.PIPE)
    feed(child, 10_000, 50.0)
    child.stdout.readline()  # type: ignore[union-attr]
    child.stdout.close()  # type: ignore[union-attr]
    child.stdout = None
    run = matrix.wait(child)
    matrix.row("the reader of stdout goes away (SIGPIPE)", run, 141, [], "ended silently", not run.stderr.count("error"))


def blocked(matrix: Matrix) -> None:
    child = matrix.start("video", *RAW, "--classes", "dog", "-o", "-", "--raw-out", "bgr", stdin=subprocess.PIPE)
    feed(child, 10_000, None)
    time.sleep(4)
    child.send_signal(signal.SIGINT)
    time.sleep(3)
    alive = child.poll() is None
    if alive:
        child.send_signal(signal.SIGINT)
    started = time.monotonic()
    while child.poll() is None and time.monotonic() - started < 10:
        time.sleep(0.05)
    status = child.poll()
    if status is None:
        child.kill()
    child.stdout = None
    stderr = child.stderr.read()  # type: ignore[union-attr]
    child.wait()
    run = Run(-9 if status is None else status, stderr, 0.0)
    matrix.row("an output that nobody reads, then Ctrl-C twice", run, 130, [], "whole frames; the first Ctrl-C waits, the second ends the program", alive)


def speeds(matrix: Matrix) -> None:
    out = matrix.work / "slow.jsonl"
    child = matrix.start("video", *RAW, "--classes", "dog", "--jsonl", out, stdin=subprocess.PIPE)
    feed(child, 12, 4.0)
    run = matrix.wait(child)
    matrix.row("a source slower than the model (4 frames a second)", run, 0, [], "all 12 frames", len(lines(out)) == 12)
    out = matrix.work / "fast.jsonl"
    child = matrix.start("video", *RAW, "--classes", *matrix.names, "--jsonl", out, stdin=subprocess.PIPE)
    feed(child, 40, None)
    run = matrix.wait(child)
    indices = [line["frame"] if "frame" in line else number for number, line in enumerate(lines(out))]
    matrix.row("a source faster than the model (a pipe)", run, 0, [], "all 40 frames, in order: the pipe waits", len(indices) == 40 and indices == sorted(indices))


def clock(matrix: Matrix) -> None:
    library = next(iter(sorted(Path("/usr/lib").rglob("libfaketime.so.1"))), None)
    if library is None:
        matrix.skipped.append("the clock set back (needs the package faketime)")
        return
    target = matrix.work / "clock"
    now, past = ({"LD_PRELOAD": str(library), "FAKETIME": time} for time in ("+0", "-3d"))
    command = ["label", "--model", "built-in", "--images", matrix.images, "--classes", "dog", "car", "--output", target]
    first = matrix.run(*command, **now)
    labels = {path: path.read_text() for path in target.rglob("labels/**/*.txt")}
    edited = next(path for path, text in labels.items() if text)
    edited.write_text("")
    again = matrix.run(*command, **past)
    after = {path: path.read_text() for path in target.rglob("labels/**/*.txt")}
    matrix.row("the clock set back by three days between two runs", again, 0, [], "labels and a correction",
               first.status == 0 and after == {**labels, edited: ""})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ocelli", type=Path)
    parser.add_argument("--require-all", action="store_true", help="fail if a row cannot be run here")
    parser.add_argument("--output", type=Path, help="where the table goes [default: stdout]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ocelli-faults-") as folder:
        matrix = Matrix(arguments.ocelli.resolve(), Path(folder))
        matrix.checkpoint = Path(__file__).resolve().parents[1] / "golden" / "parity" / "plain"
        matrix.many = matrix.work / "many"
        matrix.many.mkdir()
        for number in range(40):
            for image in sorted(matrix.images.iterdir())[:2]:
                shutil.copy(image, matrix.many / f"{number:02}-{image.name}")
        vocabulary = Path(__file__).resolve().parents[2] / "src" / "builtin" / "vocabulary.txt"
        matrix.names = vocabulary.read_text().split("\n")[:30]
        # The model is in the cache before anything is timed.
        warm = matrix.run("detect", "--image", matrix.images, "--classes", "dog")
        if warm.status != 0:
            raise SystemExit(f"the program does not work: {warm.stderr}")
        for check in (full_disks, two_at_once, signals, blocked, speeds, clock):
            check(matrix)
    table = ["| fault | what is kept | message | exit status |", "|---|---|---|---|"]
    table += [f"| {' | '.join(row)} |" for row in matrix.rows]
    text = "\n".join(table) + "\n"
    if arguments.output:
        page = arguments.output.read_text()
        start, end = "<!-- faults -->\n", "<!-- end of faults -->\n"
        head, tail = page.split(start)[0], page.split(end)[1]
        arguments.output.write_text(f"{head}{start}{text}{end}{tail}")
    else:
        print(text, end="")
    for skipped in matrix.skipped:
        print(f"not run: {skipped}", file=sys.stderr)
    if arguments.require_all and matrix.skipped:
        raise SystemExit(f"not run: {', '.join(matrix.skipped)}")
    if matrix.wrong:
        raise SystemExit(f"{len(matrix.wrong)} of {len(matrix.rows)} rows are wrong:\n" + "\n".join(matrix.wrong))


if __name__ == "__main__":
    main()
