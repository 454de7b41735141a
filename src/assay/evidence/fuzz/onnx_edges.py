"""Nodes at the edges of what the ONNX standard says, told by their attributes and inputs: where peers deviate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay.ir.dtypes import Array
from assay.ops.definitions.resize import TRANSFORMS, ResizeAxis

Attrs = Mapping[str, Any]
Inputs = Sequence[Any]

_LARGEST = (np.iinfo(np.int32).max, np.iinfo(np.int64).max)


def is_empty(attrs: Attrs, inputs: Inputs) -> bool:
    return inputs[0].size == 0


def is_empty_batch(attrs: Attrs, inputs: Inputs) -> bool:
    return inputs[0].shape[0] == 0


def is_empty_mean(attrs: Attrs, inputs: Inputs) -> bool:
    return inputs[1].size == 0 and attrs.get("reduction", "mean") == "mean"


def has_empty_images(attrs: Attrs, inputs: Inputs) -> bool:
    return inputs[0].shape[0] > 0 and 0 in inputs[0].shape[1:]


def is_infinite_where_unlimited(attrs: Attrs, inputs: Inputs) -> bool:
    x = inputs[0]
    if x.dtype.kind != "f":
        return False
    return any(not given(inputs, limit) and bool((x == end).any()) for limit, end in ((1, -np.inf), (2, np.inf)))


def counts_from_the_end_of_nothing(attrs: Attrs, inputs: Inputs) -> bool:
    axes = inputs[1] if given(inputs, 1) else attrs.get("axes", attrs.get("axis", 0))
    return inputs[0].size == 0 and bool((np.asarray(axes) < 0).any())


def has_nan(attrs: Attrs, inputs: Inputs) -> bool:
    return bool(np.isnan(inputs[0]).any())


def has_no_number(attrs: Attrs, inputs: Inputs) -> bool:
    return not bool(np.isfinite(inputs[0]).all())


def multiplies_beyond_the_largest(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether a product of all elements but zeros is beyond what their integers hold."""
    x = inputs[0]
    return x.dtype.kind == "i" and math.prod(abs(each) for each in x.ravel().tolist() if each) > np.iinfo(x.dtype).max


def given(inputs: Inputs, index: int) -> bool:
    return index < len(inputs) and inputs[index] is not None


def has_no_steps(attrs: Attrs, inputs: Inputs) -> bool:
    lengths = inputs[4] if given(inputs, 4) else np.ones(1)
    return inputs[0].shape[attrs.get("layout", 0)] == 0 or bool((lengths == 0).any())


def goes_back_from_the_end(attrs: Attrs, inputs: Inputs) -> bool:
    pairs = zip(inputs[2].tolist(), inputs[4].tolist(), strict=True)
    return any(end in _LARGEST and step < 0 for end, step in pairs)


def goes_back_from_before(attrs: Attrs, inputs: Inputs) -> bool:
    axes = inputs[3].tolist() if given(inputs, 3) else range(inputs[1].size)
    rows = zip(inputs[1].tolist(), axes, inputs[4].tolist(), strict=True)
    return any(step < 0 and start < -inputs[0].shape[axis] for start, axis, step in rows)


def _wanted(inputs: Inputs, copies: bool) -> list[int]:
    """The shape that a Reshape is to give; 0 may copy a size."""
    known = [*inputs[0].shape, *[-2] * len(inputs[1])]
    return [known[i] if copies and size == 0 else size for i, size in enumerate(inputs[1].tolist())]


