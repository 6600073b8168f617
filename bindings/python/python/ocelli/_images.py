"""Images as the package accepts them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from . import _ocelli

if TYPE_CHECKING:
    import PIL.Image
    from typing_extensions import TypeIs

ImageLike: TypeAlias = Union[npt.NDArray[np.uint8], "PIL.Image.Image", str, "os.PathLike[str]"]
"""An array of uint8 with shape (height, width, 3), a PIL image, or the path of an image file."""


def pixels(image: ImageLike) -> Any:
    """An object with the pixels in a buffer: arrays as they are, images of other kinds read or converted."""
    if isinstance(image, np.ndarray):
        return image
    if isinstance(image, (str, os.PathLike)):
        return _ocelli.read_image(image)
    if _is_pil(image):
        return np.asarray(image.convert("RGB"))
    return image


def is_file(image: ImageLike) -> bool:
    """Whether the pixels are read or converted here, to RGB."""
    return not isinstance(image, np.ndarray) and (isinstance(image, (str, os.PathLike)) or _is_pil(image))


def _is_pil(image: object) -> TypeIs[PIL.Image.Image]:
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(image, pil.Image)
