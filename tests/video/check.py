#!/usr/bin/env python3
"""Reads small videos of every kind with the video library, beside `ffprobe` and `ffmpeg`: times within a millisecond, pixels within 1 of 255.

    check.py FOLDER [NAME…] [--program OCELLI] [--c-library LIBOCELLI_C] [--python PYTHON]

The videos are made by `ffmpeg` in FOLDER/files. With a program, `ocelli video` reads them too: its JSON lines have every frame, its size and its
time. So do `ocelli label --video`, and sessions of `ocelli serve` (uploads, and videos of a folder): the same frames, sizes and, but for JPEG,
pixels. Sessions of the C library have the same number of frames and their size, and a Python with the package `ocelli` the same frames, times and
pixels. A line for each video, and exit status 1 if one differs.
"""

import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FRAMES = 12
SIZE = "96x64"
MS = 1_000_000

H264 = "-c:v libx264 -preset veryfast"


def drawn(size=SIZE, rate=25, frames=FRAMES, what="testsrc2"):
    return f"-f lavfi -i {what}=size={size}:rate={rate}:duration={frames / rate}"


def tone(seconds=FRAMES / 25):
    return f"-f lavfi -i sine=frequency=440:duration={seconds}"


# Name of the file: what `ffmpeg` is told before it; or a function that makes the file from others.
VIDEOS = {
    "plain.mp4": f"{drawn()} {H264} -bf 0 -pix_fmt yuv420p",
    "b-frames.mp4": f"{drawn()} {H264} -bf 3 -pix_fmt yuv420p",
    "b-frames.mkv": f"{drawn()} {H264} -bf 3 -pix_fmt yuv420p",
    "b-frames.avi": f"{drawn()} {H264} -bf 3 -pix_fmt yuv420p",
    "b-frames.ts": f"{drawn()} {H264} -bf 3 -pix_fmt yuv420p",
    # The clock of MPEG-TS begins anew after 2^33 / 90000 s.
    "wrapped-times.ts": f"{drawn()} {H264} -bf 3 -pix_fmt yuv420p -output_ts_offset 95443.4",
    "raw.h264": f"{drawn()} {H264} -bf 3 -pix_fmt yuv420p",
    "raw.hevc": f"{drawn()} -c:v libx265 -preset ultrafast -x265-params log-level=none -pix_fmt yuv420p",
    "fragmented.mp4": f"{drawn()} {H264} -bf 3 -g 4 -pix_fmt yuv420p -movflags frag_keyframe+empty_moov",
    "edit-list.mp4": lambda made: cut_without_decoding(made, "b-frames.mp4", "-ss 0.2"),
    "high-10.mkv": f"{drawn()} {H264} -pix_fmt yuv420p10le",
    "hevc-10.mp4": f"{drawn()} -c:v libx265 -preset ultrafast -x265-params log-level=none -pix_fmt yuv420p10le",
    "hevc-12.mkv": f"{drawn()} -c:v libx265 -preset ultrafast -x265-params log-level=none -pix_fmt yuv422p12le",
    "yuv422.mkv": f"{drawn()} {H264} -pix_fmt yuv422p",
    "yuv444.mkv": f"{drawn()} {H264} -pix_fmt yuv444p",
    "rgb.mkv": f"{drawn()} -c:v libx264rgb -preset veryfast -qp 0",
    "gray.mkv": f"{drawn()} {H264} -pix_fmt gray",
    "gray-16.mkv": f"{drawn()} -c:v ffv1 -pix_fmt gray16le",
    "full-range.mp4": f"{drawn()} {H264} -pix_fmt yuvj420p",
    "bt709.mp4": f"{drawn()} -vf scale=out_color_matrix=bt709 {H264} -pix_fmt yuv420p -colorspace bt709 -color_range tv",
    "bt2020.mkv": f"{drawn()} -vf scale=out_color_matrix=bt2020 {H264} -pix_fmt yuv420p10le -colorspace bt2020nc",
    "odd-sides.mkv": f"{drawn('63x47')} -c:v ffv1 -pix_fmt yuv420p",
    "variable-rate.mkv": f"{drawn()} -vf select='not(mod(n,3))+eq(n,1)+eq(n,7)' -vsync passthrough {H264} -pix_fmt yuv420p",
    "variable-rate.mp4": f"{drawn()} -vf select='not(mod(n,3))+eq(n,1)+eq(n,7)' -vsync passthrough {H264} -pix_fmt yuv420p",
    "duplicated-times.mkv": f"{drawn()} -vf settb=1/1000,setpts='floor(N/2)*80' -vsync passthrough -c:v ffv1 -pix_fmt yuv420p",
    "late-start.mkv": f"{drawn()} {H264} -pix_fmt yuv420p -output_ts_offset 5",
    "turned-90.mp4": lambda made: cut_without_decoding(made, "plain.mp4", after="-metadata:s:v:0 rotate=90"),
    "turned-180.mp4": lambda made: cut_without_decoding(made, "plain.mp4", after="-metadata:s:v:0 rotate=180"),
    "turned-270.mov": lambda made: cut_without_decoding(made, "plain.mp4", after="-metadata:s:v:0 rotate=270"),
    "interlaced.mpg": f"{drawn('96x64', 25)} -c:v mpeg2video -flags +ildct+ilme -top 1 -pix_fmt yuv420p",
    "interlaced.mkv": f"{drawn()} {H264} -x264opts tff=1 -pix_fmt yuv420p",
    "mpeg1.mpg": f"{drawn()} -c:v mpeg1video -bf 2 -pix_fmt yuv420p",
    "mpeg4.avi": f"{drawn()} -c:v mpeg4 -bf 2 -q:v 3",
    "mpeg4.mp4": f"{drawn()} -c:v mpeg4 -bf 2 -q:v 3",
    "motion-jpeg.avi": f"{drawn()} -c:v mjpeg -q:v 3 -pix_fmt yuvj422p",
    "vp9.webm": f"{drawn()} -c:v libvpx-vp9 -deadline realtime -pix_fmt yuv420p",
    "vp9-alpha.webm": f"{drawn()} -vf format=yuva420p,geq=lum='lum(X,Y)':a='X*2' -c:v libvpx-vp9 -deadline realtime -pix_fmt yuva420p",
    "av1.mkv": f"{drawn()} -c:v libaom-av1 -cpu-used 8 -pix_fmt yuv420p",
    "alpha.mov": f"{drawn()} -vf format=argb,geq=r='r(X,Y)':g='g(X,Y)':b='b(X,Y)':a='X*2' -c:v qtrle",
    "prores-4444.mov": f"{drawn()} -c:v prores_ks -profile:v 4 -pix_fmt yuva444p10le",
    "theora.ogv": f"{drawn()} -c:v libtheora -q:v 8 -pix_fmt yuv420p",
    "flash.flv": f"{drawn()} -c:v flv -q:v 3",
    "windows.wmv": f"{drawn()} -c:v wmv2 -q:v 3",
    "lossless.avi": f"{drawn()} -c:v utvideo -pix_fmt yuv422p",
    "canvas.gif": f"{drawn()} -filter_complex split[a][b];[a]palettegen[p];[b][p]paletteuse",
    "canvas.apng": f"{drawn()} -plays 0",
    "uncompressed.y4m": f"{drawn()} -pix_fmt yuv420p",
    "audio-first.mkv": f"{tone()} {drawn()} -map 0:a -map 1:v {H264} -pix_fmt yuv420p -c:a aac",
    "two-videos.mkv": f"{drawn()} {drawn('64x48', what='smptebars')} -map 0:v -map 1:v -disposition:v:0 0 -disposition:v:1 default "
                      f"{H264} -pix_fmt yuv420p",
    "cover.mp4": f"{drawn()} {drawn('48x48', 1, 1, 'smptebars')} -map 1:v -map 0:v -c:v:0 png -c:v:1 libx264 -preset:v:1 veryfast "
                 "-pix_fmt:v:1 yuv420p -disposition:v:0 attached_pic",
    "joined.ts": lambda made: join(made, ["b-frames.ts", "other-size.ts"]),
    "joined.h264": lambda made: join(made, ["raw.h264", "other-format.h264"]),
    "cut.mp4": lambda made: cut_bytes(made, "index-first.mp4", 0.6),
    "cut.mkv": lambda made: cut_bytes(made, "b-frames.mkv", 0.7),
    "cut.ts": lambda made: cut_bytes(made, "b-frames.ts", 0.5),
    "no-index.avi": lambda made: cut_bytes(made, "mpeg4.avi", 0.8),
}
# Parts of the others.
PARTS = {
    "other-size.ts": f"{drawn('64x48')} {H264} -bf 3 -pix_fmt yuv420p -output_ts_offset 0.48",
    "other-format.h264": f"{drawn()} {H264} -bf 3 -pix_fmt yuv444p",
    "index-first.mp4": f"{drawn()} {H264} -bf 3 -pix_fmt yuv420p -movflags faststart",
}
# The end of these is damaged: what is read are the first frames, and one fewer is no fault.
DAMAGED = ("cut.", "no-index.")
# Of all values of an image; the drawn ones have sharp edges.
MEAN_OF_JPEG = 4


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, **options).stdout


