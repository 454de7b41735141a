"""Pooling: one kernel for all kinds, along channels where these lie innermost, else along the last axis."""

from __future__ import annotations

import math
from typing import cast

from assay.ir.dims import Dim, product
from assay.ir.dtypes import FLOATS, NUMERIC, DType
from assay.ir.graph import Node
from assay.ops.definitions.pooling import lines
from assay.targets.base import limitation
from assay.targets.cpu.kernels.elements import computed
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.planner import Planner

_SPATIAL = 3
_MANY = 64
"""Elements of a window from which on a sum in f32 would lose digits."""
_NO_AXIS = (1, 0, 1, 1, 0, 0, 1)


@limitation(f"windows over more than {_SPATIAL} axes have no kernel")
def _too_many_axes(node: Node) -> bool:
    return len(node.attrs["kernel"]) > _SPATIAL


@emits("max_pool", NUMERIC, unless=(_too_many_axes,))
def max_pool(p: Planner, node: Node) -> None:
    """The largest element."""
    _pool(p, node, "MAXIMUM", _lowest(p.view(node.inputs[0]).dtype))


@emits("max_pool_positions", NUMERIC, unless=(_too_many_axes,))
def max_pool_positions(p: Planner, node: Node) -> None:
    """The largest element and where it lies."""
    _pool(p, node, "POSITIONS", _lowest(p.view(node.inputs[0]).dtype))


@emits("average_pool", FLOATS, unless=(_too_many_axes,))
def average_pool(p: Planner, node: Node) -> None:
    """The sum over the number of elements; many of them are summed up in f64."""
    wide = "double" if math.prod(node.attrs["kernel"]) > _MANY else ""
    _pool(p, node, "MEAN_WITH_PADDING" if node.attrs["include_pad"] else "MEAN", "0", wide)


@emits("lp_pool", FLOATS, unless=(_too_many_axes,))
def lp_pool(p: Planner, node: Node) -> None:
    """The norm; powers are summed in f64, where they do not overflow."""
    _pool(p, node, "NORM", "0", wide="double", power=node.attrs["p"])


def _pool(p: Planner, node: Node, kind: str, start: str, wide: str = "", power: float = 0.0) -> None:
    x = p.view(node.inputs[0])
    spatial = range(2, x.rank)
    last = x.strides[1] == 1
    order = (0, *spatial, 1) if last else (0, 1, *spatial)
    results = [p.result(value, order) for value in node.outputs]
    counts = [1] * (_SPATIAL - len(spatial)) + [results[0].shape[axis] for axis in spatial]
    *rows, cols = (x.shape[0], *counts, x.shape[1]) if last else (x.shape[0], x.shape[1], *counts)
    windows = [cast(Dim, number) for _ in range(_SPATIAL - len(spatial)) for number in _NO_AXIS]
    for axis, line in zip(spatial, lines(**node.attrs), strict=True):
        windows += [x.shape[axis], x.strides[axis]]
        windows += [line.kernel, line.stride, line.before, line.after, line.dilation]
    apart = 1 if last else x.strides[-1] * node.attrs["strides"][-1]
    step = apart if isinstance(apart, int) else "l->stride * l->step"
    p.step(
        template("pooling.h", KIND=kind, CHANNELS_LAST=int(last), STEP=step, START=start, **computed(x.dtype, wide)),
        [x, *results],
        [*rows, cols, x.strides[0], x.strides[1], *windows],
        rows=product(rows),
        cols=cols,
        col_grain=64,
        work=product(node.attrs["kernel"]),
        floats=[power],
        writes=len(results),
        takes_epilogue=len(results) == 1,
    )


def _lowest(dtype: DType) -> str:
    if dtype.is_float:
        return "-INFINITY"
    return f"INT{dtype.bits}_MIN" if dtype.kind == "int" else "0"
