"""Movement that takes a kernel: paddings, slices by data, triangles, counts."""

from __future__ import annotations

from assay.ir.graph import Node
from assay.ops.shapes import axes_of
from assay.targets.shared import tensors
from assay.targets.shared.planner import Planner
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.kernels.elements import MOVABLE, place, position, report, unravelled
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import Shader
from assay.targets.vulkan.templates import template

# --- pad


@emits("pad", MOVABLE)
def pad(p: Planner, node: Node) -> None:
    """The counts are read when the program runs."""
    x, counts, value = p.view(node.inputs[0]), p.dense(node.inputs[1]), p.view(node.inputs[2])
    result = p.result(node.outputs[0])
    kinds = [x.dtype, counts.dtype, value.dtype, result.dtype]
    kernel = template(write_pad, kinds, 3 * x.rank, texels=(1,), rank=x.rank, straight=True)
    p.step(kernel, [x, counts, value, result], [*result.shape, *x.shape, *x.strides], rows=result.size)


def write_pad(s: Shader, *, rank: int) -> None:
    """x where there is one, else the value."""
    x, counts, value, result = s.operands
    sizes, old, strides = ([s.number(part * rank + axis) for axis in range(rank)] for part in range(3))
    before = [s.bitcast(position(counts, s.value(axis, "u32")), "u32") for axis in range(rank)]
    fill = value.bits(s.value(0, "u32"))
    with s.items(s.rows) as item:
        indices = [at - shift for at, shift in zip(unravelled(item, sizes), before, strict=True)]
        inside = s.value(True, "bool")
        for index, size in zip(indices, old, strict=True):
            inside = inside & (index < size)
        found = s.variable(fill.kind, fill)
        with s.when(inside):
            found.set(x.bits(place(s, indices, strides)))
        result.put_bits(item, found.get())


# --- slice


def slice_by_data(p: Planner, node: Node) -> None:
    """Plan a slice whose starts or steps are known only when the program runs."""
    x, starts, steps = p.view(node.inputs[0]), p.dense(node.inputs[1]), p.dense(node.inputs[3])
    error, result = p.error_cell(node, "the slice is not as long as its type says"), p.result(node.outputs[0])
    axes = axes_of(node.attrs["axes"], x.rank)
    own = tuple(axes.index(axis) if axis in axes else None for axis in range(x.rank))
    operands = [x, starts, steps, error, result]
    kernel = template(write_slice, [view.dtype for view in operands], 3 * x.rank, texels=(1,), own=own, straight=True)
    p.step(kernel, operands, [*result.shape, *x.shape, *x.strides], rows=result.size, writes=2)


def write_slice(s: Shader, *, own: tuple[int | None, ...]) -> None:
    """Every step-th element; `own` says which start and step an axis has."""
    x, starts, steps, error, result = s.operands
    rank = len(own)
    sizes, old, strides = ([s.number(part * rank + axis) for axis in range(rank)] for part in range(3))
    with s.items(s.rows) as item:
        indices: list[ShaderValue] = []
        inside = s.value(True, "bool")
        for axis, index in enumerate(unravelled(item, sizes)):
            at, size = s.bitcast(index, "i32"), s.bitcast(old[axis], "i32")
            which = own[axis]
            if which is not None:
                step = position(steps, s.value(which, "u32"))
                at = _first(position(starts, s.value(which, "u32")), step, size) + at * step
            inside = inside & (at >= 0) & (at < size)
            indices.append(s.bitcast(at, "u32"))
        with s.when(inside):
            result.put_bits(item, x.bits(place(s, indices, strides)))
        with s.when(~inside):
            report(error)


def _first(start: ShaderValue, step: ShaderValue, size: ShaderValue) -> ShaderValue:
    """Where a slice begins on an axis, as Python has it."""
    s = start.shader
    start = s.select(start < 0, start + size, start)
    down = s.least(s.greatest(start, -1), size - 1)
    return s.select(step < 0, down, s.least(s.greatest(start, 0), size))


# --- triangles


@emits("trilu", MOVABLE)
def trilu(p: Planner, node: Node) -> None:
    """One side of the diagonal."""
    x, diagonal, result = p.dense(node.inputs[0]), p.view(node.inputs[1]), p.result(node.outputs[0])
    kinds = [x.dtype, diagonal.dtype, result.dtype]
    kernel = template(write_trilu, kinds, 2, upper=bool(node.attrs["upper"]), straight=True)
    p.step(kernel, [x, diagonal, result], x.shape[-2:], rows=x.size)


def write_trilu(s: Shader, *, upper: bool) -> None:
    """x on one side of the diagonal, else zeros."""
    x, diagonal, result = s.operands
    rows, cols = s.number(0), s.number(1)
    shift = _clamped_diagonal(s, diagonal.load(s.value(0, "u32")), rows, cols)
    with s.items(s.rows) as item:
        line = item / cols
        column, row = s.bitcast(item - line * cols, "i32"), s.bitcast(line % rows, "i32")
        border = row + shift
        keeps = column >= border if upper else column <= border
        bits = x.bits(item)
        result.put_bits(item, s.select(keeps, bits, s.value(0, bits.kind)))


def _clamped_diagonal(s: Shader, k: ShaderValue, rows: ShaderValue, cols: ShaderValue) -> ShaderValue:
    """Beyond the matrix it makes no difference how far."""
    low, high = (s.cast(s.bitcast(size, "i32"), k.kind) for size in (rows, cols))
    return s.cast(s.least(s.greatest(k, -low - 1), high + 1), "i32")


# --- counts


@emits("iota", reads=())
def iota(p: Planner, node: Node) -> None:
    """The count is the size of the result."""
    result = p.result(node.outputs[0])
    p.step(template(write_iota, [result.dtype], 0, straight=True), [result], [], rows=result.size)


def write_iota(s: Shader) -> None:
    """0, 1, 2, …"""
    (result,) = s.operands
    with s.items(s.rows) as item:
        result.store(item, s.cast(item, result.kind))


@emits("shape_of", MOVABLE, reads=())
def shape_of(p: Planner, node: Node) -> None:
    """Sizes are among the numbers that the kernel is given."""
    shape, result = tensors.shape_of(node.inputs[0]), p.result(node.outputs[0])
    p.step(
        template(write_sizes, [result.dtype], len(shape), count=len(shape)), [result], shape, rows=min(1, len(shape))
    )


def write_sizes(s: Shader, *, count: int) -> None:
    """The numbers that the kernel is given."""
    (result,) = s.operands
    with s.items(s.rows):
        for at in range(count):
            result.store(s.value(at, "u32"), s.cast(s.number(at), result.kind))
