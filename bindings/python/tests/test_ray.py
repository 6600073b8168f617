"""Labelling with Ray, on a cluster of two nodes that runs on this machine."""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from conftest import ROOT, SCENES

import ocelli

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
ray: Any = pytest.importorskip("ray", reason="ray is not installed: pip install ocelli-vision[ray]")
pytest.importorskip("ray.data", reason="ray is installed without its extra data: pip install ocelli-vision[ray]")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

import ocelli.ray  # noqa: E402

CLASSES = ["dog", "tree", "car", "pizza"]
OPTIONS = {"engine": "embedded", "masks": True}
BROKEN = "broken.png"

# Runs as the driver of a job: its arguments are the cluster's address, the folders of images and of labels, and the file
# to which each worker writes the image that it starts with.
DRIVER = """
    import os, sys, time
    import ocelli.ray, ray
    address, images, labels, log = sys.argv[1:]

    class Watched(ocelli.ray.Labeler):
        def _row(self, image, name):
            with open(log, "a") as file:
                file.write(f"{os.getpid()} {name}\\n")
            time.sleep(0.1)
            return super()._row(image, name)

    ray.init(address=address, log_to_driver=False)
    rows = ray.data.read_binary_files(images, include_paths=True, override_num_blocks=12)
    ocelli.ray.unfinished(rows, labels).map_batches(
        Watched,
        fn_constructor_kwargs={"classes": ["dog", "tree", "car", "pizza"], "engine": "embedded", "masks": True},
        batch_size=2, compute=ray.data.ActorPoolStrategy(size=2), num_cpus=1,
    ).write_parquet(labels)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    running = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 150_000_000})
    running.add_node(num_cpus=2, object_store_memory=150_000_000)
    ray.init(address=running.address, log_to_driver=False)
    assert sum(node["Alive"] for node in ray.nodes()) == 2
    yield running
    ray.shutdown()
    running.shutdown()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """36 images, cut from scenes, and a broken one."""
    folder = tmp_path_factory.mktemp("images")
    for name in ("coast", "kitchen", "park", "street"):
        scene = PIL.Image.open(SCENES / f"{name}.png").convert("RGB")
        for part in range(9):
            left, top = part % 3 * 60, part // 3 * 50
            scene.crop((left, top, left + 600, top + 440)).save(folder / f"{name}-{part}.png")
    whole = (folder / "park-0.png").read_bytes()
    (folder / BROKEN).write_bytes(whole[: len(whole) // 2])
    return folder


@pytest.fixture(scope="module")
def expected(images: Path, masking: ocelli.Detector) -> dict[str, dict[str, Any]]:
    """The rows that one process gets, by path."""
    rows: dict[str, dict[str, Any]] = {}
    for path in sorted(images.iterdir()):
        if path.name != BROKEN:
            rows[str(path)] = _row(masking.detect(path, CLASSES))
    assert len(rows) == 36 and sum(len(row["xyxy"]) for row in rows.values()) > 40
    return rows


def _row(found: ocelli.Detections) -> dict[str, Any]:
    return {
        "width": found.size[0],
        "height": found.size[1],
        "xyxy": found.xyxy.tolist(),
        "confidence": found.confidence.tolist(),
        "class_id": found.class_id.tolist(),
        "class_name": found.class_name.tolist(),
        "masks": [mask.to_coco() for mask in found.masks or []],
        "error": None,
    }


def _read(labels: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(labels).to_pylist()
    return rows


def _check(labels: Path, expected: dict[str, dict[str, Any]]) -> None:
    """Every image has one row, the one that a single process gets; the broken one has an error."""
    rows = _read(labels)
    paths = [row.pop("path") for row in rows]
    found = dict(zip(paths, rows, strict=True))
    assert len(found) == len(paths) == len(expected) + 1
    broken = [path for path in paths if path.endswith(BROKEN)]
    error = found.pop(broken[0])
    assert "the file is truncated" in error["error"] and broken[0] in error["error"]
    assert error["xyxy"] == [] and error["masks"] == [] and error["width"] is None
    assert found == expected


def test_any_form_of_an_image_gives_the_same(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [images / "park-0.png", images / "street-4.png"]
    arrays = [ocelli.read_image(path) for path in paths]
    detector = ocelli.Detector(engine="embedded")
    wanted = [_row(detector.detect(path, CLASSES)) for path in paths]
    for row in wanted:
        del row["masks"]
    labeler = ocelli.ray.Labeler(CLASSES, engine="embedded")
    names = np.array([path.name for path in paths])
    encoded = np.array([path.read_bytes() for path in paths], dtype=object)
    with_alpha = [np.dstack([array, np.full(array.shape[:2], 7, np.uint8)]) for array in arrays]
    batches: dict[str, Any] = {
        "paths": {"path": np.array([str(path) for path in paths])},
        "arrays": {"image": np.stack(arrays), "number": np.array([1, 2])},
        "transparent": {"image": np.stack(with_alpha)},
        "encoded": {"bytes": encoded, "path": names},
    }
    block = ray.data.block.BlockAccessor
    batches["a table"] = block.for_block(block.batch_to_block(batches["arrays"])).to_arrow()
    batches["a data frame"] = block.for_block(batches["a table"]).to_pandas()
    for name, batch in batches.items():
        table = labeler(batch)
        assert "image" not in table.column_names and "bytes" not in table.column_names, name
        assert table.select(list(wanted[0])).to_pylist() == wanted, name
        assert str(table.schema.field("class_id").type) == "list<item: int64>"
        if "number" in batch:
            assert table["number"].to_pylist() == [1, 2], name
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert labeler(batches["encoded"]).select(list(wanted[0])).to_pylist() == wanted
    kept = ocelli.ray.Labeler(CLASSES, engine="embedded", keep_image=True, image="bytes")(batches["encoded"])
    assert kept["bytes"].to_pylist() == list(encoded)
    grey = labeler({"image": np.zeros((1, 30, 40), np.uint8)}).to_pylist()[0]
    assert (grey["width"], grey["height"], grey["error"]) == (40, 30, None)


def test_images_that_are_none() -> None:
    labeler = ocelli.ray.Labeler(["dog"], engine="embedded")
    encoded = np.array([b"no image", None, (SCENES / "park.png").read_bytes()], dtype=object)
    rows = labeler({"bytes": encoded, "path": np.array(["a.png", "b.png", "c.png"])}).to_pylist()
    assert "a.png: not an image" in rows[0]["error"] and rows[1]["error"] == "b.png: there is no image"
    assert rows[2]["error"] is None and len(rows[2]["xyxy"]) == 2
    assert "uint16 array" in labeler({"image": np.zeros((1, 4, 4, 3), np.uint16)}).to_pylist()[0]["error"]
    with pytest.raises(ocelli.InvalidArgument, match="the columns file: expected 'image', 'bytes' or 'path'"):
        labeler({"file": np.array(["a.png"])})
    with pytest.raises(ocelli.InvalidArgument, match="a column 'error' already"):
        labeler({"path": np.array(["a.png"]), "error": np.array([1])})
    with pytest.raises(ocelli.InvalidArgument, match="blank"):
        ocelli.ray.Labeler(["dog", " "], engine="embedded")


def test_a_cluster_gives_the_result_of_one_process(
    cluster: Any, images: Path, expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    class Telling(ocelli.ray.Labeler):
        def __call__(self, batch: Any) -> Any:
            table = super().__call__(batch)
            for name, value in (("engine", self._detector.engine), ("process", os.getpid())):
                table = table.append_column(name, [[value] * len(table)])
            return table

    rows = ray.data.read_binary_files(str(images), include_paths=True, override_num_blocks=8)
    labelled = rows.map_batches(
        Telling, fn_constructor_kwargs={"classes": CLASSES, **OPTIONS},
        batch_size=3, compute=ray.data.ActorPoolStrategy(size=2), num_cpus=1,
    ).materialize()  # fmt: skip
    labelled.drop_columns(["engine", "process"]).write_parquet(str(tmp_path / "labels"))
    _check(tmp_path / "labels", expected)
    assert len(set(labelled.unique("process"))) == 2
    assert all("1 thread" in engine for engine in labelled.unique("engine"))
    two = rows.limit(2).map_batches(
        Telling, fn_constructor_kwargs={"classes": CLASSES, **OPTIONS},
        compute=ray.data.ActorPoolStrategy(size=1), num_cpus=2,
    )  # fmt: skip
    assert all("2 threads" in engine for engine in two.unique("engine"))


def test_decoded_images_and_paths(
    cluster: Any, images: Path, expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    paths = sorted(expected)[:6]
    wanted = {path: expected[path] for path in paths}
    sources = [
        ray.data.read_images(paths, include_paths=True, mode="RGB"),
        ray.data.from_items([{"path": path} for path in paths]),
    ]
    for number, source in enumerate(sources):
        labels = tmp_path / str(number)
        source.map_batches(
            ocelli.ray.Labeler, fn_constructor_kwargs={"classes": CLASSES, **OPTIONS},
            compute=ray.data.ActorPoolStrategy(size=1), num_cpus=1,
        ).write_parquet(str(labels))  # fmt: skip
        rows = _read(labels)
        assert {row.pop("path"): row for row in rows} == wanted


def test_the_guide(cluster: Any, images: Path, tmp_path: Path) -> None:
    shutil.copytree(ocelli.Detector(masks=True).model, tmp_path / "sam3-onnx")
    (tmp_path / "photos").mkdir()
    for path in sorted(images.glob("[bp]*-0.png")) + [images / BROKEN]:
        shutil.copy(path, tmp_path / "photos")
    guide = (ROOT / "docs" / "cluster.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    block = block.replace("/shared", str(tmp_path)).replace('"person", "red car"', '"dog", "tree"')
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    ran = subprocess.run([sys.executable, "-c", block], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    rows = {Path(row["path"]).name: row for row in _read(tmp_path / "labels")}
    assert set(rows) == {"park-0.png", BROKEN} and "dog" in rows["park-0.png"]["class_name"]


def test_a_killed_worker(cluster: Any, images: Path, expected: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    log = tmp_path / "log"
    driver = _start(cluster, images, tmp_path / "labels", log)
    _wait(lambda: len(_lines(log)) >= 8, driver)
    victim = int(_lines(log)[-1].split()[0])
    os.kill(victim, signal.SIGKILL)
    _, said = driver.communicate(timeout=120)
    assert driver.returncode == 0, said
    _check(tmp_path / "labels", expected)
    processes = {line.split()[0] for line in _lines(log)}
    assert len(processes) == 3, "a worker took the place of the killed one"


def test_a_killed_driver_and_the_rest(
    cluster: Any, images: Path, expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    labels, log = tmp_path / "labels", tmp_path / "log"
    driver = _start(cluster, images, labels, log)
    _wait(lambda: len(list(labels.glob("*.parquet"))) >= 3, driver)
    driver.kill()
    driver.communicate()
    # The workers of the job end with its driver.
    _wait(lambda: not any(_is_running(int(line.split()[0])) for line in _lines(log)))
    first = sorted(labels.glob("*.parquet"))
    # What a write leaves that is cut off.
    (labels / "cut.parquet").write_bytes(first[0].read_bytes()[:-9])
    (labels / "empty.parquet").write_bytes(b"")
    before = len(_lines(log))
    again = _start(cluster, images, labels, log)
    _, said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    _check(labels, expected)
    second = [Path(line.split()[1]).name for line in _lines(log)[before:]]
    assert 0 < len(second) == len(set(second)) <= 37 - 3
    assert {path.name for path in labels.glob("_*")} >= {"_incomplete-cut.parquet.part", "_incomplete-empty.parquet.part"}
    done = {Path(row["path"]).name for path in first if path.exists() for row in pq.read_table(path).to_pylist()}
    assert done and not done & set(second)
    # Nothing is left: a third run labels none.
    third = _start(cluster, images, labels, log)
    _, said = third.communicate(timeout=120)
    assert third.returncode == 0, said
    assert len(_lines(log)) == before + len(second)
    _check(labels, expected)


def test_what_is_unfinished(cluster: Any, tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    rows = ray.data.from_items([{"path": name, "error": None} for name in ("a", "b", "c", "d")])
    left: Callable[..., list[str]] = lambda **options: sorted(  # noqa: E731
        row["path"] for row in ocelli.ray.unfinished(rows, options.pop("output", labels), **options).take_all()
    )
    assert left() == ["a", "b", "c", "d"]
    part = ray.data.from_items([{"path": "b", "error": None}, {"path": "c", "error": "cannot read the image"}])
    part.write_parquet(str(labels))
    assert left() == left(output=f"file://{labels}") == ["a", "d"]
    assert left(retry_errors=True) == ["a", "c", "d"]
    # Ray writes this type when a column is large.
    pq.write_table(pa.table({"path": pa.array(["d"], pa.large_string())}), labels / "large.parquet")
    assert left() == ["a"]
    with pytest.raises(ocelli.InvalidArgument, match="expected the key 'name'"):
        ocelli.ray.unfinished(rows, labels, key="name")
    (labels / "other.parquet").write_bytes(b"PAR1 and then something else PAR1")
    with pytest.raises(ocelli.InvalidData, match=r"other\.parquet.*remove the file"):
        ocelli.ray.unfinished(rows, labels)
    shutil.rmtree(labels)
    assert left() == ["a", "b", "c", "d"]


def _start(cluster: Any, images: Path, labels: Path, log: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), cluster.address, *map(str, (images, labels, log))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def _is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _wait(condition: Callable[[], bool], driver: "subprocess.Popen[str] | None" = None) -> None:
    """Until something holds, while the driver runs."""
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        assert driver is None or driver.poll() is None, driver.communicate()[0]
        time.sleep(0.05)
