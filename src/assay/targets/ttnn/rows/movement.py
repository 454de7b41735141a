"""Ops that move data: shapes, orders of axes, parts and joins."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from assay.ir.graph import Node
from assay.targets.ttnn.plan import ROWS, CallPlanner, Ref, kind_of, on_card
from assay.targets.ttnn.rows.positions import PICKING, picked
from assay.targets.ttnn.table import ALL, lowers


@lowers("ttnn.resident", calls=(), kinds=(ALL,))
def _resident(p: CallPlanner, node: Node) -> None:
    form = p.boundary(node.outputs[0])
    p.give(node.outputs[0], p.take(node.inputs[0], form), form)


@lowers("reshape", "squeeze", "unsqueeze", calls=("reshape",), kinds=(ALL,), constants=(1,))
def _reshape(p: CallPlanner, node: Node) -> None:
    """The result's type says all."""
    result = node.outputs[0]
    x = p.take(node.inputs[0])
    same = on_card(node.inputs[0]) == on_card(result)
    p.give(result, x if same else p.call("reshape", x, list(on_card(result))))


@lowers("transpose", calls=("permute",), kinds=(ALL,))
def _transpose(p: CallPlanner, node: Node) -> None:
    x = p.take(node.inputs[0])
    perm = list(node.attrs["perm"])
    p.give(node.outputs[0], p.call("permute", x, perm) if perm != sorted(perm) else x)


@lowers("expand", calls=("reshape", "repeat"), kinds=(ALL,), constants=(1,))
def _expand(p: CallPlanner, node: Node) -> None:
    p.give(node.outputs[0], repeated(p, p.take(node.inputs[0]), on_card(node.inputs[0]), on_card(node.outputs[0])))


def repeated(p: CallPlanner, x: Ref, have: tuple[int, ...], wanted: tuple[int, ...]) -> Ref:
    """A tensor broadcast to another shape."""
    full = (1,) * (len(wanted) - len(have)) + have
    if full != have:
        x = p.call("reshape", x, list(full))
    counts = [new // old for old, new in zip(full, wanted, strict=True)]
    return x if set(counts) == {1} else p.call("repeat", x, counts)


@lowers("tile", calls=("repeat",), kinds=(ALL,), constants=(1,))
def _tile(p: CallPlanner, node: Node) -> None:
    have, wanted = on_card(node.inputs[0]), on_card(node.outputs[0])
    counts = [new // old for old, new in zip(have, wanted, strict=True)]
    x = p.take(node.inputs[0])
    p.give(node.outputs[0], x if set(counts) == {1} else p.call("repeat", x, counts))


@lowers("slice", calls=("slice", *PICKING), kinds=(ALL,), constants=(1, 2, 3))
def _slice(p: CallPlanner, node: Node) -> None:
    """Backwards, elements are picked one by one: the library slices forwards alone."""
    shape, wanted = on_card(node.inputs[0]), on_card(node.outputs[0])
    x = p.take(node.inputs[0])
    starts, steps = [0] * len(shape), [1] * len(shape)
    axes: tuple[int, ...] = node.attrs["axes"]
    for axis, start, step in zip(axes, p.integers(node.inputs[1]), p.integers(node.inputs[3]), strict=True):
        low, high = (0, shape[axis]) if step > 0 else (-1, shape[axis] - 1)
        first = max(shape[axis] + start, low) if start < 0 else min(start, high)
        if step > 0:
            starts[axis], steps[axis] = first, step
        else:
            places = first + step * np.arange(wanted[axis])
            x, shape = picked(p, x, shape, axis, places, kind_of(node.outputs[0]))
    ends = [start + (size - 1) * step + 1 for start, size, step in zip(starts, wanted, steps, strict=True)]
    whole = not any(starts) and tuple(ends) == shape
    p.give(node.outputs[0], x if whole else p.call("slice", x, starts, ends, steps))


@lowers("split", calls=("slice",), kinds=(ALL,))
def _split(p: CallPlanner, node: Node) -> None:
    shape, axis = on_card(node.inputs[0]), node.attrs["axis"] % len(on_card(node.inputs[0]))
    x = p.take(node.inputs[0])
    parts: tuple[int, ...] = node.attrs["sizes"]
    for end, result in zip(accumulate(parts), node.outputs, strict=True):
        starts, ends = [0] * len(shape), list(shape)
        starts[axis], ends[axis] = end - on_card(result)[axis], end
        p.give(result, p.call("slice", x, starts, ends))


@lowers("concat", calls=("concat",), kinds=(ALL,))
def _concat(p: CallPlanner, node: Node) -> None:
    parts = [p.take(value) for value in node.inputs]
    axis = node.attrs["axis"] % len(on_card(node.outputs[0]))
    p.give(node.outputs[0], p.call("concat", parts, dim=axis) if len(parts) > 1 else parts[0])


@lowers("pad", calls=("slice", "pad"), kinds=(ALL,), constants=(1, 2), layout=ROWS)
def _pad(p: CallPlanner, node: Node) -> None:
    """In rows, as in tiles nothing can be put in front. Negative counts are a slice."""
    x, shape, counts = p.take(node.inputs[0]), on_card(node.inputs[0]), p.integers(node.inputs[1])
    value = p.scalar(node.inputs[2])
    if value is None:
        p.refuse("what is put around is not known before a run")
    before, after = counts[: len(counts) // 2] or [0], counts[len(counts) // 2 :] or [0]
    if min(counts, default=0) < 0:
        starts = [max(0, -count) for count in before]
        ends = [size - max(0, -count) for size, count in zip(shape, after, strict=True)]
        x = p.call("slice", x, starts, ends)
    pairs = [(max(0, low), max(0, high)) for low, high in zip(before, after, strict=True)]
    p.give(node.outputs[0], p.call("pad", x, pairs, value=value) if any(map(any, pairs)) else x)


@lowers("trilu", calls=("tril", "triu"), constants=(1,), kinds=(ALL,))
def _trilu(p: CallPlanner, node: Node) -> None:
    (diagonal,) = p.integers(node.inputs[1])
    call = "triu" if node.attrs["upper"] else "tril"
    p.give(node.outputs[0], p.call(call, p.take(node.inputs[0]), diagonal=diagonal))
