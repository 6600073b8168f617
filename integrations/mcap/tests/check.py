"""Writes recordings with rosbags, runs `ocelli-mcap`, and reads with rosbags and MCAP's own reader what it wrote.

check.py OCELLI-MCAP OCELLI SCENES FOLDER

pip install rosbags==0.11.9 mcap==1.6.0 numpy==2.4.6 pillow==13.0.0
"""

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
from mcap.reader import make_reader
from PIL import Image as PilImage
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

program, ocelli, scenes, folder = sys.argv[1:]
folder = Path(folder)
CLASSES = ["dog", "tree", "bicycle"]
FRAMES = 5


def views():
    park = PilImage.open(Path(scenes) / "park.png").convert("RGB")
    return [park.crop((8 * index, 0, 8 * index + 480, 360)) for index in range(FRAMES)]


def stamp_of(index):
    return 1_700_000_000 + index, 999_999_000 + index


def write(bag, compressed):
    """A recording of ROS 2 as rosbags writes it, with a topic that is none of images."""
    store = get_typestore(Stores.ROS2_JAZZY)
    types = store.types
    with Writer(bag, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        kind = "sensor_msgs/msg/CompressedImage" if compressed else "sensor_msgs/msg/Image"
        images = writer.add_connection("/camera/image", kind, typestore=store)
        text = writer.add_connection("/chatter", "std_msgs/msg/String", typestore=store)
        for index, view in enumerate(views()):
            sec, nanosec = stamp_of(index)
            header = types["std_msgs/msg/Header"](
                stamp=types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec), frame_id="front/ü"
            )
            if compressed:
                file = BytesIO()
                view.save(file, "PNG")
                data = np.frombuffer(file.getvalue(), np.uint8)
                message = types[kind](header=header, format="png", data=data)
            else:
                data = np.asarray(view).reshape(-1)
                message = types[kind](
                    header=header, height=360, width=480, encoding="rgb8", is_bigendian=0, step=1440, data=data
                )
            writer.write(images, 1000 + index, store.serialize_cdr(message, kind))
            writer.write(text, 1000 + index, store.serialize_cdr(types["std_msgs/msg/String"](data="hello"), "std_msgs/msg/String"))
    return next(bag.glob("*.mcap"))


def validate(file):
    """Checks a recording with the reader of the format's authors: checksums, and the summary against the messages."""
    with file.open("rb") as stream:
        reader = make_reader(stream, validate_crcs=True)
        summary, counts = reader.get_summary(), {}
        for schema, channel, message in reader.iter_messages(log_time_order=False):
            assert (schema.encoding, channel.message_encoding) == ("ros2msg", "cdr"), (file, schema, channel)
            assert message.log_time >= summary.statistics.message_start_time, (file, message.log_time)
            counts[channel.id] = counts.get(channel.id, 0) + 1
        assert reader.get_header().profile == "ros2", file
        assert summary.statistics.channel_message_counts == counts, (file, counts, summary.statistics)
        assert summary.statistics.message_count == sum(counts.values()) > 0, file


def read(file):
    """The messages of a recording, by topic; the schemas are those in the file."""
    validate(file)
    found = {}
    with AnyReader([file]) as reader:
        for connection, time, raw in reader.messages():
            message = reader.deserialize(raw, connection.msgtype)
            found.setdefault(connection.topic, []).append((time, connection.msgtype, message))
    return found


def run(*arguments, code=0):
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stderr}"
    return done


def expected():
    """What `ocelli video` finds in the same images."""
    images = folder / "images"
    images.mkdir()
    for index, view in enumerate(views()):
        view.save(images / f"{index}.png")
    lines = folder / "expected.jsonl"
    outputs = ["--jsonl", lines, "--mcap", folder / "video.mcap"]
    run(ocelli, "video", "--video", images, "--classes", *CLASSES, "--track", *outputs, "--engine", "embedded")
    return [json.loads(line) for line in lines.read_text().splitlines()]


