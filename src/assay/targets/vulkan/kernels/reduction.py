"""Reductions, the places of extremes, running sums: all see a tensor as three axes, the middle one being theirs.

Where theirs is the innermost, a workgroup takes a line, unless it is short; else an invocation does, and neighbours lie
side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from assay.ir.dims import Dim, ceildiv, dim_max, product
from assay.ir.dtypes import DType, boolean, f32
from assay.ir.graph import Node
from assay.ops.shapes import axes_of
from assay.targets.shared.lines import lines, order_left, packed
from assay.targets.shared.planner import Planner
from assay.targets.shared.reductions import part_of, rounded_sums, runs_of
from assay.targets.shared.views import View
from assay.targets.vulkan import functions, scalar
from assay.targets.vulkan.code import ShaderValue, Variable
from assay.targets.vulkan.kernels.elements import FLOAT, NUMBERS, report
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import Shader, TensorOperand
from assay.targets.vulkan.storage import rounded
from assay.targets.vulkan.templates import template

_CHAIN = 64
"""Sums are made of sums of so many elements: a long chain of additions loses digits."""

# --- reductions


@emits("reduce_sum", NUMBERS, unless=(rounded_sums,))
def reduce_sum(p: Planner, node: Node) -> None:
    """Sums; those of integers wrap around."""
    _reduce(p, node, "sum")


@emits("reduce_mean", FLOAT)
def reduce_mean(p: Planner, node: Node) -> None:
    """Sums, divided at the end."""
    _reduce(p, node, "sum", mean=True)


@emits("reduce_prod", NUMBERS)
def reduce_prod(p: Planner, node: Node) -> None:
    """Products."""
    _reduce(p, node, "prod")


@emits("reduce_max", (*NUMBERS, boolean))
def reduce_max(p: Planner, node: Node) -> None:
    """The largest element."""
    _reduce(p, node, "max")


@emits("reduce_min", (*NUMBERS, boolean))
def reduce_min(p: Planner, node: Node) -> None:
    """The smallest element."""
    _reduce(p, node, "min")


def _reduce(p: Planner, node: Node, kind: str, *, mean: bool = False) -> None:
    """A call for each run of reduced axes in memory, the innermost first; what is not the result is kept wide."""
    source, order = packed(p, node.inputs[0])
    gone = axes_of(node.attrs["axes"], source.rank)
    result = p.result(node.outputs[0], order_left(order, () if node.attrs["keepdims"] else gone))
    if not gone:
        p.copy(source, result)
        return
    count = product(source.shape[axis] for axis in gone)
    wide = f32 if source.dtype.is_float and source.dtype.bits < 32 else source.dtype
    runs = runs_of([(source.shape[axis], axis in gone) for axis in order])
    todo = [at for at, (_, is_gone) in enumerate(runs) if is_gone]
    for at in reversed(todo):
        above, below = (product(size for size, _ in part) for part in (runs[:at], runs[at + 1 :]))
        length, part = runs[at][0], part_of(above, runs[at][0], below)
        if part is not None:
            parts = dim_max(ceildiv(length, part), 1)
            target = p.temporary(wide, (above, parts, below))
            _reduce_axis(p, kind, source, target, (above, length, below), (part, parts), None)
            source, length = target, parts
        last = at == todo[0]
        target = result if last else p.temporary(wide, (above, below))
        _reduce_axis(p, kind, source, target, (above, length, below), (length, 1), count if last and mean else None)
        source = target
        runs[at] = (1, False)


def _reduce_axis(
    p: Planner,
    kind: str,
    source: View,
    target: View,
    sizes: tuple[Dim, Dim, Dim],
    cut: tuple[Dim, Dim],
    count: Dim | None,
) -> None:
    """Reduce parts of the middle one of three axes of `sizes`; `cut` is how long they are and how many."""
    (above, length, below), (part, parts) = sizes, cut
    last = below == 1 and not (isinstance(length, int) and length <= _CHAIN)
    kernel = template(
        write_reduction,
        [source.dtype, target.dtype],
        5,
        by_group=last,
        texels=(1,),
        kind=kind,
        last=last,
        mean=count is not None,
    )
    numbers = [length, below, part, parts, 1 if count is None else count]
    p.step(kernel, [source, target], numbers, rows=above * parts, cols=below)


def write_reduction(s: Shader, *, kind: str, last: bool, mean: bool) -> None:
    """What a part of a line is reduced to."""
    source, target = s.operands
    length, below, part, parts, count = (s.number(at) for at in range(5))

    def finished(found: ShaderValue) -> ShaderValue:
        return rounded(s, found / s.cast(count, found.kind) if mean else found, target.dtype)

    def part_range(row: ShaderValue) -> tuple[ShaderValue, ShaderValue, ShaderValue]:
        line = row / parts
        begin = (row - line * parts) * part
        return line, begin, s.least(begin + part, length)

    if last:
        with s.groups(s.rows) as row:
            line, begin, end = part_range(row)
            lane = s.lane()
            found = reduced(s, kind, source, (begin + lane, end, s.local_size), lambda at: line * length + at)
            (whole,) = s.together([found], lambda a, b: [combined(kind, a[0], b[0], source.dtype)])
            with s.when(lane.equals(0)):
                target.store(row, finished(whole))
        return
    with s.items(s.rows * s.cols) as item:
        row = item / below
        column = item - row * below
        line, begin, end = part_range(row)
        found = reduced(s, kind, source, (begin, end, 1), lambda at: (line * length + at) * below + column)
        target.store(item, finished(found))


def combined(kind: str, a: ShaderValue, b: ShaderValue, dtype: DType) -> ShaderValue:
    """Two elements reduced to one."""
    if kind in ("sum", "prod"):
        return scalar.wrapped(a.shader, a + b if kind == "sum" else a * b, dtype)
    if a.kind == "bool":
        return a | b if kind == "max" else a & b
    return scalar.applied(a.shader, kind, dtype, dtype, {}, [a, b])


def start_of(kind: str, dtype: DType) -> Any:
    """What nothing is reduced to."""
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    largest = kind == "min"
    if dtype.is_float:
        return math.inf if largest else -math.inf
    return largest if dtype is boolean else dtype.limits[int(largest)]


def reduced(
    s: Shader,
    kind: str,
    source: TensorOperand,
    span: tuple[ShaderValue, ShaderValue, int],
    place: Callable[[ShaderValue], ShaderValue],
    of: Callable[[ShaderValue], ShaderValue] = lambda value: value,
) -> ShaderValue:
    """What the elements at `place`s of a span (begin, end, step) are reduced to, each put through `of` before."""
    begin, end, step = span
    start = s.value(start_of(kind, source.dtype), source.kind)
    whole = s.variable(source.kind, start)

    def take(found: Variable, at: ShaderValue) -> None:
        found.set(combined(kind, found.get(), of(source.load(place(at))), source.dtype))

    if kind != "sum" or not source.dtype.is_float:
        with s.loop(begin, end, step) as at:
            take(whole, at)
        return whole.get()
    with s.loop(begin, end, step * _CHAIN) as first:
        chain = s.variable(source.kind, 0)
        with s.loop(first, s.least(first + step * _CHAIN, end), step) as at:
            take(chain, at)
        whole.add(chain.get())
    return whole.get()


# --- the places of extremes


@emits("arg_max", NUMBERS)
def arg_max(p: Planner, node: Node) -> None:
    """Where the first largest element lies."""
    _arg(p, node, ">")


@emits("arg_min", NUMBERS)
def arg_min(p: Planner, node: Node) -> None:
    """Where the first smallest element lies."""
    _arg(p, node, "<")


def _arg(p: Planner, node: Node, sign: str) -> None:
    x = lines(p, node.inputs[0], node.attrs["axis"])
    result = p.result(node.outputs[0], x.order if node.attrs["keepdims"] else x.rest)
    error = p.error_cell(node, "there is no extreme of nothing")
    last = x.below == 1
    kinds = [x.view.dtype, error.dtype, result.dtype]
    kernel = template(write_place, kinds, 2, by_group=last, texels=(1,), sign=sign, last=last)
    p.step(kernel, [x.view, error, result], [x.length, x.below], rows=x.above, cols=x.below, writes=2)


def write_place(s: Shader, *, sign: str, last: bool) -> None:
    """The place of the first extreme, or of the first NaN."""
    x, error, result = s.operands
    length, below = s.number(0), s.number(1)

    def better(a: Sequence[ShaderValue], b: Sequence[ShaderValue]) -> list[ShaderValue]:
        """Of two elements with their places, the one that is more extreme, else the one that comes first."""
        beats, equal = s.comparison(sign, b[0], a[0]), b[0].equals(a[0])
        if x.dtype.is_float:
            a_nan, b_nan = s.is_nan(a[0]), s.is_nan(b[0])
            beats, equal = (beats & ~a_nan) | (b_nan & ~a_nan), equal | (a_nan & b_nan)
        beats = beats | (equal & (b[1] < a[1]))
        return [s.select(beats, b[0], a[0]), s.select(beats, b[1], a[1])]

    def extreme(begin: ShaderValue, step: int, place: Callable[[ShaderValue], ShaderValue]) -> list[ShaderValue]:
        first = s.least(begin, length - 1)
        best, where = s.variable(x.kind, x.load(place(first))), s.variable("u32", first)
        with s.loop(begin, length, step) as at:
            value, found = better([best.get(), where.get()], [x.load(place(at)), at])
            best.set(value)
            where.set(found)
        return [best.get(), where.get()]

    with s.when(length.equals(0)):
        report(error)
    if last:
        with s.groups(s.select(length.equals(0), s.value(0, "u32"), s.rows)) as row:
            lane = s.lane()
            _, where = s.together(extreme(lane, s.local_size, lambda at: row * length + at), better)
            with s.when(lane.equals(0)):
                result.store(row, s.cast(where, result.kind))
        return
    with s.items(s.select(length.equals(0), s.value(0, "u32"), s.rows * s.cols)) as item:
        row = item / below
        column = item - row * below
        _, where = extreme(s.value(0, "u32"), 1, lambda at: (row * length + at) * below + column)
        result.store(item, s.cast(where, result.kind))


# --- running sums and the like


@emits("cum_sum", NUMBERS)
def cum_sum(p: Planner, node: Node) -> None:
    """Running sums; those of integers wrap around."""
    _scan(p, node, "sum")


@emits("cum_prod", NUMBERS)
def cum_prod(p: Planner, node: Node) -> None:
    """Running products."""
    _scan(p, node, "prod")


def _scan(p: Planner, node: Node, kind: str) -> None:
    x = lines(p, node.inputs[0], node.attrs["axis"])
    result = p.result(node.outputs[0], x.order)
    kernel = template(write_scan, [x.view.dtype, result.dtype], 2, texels=(1,), kind=kind)
    p.step(kernel, [x.view, result], [x.length, x.below], rows=x.above, cols=x.below)


def write_scan(s: Shader, *, kind: str) -> None:
    """What a line is reduced to up to each element; floats lose nothing that the next sum does not get back."""
    x, result = s.operands
    length, below = s.number(0), s.number(1)
    with s.items(s.rows * s.cols) as item:
        row = item / below
        first = row * length * below + (item - row * below)
        so_far = s.variable(x.kind, s.value(start_of(kind, x.dtype), x.kind))
        lost = s.variable(x.kind, 0) if kind == "sum" and x.dtype.is_float else None
        with s.loop(s.value(0, "u32"), length) as at:
            place = first + at * below
            element = x.load(place)
            if lost is None:
                so_far.set(combined(kind, so_far.get(), element, x.dtype))
            else:
                _add_exactly(so_far, lost, element)
            result.store(place, rounded(s, so_far.get(), result.dtype))


def _add_exactly(so_far: Variable, lost: Variable, element: ShaderValue) -> None:
    """Kahan's sum; infinities end it."""
    s = element.shader
    term = element - lost.get()
    before = so_far.get()
    total = before + term
    rest = (total - before) - term
    finite = functions.absolute(total) < math.inf
    lost.set(s.select(finite, rest, s.value(0.0, element.kind)))
    so_far.set(s.select(finite, total, before + element))
