"""Reading and writing at positions that are data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from assay.ir.dims import Dim, le, product
from assay.ir.dtypes import DType
from assay.ir.graph import Node
from assay.ops.shapes import axis_of
from assay.targets.shared.planner import Planner
from assay.targets.shared.positions import (
    OUTSIDE,
    combines_others,
    no_places,
    other_rank,
    spaced,
    unclear_elements,
    unclear_places,
    unclear_shared,
    unclear_slices,
    unclear_updates,
)
from assay.targets.shared.views import View
from assay.targets.vulkan import scalar
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.kernels.elements import MOVABLE, place, report, unravelled, within
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import Shader, TensorOperand
from assay.targets.vulkan.storage import rounded
from assay.targets.vulkan.templates import template

# --- reading


@emits("gather", MOVABLE)
def gather(p: Planner, node: Node) -> None:
    """Rows are copied; evenly spaced constant positions make a view."""
    source, positions = p.view(node.inputs[0]), p.constant_of(node.inputs[1])
    axis = axis_of(node.attrs["axis"], source.rank)
    found = None if positions is None else spaced(positions, source.shape[axis])
    if found is not None and positions is not None:
        view = source.sliced(axis, found[0], positions.size, found[1])
        p.alias(node.outputs[0], view if positions.ndim else view.dropped(axis))
        return
    x, where, result = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    inner = product(x.shape[axis + 1 :])
    operands = [x, where, p.error_cell(node, OUTSIDE), result]
    if le(1, product(x.shape[:axis]) * inner) is not True:
        _check_places(p, node, where, [x.shape[axis]])
    kernel = template(write_gather, [view.dtype for view in operands], 3, texels=(1,), straight=True)
    p.step(kernel, operands, [x.shape[axis], where.size, inner], rows=result.size, writes=2)


def write_gather(s: Shader) -> None:
    """result[o, i, :] = x[o, positions[i], :]."""
    x, positions, error, result = s.operands
    size, count, inner = (s.number(at) for at in range(3))
    with s.items(s.rows) as item:
        outer, which, column = unravelled(item, [size, count, inner])
        at, inside = within(positions, which, size)
        with s.when(inside):
            result.put_bits(item, x.bits((outer * size + at) * inner + column))
        with s.when(~inside):
            report(error)


def _check_places(p: Planner, node: Node, positions: View, sizes: Sequence[Dim]) -> None:
    """Plan a look at places of dense positions: where nothing is moved, nobody else looks at them."""
    rows = positions.size if len(sizes) == 1 else product(positions.shape[:-1])
    error = p.error_cell(node, OUTSIDE)
    kernel = template(write_look, [positions.dtype, error.dtype], len(sizes), depth=len(sizes), straight=True)
    p.step(kernel, [positions, error], sizes, rows=rows)


def write_look(s: Shader, *, depth: int) -> None:
    """Report places that lie outside."""
    positions, error = s.operands
    with s.items(s.rows) as item:
        _, inside = _place_of(positions, item, [s.number(axis) for axis in range(depth)])
        with s.when(~inside):
            report(error)


def _place_of(
    positions: TensorOperand, row: ShaderValue, sizes: Sequence[ShaderValue]
) -> tuple[ShaderValue, ShaderValue]:
    """The place that a row of positions says, in row-major order, and whether all of them are inside."""
    s = row.shader
    found, inside = s.value(0, "u32"), s.value(True, "bool")
    for axis, size in enumerate(sizes):
        at, fits = within(positions, row * len(sizes) + axis, size)
        found, inside = found * size + at, inside & fits
    return found, inside


@emits("gather_elements", MOVABLE, unless=(other_rank, unclear_elements))
def gather_elements(p: Planner, node: Node) -> None:
    """One element for each position."""
    x, positions, result = p.view(node.inputs[0]), p.view(node.inputs[1]), p.result(node.outputs[0])
    axis = axis_of(node.attrs["axis"], x.rank)
    operands = [x, positions, p.error_cell(node, OUTSIDE), result]
    kernel = template(
        write_gather_elements, [view.dtype for view in operands], 3 * x.rank + 1, rank=x.rank, axis=axis, straight=True
    )
    numbers = [*result.shape, *x.strides, *positions.strides, x.shape[axis]]
    p.step(kernel, operands, numbers, rows=result.size, writes=2)


def write_gather_elements(s: Shader, *, rank: int, axis: int) -> None:
    """result[i, j, …] = x[i, positions[i, j, …], …], the position standing at one axis."""
    x, positions, error, result = s.operands
    sizes, x_strides, p_strides = ([s.number(part * rank + at) for at in range(rank)] for part in range(3))
    with s.items(s.rows) as item:
        indices = unravelled(item, sizes)
        at, inside = within(positions, place(s, indices, p_strides), s.number(3 * rank))
        indices[axis] = at
        with s.when(inside):
            result.put_bits(item, x.bits(place(s, indices, x_strides)))
        with s.when(~inside):
            report(error)


@emits("gather_nd", MOVABLE, unless=(unclear_places, no_places, unclear_shared))
def gather_nd(p: Planner, node: Node) -> None:
    """One row for each place."""
    x, positions, result = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    shared, depth = node.attrs["batch_dims"], cast(int, positions.shape[-1])
    sizes, inner = x.shape[shared : shared + depth], product(x.shape[shared + depth :])
    if le(1, inner) is not True:
        _check_places(p, node, positions, sizes)
    operands = [x, positions, p.error_cell(node, OUTSIDE), result]
    kernel = template(write_gather_nd, [view.dtype for view in operands], 3 + depth, depth=depth, straight=True)
    volume = product(sizes) * inner
    numbers = [product(positions.shape[shared:-1]), inner, volume, *sizes]
    p.step(kernel, operands, numbers, rows=product(positions.shape[:-1]) * inner, writes=2)


def write_gather_nd(s: Shader, *, depth: int) -> None:
    """result[b, i, :] = x[b, positions[b, i, 0], positions[b, i, 1], …, :]."""
    x, positions, error, result = s.operands
    count, inner, volume = (s.number(at) for at in range(3))
    with s.items(s.rows) as item:
        row = item / inner
        found, inside = _place_of(positions, row, [s.number(3 + axis) for axis in range(depth)])
        with s.when(inside):
            column = item - row * inner
            result.put_bits(item, x.bits(row / count * volume + found * inner + column))
        with s.when(~inside):
            report(error)


# --- writing


@emits("scatter_nd", MOVABLE, unless=(unclear_places, no_places, unclear_slices, combines_others))
def scatter_nd(p: Planner, node: Node) -> None:
    """Updates of whole rows go one after the other; invocations share the columns."""
    positions, updates = p.dense(node.inputs[1]), p.dense(node.inputs[2])
    result = _prepared(p, node, [positions, updates])
    depth = cast(int, positions.shape[-1])
    count, inner = product(positions.shape[:-1]), product(result.shape[depth:])
    _check_places(p, node, positions, result.shape[:depth])
    operands = [positions, updates, result]
    kernel = template(
        write_scatter_nd,
        [view.dtype for view in operands],
        1 + depth,
        depth=depth,
        reduction=node.attrs["reduction"],
    )
    p.step(kernel, operands, [count, *result.shape[:depth]], rows=inner)


def write_scatter_nd(s: Shader, *, depth: int, reduction: str) -> None:
    """Updates written to, or combined with, what is there, one after the other."""
    positions, updates, result = s.operands
    inner, count, sizes = s.rows, s.number(0), [s.number(1 + axis) for axis in range(depth)]
    with s.items(inner) as column, s.loop(s.value(0, "u32"), count) as row:
        found, inside = _place_of(positions, row, sizes)
        with s.when(inside):
            _put(result, found * inner + column, updates, row * inner + column, reduction)


@emits("scatter_elements", MOVABLE, unless=(other_rank, unclear_elements, unclear_updates, combines_others))
def scatter_elements(p: Planner, node: Node) -> None:
    """Updates go one after the other along the axis; invocations share the other axes."""
    positions, updates = p.view(node.inputs[1]), p.view(node.inputs[2])
    result = _prepared(p, node, [positions, updates])
    axis = axis_of(node.attrs["axis"], result.rank)
    operands = [positions, updates, p.error_cell(node, OUTSIDE), result]
    kernel = template(
        write_scatter_elements,
        [view.dtype for view in operands],
        4 * result.rank + 1,
        rank=result.rank,
        axis=axis,
        reduction=node.attrs["reduction"],
    )
    others = product(size for at, size in enumerate(positions.shape) if at != axis)
    strides = [stride for view in (positions, updates, result) for stride in view.strides]
    p.step(kernel, operands, [*positions.shape, *strides, result.shape[axis]], rows=others, writes=2)


def write_scatter_elements(s: Shader, *, rank: int, axis: int, reduction: str) -> None:
    """updates[i, j, …] written to, or combined with, what is there at [i, positions[i, j, …], …]."""
    positions, updates, error, result = s.operands
    sizes, p_strides, u_strides, r_strides = ([s.number(part * rank + at) for at in range(rank)] for part in range(4))
    others = [at for at in range(rank) if at != axis]
    with s.items(s.rows) as item, s.loop(s.value(0, "u32"), sizes[axis]) as along:
        indices = unravelled(item, [sizes[at] for at in others])
        indices.insert(axis, along)
        at, inside = within(positions, place(s, indices, p_strides), s.number(4 * rank))
        source = place(s, indices, u_strides)
        indices[axis] = at
        with s.when(inside):
            _put(result, place(s, indices, r_strides), updates, source, reduction)
        with s.when(~inside):
            report(error)


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


def _put(result: TensorOperand, at: ShaderValue, updates: TensorOperand, source: ShaderValue, reduction: str) -> None:
    """One update."""
    if reduction == "none":
        result.put_bits(at, updates.bits(source))
        return
    found = _COMBINED[reduction](result.load(at), updates.load(source), result.dtype)
    result.store(at, found)


def _wrapping(a: ShaderValue, b: ShaderValue, dtype: DType, *, product: bool) -> ShaderValue:
    found = a * b if product else a + b
    return rounded(a.shader, found, dtype) if dtype.is_float else scalar.wrapped(a.shader, found, dtype)


_COMBINED: dict[str, Callable[[ShaderValue, ShaderValue, DType], ShaderValue]] = {
    "add": lambda a, b, dtype: _wrapping(a, b, dtype, product=False),
    "mul": lambda a, b, dtype: _wrapping(a, b, dtype, product=True),
    "max": lambda a, b, dtype: scalar.applied(a.shader, "max", dtype, dtype, {}, [a, b]),
    "min": lambda a, b, dtype: scalar.applied(a.shader, "min", dtype, dtype, {}, [a, b]),
}
