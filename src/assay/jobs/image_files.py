"""Images: files, which Pillow reads, and pixels in memory."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from assay.errors import BadArgument, FileMissing, ImportFailed, LimitExceeded
from assay.ir.dtypes import Array
from assay.needs import require

MOST_PIXELS = 1 << 27
"""An image may have so many pixels."""


class Image(Protocol):
    """What can be seen: pixels u8 (height, width, 3)."""

    def read(self) -> Array:
        """The pixels."""
        ...


@dataclass(frozen=True, eq=False)
class ImagePixels:
    """Pixels in memory."""

    pixels: Array

    def read(self) -> Array:
        """The pixels. BadArgument if they are no image."""
        shape = self.pixels.shape
        if self.pixels.dtype != np.uint8 or len(shape) != 3 or shape[2] != 3 or not self.pixels.size:
            kind = f"{self.pixels.dtype}{list(shape)}"
            raise BadArgument(f"{kind} is no image", hint="give uint8 of height, width and three colours")
        return self.pixels


@dataclass(frozen=True, eq=False)
class ImageBytes:
    """The content of a file (PNG, JPEG, …); `name` is for errors."""

    content: bytes
    name: str

    def read(self) -> Array:
        """The pixels in red, green and blue. ImportFailed if the content is damaged or no image."""
        require("PIL")
        import PIL.Image

        pillow: Any = PIL.Image

        try:
            with pillow.open(io.BytesIO(self.content)) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise LimitExceeded(f"the image has more than {MOST_PIXELS} pixels", where=self.name)
                pixels: Any = image.convert("RGB")
                return np.asarray(pixels, np.uint8)
        except LimitExceeded:
            raise
        except pillow.DecompressionBombError as error:
            raise LimitExceeded("the image is too large", where=self.name) from error
        except Exception as error:  # decoders of damaged files raise whatever they stumble over
            raise ImportFailed(f"the image cannot be read: {error}", where=self.name) from error


def image_file(path: str | Path) -> ImageBytes:
    """The image in a file."""
    given = Path(path)
    if not given.is_file():
        raise FileMissing(f"there is no file '{given}'")
    return ImageBytes(given.read_bytes(), str(given))