def leaves_open(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether any number would do for the size that a Reshape is to find beside a copied one."""
    wanted = _wanted(inputs, copies=True)
    return not attrs.get("allowzero") and -1 in wanted and 0 in wanted


def asks_for_zero_and_open(attrs: Attrs, inputs: Inputs) -> bool:
    wanted = _wanted(inputs, copies=False)
    return bool(attrs.get("allowzero")) and -1 in wanted and 0 in wanted


def has_wide_gaps(attrs: Attrs, inputs: Inputs) -> bool:
    kernel = inputs[1].shape[2:]
    steps, spread = attrs.get("strides", [1] * len(kernel)), attrs.get("dilations", [1] * len(kernel))
    gaps = any((k - 1) * d + 1 < s for k, d, s in zip(kernel, spread, steps, strict=True))
    return attrs.get("auto_pad", "NOTSET").startswith("SAME") and gaps


def leaves_nothing(attrs: Attrs, inputs: Inputs) -> bool:
    sizes, kernel = inputs[0].shape[2:], inputs[1].shape[2:]
    axes, ones = range(len(kernel)), [1] * len(kernel)
    steps, spread = attrs.get("strides", ones), attrs.get("dilations", ones)
    pads, more = attrs.get("pads", [0] * 2 * len(kernel)), attrs.get("output_padding", [0] * len(kernel))
    full = [(sizes[i] - 1) * steps[i] + (kernel[i] - 1) * spread[i] + 1 + more[i] for i in axes]
    return any(full[i] == pads[i] + pads[i + len(kernel)] for i in axes)


def room_for_windows(attrs: Attrs, x: Array, kernel: Sequence[int]) -> list[int]:
    """In how many places of each padded axis a window may start."""
    axes, sizes = range(len(kernel)), x.shape[2:]
    spread, pads = attrs.get("dilations", [1] * len(kernel)), attrs.get("pads", [0] * 2 * len(kernel))
    return [sizes[i] + pads[i] + pads[i + len(kernel)] - (kernel[i] - 1) * spread[i] for i in axes]


def window_fits_nowhere(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether some axis is shorter than a window, so that division rounds to one window or to none."""
    rounds_down = not attrs.get("ceil_mode") and not attrs.get("auto_pad", "NOTSET").startswith("SAME")
    return rounds_down and min(room_for_windows(attrs, inputs[0], attrs["kernel_shape"])) < 1


def leaves_out_a_window(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether SAME_LOWER pads an axis that is no multiple of the step."""
    sizes = inputs[0].shape[2:]
    steps = attrs.get("strides", [1] * len(sizes))
    uneven = any(size % step for size, step in zip(sizes, steps, strict=True))
    return attrs.get("auto_pad") == "SAME_LOWER" and uneven


def has_window_of_padding(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether some window of a pool holds no element, where padding is given as numbers."""
    kernel, sizes = attrs["kernel_shape"], inputs[0].shape[2:]
    ones = [1] * len(kernel)
    steps, spread = attrs.get("strides", ones), attrs.get("dilations", ones)
    pads, room = attrs.get("pads", [0] * 2 * len(kernel)), room_for_windows(attrs, inputs[0], kernel)

    def holds_one(axis: int, start: int) -> bool:
        return any(0 <= start + tap * spread[axis] < sizes[axis] for tap in range(kernel[axis]))

    starts = [range(-pads[axis], room[axis] - pads[axis], steps[axis]) for axis in range(len(kernel))]
    return not all(holds_one(axis, start) for axis, line in enumerate(starts) for start in line)


def same_padding(attrs: Attrs, inputs: Inputs) -> int:
    """What SAME padding adds to the axis to which it adds least; 0 where padding is another."""
    if not attrs.get("auto_pad", "NOTSET").startswith("SAME"):
        return 0
    kernel, sizes = attrs["kernel_shape"], inputs[0].shape[2:]
    ones = [1] * len(kernel)
    steps, spread = attrs.get("strides", ones), attrs.get("dilations", ones)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True)]
    return min((-(-size // s) - 1) * s + span - size for size, s, span in zip(sizes, steps, spans, strict=True))


def is_uneven(pads: Sequence[int]) -> bool:
    return list(pads[: len(pads) // 2]) != list(pads[len(pads) // 2 :])


def _left_by_crops(inputs: Inputs) -> list[tuple[int, int]]:
    """For each axis that is padded how much of it negative pads leave, and the larger of its pads."""
    axes = inputs[3].tolist() if given(inputs, 3) else range(inputs[0].ndim)
    rows = zip(axes, *inputs[1].reshape(2, -1).tolist(), strict=True)
    return [(inputs[0].shape[axis] + min(b, 0) + min(e, 0), max(b, e)) for axis, b, e in rows]


def reflects_again(attrs: Attrs, inputs: Inputs) -> bool:
    return attrs.get("mode") == "reflect" and any(far >= left for left, far in _left_by_crops(inputs))


def crops_all(attrs: Attrs, inputs: Inputs) -> bool:
    return attrs.get("mode", "constant") != "constant" and any(left < 1 for left, _ in _left_by_crops(inputs))


def misses_the_axis(attrs: Attrs, inputs: Inputs) -> bool:
    if not given(inputs, 1):
        return False
    sizes = inputs[1]
    return bool((sizes < 0).any()) or (sizes.ndim == 1 and sizes.sum() != inputs[0].shape[attrs.get("axis", 0)])


def has_empty_parts(size: int, count: int) -> bool:
    return -(-size // count) * (count - 1) >= size


def has_equal_elements(attrs: Attrs, inputs: Inputs) -> bool:
    return bool((inputs[0].astype(np.float64).var(axis=tuple(attrs.get("axes", (0, 2, 3)))) == 0).any())


def cancels(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether E[x²] − E[x]² loses most of its digits somewhere."""
    x, axes = inputs[0].astype(np.float64), tuple(attrs.get("axes", (0, 2, 3)))
    return bool((x.var(axis=axes) < 1e-2 * (x**2).mean(axis=axes)).any())


def asks_for_too_many(attrs: Attrs, inputs: Inputs) -> bool:
    return given(inputs, 1) and not 0 <= int(inputs[1].reshape(-1)[0]) <= inputs[0].shape[attrs.get("axis", -1)]


def makes_no_round(attrs: Attrs, inputs: Inputs) -> bool:
    return (given(inputs, 0) and int(inputs[0]) <= 0) or (given(inputs, 1) and not bool(inputs[1]))


def _kept_axes(attrs: Attrs, inputs: Inputs) -> list[bool]:
    """Which of the axes that are resized keep their size."""
    shape = np.array(inputs[0].shape)
    axes = [axis % len(shape) for axis in attrs.get("axes", range(len(shape)))]
    scales = inputs[2] if given(inputs, 2) else np.zeros(0)
    found = np.floor(shape[axes] * scales.astype(np.float64)) if scales.size else inputs[3]
    return (found == shape[axes]).tolist()


def scales_to_the_same(attrs: Attrs, inputs: Inputs) -> bool:
    if not given(inputs, 2):
        return False
    kept = _kept_axes(attrs, inputs)
    scaled = any(same and scale != 1 for same, scale in zip(kept, inputs[2], strict=True))
    return scaled and (bool(attrs.get("antialias")) or all(kept))


def crops_what_it_keeps(attrs: Attrs, inputs: Inputs) -> bool:
    if attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize" or not given(inputs, 1):
        return False
    begins, ends = inputs[1].reshape(2, -1).tolist()
    rows = zip(begins, ends, _kept_axes(attrs, inputs), strict=True)
    return any(kept and (begin, end) != (0, 1) for begin, end, kept in rows)


def fills_nothing(attrs: Attrs, inputs: Inputs) -> bool:
    axes = attrs.get("axes", range(inputs[0].ndim))
    sizes: list[int] = inputs[3].tolist() if given(inputs, 3) else []
    return any(inputs[0].shape[axis] == 0 and size > 0 for axis, size in zip(axes, sizes, strict=False))


def _fractional_sizes(attrs: Attrs, inputs: Inputs) -> list[float]:
    """The sizes that scales ask for, where they are no whole numbers."""
    scales = inputs[2] if given(inputs, 2) else np.zeros(0)
    axes = attrs.get("axes", range(inputs[0].ndim))
    exact = [inputs[0].shape[axis] * float(scale) for axis, scale in zip(axes, scales, strict=False)]
    return [size for size in exact if size % 1]


def scales_to_fractions(attrs: Attrs, inputs: Inputs) -> bool:
    mode = attrs.get("coordinate_transformation_mode")
    return mode in ("align_corners", "tf_crop_and_resize") and bool(_fractional_sizes(attrs, inputs))


def leaves_one_pixel(attrs: Attrs, inputs: Inputs) -> bool:
    crops = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return crops and any(1 < size < 2 for size in _fractional_sizes(attrs, inputs))


def asks_for_one_pixel(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether the size of an axis is to be 1, in the mode that has a rule for that."""
    axes = attrs.get("axes", range(inputs[0].ndim))
    if given(inputs, 3):
        sizes = [int(size) for size in inputs[3]]
    else:
        scales = inputs[2] if given(inputs, 2) else np.zeros(0)
        sizes = [int(inputs[0].shape[axis] * float(scale)) for axis, scale in zip(axes, scales, strict=False)]
    return attrs.get("coordinate_transformation_mode") == "pytorch_half_pixel" and 1 in sizes


def meets_a_pixel(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether a place is, but for the rounding of f32, one at which the nearest pixel changes."""
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    crops = mode == "tf_crop_and_resize"
    if attrs.get("mode", "nearest") != "nearest":
        return False
    to_turn = 0.5 if attrs.get("nearest_mode", "round_prefer_floor").startswith("round") else 0.0
    for line in _resized_lines(attrs, inputs, crops):
        places = TRANSFORMS["crop" if crops else mode](np.arange(line.new, dtype=np.float64), line)
        off = np.abs(places - to_turn - np.rint(places - to_turn))
        near = off <= np.maximum(np.abs(places), 1) * 2.0**-22
        if bool((near & ((off > 0) | (float(np.float32(line.scale)) != line.scale))).any()):
            return True
    return False


def _resized_lines(attrs: Attrs, inputs: Inputs, crops: bool) -> list[ResizeAxis]:
    """The axes that are resized and have elements, before and after."""
    sizes = [inputs[0].shape[axis] for axis in attrs.get("axes", range(inputs[0].ndim))]
    if given(inputs, 3):
        new: list[int] = inputs[3].tolist()
        scales = [count / max(size, 1) for size, count in zip(sizes, new, strict=True)]
    else:
        scales: list[float] = inputs[2].tolist()
        new = [int(np.float32(size) * np.float32(scale)) for size, scale in zip(sizes, scales, strict=True)]
    window: list[float] = inputs[1].tolist() if crops else [0.0] * len(sizes) + [1.0] * len(sizes)
    rows = zip(sizes, new, scales, window[: len(sizes)], window[len(sizes) :], strict=True)
    return [ResizeAxis(*row) for row in rows if row[0] and row[1]]


def keeps_nothing(attrs: Attrs, inputs: Inputs) -> bool:
    return attrs.get("auto_pad", "NOTSET").startswith("SAME") and 0 in inputs[0].shape[2:]
