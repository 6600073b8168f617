"""Labelling on a Ray cluster.

    import ocelli.ray
    import ray

    images = ray.data.read_binary_files("/shared/photos", include_paths=True)
    labelled = ocelli.ray.unfinished(images, "/shared/labels").map_batches(
        ocelli.ray.Labeler,
        fn_constructor_kwargs={"classes": ["person", "red car"], "model": "/shared/sam3"},
        compute=ray.data.ActorPoolStrategy(size=4),
        num_cpus=8,
    )
    labelled.write_parquet("/shared/labels")

`Labeler` detects in an actor that loads the model once, `unfinished` leaves out what an earlier run has written. Needs the
package `ray`, which the extra `ocelli-vision[ray]` installs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

import numpy as np
import numpy.typing as npt

from ._detector import ChannelOrder, Classes, Detector, DetectorKeywords, PathLike, as_prompts
from ._errors import InvalidArgument, InvalidData, Io, Unavailable
from ._results import Detections

if TYPE_CHECKING:
    from ray.data import Dataset


def _load(module: str) -> Any:
    """A module of the packages that the extra brings; they are untyped, or partly."""
    try:
        return import_module(module)
    except ImportError as why:
        raise Unavailable(f'{why.name or module} is not installed: run `pip install "ocelli-vision[ray]"`') from why


ray = _load("ray")
pa = _load("pyarrow")
pc = _load("pyarrow.compute")
fs = _load("pyarrow.fs")
pq = _load("pyarrow.parquet")
_BlockAccessor = _load("ray.data.block").BlockAccessor

__all__ = ["Labeler", "unfinished"]

Batch: TypeAlias = Any
"""Rows in one of Ray Data's formats: a dict of arrays, a `pyarrow.Table` or a `pandas.DataFrame`."""
Table: TypeAlias = Any
"""A `pyarrow.Table`."""
FileSystem: TypeAlias = Any
"""A `pyarrow.fs.FileSystem`."""

_IMAGE_COLUMNS = ("image", "bytes", "path")
_COLUMNS = pa.schema(
    [
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("xyxy", pa.list_(pa.list_(pa.float32(), 4))),
        pa.field("confidence", pa.list_(pa.float32())),
        pa.field("class_id", pa.list_(pa.int64())),
        pa.field("class_name", pa.list_(pa.string())),
        pa.field("error", pa.string()),
    ]
)
_MASKS = pa.field(
    "masks", pa.list_(pa.struct([pa.field("size", pa.list_(pa.int32(), 2)), pa.field("counts", pa.string())]))
)


