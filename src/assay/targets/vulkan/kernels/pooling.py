"""Pooling: an invocation makes one number out of its window."""

from __future__ import annotations

import math
from itertools import product as combinations

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


def _pool(p: Planner, node: Node, kind: str) -> None:
    x, result = p.view(node.inputs[0]), p.result(node.outputs[0])
    windows = tuple((line.kernel, line.stride, line.before, line.after, line.dilation) for line in lines(**node.attrs))
    kernel = template(write_pool, [x.dtype, result.dtype], 3 * x.rank, kind=kind, windows=windows)
    p.step(kernel, [x, result], [*result.shape, *x.shape, *x.strides], rows=result.size)


def write_pool(s: Shader, *, kind: str, windows: tuple[tuple[int, int, int, int, int], ...]) -> None:
    """`windows` are kernel, stride, padding before and after, and dilation of each axis."""
    x, result = s.operands
    rank = len(windows) + 2
    sizes, old, strides = ([s.number(part * rank + axis) for axis in range(rank)] for part in range(3))
    reduction = "max" if kind == "max" else "sum"
    with s.items(s.rows) as item:
        indices = unravelled(item, sizes)
        base = place(s, indices[:2], strides[:2])
        start = s.value(start_of("max", x.dtype), x.kind) if kind == "max" else s.zero(x.kind)
        found = s.variable(x.kind, start)
        held = s.variable("u32", 0)

        def take(taps: list[ShaderValue]) -> None:
            """One place of the window."""
            inside, counts, at = s.value(True, "bool"), s.value(True, "bool"), base
            for axis, (tap, window) in enumerate(zip(taps, windows, strict=True), start=2):
                _, stride, before, after, dilation = window
                place_padded = indices[axis] * stride + tap * dilation
                inside = inside & ((place_padded - before) < old[axis])
                counts = counts & (place_padded < old[axis] + (before + after))
                at = at + (place_padded - before) * strides[axis]
            with s.when(inside):
                found.set(combined(reduction, found.get(), x.load(at), x.dtype))
            if kind != "max":
                held.add(s.cast(counts if kind == "padded" else inside, "u32"))

        _each_tap(s, [window[0] for window in windows], take)
        whole = found.get()
        if kind != "max":
            whole = rounded(s, whole / s.cast(held.get(), whole.kind), result.dtype)
        result.store(item, whole)


def _each_tap(s: Shader, kernel: list[int], take: object) -> None:
    """Every place of a window, written out if they are few."""
    assert callable(take)
    if math.prod(kernel) <= _UNROLLED:
        for taps in combinations(*map(range, kernel)):
            take([s.value(tap, "u32") for tap in taps])
        return
    with s.loop(s.value(0, "u32"), math.prod(kernel)) as tap:
        take(unravelled(tap, [s.value(size, "u32") for size in kernel]))
