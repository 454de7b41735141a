"""Images as models take them. Pixels are u8 (height, width, 3); Pillow resizes them, as it did for the models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import Array, u8
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType, Type
from assay.jobs.image_files import MOST_PIXELS, Image
from assay.jobs.registry import JOB_OPS, check_link
from assay.needs import require
from assay.ops.definitions.text import strings
from assay.ops.registry import op


def _pixels(image: Fact) -> list[Type]:
    check_link(image, "image", "image")
    return [TensorType(u8, (UNKNOWN, UNKNOWN, 3))]


@op("any -> any", into=JOB_OPS, types=_pixels, host=True)
def read_image(image: Image) -> Array:
    """The pixels of an image in red, green and blue."""
    return image.read()


FILTERS = ("bilinear", "bicubic", "lanczos")
"""Ways of weighing pixels by their distance."""


def _sized(pixels: Fact, *, size: Sequence[int] = (), shortest: int = 0, filter: str) -> list[Shape]:
    if filter not in FILTERS:
        raise ValueError(f"there is no filter '{filter}'; there are {', '.join(FILTERS)}")
    fits = len(size) == 2 and not shortest if size else shortest > 0
    if not fits or any(type(each) is not int or not 1 <= each <= MOST_PIXELS for each in (*size, shortest or 1)):
        raise ValueError("an image is made of a size, or by its shortest edge")
    return [(size[0], size[1], 3) if size else (UNKNOWN, UNKNOWN, 3)]


@op("u8 -> u8", into=JOB_OPS, shape=_sized, host=True)
def resize_image(pixels: Array, *, size: Sequence[int] = (), shortest: int = 0, filter: str = "bilinear") -> Array:
    """An image of this size (height, width), or one whose shortest edge is that and whose form stays."""
    height, width = pixels.shape[:2]
    if not size:
        edge = min(height, width)
        size = (int(height * shortest / edge), int(width * shortest / edge))
        if size[0] * size[1] > MOST_PIXELS:
            raise ValueError(f"an image of {size[0]} × {size[1]} pixels is too large")
    require("PIL")
    import PIL.Image

    pillow: Any = PIL.Image
    resized = pillow.fromarray(pixels).resize((size[1], size[0]), getattr(pillow.Resampling, filter.upper()))
    return np.asarray(resized, np.uint8)


def _cropped(pixels: Fact, *, size: Sequence[int]) -> list[Shape]:
    if len(size) != 2 or any(type(each) is not int or not 1 <= each <= MOST_PIXELS for each in size):
        raise ValueError(f"{size} is no size of an image")
    return [(size[0], size[1], 3)]


@op("u8 -> u8", into=JOB_OPS, shape=_cropped, host=True)
def crop_image(pixels: Array, *, size: Sequence[int]) -> Array:
    """The middle of an image; what it lacks is black."""
    result = np.zeros((*size, 3), np.uint8)
    cuts = [_middle(has, wanted) for has, wanted in zip(pixels.shape[:2], size, strict=True)]
    (there, here) = zip(*cuts, strict=True)
    result[here] = pixels[there]
    return result


def _middle(has: int, wanted: int) -> tuple[slice, slice]:
    """What is taken of an edge, and where it goes."""
    if has >= wanted:
        start = (has - wanted) // 2
        return slice(start, start + wanted), slice(0, wanted)
    start = math.ceil((wanted - has) / 2)
    return slice(0, has), slice(start, start + has)


def _ranked(odds: Fact, labels: Fact, *, most: int) -> list[Shape]:
    return [(UNKNOWN,), (UNKNOWN,)]


@op("f32, string -> string, f32", into=JOB_OPS, shape=_ranked, host=True)
def rank(odds: Array, labels: Array, *, most: int = 0) -> tuple[Array, Array]:
    """The labels of a line of probabilities, most probable first, and those; `most` of them, unless that is 0."""
    if labels.size != odds.size:
        raise ValueError(f"there are {labels.size} labels for {odds.size} classes")
    order: Any = np.argsort(-odds, kind="stable")[: most or None]
    return strings([str(labels[at]) for at in order]), odds[order]
