#!/usr/bin/env python3
"""Cuts the power while `ocelli label` writes, in every way that a disk may have ordered the writes.

    python3 tests/faults/power_loss.py target/debug/ocelli [--runs 100]

The program is run under strace, which records its writes, renames and syncs. From the record the script makes the folders that
a power failure may leave: after every call, with everything that was not synced yet lost, kept, or some of both. Of a file
whatever was synced is there, of what was written since a beginning, cut anywhere or filled with zeros, and its time with it; of a folder every change
that was synced, and any of the others. (File systems promise more than that; this is what POSIX promises.)

In every such folder the label files that are there must be whole, and corrections as the person left them. In a sample of them
the program is run again, and must end with the labels of a run without a power failure.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

CALLS = ("openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,lseek,ftruncate,truncate,fsync,fdatasync,sync_file_range,rename,"
         "renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,link,linkat,symlink,symlinkat,rmdir,close,copy_file_range,sendfile,fcntl,"
         "dup,dup2,dup3,fallocate,ioctl,utimensat")
MINE = "0 0.5 0.5 0.1 0.1\n"
# In place of an offset: the bytes are a time.
TIME = -1


@dataclass(frozen=True)
class Content:
    """The bytes of a file, and its time in nanoseconds; `None` is that of the power failure or later."""

    data: bytes = b""
    time: int | None = None

    def after(self, change: tuple[int, bytes | None]) -> Content:
        at, written = change
        if at == TIME:
            return Content(self.data, int(written))
        if written is None:
            return Content(self.data[:at].ljust(at, b"\0"))
        return Content(self.data[:at].ljust(at, b"\0") + written + self.data[at + len(written):])


@dataclass
class Node:
    """A file: what is on the disk for certain, what is in memory, and what was done to it in between."""

    durable: Content = Content()
    live: Content = Content()
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # Offset and bytes; without bytes, a new length; or a time.
    target: str | None = None  # Of a symbolic link, which is written at once.

    def change(self, at: int, written: bytes | None) -> None:
        self.pending.append((at, written))
        self.live = self.live.after(self.pending[-1])

    def sync(self) -> None:
        self.durable, self.pending = self.live, []

    def after(self, chance: random.Random) -> Content:
        """What may be on the disk."""
        there = self.durable
        count = chance.randint(0, len(self.pending))
        for change in self.pending[:count]:
            there = there.after(change)
        if count < len(self.pending):
            at, written = self.pending[count]
            kind = chance.randrange(3)
            if written and at != TIME and kind == 0:
                there = there.after((at, written[: chance.randrange(len(written) + 1)]))
            elif written and at != TIME and kind == 1 and at >= len(there.data):
                there = there.after((at, bytes(len(written))))
        return there


@dataclass
class Change:
    """A change of one or two names, which happens whole or not at all."""

    names: dict[str, Node | None]
    synced: bool = False


class Disk:
    """The folder of the data set, as names below it."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.names: dict[str, Node] = {}
        self.folders: set[str] = {""}
        self.changes: list[Change] = []
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_symlink():
                self.names[name] = Node(target=os.readlink(path))
            elif path.is_dir():
                self.folders.add(name)
            else:
                content = content_of(path)
                self.names[name] = Node(content, content)
        self.base, self.base_folders = dict(self.names), set(self.folders)
        self.new_folders: list[tuple[str, Change]] = []

    def name(self, path: str) -> str | None:
        path = os.path.normpath(path)
        if path == self.root:
            return ""
        return path[len(self.root) + 1:] if path.startswith(f"{self.root}/") else None

    def change(self, names: dict[str, Node | None]) -> None:
        for name, node in names.items():
            if node is None:
                self.names.pop(name, None)
            else:
                self.names[name] = node
        self.changes.append(Change(names))

    def make_folder(self, name: str) -> None:
        self.folders.add(name)
        change = Change({})
        self.changes.append(change)
        self.new_folders.append((name, change))

    def sync_folder(self, folder: str) -> None:
        for change in self.changes:
            if any(os.path.dirname(name) == folder for name in change.names):
                change.synced = True
        for name, change in self.new_folders:
            if os.path.dirname(name) == folder:
                change.synced = True

    def state(self, keeps: object, contents: object) -> tuple[dict[str, Content | str], set[str]]:
        """The files and folders if `keeps` says which changes of names and `contents` what of the files is on the disk."""
        kept = {id(change) for change in self.changes if change.synced or keeps(change)}  # type: ignore[operator]
        folders = self.base_folders | {name for name, change in self.new_folders if id(change) in kept}
        names = dict(self.base)
        for change in self.changes:
            if id(change) in kept:
                for name, node in change.names.items():
                    if node is None:
                        names.pop(name, None)
                    else:
                        names[name] = node

        def reachable(name: str) -> bool:
            folder = os.path.dirname(name)
            return folder == "" or (folder in folders and reachable(folder))

        files = {name: node.target if node.target is not None else contents(node)  # type: ignore[operator]
                 for name, node in names.items() if reachable(name)}
        return files, {name for name in folders if name and reachable(name)}


