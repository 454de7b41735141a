"""Resampling, axis by axis: new elements are made of a few old ones. Which ones, a small kernel finds out in a run."""

from __future__ import annotations

from assay.ir.dims import product
from assay.ir.dtypes import f32, f64, i64
from assay.ir.graph import Node
from assay.ops.shapes import axes_of
from assay.targets.cpu.kernels.elements import MOVABLE, computed
from assay.targets.cpu.kernels.indexing import gather_rows
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.planner import Planner
from assay.targets.shared.resampling import crops, filter_of, interpolates_others, unclear_filter
from assay.targets.shared.views import View


@emits("resize", MOVABLE, unless=(crops, interpolates_others, unclear_filter), reads=(0,))
def resize(p: Planner, node: Node) -> None:
    """Between the axes, floats are kept in the type that sums are made in."""
    order, attrs = p.view(node.inputs[0]).order, node.attrs
    x = p.dense(node.inputs[0], order).transposed(order)
    result = p.result(node.outputs[0], order).transposed(order)
    axes = [order.index(axis) for axis in axes_of(attrs["axes"], x.rank)]
    if not axes:
        p.copy(x, result)
    for index, axis in enumerate(axes):
        scale = attrs["scales"][index] if attrs["scales"] else 0.0
        shape = (*x.shape[:axis], result.shape[axis], *x.shape[axis + 1 :])
        dtype = f32 if attrs["mode"] != "nearest" and x.dtype is not f64 else x.dtype
        target = result if index == len(axes) - 1 else p.temporary(dtype, shape)
        (_copy if attrs["mode"] == "nearest" else _interpolate)(p, node, x, target, axis, scale)
        x = target


def _copy(p: Planner, node: Node, x: View, target: View, axis: int, scale: float) -> None:
    """Plan an axis of which each new element is an old one."""
    size = target.shape[axis]
    positions = p.temporary(i64, (size,))
    kernel = template("taps.h", PLACE=node.attrs["transform"], NEAREST=node.attrs["rounding"])
    p.step(kernel, [positions], [x.shape[axis], size], rows=1, cols=size, work=32, floats=[scale])
    gather_rows(p, node, x, positions, axis, target)


def _interpolate(p: Planner, node: Node, x: View, target: View, axis: int, scale: float) -> None:
    """Plan an axis of which each new element is a weighted sum of old ones."""
    size, inner = target.shape[axis], product(x.shape[axis + 1 :])
    shrink, first, taps = filter_of(node.attrs, scale, x.shape[axis], size)
    sums = f64 if x.dtype is f64 else f32
    positions, weights = p.temporary(i64, (taps, size)), p.temporary(sums, (taps, size))
    into, out = computed(x.dtype), computed(target.dtype)
    exclude, antialias = node.attrs["exclude_outside"], node.attrs["antialias"]
    p.step(
        template("taps.h", PLACE=node.attrs["transform"], KERNEL=node.attrs["mode"], W=into["W"]),
        [positions, weights],
        [x.shape[axis], size, taps, first, int(exclude), int(exclude or antialias)],
        rows=1,
        cols=size,
        work=32 * taps,
        floats=[scale, shrink, node.attrs["cubic_a"]],
        scratch=8 * taps,
        writes=2,
    )
    last, outer = inner == 1, product(x.shape[:axis])
    defines = {"X": into["T"], "W": into["W"], "Y": out["T"], "LOAD(x)": into["LOAD(x)"]}
    store = out["STORE(x)"].replace("(T)", "(Y)")
    p.step(
        template("resample.h", LAST=int(last), **defines, **{"STORE(x)": store}),
        [x, positions, weights, p.error_cell(node, "an empty axis has nothing to be made of"), target],
        [x.shape[axis], size, taps, inner],
        rows=outer if last else outer * size,
        cols=size if last else inner,
        col_grain=64,
        work=2 * taps,
        takes_epilogue=True,
    )
