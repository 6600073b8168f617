"""What the tests share. They run against the installed wheel."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import ocelli

ROOT = Path(__file__).resolve().parents[3]
SCENES = ROOT / "demos" / "scenes"
PARK_CLASSES = ["dog", "tree", "pizza"]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def scenes() -> Path:
    return SCENES


@pytest.fixture(scope="session")
def park() -> npt.NDArray[np.uint8]:
    return ocelli.read_image(SCENES / "park.png")


@pytest.fixture(scope="session")
def detector() -> ocelli.Detector:
    return ocelli.Detector(engine="embedded")


@pytest.fixture(scope="session")
def masking() -> ocelli.Detector:
    return ocelli.Detector(engine="embedded", masks=True)


@pytest.fixture(scope="session")
def tracker_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with SAM 3's tracker."""
    folder = tmp_path_factory.mktemp("tracker") / "exported"
    ocelli.export(ROOT / "tests" / "golden" / "parity" / "tracker_odd", folder)
    return folder


@pytest.fixture(scope="session")
def multiplex_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with SAM 3.1's tracker."""
    work = tmp_path_factory.mktemp("multiplex")
    ocelli.export(_with_objects(ROOT / "tests" / "golden" / "checkpoints" / "multiplex", work), work / "exported")
    return work / "exported"


def _with_objects(folder: Path, work: Path) -> Path:
    """The random checkpoint of SAM 3.1, changed so that it is sure of the objects that it tracks."""
    shutil.copy(folder / "tokenizer.json", work)
    content = bytearray((folder / "sam3.1.safetensors").read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    for name, tensor in json.loads(content[8:start]).items():
        if name.startswith("tracker.model.") and name.endswith("sam_mask_decoder.pred_obj_score_head.layers.2.bias"):
            at = start + tensor["data_offsets"][0]
            # bfloat16: the first half of a 32-bit number.
            content[at : at + 2] = np.float32(196).tobytes()[2:]
    checkpoint = work / "sam3.1.safetensors"
    checkpoint.write_bytes(content)
    return checkpoint


@pytest.fixture(scope="session")
def noise_frames() -> list[npt.NDArray[np.uint8]]:
    """Six frames of 96 x 72 pixels in which that model finds several objects."""
    noise = np.random.default_rng(9)
    return [noise.integers(0, 256, (9, 12, 3), np.uint8).repeat(8, 0).repeat(8, 1) for _ in range(6)]


@pytest.fixture(scope="session")
def noise_folder(noise_frames: list[npt.NDArray[np.uint8]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as images."""
    import PIL.Image

    path = tmp_path_factory.mktemp("noise")
    for number, frame in enumerate(noise_frames):
        PIL.Image.fromarray(frame).save(path / f"{number:05d}.png")
    return path


@pytest.fixture(scope="session")
def program() -> Run:
    """Runs one of the installed programs."""

    def run(name: str, *arguments: str | Path, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        command: Sequence[str] = [str(Path(sys.executable).parent / name), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    return run
