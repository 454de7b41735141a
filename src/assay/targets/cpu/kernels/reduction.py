"""Reductions, the places of extremes, running sums: all see a tensor as three axes, the middle one being theirs."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir.dims import Dim, ceildiv, dim_max, product
from assay.ir.dtypes import FLOATS, NUMERIC, DType, boolean, f32, f64
from assay.ir.graph import Node
from assay.ops.shapes import axes_of
from assay.targets.base import limitation
from assay.targets.cpu import scalar
from assay.targets.cpu.kernels.lines import lines, numbers, order_left, packed
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import dtype_of
from assay.targets.shared.views import View

_PART = 16384
"""A long axis is cut into parts of about so many elements, which threads share; sizes alone decide where."""
_SHORT = 256
"""No part has fewer places along the axis."""
_MANY = 1024
"""From so many results on, threads share these instead; from 1/16 of it if the axis is the innermost."""
_COLUMNS = 16
"""Threads take multiples of this many columns."""

# --- reductions


@limitation("sums are not rounded after every addition")
def _accumulated(node: Node) -> bool:
    return node.attrs["accumulate"] not in (None, f64)


@emits("reduce_sum", NUMERIC, unless=(_accumulated,))
def reduce_sum(p: Planner, node: Node) -> None:
    """Sums; those of integers wrap around."""
    _reduce(p, node, "SUM", "SUM")


@limitation("means of short integers are made of their parts")
def _short_integers(node: Node) -> bool:
    dtype = dtype_of(node.inputs[0])
    return dtype.is_integer and dtype.bits < 64


@emits("reduce_mean", NUMERIC, unless=(_short_integers,))
def reduce_mean(p: Planner, node: Node) -> None:
    """Sums, divided at the end."""
    _reduce(p, node, "SUM", "MEAN")


@emits("reduce_prod", NUMERIC)
def reduce_prod(p: Planner, node: Node) -> None:
    """Products; those of floats in f64, where they do not overflow on the way."""
    _reduce(p, node, "PROD", "PROD")


@emits("reduce_max", (*NUMERIC, boolean))
def reduce_max(p: Planner, node: Node) -> None:
    """The largest element."""
    _reduce(p, node, "MAXIMUM", "MAXIMUM")


@emits("reduce_min", (*NUMERIC, boolean))
def reduce_min(p: Planner, node: Node) -> None:
    """The smallest element."""
    _reduce(p, node, "MINIMUM", "MINIMUM")


def _reduce(p: Planner, node: Node, kind: str, last_kind: str) -> None:
    """A call for each run of reduced axes in memory, the innermost first; what is not the result is kept wide."""
    source, order = packed(p, node.inputs[0])
    gone = axes_of(node.attrs["axes"], source.rank)
    result = p.result(node.outputs[0], order_left(order, () if node.attrs["keepdims"] else gone))
    if not gone:
        p.copy(source, result)
        return
    count = product(source.shape[axis] for axis in gone)
    wide = _wide(kind, source.dtype)
    runs = _runs([(source.shape[axis], axis in gone) for axis in order])
    todo = [at for at, (_, is_gone) in enumerate(runs) if is_gone]
    for at in reversed(todo):
        above, below = (product(size for size, _ in part) for part in (runs[:at], runs[at + 1 :]))
        length, part = runs[at][0], _part(above, runs[at][0], below)
        if part is not None:
            parts = dim_max(ceildiv(length, part), 1)
            target = p.temporary(wide, (above, parts, below))
            _reduce_axis(p, kind, source, target, (above, length, below), part, parts, count)
            source, length = target, parts
        last = at == todo[0]
        target = result if last else p.temporary(wide, (above, below))
        _reduce_axis(p, last_kind if last else kind, source, target, (above, length, below), length, 1, count)
        source = target
        runs[at] = (1, False)


def _runs(axes: Sequence[tuple[Dim, bool]]) -> list[tuple[Dim, bool]]:
    """Neighbours of one kind as one."""
    runs: list[tuple[Dim, bool]] = []
    for size, is_gone in axes:
        if runs and runs[-1][1] == is_gone:
            runs[-1] = (runs[-1][0] * size, is_gone)
        else:
            runs.append((size, is_gone))
    return runs


def _part(above: Dim, length: Dim, below: Dim) -> int | None:
    """How long the parts of an axis are; None if it is not cut: it is short, or there are many results."""
    if not isinstance(above, int) or not isinstance(below, int):
        return None
    if above * below >= (_MANY // 16 if below == 1 else _MANY):
        return None
    part = max(_PART // max(below, 1), _SHORT)
    return None if isinstance(length, int) and length <= 2 * part else part


def _reduce_axis(
    p: Planner,
    kind: str,
    source: View,
    target: View,
    sizes: tuple[Dim, Dim, Dim],
    part: Dim,
    parts: Dim,
    count: Dim,
) -> None:
    """Reduce `parts` parts of the middle one of three axes of `sizes`; a mean is over `count` elements."""
    above, length, below = sizes
    kinds = {**numbers(source.dtype, _compute_type(kind, source.dtype)), **_stored(target.dtype)}
    if not source.dtype.is_float:
        kinds["INTEGER"] = "1"
    p.step(
        template("reduce.h", KIND=kind, LAST=int(below == 1), START=_start(kind, source.dtype), **kinds),
        [source, target],
        [length, below, part, parts, count],
        rows=above * parts,
        cols=below,
        col_grain=_COLUMNS,
        work=part,
        takes_epilogue=below != 1,
    )


def _wide(kind: str, dtype: DType) -> DType:
    """What results on the way are kept in."""
    if not dtype.is_float:
        return dtype
    return f64 if kind == "PROD" or dtype is f64 else f32


def _compute_type(kind: str, dtype: DType) -> str:
    if dtype.is_integer and kind in ("SUM", "MEAN", "PROD"):
        return _unsigned(dtype)
    return scalar.compute_type(_wide(kind, dtype))


def _unsigned(dtype: DType) -> str:
    """The C type in which integers of `dtype` wrap around."""
    return f"uint{dtype.bits}_t"


def _stored(dtype: DType) -> dict[str, str]:
    """The definitions of R and STORE."""
    kinds = numbers(dtype)
    return {"R": kinds["T"], "STORE(x)": kinds["STORE(x)"].replace("(T)", "(R)")}


def _start(kind: str, dtype: DType) -> str:
    """What nothing is reduced to."""
    if kind not in ("MAXIMUM", "MINIMUM"):
        return "1" if kind == "PROD" else "0"
    largest = kind == "MINIMUM"
    if dtype.is_float:
        return "INFINITY" if largest else "-INFINITY"
    if dtype is boolean:
        return str(int(largest))
    name = f"{'U' if dtype.kind == 'uint' else ''}INT{dtype.bits}"
    return f"{name}_MAX" if largest else f"{name}_MIN" if dtype.kind == "int" else "0"


# --- the places of extremes


@emits("arg_max", NUMERIC)
def arg_max(p: Planner, node: Node) -> None:
    """Where the first largest element lies."""
    _arg(p, node, ">")


@emits("arg_min", NUMERIC)
def arg_min(p: Planner, node: Node) -> None:
    """Where the first smallest element lies."""
    _arg(p, node, "<")


def _arg(p: Planner, node: Node, sign: str) -> None:
    x = lines(p, node.inputs[0], node.attrs["axis"])
    result = p.result(node.outputs[0], x.order if node.attrs["keepdims"] else x.rest)
    beats = {"BEATS(a, b)": f"((a) {sign} (b))"}
    p.step(
        template("arg.h", LAST=int(x.below == 1), **beats, **numbers(x.view.dtype)),
        [x.view, p.error_cell(node, "there is no extreme of nothing"), result],
        [x.length, x.below],
        rows=x.above,
        cols=x.below,
        col_grain=_COLUMNS,
        work=2 * x.length,
        takes_epilogue=x.below != 1,
    )


# --- running sums and the like


@emits("cum_sum", NUMERIC)
def cum_sum(p: Planner, node: Node) -> None:
    """Running sums; those of integers wrap around."""
    _scan(p, node, "SUM")


@emits("cum_prod", NUMERIC)
def cum_prod(p: Planner, node: Node) -> None:
    """Running products."""
    _scan(p, node, "PROD")


@emits("cum_max", NUMERIC)
def cum_max(p: Planner, node: Node) -> None:
    """The largest element so far, and where it lies."""
    _scan(p, node, "MAXIMUM")


@emits("cum_min", NUMERIC)
def cum_min(p: Planner, node: Node) -> None:
    """The smallest element so far, and where it lies."""
    _scan(p, node, "MINIMUM")


@emits("cum_log_sum_exp", FLOATS)
def cum_log_sum_exp(p: Planner, node: Node) -> None:
    """The logarithm of the running sum of exponentials."""
    _scan(p, node, "LOG_SUM_EXP")


def _scan(p: Planner, node: Node, kind: str) -> None:
    x = lines(p, node.inputs[0], node.attrs["axis"])
    results = [p.result(value, x.order) for value in node.outputs]
    dtype = x.view.dtype
    wide = "" if len(results) > 1 else "double" if dtype.is_float else _unsigned(dtype)
    p.step(
        template("scan.h", KIND=kind, **numbers(dtype, wide)),
        [x.view, *results],
        [x.length, x.below],
        rows=x.above,
        cols=x.below,
        col_grain=_COLUMNS,
        work=4 * x.length,
        writes=len(results),
    )
