"""The blocks of the guide, run as a reader would run them."""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import PIL.Image
import pytest
from conftest import ROOT, SCENES

import ocelli
import ocelli.sam3

GUIDE = (ROOT / "docs" / "python.md").read_text()
# The page that shows one program in all languages.
EMBEDDING = (ROOT / "docs" / "embedding.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", f"{GUIDE}\n{EMBEDDING}", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the guide uses: drawn scenes stand in for photographs, the built-in model for the released one."""
    path = tmp_path_factory.mktemp("guide")
    shutil.copytree(ocelli.Detector(masks=True).model, path / "sam3")
    (path / "photos").mkdir()
    photos = {"street.jpg": "street", "logo.jpg": "street", "photos/1.jpg": "park", "photos/2.jpg": "street"}
    for name, scene in photos.items():
        PIL.Image.open(SCENES / f"{scene}.png").convert("RGB").save(path / name)
    return path


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_guide(number: int, folder: Path) -> None:
    command = [sys.executable, "-c", BLOCKS[number]]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, BLOCKS[number] + ran.stderr


def test_the_guide_names_everything() -> None:
    assert len(BLOCKS) >= 5
    types = {"Classes", "Detection", "ImageLike", "Track", "__version__"}
    missing = [name for name in ocelli.__all__ if name not in GUIDE and name not in types]
    assert not missing
    words = set(re.findall(r"`([A-Za-z_]+)`", GUIDE))
    known = set(dir(ocelli)) | set(dir(ocelli.Detections)) | set(dir(ocelli.Video)) | set(dir(ocelli.Detector))
    known |= set(dir(ocelli.Mask)) | set(dir(ocelli.Tracker)) | set(ocelli.Detections.__slots__)
    known |= set(dir(ocelli.VideoSession)) | set(dir(ocelli.TrackedFrame)) | set(dir(ocelli.sam3))
    known |= set(dir(ocelli.VideoFrame)) | set(dir(ocelli.ObjectMask)) | set(dir(ocelli.ObjectPrompt))
    known |= set(inspect.signature(ocelli.sam3.build_sam3_video_predictor).parameters)
    extras = {"ocelli", "cpu", "cuda", "video", "supervision", "ray", "rerun", "progress", "KeyboardInterrupt"}
    extras |= {"Labeler", "unfinished", "OCELLI_TENSORRT", "VideoLog", "blueprint", "tile"}
    assert words <= known | extras, words - known - extras