def ffmpeg(before, to):
    # The words of a filter have no spaces.
    run("ffmpeg", "-hide_banner", "-loglevel", "error", "-nostdin", "-y", *before.split(), "-fflags", "+bitexact", to)


def make(folder, name):
    path = folder / name
    if path.exists():
        return path
    how = VIDEOS.get(name) or PARTS[name]
    if callable(how):
        data = how(lambda other: make(folder, other))
    else:
        made = path.with_stem("made")
        ffmpeg(how, made)
        data = made.read_bytes()
        made.unlink()
    path.write_bytes(data)
    return path


def cut_without_decoding(made, name, before="", after=""):
    source = made(name)
    to = source.with_name("made." + ("mov" if "270" in after else "mp4"))
    ffmpeg(f"{before} -i {source} -c copy {after}", to)
    data = to.read_bytes()
    to.unlink()
    return data


def join(made, names):
    return b"".join(made(name).read_bytes() for name in names)


def cut_bytes(made, name, share):
    data = made(name).read_bytes()
    return data[: int(len(data) * share)]


def expected(path):
    """The video stream that FFmpeg's programs choose by default, and its frames: time in nanoseconds or `None`, width, height."""
    streams = json.loads(run("ffprobe", "-v", "quiet", "-of", "json", "-show_streams", "-select_streams", "v", path))["streams"]
    streams = [stream for stream in streams if not stream["disposition"]["attached_pic"]]
    stream = max(streams, key=lambda one: (one["disposition"]["default"], one["width"] * one["height"]))
    index = stream["index"]
    entries = "frame=best_effort_timestamp_time,width,height:frame_side_data=rotation"
    found = run("ffprobe", "-v", "quiet", "-of", "json", "-show_frames", "-show_entries", entries, "-select_streams", index, path)
    turn = next((data["rotation"] for data in stream.get("side_data_list", []) if "rotation" in data), 0)
    frames = []
    for frame in json.loads(found)["frames"]:
        if "width" not in frame:
            continue
        time = frame.get("best_effort_timestamp_time")
        size = (frame["width"], frame["height"])
        frames.append((None if time is None else float(time) * 1e9, *(size[::-1] if turn % 180 else size)))
    if frames and frames[0][0] is not None:
        first = frames[0][0]
        frames = [(None if time is None else time - first, *size) for time, *size in frames]
    return index, frames


