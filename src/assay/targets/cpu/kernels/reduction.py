"""Reductions, the places of extremes, running sums: all see a tensor as three axes, the middle one being theirs."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir.dims import Dim, ceildiv, dim_max, product
from assay.ir.dtypes import FLOATS, NUMERIC, DType, boolean, f32, f64
from assay.ir.graph import Node
from assay.ops.shapes import axes_of
from assay.targets.cpu import scalar
from assay.targets.cpu.kernels.elements import computed
from assay.targets.cpu.kernels.lines import lines, packed
from assay.targets.cpu.planner import Planner
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import Kernel, template
from assay.targets.cpu.views import View

_PART = 16384
"""A long axis is cut into parts of so many elements that threads share; the cut depends on sizes alone."""
_MANY = 64
"""From so many results on, threads share these instead."""


def _accumulated(node: Node) -> str:
    wanted = node.attrs["accumulate"]
    return "" if wanted in (None, f64) else f"partial sums rounded to {wanted} one after the other are the oracle's"


@emits("reduce_sum", NUMERIC, unless=_accumulated)
def reduce_sum(p: Planner, node: Node) -> None:
    """Sums; those of integers wrap around."""
    _reduce(p, node, "SUM", "SUM")


@emits("reduce_mean", NUMERIC)
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
    """One call for each run of reduced axes in memory, the innermost first; results on the way are kept wide."""
    view, order = packed(p, node.inputs[0])
    gone = axes_of(node.attrs["axes"], view.rank)
    kept = [axis for axis in range(view.rank) if axis not in gone]
    places = range(view.rank) if node.attrs["keepdims"] else {axis: place for place, axis in enumerate(kept)}
    result = p.result(node.outputs[0], [places[axis] for axis in order if node.attrs["keepdims"] or axis in kept])
    runs = _runs([(view.shape[axis], axis in gone) for axis in order])
    count = product(view.shape[axis] for axis in gone)
    if not gone:
        p.copy(view.reshaped(result.shape) or view, result)
    while any(is_gone for _, is_gone in runs):
        at = max(index for index, (_, is_gone) in enumerate(runs) if is_gone)
        above, below = (product(size for size, _ in part) for part in (runs[:at], runs[at + 1 :]))
        part = _part(above, runs[at][0], below)
        parts = dim_max(ceildiv(runs[at][0], part), 1) if isinstance(part, int) else 1
        ...