class Replay:
    """Follows a record call by call."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.open: dict[int, list] = {}  # The node or folder name, the position, whether it appends, the path.
        self.unknown: set[str] = set()

    def run(self, call: str, arguments: list[str], result: int) -> bool:
        """Whether the call changed the disk or synced something."""
        if result < 0:
            return False
        disk, number = self.disk, lambda at: int(arguments[at].split("<")[0], 0)
        handle = lambda at: self.open.get(number(at), [None, 0, False, ""])
        if call in ("openat", "open", "creat"):
            at = 1 if call == "openat" else 0
            path, flags = text(arguments[at]), arguments[at + 1] if call != "creat" else "O_CREAT|O_TRUNC|O_WRONLY"
            name = disk.name(path)
            if name is None:
                self.open[result] = [None, 0, False, path]
                return False
            if name in disk.folders:
                self.open[result] = [name, 0, False, path]
                return False
            node, made = disk.names.get(name), False
            if node is None:
                node, made = Node(), True
                disk.change({name: node})
            if "O_TRUNC" in flags and node.live.data:
                node.change(0, None)
                made = True
            self.open[result] = [node, 0, "O_APPEND" in flags, path]
            return made
        if call == "close":
            self.open.pop(number(0), None)
            return False
        if call in ("dup", "dup2", "dup3") or (call == "fcntl" and "F_DUPFD" in arguments[1]):
            self.open[result] = handle(0)
            return False
        if call in ("fcntl", "ioctl"):
            node = handle(0)[0]
            if call == "ioctl" and isinstance(node, Node) and "FICLONE" in arguments[1]:
                node.change(0, Path(handle(2)[3]).read_bytes())
                return True
            return False
        if call == "lseek":
            handle(0)[1] = result
            return False
        if call in ("write", "pwrite64", "copy_file_range", "sendfile"):
            out = handle(2) if call == "copy_file_range" else handle(0)
            node = out[0]
            if not isinstance(node, Node):
                return False
            if call in ("write", "pwrite64"):
                data = raw(arguments[1])[:result]
            else:
                source = handle(0) if call == "copy_file_range" else handle(1)
                data = Path(source[3]).read_bytes()[source[1]:source[1] + result]
                source[1] += result
            at = int(arguments[3]) if call == "pwrite64" else len(node.live.data) if out[2] else out[1]
            node.change(at, data)
            if call != "pwrite64":
                out[1] = at + len(data)
            return bool(data)
        if call in ("ftruncate", "truncate", "fallocate"):
            node = handle(0)[0] if call != "truncate" else disk.names.get(disk.name(text(arguments[0])) or "")
            if isinstance(node, Node):
                if call == "fallocate":
                    raise SystemExit("fallocate: not expected")
                node.change(int(arguments[1]), None)
                return True
            return False
        if call == "utimensat":
            # The last one is that of the change; the time of access may be left as it is.
            node, moments = handle(0)[0], re.findall(r"tv_sec=(\d+), tv_nsec=(\d+)", ", ".join(arguments[2:]))
            if node is None and arguments[1] == "NULL":
                # A file elsewhere, such as a model in the cache.
                return False
            if not isinstance(node, Node) or arguments[1] != "NULL" or not moments:
                raise SystemExit(f"{call}: not expected: {arguments}")
            node.change(TIME, b"%d" % (int(moments[-1][0]) * 10**9 + int(moments[-1][1])))
            return True
        if call in ("fsync", "fdatasync"):
            what = handle(0)[0]
            if isinstance(what, Node):
                what.sync()
            elif isinstance(what, str):
                disk.sync_folder(what)
            return what is not None
        paths = {"rename": (0, 1), "renameat": (1, 3), "renameat2": (1, 3), "link": (0, 1), "linkat": (1, 3), "symlink": (None, 1),
                 "symlinkat": (None, 2), "unlink": (None, 0), "unlinkat": (None, 1), "rmdir": (None, 0), "mkdir": (None, 0),
                 "mkdirat": (None, 1)}.get(call)
        if paths is None:
            self.unknown.add(call)
            return False
        old, new = (disk.name(text(arguments[at])) if at is not None else None for at in paths)
        if old is None and new is None:
            return False
        if call.startswith("rename"):
            if old in disk.folders or old not in disk.names:
                raise SystemExit(f"{call} of {old}: not expected")
            disk.change({old: None, new: disk.names[old]})
        elif call.startswith("link"):
            source = Path(text(arguments[paths[0]]))
            content = Content() if old in disk.names else content_of(source)
            disk.change({new: disk.names[old] if old in disk.names else Node(content, content)})
        elif call.startswith("symlink"):
            disk.change({new: Node(target=text(arguments[0]))})
        elif call.startswith("mkdir"):
            disk.make_folder(new)
        elif new in disk.folders:
            raise SystemExit(f"{call} of the folder {new}: not expected")
        else:
            disk.change({new: None})
        return True


def raw(argument: str) -> bytes:
    return bytes.fromhex(argument.strip().strip('"').replace("\\x", ""))


def text(argument: str) -> str:
    return os.fsdecode(raw(argument))


def content_of(path: Path) -> Content:
    return Content(path.read_bytes(), path.stat().st_mtime_ns)


def record(ocelli: Path, arguments: list[str], work: Path) -> list[tuple[str, list[str], int]]:
    """The calls of a run, in order."""
    shutil.rmtree(work / "trace", ignore_errors=True)
    (work / "trace").mkdir()
    subprocess.run(["strace", "-ff", "-ttt", "-xx", "-s", "16777216", "-o", work / "trace/of", "-e", f"trace={CALLS}", ocelli, *arguments],
                   check=True, stdout=subprocess.DEVNULL)
    calls = []
    for file in (work / "trace").iterdir():
        for line in file.read_text().splitlines():
            found = re.match(r"([\d.]+) (\w+)\((.*)\)\s+= (-?\d+)", line)
            if found:
                moment, call, inside, result = found.groups()
                # Numbers, names and quoted hexadecimal bytes: no comma is inside.
                calls.append((float(moment), call, inside.split(", "), int(result)))
    return [(call, arguments, result) for _, call, arguments, result in sorted(calls, key=lambda one: one[0])]


def written(folder: Path, files: dict[str, Content | str], folders: set[str]) -> None:
    """Makes a folder with these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in sorted(folders):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if isinstance(content, str):
            (folder / name).symlink_to(content)
        else:
            (folder / name).write_bytes(content.data)
            if content.time is not None:
                os.utime(folder / name, ns=(content.time, content.time))


