"""The jobs of naming what an image or a text is: by the classes of a model, or by texts that describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from assay.errors import ImportFailed
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import DType, f32, i64, string
from assay.ir.graph import Value
from assay.ir.types import LinkType, TensorType
from assay.jobs.building import JobBuilder
from assay.jobs.definitions.calls import TEXT
from assay.jobs.job import JobGraph
from assay.ops.definitions.text import strings

_FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Filters by the numbers that Pillow gives them."""


@dataclass(frozen=True)
class ImageReading:
    """What becomes of an image before a model sees it: the size it is brought to, or its shortest edge; what is cut out
    of it; the factor of its levels; what is taken from each colour and what that is divided by."""

    size: tuple[int, ...] = (224, 224)
    shortest: int = 0
    filter: str = "bilinear"
    crop: tuple[int, ...] = ()
    factor: float = 1 / 255
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    deviation: tuple[float, ...] = (0.5, 0.5, 0.5)


def seeing_of(told: Mapping[str, Any], edge: int) -> ImageReading:
    """What a `preprocessor_config.json` says, for a model that takes squares of this edge. ImportFailed if that is not
    to be understood."""
    usual = ImageReading()
    size = _size(told.get("size", edge)) if told.get("do_resize", True) else {}
    crop = _size(told.get("crop_size", edge)) if told.get("do_center_crop") else {}
    filtered = told.get("resample", 2)
    if filtered not in _FILTERS:
        raise ImportFailed(f"images are resized by the filter {filtered}", hint=f"known are {sorted(_FILTERS)}")
    even = told.get("do_normalize", True)
    mean, deviation = (_colours(told.get(name), even) for name in ("image_mean", "image_std"))
    return ImageReading(
        size=(size["height"], size["width"]) if "height" in size else (),
        shortest=size.get("shortest_edge", 0),
        filter=_FILTERS[filtered],
        crop=(crop["height"], crop["width"]) if crop else (),
        factor=float(told.get("rescale_factor", usual.factor)) if told.get("do_rescale", True) else 1.0,
        mean=mean if even else (0.0, 0.0, 0.0),
        deviation=deviation if even else (1.0, 1.0, 1.0),
    )


def _size(told: Any) -> dict[str, int]:
    """A size as files tell it: a number, or a table of edges."""
    if type(told) is int and told > 0:
        return {"height": told, "width": told}
    found = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    wanted = ({"height", "width"}, {"shortest_edge"})
    if set(found) not in wanted or any(type(edge) is not int or edge < 1 for edge in found.values()):
        raise ImportFailed(f"{told!r} is no size of an image", where="preprocessor_config.json")
    return found


def _colours(told: Any, wanted: bool) -> tuple[float, ...]:
    values = cast("list[Any]", told) if isinstance(told, list) else [0.5, 0.5, 0.5]
    if wanted and (len(values) != 3 or not all(isinstance(each, int | float) for each in values)):
        raise ImportFailed(f"{told!r} are no three colours", where="preprocessor_config.json")
    return tuple(float(each) for each in values)


def _seen(b: JobBuilder, seeing: ImageReading, dtype: DType) -> Value:
    """The image as a model takes it: (1, 3, height, width)."""
    pixels = b.op("read_image", b.taken("image", LinkType("image")))[0]
    if seeing.size or seeing.shortest:
        pixels = b.op("resize_image", pixels, size=seeing.size, shortest=seeing.shortest, filter=seeing.filter)[0]
    if seeing.crop:
        pixels = b.op("crop_image", pixels, size=seeing.crop)[0]
    levels = b.mul(b.cast(b.named("pixels", pixels), dtype=f32), b.constant(seeing.factor, f32))
    mean, deviation = (b.constant(np.array(each, np.float32)) for each in (seeing.mean, seeing.deviation))
    even = b.div(b.sub(levels, mean), deviation)
    turned = b.unsqueeze(b.transpose(even, perm=(2, 0, 1)), axes=(0,))
    return b.named("features", b.cast(turned, dtype=dtype))


def image_job(
    model: str,
    kinds: Sequence[str],
    logits: int,
    labels: Sequence[str],
    seeing: ImageReading,
    dtype: DType = dtypes.f32,
) -> JobGraph:
    """The job for an encoder of images with classes, by its hash; `kinds` are the types of what it gives, of which
    `logits` is the place of the scores. It takes `image`, and gives `labels`, best first, and their `odds`."""
    b = JobBuilder("classify", {"names": strings(list(labels))})
    encoder = b.link("encoder", "model", model)
    found = b.op("call", encoder, _seen(b, seeing, dtype), kinds=tuple(kinds))
    return _named(b, found[logits])


def text_job(
    model: str, tokenizer: str, kinds: Sequence[str], logits: int, labels: Sequence[str], longest: int
) -> JobGraph:
    """The same for an encoder of texts. It takes `text`."""
    b = JobBuilder("classify_text", {"names": strings(list(labels))})
    encoder, reader = b.link("encoder", "model", model), b.link("tokenizer", "tokenizer", tokenizer)
    row = b.unsqueeze(b.op("encode", reader, b.taken("text", TEXT), longest=longest)[0], axes=(0,))
    nothing = b.mul(row, 0)
    found = b.op("call", encoder, row, b.add(nothing, 1), nothing, kinds=tuple(kinds))
    return _named(b, found[logits])


def _named(b: JobBuilder, logits: Value) -> JobGraph:
    line = b.cast(b.gather(b.named("logits", logits), b.constant(0, i64), axis=0), dtype=f32)
    labels, odds = b.op("rank", b.softmax(line, axis=-1), b.values["names"])
    return b.job({"labels": labels, "odds": odds})


def described_job(
    models: tuple[str, str],
    tokenizer: str,
    kinds: tuple[Sequence[str], Sequence[str]],
    seeing: ImageReading,
    *,
    scale: float,
    longest: int,
    dtype: DType = dtypes.f32,
) -> JobGraph:
    """The job for a model that knows images and texts, as CLIP: hashes and types of results of both parts, that of
    images first. It takes `image`, `texts` that describe what may be seen and their `names`, and gives `labels`, best
    first, and their `odds`."""
    b = JobBuilder("describe", {"scale": np.array(scale, np.float32)})
    image, text = b.link("image_encoder", "model", models[0]), b.link("text_encoder", "model", models[1])
    reader = b.link("tokenizer", "tokenizer", tokenizer)
    lines = TensorType(string, (UNKNOWN,))
    tokens = b.op("encode_all", reader, b.taken("texts", lines), longest=longest)[0]
    seen = b.op("call", image, _seen(b, seeing, dtype), kinds=tuple(kinds[0]))[0]
    told = b.op("call", text, tokens, kinds=tuple(kinds[1]))[0]
    ways = (_unit(b, b.cast(each, dtype=f32)) for each in (seen, told))
    one, many = ways
    likeness = b.mul(b.matmul(one, b.transpose(many, perm=(1, 0))), b.values["scale"])
    line = b.gather(b.named("logits", likeness), b.constant(0, i64), axis=0)
    labels, odds = b.op("rank", b.softmax(line, axis=-1), b.taken("names", lines))
    return b.job({"labels": labels, "odds": odds})


def _unit(b: JobBuilder, rows: Value) -> Value:
    """Rows of length 1."""
    return b.div(rows, b.sqrt(b.reduce_sum(b.mul(rows, rows), axes=(1,), keepdims=True)))
