"""Pooling: an invocation makes one number out of its window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product as combinations
from typing import NamedTuple

from assay.ir.graph import Node
from assay.ops.definitions.pooling import lines
from assay.targets.shared.planner import Planner
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.kernels.elements import FLOAT, NUMBERS, place, unravelled
from assay.targets.vulkan.kernels.reduction import combined, start_of
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import Shader
from assay.targets.vulkan.storage import rounded
from assay.targets.vulkan.templates import template

_UNROLLED = 9
"""Windows of up to so many elements are written out."""


@emits("max_pool", NUMBERS)
def max_pool(p: Planner, node: Node) -> None:
    """The largest element."""
    _pool(p, node, "max")


@emits("average_pool", FLOAT)
def average_pool(p: Planner, node: Node) -> None:
    """The sum over the number of elements."""
    _pool(p, node, "padded" if node.attrs["include_pad"] else "mean")


@emits("max_pool_positions", NUMBERS)
def max_pool_positions(p: Planner, node: Node) -> None:
    """The largest element and where it lies."""
    x, results = p.view(node.inputs[0]), [p.result(value) for value in node.outputs]
    kinds = [x.dtype, *(result.dtype for result in results)]
    kernel = template(
        write_positions, kinds, 3 * x.rank, texels=(1,), straight=_is_written_out(node), windows=_windows(node)
    )
    numbers = [*results[0].shape, *x.shape, *x.strides]
    p.step(kernel, [x, *results], numbers, rows=results[0].size, writes=2)


def _pool(p: Planner, node: Node, kind: str) -> None:
    x, result = p.view(node.inputs[0]), p.result(node.outputs[0])
    kinds, straight = [x.dtype, result.dtype], _is_written_out(node)
    kernel = template(write_pool, kinds, 3 * x.rank, texels=(1,), straight=straight, kind=kind, windows=_windows(node))
    p.step(kernel, [x, result], [*result.shape, *x.shape, *x.strides], rows=result.size)


Windows = tuple[tuple[int, int, int, int, int], ...]
"""Kernel, stride, padding before and after, and dilation of each axis."""


def _windows(node: Node) -> Windows:
    return tuple((line.kernel, line.stride, line.before, line.after, line.dilation) for line in lines(**node.attrs))


def _is_written_out(node: Node) -> bool:
    return math.prod(node.attrs["kernel"]) <= _UNROLLED


class _Tap(NamedTuple):
    """A place of a window: whether it is in x and whether it counts, where it lies, and its index along each axis."""

    inside: ShaderValue
    counts: ShaderValue
    at: ShaderValue
    indices: Sequence[ShaderValue]


class _Pooled:
    """The window of an element of the result."""

    def __init__(self, s: Shader, item: ShaderValue, windows: Windows) -> None:
        rank = len(windows) + 2
        sizes, old, strides = ([s.number(part * rank + axis) for axis in range(rank)] for part in range(3))
        outer, self._first = (found := unravelled(item, sizes))[:2], found[2:]
        self._s, self._windows, self.sizes, self._strides = s, windows, old[2:], strides[2:]
        self._base = place(s, outer, strides[:2])

    def each(self, take: Callable[[_Tap], None]) -> None:
        """Every place, written out if they are few."""
        s, kernel = self._s, [window[0] for window in self._windows]
        if math.prod(kernel) <= _UNROLLED:
            for taps in combinations(*map(range, kernel)):
                take(self._tap([s.value(tap, "u32") for tap in taps]))
            return
        with s.loop(s.value(0, "u32"), math.prod(kernel)) as tap:
            take(self._tap(unravelled(tap, [s.value(size, "u32") for size in kernel])))

    def _tap(self, taps: Sequence[ShaderValue]) -> _Tap:
        s, indices = self._s, list[ShaderValue]()
        inside, counts = s.value(True, "bool"), s.value(True, "bool")
        for first, tap, window, size in zip(self._first, taps, self._windows, self.sizes, strict=True):
            _, stride, before, after, dilation = window
            padded = first * stride + tap * dilation
            indices.append(padded - before)
            inside = inside & (indices[-1] < size)
            counts = counts & (padded < size + (before + after))
        return _Tap(inside, counts, self._base + place(s, indices, self._strides), indices)


def write_pool(s: Shader, *, kind: str, windows: Windows) -> None:
    """What each window is reduced to."""
    x, result = s.operands
    reduction = "max" if kind == "max" else "sum"
    with s.items(s.rows) as item:
        found = s.variable(x.kind, s.veiled(s.value(start_of(reduction, x.dtype), x.kind)))
        held = s.variable("u32", 0)

        def take(tap: _Tap) -> None:
            with s.when(tap.inside):
                found.set(combined(reduction, found.get(), x.load(tap.at), x.dtype))
            if kind != "max":
                held.add(s.cast(tap.counts if kind == "padded" else tap.inside, "u32"))

        _Pooled(s, item, windows).each(take)
        whole = found.get()
        if kind != "max":
            whole = rounded(s, whole / s.cast(held.get(), whole.kind), result.dtype)
        result.store(item, whole)


def write_positions(s: Shader, *, windows: Windows) -> None:
    """The first largest element of each window, else its last NaN, and the place of that in its channel."""
    x, largest, places = s.operands
    with s.items(s.rows) as item:
        best = s.variable(x.kind, s.value(start_of("max", x.dtype), x.kind))
        where = s.variable("i32", s.value(-1, "i32"))
        pooled = _Pooled(s, item, windows)

        def take(tap: _Tap) -> None:
            at = s.value(0, "u32")
            for index, size in zip(tap.indices, pooled.sizes, strict=True):
                at = at * size + index
            with s.when(tap.inside):
                value = x.load(tap.at)
                better = (value > best.get()) | (where.get() < 0)
                if x.dtype.is_float:
                    better = better | s.is_nan(value)
                with s.when(better):
                    best.set(value)
                    where.set(s.bitcast(at, "i32"))

        pooled.each(take)
        largest.store(item, best.get())
        places.store(item, s.cast(where.get(), places.kind))
