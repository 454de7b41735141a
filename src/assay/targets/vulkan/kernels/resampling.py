"""Resampling, axis by axis: each invocation finds out which old elements its new one is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from assay.ir.dims import product
from assay.ir.dtypes import f32, f64
from assay.ir.graph import Node
from assay.ops.shapes import axes_of
from assay.targets.shared.planner import Planner
from assay.targets.shared.resampling import Filter, crops, filter_of, interpolates_others, unclear_filter
from assay.targets.shared.views import View
from assay.targets.vulkan import functions as f
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.kernels.elements import MOVABLE, report, unravelled
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import Shader
from assay.targets.vulkan.storage import rounded
from assay.targets.vulkan.templates import template

_WRITTEN_OUT = 4
"""Filters of up to so many elements are written out."""


class _Axis(NamedTuple):
    """An axis that is resampled: its old and new size, and how many new elements there are for an old one."""

    old: ShaderValue
    new: ShaderValue
    scale: ShaderValue


# --- where a new element lies among the old ones


def _half_pixel(at: ShaderValue, axis: _Axis) -> ShaderValue:
    return (at + 0.5) / axis.scale - 0.5


def _half_pixel_symmetric(at: ShaderValue, axis: _Axis) -> ShaderValue:
    return axis.old * 0.5 * (1.0 - axis.new / (axis.scale * axis.old)) + _half_pixel(at, axis)


def _pytorch_half_pixel(at: ShaderValue, axis: _Axis) -> ShaderValue:
    return at.shader.select(axis.new > 1.0, _half_pixel(at, axis), 0.0)


def _half_pixel_if_resized(at: ShaderValue, axis: _Axis) -> ShaderValue:
    return at.shader.select(axis.new.equals(axis.old), at, _half_pixel(at, axis))


def _align_corners(at: ShaderValue, axis: _Axis) -> ShaderValue:
    found = at * (axis.old - 1.0) / (axis.scale * axis.old - 1.0)
    return at.shader.select(axis.new.equals(1.0), 0.0, found)


def _asymmetric(at: ShaderValue, axis: _Axis) -> ShaderValue:
    return at / axis.scale


_PLACES: Mapping[str, Callable[[ShaderValue, _Axis], ShaderValue]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "half_pixel_if_resized": _half_pixel_if_resized,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
}
_ROUNDINGS: Mapping[str, Callable[[ShaderValue], ShaderValue]] = {
    "floor": f.floor,
    "ceil": lambda x: -f.floor(-x),
    "half_down": lambda x: -f.floor(0.5 - x),
    "half_up": lambda x: f.floor(x + 0.5),
}


def _settled(place: ShaderValue) -> ShaderValue:
    """Places within the rounding of f32, in which scales come, of a half element are taken to be there."""
    s = place.shader
    half, size = f.nearest(place * 2.0) * 0.5, f.absolute(place)
    near = f.absolute(place - half) <= s.select(size > 1.0, size, 1.0) * 2.0**-22
    return s.select(near, half, place)


# --- weights by distance


def _linear(distance: ShaderValue, slope: float) -> ShaderValue:
    found = 1.0 - f.absolute(distance)
    return distance.shader.select(found > 0.0, found, 0.0)


def _cubic(distance: ShaderValue, slope: float) -> ShaderValue:
    s, d = distance.shader, f.absolute(distance)
    near = (d * (slope + 2) - (slope + 3)) * d * d + 1.0
    far = ((d * slope - 5 * slope) * d + 8 * slope) * d - 4 * slope
    return s.select(d <= 1.0, near, s.select(d < 2.0, far, 0.0))


_WEIGHTS: Mapping[str, Callable[[ShaderValue, float], ShaderValue]] = {"linear": _linear, "cubic": _cubic}


@emits("resize", MOVABLE, unless=(crops, interpolates_others, unclear_filter), reads=(0,))
def resize(p: Planner, node: Node) -> None:
    """Between the axes, floats are kept in the type that sums are made in."""
    x, result, attrs = p.dense(node.inputs[0]), p.result(node.outputs[0]), node.attrs
    axes = axes_of(attrs["axes"], x.rank)
    if not axes:
        p.copy(x, result)
    for index, axis in enumerate(axes):
        scale = float(attrs["scales"][index]) if attrs["scales"] else 0.0
        shape = (*x.shape[:axis], result.shape[axis], *x.shape[axis + 1 :])
        dtype = f32 if attrs["mode"] != "nearest" and x.dtype is not f64 else x.dtype
        target = result if index == len(axes) - 1 else p.temporary(dtype, shape)
        _along(p, node, x, target, axis, scale)
        x = target


def _along(p: Planner, node: Node, x: View, target: View, axis: int, scale: float) -> None:
    attrs = node.attrs
    error = p.error_cell(node, "an empty axis has nothing to be made of")
    operands = [x, error, target]
    common: dict[str, Any] = {"transform": attrs["transform"], "scale": scale}
    kinds = [view.dtype for view in operands]
    if attrs["mode"] == "nearest":
        kernel = template(write_nearest, kinds, 3, texels=(1,), **common, rounding=attrs["rounding"], straight=True)
    else:
        exclude = bool(attrs["exclude_outside"])
        kernel = template(
            write_interpolation,
            kinds,
            3,
            texels=(1,),
            **common,
            mode=attrs["mode"],
            filter_=filter_of(attrs, scale, x.shape[axis], target.shape[axis]),
            slope=float(attrs["cubic_a"]),
            exclude=exclude,
            normal=exclude or bool(attrs["antialias"]),
        )
    sizes = [x.shape[axis], target.shape[axis], product(x.shape[axis + 1 :])]
    p.step(kernel, operands, sizes, rows=target.size, writes=2)


class _Line(NamedTuple):
    """An axis with its sizes as numbers that places are computed with, and how many elements lie below it."""

    axis: _Axis
    size: ShaderValue
    places: ShaderValue
    inner: ShaderValue


def _line(s: Shader, scale: float) -> _Line:
    """What a kernel is told of its axis; says so if there is nothing to make elements of."""
    kind = "f64" if s.profile.f64 else "f32"
    size, count, inner = (s.number(at) for at in range(3))
    with s.when(size.equals(0)):
        report(s.operands[1])
    old, new = s.cast(s.greatest(size, 1), kind), s.cast(count, kind)
    ratio = s.value(scale, kind) if scale else new / old
    return _Line(_Axis(old, new, ratio), size, count, inner)


def _clamped(s: Shader, position: ShaderValue, axis: _Axis) -> ShaderValue:
    last = axis.old - 1.0
    return s.cast(s.select(position < 0.0, 0.0, s.select(position > last, last, position)), "u32")


def write_nearest(s: Shader, *, transform: str, scale: float, rounding: str) -> None:
    """Each new element is an old one."""
    x, _, result = s.operands
    axis, size, count, inner = _line(s, scale)
    with s.items(s.select(size.equals(0), s.value(0, "u32"), s.rows)) as item:
        outer, index, column = unravelled(item, [size, count, inner])
        place = _settled(_PLACES[transform](s.cast(index, axis.old.kind), axis))
        at = _clamped(s, _ROUNDINGS[rounding](place), axis)
        result.put_bits(item, x.bits((outer * size + at) * inner + column))


def write_interpolation(
    s: Shader, *, transform: str, scale: float, mode: str, filter_: Filter, slope: float, exclude: bool, normal: bool
) -> None:
    """Each new element is a weighted sum of old ones. Beyond the ends, the ends count unless `exclude`; weights add up
    to one, or are made to if `normal`."""
    x, _, result = s.operands
    axis, size, count, inner = _line(s, scale)
    with s.items(s.select(size.equals(0), s.value(0, "u32"), s.rows)) as item:
        outer, index, column = unravelled(item, [size, count, inner])
        place = _PLACES[transform](s.cast(index, axis.old.kind), axis)
        below = f.floor(place)
        total, weights = s.variable(x.kind, 0.0), s.variable(x.kind, 0.0)

        def take(tap: ShaderValue) -> None:
            """One old element."""
            position = below + (s.cast(tap, below.kind) + float(filter_.first))
            weight = _WEIGHTS[mode](s.cast((position - place) * filter_.shrink, x.kind), slope)
            if exclude:
                outside = (position < 0.0) | (position > axis.old - 1.0)
                weight = s.select(outside, 0.0, weight)
            at = _clamped(s, position, axis)
            total.add(weight * x.load((outer * size + at) * inner + column))
            if normal:
                weights.add(weight)

        if filter_.taps <= _WRITTEN_OUT:
            for tap in range(filter_.taps):
                take(s.value(tap, "u32"))
        else:
            with s.loop(s.value(0, "u32"), filter_.taps) as tap:
                take(tap)
        found = total.get()
        if normal:
            whole = weights.get()
            found = found / s.select(whole.equals(0.0), 1.0, whole)
        result.store(item, rounded(s, found, result.dtype))
