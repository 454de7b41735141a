"""Reading and writing at positions that are data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

from assay.ir.dims import Dim, Expr, eq, le, product
from assay.ir.dtypes import NUMERIC, Array
from assay.ir.graph import Node
from assay.ops.shapes import axis_of
from assay.targets.base import limitation
from assay.targets.cpu import scalar
from assay.targets.cpu.kernels.elements import MOVABLE, computed
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import dtype_of, shape_of
from assay.targets.shared.views import View

OUTSIDE = "a position lies outside of its axis"


@emits("gather", MOVABLE)
def gather(p: Planner, node: Node) -> None:
    """Rows are copied; evenly spaced constant positions make a view."""
    source, positions = p.view(node.inputs[0]), p.constant_of(node.inputs[1])
    axis = axis_of(node.attrs["axis"], source.rank)
    found = None if positions is None else _spaced(positions, source.shape[axis])
    if found is None or positions is None:
        gather_rows(p, node, p.dense(node.inputs[0]), p.dense(node.inputs[1]), axis, p.result(node.outputs[0]))
    else:
        view = source.sliced(axis, found[0], positions.size, found[1])
        p.alias(node.outputs[0], view if positions.ndim else _without(view, axis))


def gather_rows(p: Planner, node: Node, x: View, positions: View, axis: int, result: View) -> None:
    """Plan result[o, i, …] = x[o, positions[i], …] for dense views, the position standing at `axis`."""
    size, count, outer, inner = x.shape[axis], positions.size, product(x.shape[:axis]), product(x.shape[axis + 1 :])
    operands = [x, positions, p.error_cell(node, OUTSIDE), result]
    _check_places(p, node, positions, [size], outer * inner)
    if inner == 1:
        kernel = template("gather_elements.h", T=scalar.bits(x.dtype))
        numbers = [size, 1, count, 0, 1, 1, outer, size, 0]
        p.step(kernel, operands, numbers, rows=outer, cols=count, takes_epilogue=True)
    else:
        kernel, numbers = template("gather.h", T=scalar.bits(x.dtype)), [size, count, inner]
        p.step(kernel, operands, numbers, rows=outer * count, cols=inner, takes_epilogue=True)


def _check_places(p: Planner, node: Node, positions: View, sizes: Sequence[Dim], moved: Dim) -> None:
    """Plan a look at places of dense positions where perhaps nothing is `moved`, so that nobody else looks at them."""
    if le(1, moved) is not True:
        rows = positions.size if len(sizes) == 1 else product(positions.shape[:-1])
        p.step(template("within.h"), [positions, p.error_cell(node, OUTSIDE)], [len(sizes), *sizes], rows=rows)


def _spaced(positions: Array, size: Dim) -> tuple[Dim, int] | None:
    """Start and step of positions that are evenly spaced and surely lie within an axis of `size`."""
    numbers: list[int] = positions.reshape(-1).tolist()
    steps = {after - before for before, after in pairwise(numbers)}
    if positions.ndim > 1 or not numbers or len(steps) > 1 or (numbers[0] < 0) != (numbers[-1] < 0):
        return None
    first, last = (number if number >= 0 else size + number for number in (numbers[0], numbers[-1]))
    within = all(le(0, place) and le(place + 1, size) for place in (first, last))
    return (first, min(steps, default=1)) if within else None


def _without(view: View, axis: int) -> View:
    """A view of which `axis` has one element, without that axis."""
    shape, strides = [list(items) for items in (view.shape, view.strides)]
    del shape[axis], strides[axis]
    return replace(view, shape=tuple(shape), strides=tuple(strides))


# --- what must be known of positions beforehand


def _same(first: Sequence[Dim], second: Sequence[Dim]) -> bool:
    return len(first) == len(second) and all(eq(a, b) for a, b in zip(first, second, strict=True))


@limitation("the positions have another rank than what they point into")
def _other_rank(node: Node) -> bool:
    shape, picked = shape_of(node.inputs[0]), shape_of(node.inputs[1])
    return len(shape) != len(picked) or not shape


@limitation("only a run tells whether there are more positions than elements along another axis")
def _unclear_elements(node: Node) -> bool:
    shape, picked = shape_of(node.inputs[0]), shape_of(node.inputs[1])
    axis = axis_of(node.attrs["axis"], len(shape))
    return not all(le(b, a) for i, (a, b) in enumerate(zip(shape, picked, strict=True)) if i != axis)


@limitation("the number of positions for one place is known only when the program runs")
def _unclear_places(node: Node) -> bool:
    picked = shape_of(node.inputs[1])
    return not picked or isinstance(picked[-1], Expr)


@limitation("there is no kernel for places without positions")
def _no_places(node: Node) -> bool:
    return shape_of(node.inputs[1])[-1] == 0


@limitation("only a run tells whether the shared axes are of one size")
def _unclear_shared(node: Node) -> bool:
    shared = node.attrs["batch_dims"]
    return not _same(shape_of(node.inputs[0])[:shared], shape_of(node.inputs[1])[:shared])


_UNCLEAR_UPDATES = "only a run tells whether there is one update for each position"


@limitation(_UNCLEAR_UPDATES)
def _unclear_updates(node: Node) -> bool:
    return not _same(shape_of(node.inputs[2]), shape_of(node.inputs[1]))


@limitation(_UNCLEAR_UPDATES)
def _unclear_slices(node: Node) -> bool:
    shape, picked = shape_of(node.inputs[0]), shape_of(node.inputs[1])
    return not _same(shape_of(node.inputs[2]), (*picked[:-1], *shape[cast(int, picked[-1]) :]))


@limitation("there is no kernel that combines updates of this dtype")
def _combines_others(node: Node) -> bool:
    return node.attrs["reduction"] != "none" and dtype_of(node.outputs[0]) not in NUMERIC


# --- the other ops


@emits("gather_elements", MOVABLE, unless=(_other_rank, _unclear_elements))
def gather_elements(p: Planner, node: Node) -> None:
    """One element for each position."""
    x, positions, result = p.view(node.inputs[0]), p.view(node.inputs[1]), p.result(node.outputs[0])
    axis = axis_of(node.attrs["axis"], x.rank)
    steps = [0 if i == axis else stride for i, stride in enumerate(x.strides)]
    *outer, cols = result.shape
    p.step(
        template("gather_elements.h", T=scalar.bits(x.dtype)),
        [x, positions, p.error_cell(node, OUTSIDE), result],
        [
            *(x.shape[axis], x.strides[axis], cols, steps[-1], positions.strides[-1]),
            *(len(outer), *outer, *steps[:-1], *positions.strides[:-1]),
        ],
        rows=product(outer),
        cols=cols,
        takes_epilogue=True,
    )


@emits("gather_nd", MOVABLE, unless=(_unclear_places, _no_places, _unclear_shared))
def gather_nd(p: Planner, node: Node) -> None:
    """One row for each place."""
    x, positions, result = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    shared, depth = node.attrs["batch_dims"], cast(int, positions.shape[-1])
    inner = product(x.shape[shared + depth :])
    _check_places(p, node, positions, x.shape[shared : shared + depth], inner)
    p.step(
        template("gather_nd.h", T=scalar.bits(x.dtype)),
        [x, positions, p.error_cell(node, OUTSIDE), result],
        [product(positions.shape[shared:-1]), inner, depth, *x.shape[shared : shared + depth]],
        rows=product(positions.shape[:-1]),
        cols=inner,
    )


@emits("scatter_nd", MOVABLE, unless=(_unclear_places, _no_places, _unclear_slices, _combines_others))
def scatter_nd(p: Planner, node: Node) -> None:
    """Updates of whole rows go one after the other; threads share the columns."""
    positions, updates = p.dense(node.inputs[1]), p.dense(node.inputs[2])
    result = _prepared(p, node, [positions, updates])
    depth = cast(int, positions.shape[-1])
    count, inner = product(positions.shape[:-1]), product(result.shape[depth:])
    _check_places(p, node, positions, result.shape[:depth], inner)
    p.step(
        _scatter("scatter_nd.h", node),
        [positions, updates, p.error_cell(node, OUTSIDE), result],
        [count, inner, depth, *result.shape[:depth]],
        rows=1,
        cols=inner,
        col_grain=64,
        work=count,
    )


@emits("scatter_elements", MOVABLE, unless=(_other_rank, _unclear_elements, _unclear_updates, _combines_others))
def scatter_elements(p: Planner, node: Node) -> None:
    """Updates go one after the other along the axis; threads share the other axes."""
    positions, updates = p.view(node.inputs[1]), p.view(node.inputs[2])
    result = _prepared(p, node, [positions, updates])
    axis = axis_of(node.attrs["axis"], result.rank)
    others = [i for i in range(result.rank) if i != axis]
    operands = (positions, updates, result)
    outer, inner = others[:-1], others[-1:]
    p.step(
        _scatter("scatter_elements.h", node),
        [positions, updates, p.error_cell(node, OUTSIDE), result],
        [
            *(result.shape[axis], positions.shape[axis]),
            *(view.strides[axis] for view in operands),
            *(product(view.strides[i] for i in inner) for view in operands),
            *(len(outer), *(positions.shape[i] for i in outer)),
            *(view.strides[i] for view in operands for i in outer),
        ],
        rows=product(positions.shape[i] for i in outer),
        cols=product(positions.shape[i] for i in inner),
        col_grain=16,
        work=4 * positions.shape[axis],
    )


def _prepared(p: Planner, node: Node, read: Sequence[View]) -> View:
    """Memory for the result that holds x: x's own if nobody else reads it, else a copy."""
    source = node.inputs[0]
    assert source is not None
    x, result = p.view(source), p.result(node.outputs[0])
    alone = all(view.storage is not x.storage for view in read)
    if not result.storage.given and x.is_dense and alone and p.is_last_reader(source):
        p.alias(node.outputs[0], x)
        return x
    p.copy(x, result)
    return result


def _scatter(header: str, node: Node) -> Kernel:
    dtype = dtype_of(node.outputs[0])
    reduction = node.attrs["reduction"]
    if reduction == "none":
        return template(header, COMBINE="put", T=scalar.bits(dtype))
    if dtype.is_integer and reduction in ("add", "mul"):  # which wrap, and so need not know the sign
        return template(header, COMBINE=reduction, T=scalar.bits(dtype), W="uint64_t", **_PLAIN)
    return template(header, COMBINE=reduction, **computed(dtype))


_PLAIN = {"LOAD(x)": "((W)(x))", "STORE(x)": "((T)(x))"}