def label_files(folder: Path) -> dict[str, str]:
    """The label files, and the annotations."""
    paths = [path for pattern in ("**/labels/**/*.txt", "annotations.json") for path in folder.glob(pattern)]
    return {str(path.relative_to(folder)): path.read_text() for path in paths if not path.name.startswith(".ocelli-")}


class Case:
    """A run that the power failure hits: what is there before, and what the person has corrected."""

    def __init__(self, name: str, ocelli: Path, work: Path, options: list[str]) -> None:
        self.name, self.ocelli, self.work = name, ocelli, work
        self.output = work / "set"
        self.images = work / "images"
        self.arguments = ["label", "--model", "built-in", "--engine", "embedded", "--threads", "1", "--images", str(self.images), "--classes", "dog",
                          "car", "person", "--output", str(self.output), "--workers", "1", "-q", *options]
        self.corrections: dict[str, str | None] = {}
        scenes = Path(__file__).resolve().parents[2] / "demos" / "scenes"
        shutil.rmtree(self.images, ignore_errors=True)
        shutil.rmtree(self.output, ignore_errors=True)
        self.images.mkdir()
        self.output.mkdir()
        self.scenes = sorted(path for path in scenes.iterdir() if path.suffix == ".png")

    def label(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.ocelli, *self.arguments], capture_output=True, text=True, timeout=120)

    def correct(self) -> None:
        """A set of four images of which one label file is emptied, one edited and one removed, and then the images change."""
        for number, scene in enumerate(self.scenes[:4]):
            shutil.copy(scene, self.images / f"{number}.png")
        ended = self.label()
        if ended.returncode != 0:
            raise SystemExit(f"{self.name}: {ended.stderr}")
        for name in [name for name in label_files(self.output) if name.endswith(".txt")]:
            change = {"0.txt": "", "1.txt": MINE, "2.txt": None}.get(Path(name).name, name)
            if change != name:
                self.corrections[name] = change
                if change is None:
                    (self.output / name).unlink()
                else:
                    (self.output / name).write_text(change)

    def change_images(self) -> None:
        """Another image under the name of each, and two more."""
        for number in range(6):
            shutil.copy(self.scenes[(number + 1) % len(self.scenes)], self.images / f"{number}.png")

    def run(self, runs: int, chance: random.Random) -> None:
        self.change_images()
        disk, before = Disk(self.output), label_files(self.output)
        calls = record(self.ocelli, self.arguments, self.work)
        after = label_files(self.output)
        whole: dict[str, set[str]] = {}
        for labels in (before, after):
            for name, content in labels.items():
                whole.setdefault(name, set()).add(content)
        replay, states, count, steps = Replay(disk), {}, 0, 0
        for call in calls:
            if not replay.run(*call):
                continue
            steps += 1
            ways = [(lambda _: True, lambda node: node.live), (lambda _: False, lambda node: node.durable)]
            for _ in range(6):
                share = chance.random()
                ways.append((lambda _, share=share: chance.random() < share, lambda node: node.after(chance)))
            ways.append((lambda _: True, lambda node: node.after(chance)))
            ways.append((lambda _: True, lambda node: node.durable))
            for keeps, contents in ways:
                files, folders = disk.state(keeps, contents)
                count += 1
                summary = hashlib.sha256(repr((sorted(files.items()), sorted(folders))).encode()).digest()
                states.setdefault(summary, (steps, files, folders))
        if replay.unknown:
            raise SystemExit(f"{self.name}: calls that are not known: {replay.unknown}")
        lived = {name: node.live.data for name, node in disk.names.items() if node.target is None}
        there = {str(path.relative_to(self.output)): path.read_bytes() for path in self.output.rglob("*") if path.is_file() and not path.is_symlink()}
        if lived != there:
            differ = sorted(name for name in lived.keys() | there.keys() if lived.get(name) != there.get(name))
            raise SystemExit(f"{self.name}: the replay differs from the folder: {differ}")
        wrong = []
        for step, files, _ in states.values():
            wrong += [f"step {step}: {why}" for why in self.broken(files, whole)]
        sample = chance.sample(sorted(states), min(runs, len(states)))
        for key in sample:
            step, files, folders = states[key]
            written(self.output, files, folders)
            ended = self.label()
            found = label_files(self.output)
            if ended.returncode != 0 or found != after:
                differ = sorted(name for name in found.keys() | after.keys() if found.get(name) != after.get(name))
                kept = self.work / f"kept-{self.name}-{len(wrong)}"
                written(kept, files, folders)
                wrong.append(f"step {step}: run again, status {ended.returncode}, {differ}; {kept}\n  {ended.stderr.strip()[-300:]}")
        print(f"{self.name}: {steps} changes and syncs, {count} power failures, {len(states)} different, {len(sample)} run again, {len(wrong)} wrong", flush=True)
        if wrong:
            raise SystemExit("\n".join(wrong[:20]))

    def broken(self, files: dict[str, Content | str], whole: dict[str, set[str]]) -> list[str]:
        """What is wrong in a folder before anything runs again."""
        wrong = []
        for name, content in files.items():
            is_label = re.fullmatch(r"(.*/)?labels/.*\.txt|annotations\.json", name) and not Path(name).name.startswith(".ocelli-")
            if is_label and isinstance(content, Content) and content.data.decode(errors="replace") not in whole.get(name, set()):
                wrong.append(f"{name} is not whole: {content.data[:60]!r}")
        for name, mine in self.corrections.items():
            there = files.get(name)
            there = there.data if isinstance(there, Content) else there
            if there != (None if mine is None else mine.encode()):
                wrong.append(f"the correction of {name} is lost: {there!r}")
        return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ocelli", type=Path)
    parser.add_argument("--runs", type=int, default=100, help="power failures of each case after which it is run again [default: 100]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help="where the folders are made, and stay [default: a temporary one]")
    arguments = parser.parse_args()
    if shutil.which("strace") is None:
        raise SystemExit("strace is needed: apt-get install strace")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="ocelli-power-", dir=memory if memory.is_dir() else None) as folder:
        work = arguments.work.resolve() if arguments.work else Path(folder)
        work.mkdir(exist_ok=True)
        chance = random.Random(arguments.seed)
        ocelli = arguments.ocelli.resolve()
        formats = ["--format", "yolo,yolo-seg,coco"]
        Case("first run", ocelli, work, formats).run(arguments.runs, chance)
        for name, options in [("corrected set", formats), ("corrected copies", ["--copy"])]:
            case = Case(name, ocelli, work, options)
            case.correct()
            case.run(arguments.runs, chance)


if __name__ == "__main__":
    main()