def pixels_of(path, index):
    """All frames as `ffmpeg` converts them, each in its own size."""
    return run("ffmpeg", "-hide_banner", "-loglevel", "quiet", "-nostdin", "-i", path, "-map", f"0:{index}", "-vsync", "passthrough", "-autoscale", "0",
               "-f", "rawvideo", "-pix_fmt", "rgb24", "-")


def largest_difference(a, b):
    if a == b:
        return 0
    return max(abs(x - y) for x, y in zip(a, b))


def problems_of(path, reader, work):
    """What differs in a video, and a note for its line."""
    index, frames = expected(path)
    raw = work / "frames.rgb"
    done = subprocess.run([reader, path, raw], stdout=subprocess.PIPE, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    if done.returncode != 0:
        return [f"status {done.returncode}: {done.stdout.strip()}"], ""
    read = [tuple(int(word) for word in line) for line in lines if line[0] != "failures"]
    is_damaged = path.name.startswith(DAMAGED)
    problems = []
    least = len(frames) - is_damaged
    if not least <= len(read) <= len(frames) or not read:
        problems.append(f"{len(read)} frames, ffprobe has {len(frames)}")
    worst_time = 0
    for at, ((time, *size), (wanted, *wanted_size)) in enumerate(zip(read, frames)):
        if size != wanted_size:
            problems.append(f"frame {at} is {size}, ffprobe has {wanted_size}")
        if wanted is not None and time >= 0:
            worst_time = max(worst_time, abs(time - wanted))
        # The last frame of a damaged file may have lost its packet's time.
        elif (wanted is None) != (time < 0) and not (is_damaged and at + 1 == len(read)):
            problems.append(f"frame {at} has the time {time}, ffprobe {wanted}")
    if worst_time > MS:
        problems.append(f"times differ by {worst_time / MS:.3f} ms")
    ours, theirs = raw.read_bytes(), pixels_of(path, index)
    if len(theirs) < len(ours) or not is_damaged and len(ours) != len(theirs):
        problems.append(f"{len(ours)} bytes of pixels, ffmpeg has {len(theirs)}")
    # Damaged frames are hidden by what was before, and threads see other ones before.
    kept = len(ours) if not is_damaged else len(ours) // max(len(read), 1) * max(len(read) - 2, 0)
    difference = largest_difference(ours[:kept], theirs[:kept])
    if difference > 1:
        problems.append(f"pixels differ by {difference}")
    return problems, f"{len(read)} frames, times within {worst_time / MS:.3f} ms, pixels within {difference}"


def run_program(path, program, lines, *options):
    """The exit, and the frames that `ocelli video` wrote."""
    lines.unlink(missing_ok=True)
    done = subprocess.run([program, "video", "--quiet", "--engine", "embedded", "--model", "built-in", "--imgsz", "112", "--classes", "dog",
                           "--video", path, "--jsonl", lines, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done, [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


def problems_of_options(path, program, work):
    """A stream by its number, and an option of FFmpeg: without its edit list the video has all frames again."""
    cases = [("two-videos.mkv", ["--stream", "0"], (96, FRAMES)), ("two-videos.mkv", ["--stream", "1"], (64, FRAMES)),
             ("edit-list.mp4", ["--ffmpeg-option", "ignore_editlist=1"], (96, FRAMES))]
    problems = []
    for options, wanted in [(options, wanted) for name, options, wanted in cases if name == path.name]:
        done, read = run_program(path, program, work / "lines.jsonl", *options)
        found = (read[0]["width"], len(read)) if read else done.stdout
        if found != wanted:
            problems.append(f"{options}: {found}, expected {wanted}")
    return problems


def problems_of_program(path, program, work):
    """What `ocelli video` reads otherwise."""
    done, read = run_program(path, program, work / "lines.jsonl")
    return problems_of_lines(path, "the program", done, read)


def problems_of_python(path, python, work, ours):
    """What the Python package reads otherwise; `ours` is what the library wrote."""
    raw = work / "python.rgb"
    done = subprocess.run([python, HERE / "frames.py", path, raw], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    read = [json.loads(line) for line in done.stdout.splitlines()]
    done.stdout = done.stderr
    problems = problems_of_lines(path, "Python", done, read)
    # Damaged frames are hidden by what was before, which threads see differently.
    if not path.name.startswith(DAMAGED) and raw.read_bytes() != ours:
        problems.append("Python has other pixels")
    return problems


def problems_of_lines(path, who, done, read):
    """What is otherwise in JSON lines of frames. Times that do not grow are made to grow, so only whole ones are compared."""
    _, frames = expected(path)
    is_damaged = path.name.startswith(DAMAGED)
    if is_damaged:
        is_said = done.returncode == 1 and len(done.stdout.strip().splitlines()) == 1
        if not is_said and len(read) < len(frames):
            return [f"{who}: status {done.returncode}, {done.stdout.strip()!r}: expected one line and status 1"]
    elif done.returncode != 0:
        return [f"{who}: status {done.returncode}: {done.stdout.strip()}"]
    problems = []
    if not len(frames) - is_damaged <= len(read) <= len(frames):
        problems.append(f"{who} has {len(read)} frames, ffprobe {len(frames)}")
    times = [time for time, *_ in frames]
    has_order = all(time is not None for time in times) and all(a < b for a, b in zip(times, times[1:]))
    for at, (line, (time, *size)) in enumerate(zip(read, frames)):
        if [line["width"], line["height"]] != list(size):
            problems.append(f"frame {at} of {who} is {line['width']}x{line['height']}, ffprobe has {size}")
        # Written with milliseconds.
        if has_order and abs(line["time_s"] * 1e9 - time) > 1.1 * MS:
            problems.append(f"frame {at} of {who} is at {line['time_s']} s, ffprobe has {time / 1e9:.4f}")
    if any(a["time_s"] > b["time_s"] for a, b in zip(read, read[1:])):
        problems.append(f"times of {who} decrease")
    return problems


def lines_of_c(library, model, paths, work):
    """What a program of the C library says about each video."""
    include, program = ROOT / "bindings/c/include", work / "sessions"
    # The name that is in the library.
    named = work / "libocelli.so.0"
    named.unlink(missing_ok=True)
    named.symlink_to(library)
    run(os.environ.get("CC", "cc"), "-std=c99", f"-I{include}", "-o", program, HERE / "sessions.c", named, f"-Wl,-rpath,{work.resolve()}")
    return dict(zip(paths, run(program, model, *paths, text=True).splitlines(), strict=True))


def problems_of_c(path, line, frames):
    """A session has frames of one size, and no damaged video."""
    is_whole = is_session(path, frames)
    if line.startswith("error: "):
        return [f"C: {line}"] if is_whole else []
    wanted = " ".join(map(str, (len(frames), *frames[0][1:])))
    return [f"C has {line}, expected {wanted}"] if is_whole and line != wanted else []


def is_session(path, frames):
    return len({(width, height) for _, width, height in frames}) == 1 and not path.name.startswith(DAMAGED)


def pixels_of_image(jpeg):
    return run("ffmpeg", "-hide_banner", "-loglevel", "error", "-f", "mjpeg", "-i", "-", "-f", "rawvideo", "-pix_fmt", "rgb24", "-", input=jpeg)


def mean_difference(a, b):
    return sum(abs(x - y) for x, y in zip(a, b)) / len(a)


def problems_of_images(jpegs, frames, raw, where):
    """Images of these frames, by number: size, and pixels but for what JPEG does to them. `raw` has all frames as RGB."""
    starts = [0]
    for _, width, height in frames:
        starts.append(starts[-1] + 3 * width * height)
    for at, jpeg in jpegs.items():
        ours, theirs = pixels_of_image(jpeg), raw[starts[at] : starts[at + 1]]
        if len(ours) != len(theirs):
            return [f"{where}: image {at} has {len(ours)} bytes of pixels, expected {len(theirs)}"]
        mean = mean_difference(ours, theirs)
        if mean > MEAN_OF_JPEG:
            return [f"{where}: the pixels of image {at} differ by {mean:.1f} on average"]
        following = raw[starts[at + 1] : starts[at + 2]] if at + 2 < len(starts) else b""
        if len(following) == len(ours) and mean_difference(ours, following) < mean:
            return [f"{where}: image {at} is the frame after it"]
    return []


def problems_of_label(path, program, work, frames, raw):
    """The images of a data set of all frames."""
    to = work / "data-set"
    shutil.rmtree(to, ignore_errors=True)
    done = subprocess.run([program, "label", "--quiet", "--engine", "embedded", "--model", "built-in", "--imgsz", "112", "--classes", "dog", "--video", path,
                           "--every", "1", "--format", "coco", "-o", to], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    is_damaged = path.name.startswith(DAMAGED)
    if done.returncode not in (0, int(is_damaged)):
        return [f"label: status {done.returncode}: {done.stdout.strip()}"]
    jpegs = {int(one.stem.rsplit("_", 1)[1]): one.read_bytes() for one in to.glob("images/*/*.jpg")}
    if sorted(jpegs) != list(range(len(jpegs))) or not len(frames) - is_damaged <= len(jpegs) <= len(frames):
        return [f"label: the frames {sorted(jpegs)}, expected {len(frames)}"]
    # Damaged frames are hidden by what was before.
    return problems_of_images({at: jpegs[at] for at in list(jpegs)[: 2 if is_damaged else None]}, frames, raw, "label")


class Server:
    """`ocelli serve` with the videos of a folder, and requests to it."""

    def __init__(self, program, files, work):
        self.model = model = work / "tracker"
        run(program, "export", "--quiet", "--checkpoint", ROOT / "tests/golden/parity/tracker_odd", "--output", model, "--force")
        address = work / "address"
        with open(address, "w") as to:
            self.process = subprocess.Popen([program, "serve", "--quiet", "--engine", "embedded", "--model", model, "--videos", files, "--listen",
                                             "127.0.0.1:0"], stdout=to)
        while not address.read_text().endswith("\n"):
            if self.process.poll() is not None:
                sys.exit("ocelli serve ended")
            time.sleep(0.05)
        self.url = address.read_text().strip().rstrip("/")
        self.videos = json.loads(self.ask("/v1/videos"))["videos"]

    def ask(self, path, data=None, kind="application/json", method=None):
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind} if data else {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            return error.read()

    def session(self, path, is_upload):
        while True:
            state = self.open_session(path, is_upload)
            # One that was ended keeps its place until its memory is free.
            if "too many sessions" not in state.get("error", ""):
                return state
            time.sleep(0.1)

    def open_session(self, path, is_upload):
        if not is_upload:
            return json.loads(self.ask("/v1/sessions", json.dumps({"video": path.name}).encode()))
        head = f'--cut\r\nContent-Disposition: form-data; name="video"; filename="{path.name}"\r\n\r\n'.encode()
        return json.loads(self.ask("/v1/sessions", head + path.read_bytes() + b"\r\n--cut--\r\n", "multipart/form-data; boundary=cut"))


def problems_of_sessions(path, server, frames, raw):
    """Sessions on a video of the server's folder, and on one that is uploaded: a session has frames of one size, and no damaged video."""
    problems = []
    is_whole = is_session(path, frames)
    for is_upload in (False, True):
        where = "an upload" if is_upload else "a session"
        if path.name not in server.videos:
            continue
        state = server.session(path, is_upload)
        if "error" in state:
            problems += [f"{where}: {state['error']}"] if is_whole else []
            continue
        found, wanted = (state["frames"], state["width"], state["height"]), (len(frames), *frames[0][1:])
        if is_whole and found != wanted:
            problems.append(f"{where} has {found}, expected {wanted}")
        elif is_whole:
            images = {at: server.ask(f"/v1/sessions/{state['id']}/frames/{at}") for at in (len(frames) - 1, 0)}
            problems += problems_of_images(images, frames, raw, where)
        server.ask(f"/v1/sessions/{state['id']}", method="DELETE")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--c-library", type=Path, help="with --program, which exports its model")
    parser.add_argument("--python", type=Path, help="with --program")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    files = args.folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    reader = args.folder / "frames"
    flags = run("pkg-config", "--cflags", "--libs", "libavformat", "libavcodec", "libavutil", "libswscale", text=True).split()
    source = ROOT / "src/opencv/src"
    run(os.environ.get("CXX", "c++"), "-std=c++14", "-O1", f"-I{source}", "-o", reader, HERE / "frames.cpp", source / "reader.cpp", *flags)
    failed = 0
    names = args.names or list(VIDEOS)
    for name in names:
        make(files, name)
    server = Server(args.program.resolve(), files, args.folder) if args.program else None
    if server:
        atexit.register(server.process.kill)
    of_c = lines_of_c(args.c_library.resolve(), server.model, [files / make(files, name).name for name in names], args.folder) if args.c_library else {}
    for name in names:
        path = make(files, name)
        problems, note = problems_of(path, reader, args.folder)
        if args.program:
            program = args.program.resolve()
            problems += problems_of_program(path, program, args.folder) + problems_of_options(path, program, args.folder)
            frames, raw = expected(path)[1], (args.folder / "frames.rgb").read_bytes()
            problems += problems_of_label(path, program, args.folder, frames, raw) + problems_of_sessions(path, server, frames, raw)
            if args.python:
                problems += problems_of_python(path, args.python, args.folder, raw)
            if args.c_library:
                problems += problems_of_c(path, of_c[path], frames)
        failed += bool(problems)
        print(f"{name}: {'; '.join(problems) or note}", flush=True)
    print(f"{len(names)} videos, {failed} differ")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