def compare(found, expected, at, stamp, frame_id):
    time, kind, array = found
    assert (time, kind) == (at, "vision_msgs/msg/Detection2DArray"), (time, kind)
    assert (array.header.stamp.sec, array.header.stamp.nanosec, array.header.frame_id) == (*stamp, frame_id), array.header
    tracks = {track["detection"]: str(track["id"]) for track in expected["tracks"]}
    wanted = [
        (d["label"], d["score"], *d["box"], tracks.get(place, "")) for place, d in enumerate(expected["detections"])
    ]
    got = []
    for d in array.detections:
        box, result = d.bbox, d.results[0].hypothesis
        x, y = box.center.position.x, box.center.position.y
        corners = x - box.size_x / 2, y - box.size_y / 2, x + box.size_x / 2, y + box.size_y / 2
        got.append((result.class_id, round(result.score, 5), *(round(corner, 2) for corner in corners), d.id))
    assert len(got) == len(wanted) and got, (got, wanted)
    for one, other in zip(got, wanted):
        assert (one[0], one[-1]) == (other[0], other[-1]), (one, other)
        assert np.allclose(one[1:-1], other[1:-1], atol=0.011), (one, other)


lines = expected()
assert sum(len(line["tracks"]) for line in lines) > FRAMES, "objects are tracked"
video = read(folder / "video.mcap")
assert list(video) == ["/detections"], video.keys()
for message, line in zip(video["/detections"], lines, strict=True):
    # The rate that images have by default.
    nanoseconds = round(line["frame"] * 1e9 / 30)
    compare(message, line, nanoseconds, divmod(nanoseconds, 10**9), "")
print(f"ok: ocelli video --mcap, {len(lines)} frames")
for compressed in [False, True]:
    bag = write(folder / f"bag-{compressed}", compressed)
    output = folder / f"output-{compressed}.mcap"
    arguments = [program, "detect", bag, "--classes", *CLASSES, "--output", output, "--engine", "embedded"]
    run(*arguments, "--topic", "/camera/image", "--masks", "/masks")
    found = read(output)
    assert sorted(found) == ["/detections", "/masks"], sorted(found)
    for index, (message, line) in enumerate(zip(found["/detections"], lines, strict=True)):
        compare(message, line, 1000 + index, stamp_of(index), "front/ü")
        mask = found["/masks"][index][2]
        values = set(np.unique(mask.data.view(np.uint16))) - {0}
        assert mask.encoding == "mono16" and values and max(values) <= len(line["detections"]), values
    # Everything, and the only topic of images by default.
    run(*arguments, "--copy", "--detections", "/found")
    found = read(output)
    assert {topic: len(messages) for topic, messages in found.items()} == dict.fromkeys(
        ["/camera/image", "/chatter", "/found"], FRAMES
    ), found.keys()
    assert found["/chatter"][0][2].data == "hello"
    print(f"ok: {'compressed' if compressed else 'raw'} images, {sum(len(line['detections']) for line in lines)} detections")

listed = run(program, "topics", bag).stdout
assert "/chatter\tstd_msgs/msg/String\t5" in listed, listed
before = output.read_bytes()
(folder / "broken.mcap").write_bytes(bag.read_bytes()[:-2000])
for wrong, part in [
    (["--topic", "/chatter"], "std_msgs/msg/String"),
    (["--topic", "/none"], "no message on /none"),
    (["--confidence", "2"], "confidence is 2"),
]:
    failed = run(*arguments, *wrong, code=1)
    assert part in failed.stderr, failed.stderr
failed = run(program, "detect", bag, "--classes", "dog", "--output", bag, code=1)
assert "the recording itself" in failed.stderr, failed.stderr
broken = [program, "detect", folder / "broken.mcap", "--classes", "dog", "--output", output]
failed = run(*broken, "--topic", "/camera/image", "--engine", "embedded", code=1)
assert "broken.mcap" in failed.stderr, failed.stderr
assert output.read_bytes() == before, "what failed has changed nothing"
print("ok: errors name the file and the cause, and leave the output as it was")