class Labeler:
    """Detects in batches of images: a class for Ray Data's `map_batches`, which makes an actor of it.

    The images are a column of arrays as `ray.data.read_images` gives them (uint8; grey ones become RGB, transparency is
    dropped), of encoded files (`ray.data.read_binary_files`), or of paths that every machine can read.

    The column of images, unless it has paths, is replaced by these; all others stay:

    | column | type | |
    |---|---|---|
    | `width`, `height` | int32 | size of the image in pixels; null if it could not be read |
    | `xyxy` | list of 4 float32 | boxes: left, top, right, bottom in pixels, the highest score first |
    | `confidence` | list of float32 | scores, 0 to 1 |
    | `class_id` | list of int64 | indices of the classes |
    | `class_name` | list of string | labels of the classes |
    | `masks` | list of struct | only with `masks=True`: COCO's run lengths, `size` (height, width) and `counts` |
    | `error` | string | why the image could not be read, else null |

    An image that cannot be read has an error and empty lists. An engine that fails ends the job.
    """

    def __init__(
        self,
        classes: Classes,
        *,
        model: PathLike | None = None,
        image: str | None = None,
        keep_image: bool = False,
        channel_order: ChannelOrder = "rgb",
        **detector: Unpack[DetectorKeywords],
    ) -> None:
        """Loads the model.

        image: the column of images; by default the first of `image`, `bytes` and `path` that there is.
        keep_image: whether arrays and encoded files stay in the rows.
        channel_order: the channels of arrays.

        Other arguments are those of `Detector`. `threads` is by default the number of CPUs that Ray gives to the actor, the
        `num_cpus` of `map_batches`.
        """
        if detector.get("threads") is None:
            detector["threads"] = _assigned_cpus()
        self._classes = as_prompts(classes)
        self._image = image
        self._keep_image = keep_image
        self._channel_order: ChannelOrder = channel_order
        self._schema = _COLUMNS.insert(6, _MASKS) if detector.get("masks") else _COLUMNS
        self._detector = Detector(model, **detector)
        self._detector.prepare(self._classes)

    def __call__(self, batch: Batch) -> Table:
        """The rows of a batch with what was found in their images."""
        is_dict = _is_dict(batch)
        names: list[str] = list(batch) if is_dict else _BlockAccessor.for_block(batch).column_names()
        column = self._column(names)
        images: Sequence[Any] = batch[column] if is_dict else _BlockAccessor.for_block(batch).to_numpy(column)
        keep = self._keep_image or all(isinstance(image, str) for image in images)
        columns = _arrow(batch, [name for name in names if keep or name != column])
        paths = columns["path"].to_pylist() if "path" in columns else [column] * len(images)
        rows = [self._row(image, str(path)) for image, path in zip(images, paths, strict=True)]
        for field in self._schema:
            columns[field.name] = pa.array([row[field.name] for row in rows], field.type)
        return pa.table(columns)

    def _column(self, names: Sequence[str]) -> str:
        """The column of images."""
        if taken := [name for name in self._schema.names if name in names]:
            raise InvalidArgument(f"the rows have a column {taken[0]!r} already: rename it, as results have this name")
        if self._image is None:
            for name in _IMAGE_COLUMNS:
                if name in names:
                    return name
        elif self._image in names:
            return self._image
        wanted = repr(self._image) if self._image is not None else "'image', 'bytes' or 'path'"
        raise InvalidArgument(f"the rows have the columns {', '.join(names)}: expected {wanted} with the images")

    def _row(self, image: object, name: str) -> dict[str, Any]:
        """The values of the results' columns for one image."""
        try:
            found = self._detect(image, name)
        except (InvalidArgument, InvalidData, Io) as why:
            return {**dict.fromkeys(self._schema.names, []), "width": None, "height": None, "error": str(why)}
        width, height = found.size
        row: dict[str, Any] = {
            "width": width,
            "height": height,
            "xyxy": found.xyxy.tolist(),
            "confidence": found.confidence,
            "class_id": found.class_id,
            "class_name": found.class_name.tolist(),
            "masks": [mask.to_coco() for mask in found.masks or ()],
            "error": None,
        }
        return row

    def _detect(self, value: object, name: str) -> Detections:
        if value is None:
            raise InvalidArgument(f"{name}: there is no image")
        if not isinstance(value, (bytes, bytearray)):
            image: Any = value
            if isinstance(image, np.ndarray):
                image = _rgb(cast("npt.NDArray[Any]", image))
            return self._detector.detect(image, self._classes, channel_order=self._channel_order)
        with _file(value) as path:
            try:
                return self._detector.detect(path, self._classes)
            except (InvalidData, Io) as why:
                raise type(why)(str(why).replace(path, name)) from why


def unfinished(
    dataset: Dataset,
    output: PathLike,
    key: str = "path",
    *,
    retry_errors: bool = False,
    filesystem: FileSystem | None = None,
) -> Dataset:
    """The rows whose key is in none of the Parquet files of a folder: what is left to do after a job was stopped.

    key: a column that differs in all rows, in the input and in the output. retry_errors: whether rows with an `error` are
    left to do as well; their old rows stay. filesystem: as in `Dataset.write_parquet`, for the output; otherwise from its
    URI. The folder need not exist.

    Call it before `map_batches(Labeler, …)`. A file whose writing was cut off is renamed to `_incomplete-….part`, which
    readers pass over; its rows are left to do. No other job may be writing to the folder.
    """
    keys = _finished(output, key, retry_errors, filesystem)
    if len(keys) == 0:
        return dataset
    finished = ray.put(keys)
    keys_type = keys.type

    def left(table: Table) -> Table:
        if key not in table.column_names:
            raise InvalidArgument(f"the rows have the columns {', '.join(table.column_names)}: expected the key {key!r}")
        return table.filter(pc.invert(pc.is_in(table[key].cast(keys_type), value_set=ray.get(finished))))

    untyped: Any = dataset
    remaining: Dataset = untyped.map_batches(left, batch_format="pyarrow", batch_size=None)
    return remaining


def _finished(
    output: PathLike, key: str, retry_errors: bool, filesystem: FileSystem | None
) -> Any:
    """The keys in the Parquet files of a folder."""
    folder = os.fspath(output)
    files: Any = filesystem
    if files is None and "://" in folder:
        files, folder = fs.FileSystem.from_uri(folder)
    elif files is None:
        files, folder = fs.LocalFileSystem(), os.path.abspath(folder)
    found: list[Any] = []
    for info in files.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True)):
        if info.type != fs.FileType.File or info.extension != "parquet":
            continue
        with files.open_input_file(info.path) as opened:
            if not _is_whole(opened, info.size):
                _set_aside(files, info)
                continue
            try:
                file = pq.ParquetFile(opened)
                names = file.schema_arrow.names
                if key not in names:
                    raise InvalidArgument(f"{info.path} has the columns {', '.join(names)}: expected the key {key!r}")
                wanted = ["error"] if retry_errors and "error" in names else []
                table = file.read([key, *wanted])
            except pa.ArrowInvalid as why:
                reason = str(why).splitlines()[0]
                raise InvalidData(f"{info.path}: {reason}; remove the file, and its rows are labelled again") from why
        if wanted:
            table = table.filter(pc.is_null(table["error"]))
        # Ray writes texts of either type. The longer one has no limit of two gigabytes for all of them.
        is_text = pa.types.is_string(table.schema.field(key).type)
        found.extend((table[key].cast(pa.large_string()) if is_text else table[key]).chunks)
    return pa.concat_arrays(found) if found else pa.array([], pa.large_string())


def _is_whole(file: Any, size: int) -> bool:
    """Whether a Parquet file has its end, which is written last."""
    if size < 12:
        return False
    file.seek(size - 4)
    whole = bool(file.read(4) == b"PAR1")
    file.seek(0)
    return whole


def _set_aside(filesystem: FileSystem, info: Any) -> None:
    """Gives a file whose writing was cut off a name that readers of the folder pass over."""
    folder, slash, name = info.path.rpartition("/")
    filesystem.move(info.path, f"{folder}{slash}_incomplete-{name}.part")


def _assigned_cpus() -> int | None:
    """The number of CPUs that Ray gave to this actor, at least 1; None outside of actors."""
    if not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return None
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 0)))


def _is_dict(batch: object) -> bool:
    return isinstance(batch, dict)


def _arrow(batch: Batch, names: Sequence[str]) -> dict[str, Any]:
    """These columns of a batch as Arrow's arrays."""
    if not _is_dict(batch):
        table = _BlockAccessor.for_block(batch).to_arrow()
    elif names:
        table = _BlockAccessor.for_block(_BlockAccessor.batch_to_block({name: batch[name] for name in names})).to_arrow()
    else:
        return {}
    return {name: table[name] for name in names}


def _rgb(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A grey or transparent image as RGB; others as they are."""
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim == 3 and array.shape[2] == 1:
        return np.repeat(array, 3, axis=2)
    return array[:, :, :3] if array.ndim == 3 and array.shape[2] == 4 else array


@contextmanager
def _file(content: bytes | bytearray) -> Generator[str]:
    """The path of a file with this content; in memory where the system can, so that a killed process leaves none."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    with open(os.memfd_create("image"), "wb") as memory:
        memory.write(content)
        memory.flush()
        yield f"/proc/self/fd/{memory.fileno()}"
