"""Ops that move data: shapes, orders of axes, parts, joins, and reading by positions."""

from __future__ import annotations

from itertools import accumulate
from math import prod

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.graph import Node
from assay.targets.ttnn.plan import ROWS, TILE, CallPlanner, Form, Named, Ref, on_card, sizes
from assay.targets.ttnn.table import HELD, INT, lowers

PICKING = ("Tensor", "to_layout", "permute", "reshape", "embedding")
"""The calls by which elements are read at positions."""


@lowers("ttnn.resident", calls=(), kinds=(HELD | INT,))
def _resident(p: CallPlanner, node: Node) -> None:
    p.give(node.outputs[0], p.take(node.inputs[0]))


@lowers("reshape", "squeeze", "unsqueeze", calls=("reshape",), kinds=(HELD,), constants=(1,))
def _reshape(p: CallPlanner, node: Node) -> None:
    """The result's type says all."""
    result = node.outputs[0]
    x = p.take(node.inputs[0])
    same = on_card(node.inputs[0]) == on_card(result)
    p.give(result, x if same else p.call("reshape", x, list(on_card(result))))


@lowers("transpose", calls=("permute",), kinds=(HELD,))
def _transpose(p: CallPlanner, node: Node) -> None:
    x = p.take(node.inputs[0])
    perm = list(node.attrs["perm"])
    p.give(node.outputs[0], p.call("permute", x, perm) if perm != sorted(perm) else x)


@lowers("expand", calls=("reshape", "repeat"), kinds=(HELD,), constants=(1,))
def _expand(p: CallPlanner, node: Node) -> None:
    p.give(node.outputs[0], repeated(p, p.take(node.inputs[0]), on_card(node.inputs[0]), on_card(node.outputs[0])))


def repeated(p: CallPlanner, x: Ref, have: tuple[int, ...], wanted: tuple[int, ...]) -> Ref:
    """A tensor broadcast to another shape."""
    full = (1,) * (len(wanted) - len(have)) + have
    if full != have:
        x = p.call("reshape", x, list(full))
    counts = [new // old for old, new in zip(full, wanted, strict=True)]
    return x if set(counts) == {1} else p.call("repeat", x, counts)


@lowers("tile", calls=("repeat",), kinds=(HELD,), constants=(1,))
def _tile(p: CallPlanner, node: Node) -> None:
    have, wanted = on_card(node.inputs[0]), on_card(node.outputs[0])
    counts = [new // old for old, new in zip(have, wanted, strict=True)]
    x = p.take(node.inputs[0])
    p.give(node.outputs[0], x if set(counts) == {1} else p.call("repeat", x, counts))


@lowers("slice", calls=("slice", *PICKING), kinds=(HELD,), constants=(1, 2, 3))
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
            x, shape = picked(p, x, shape, axis, places)
    ends = [start + (size - 1) * step + 1 for start, size, step in zip(starts, wanted, steps, strict=True)]
    whole = not any(starts) and tuple(ends) == shape
    p.give(node.outputs[0], x if whole else p.call("slice", x, starts, ends, steps))


@lowers("flip", calls=PICKING, kinds=(HELD,))
def _flip(p: CallPlanner, node: Node) -> None:
    x, shape = p.take(node.inputs[0]), on_card(node.inputs[0])
    axes: tuple[int, ...] = node.attrs["axes"]
    for axis in axes:
        x, shape = picked(p, x, shape, axis % len(shape), np.arange(shape[axis])[::-1])
    p.give(node.outputs[0], x)


def picked(p: CallPlanner, x: Ref, shape: tuple[int, ...], axis: int, places: Array) -> tuple[Ref, tuple[int, ...]]:
    """The elements of a tensor in tiles at known places of an axis, and the shape that they have."""
    return _read(p, p.call("to_layout", x, Named(ROWS)), shape, axis, _ids(p, places), (len(places),))


def _ids(p: CallPlanner, places: Array) -> Ref:
    """Places that are known, as ids (1, n)."""
    return p.call("Tensor", places.astype(np.uint32)[None], Named("uint32"), Named("device"), Named(ROWS))


def _read(
    p: CallPlanner, x: Ref, shape: tuple[int, ...], axis: int, ids: Ref, positions: tuple[int, ...]
) -> tuple[Ref, tuple[int, ...]]:
    """A tensor in rows, read along an axis at the positions in a tensor of ids (1, n): as rows of a matrix."""
    front = [axis, *(each for each in range(len(shape)) if each != axis)]
    turned = x if axis == 0 else p.call("permute", x, front)
    rest = [shape[each] for each in front[1:]]
    matrix = turned if len(rest) == 1 else p.call("reshape", turned, [shape[axis], prod(rest)])
    found = p.call("embedding", ids, matrix, layout=Named(TILE))
    apart = p.call("reshape", found, [*positions, *rest])
    made = (*shape[:axis], *positions, *shape[axis + 1 :])
    count = len(positions)
    back = [*range(count, count + axis), *range(count), *range(count + axis, len(made))]
    return apart if back == sorted(back) else p.call("permute", apart, back), made


@lowers("split", calls=("slice",), kinds=(HELD,))
def _split(p: CallPlanner, node: Node) -> None:
    shape, axis = on_card(node.inputs[0]), node.attrs["axis"] % len(on_card(node.inputs[0]))
    x = p.take(node.inputs[0])
    parts: tuple[int, ...] = node.attrs["sizes"]
    for end, result in zip(accumulate(parts), node.outputs, strict=True):
        starts, ends = [0] * len(shape), list(shape)
        starts[axis], ends[axis] = end - on_card(result)[axis], end
        p.give(result, p.call("slice", x, starts, ends))


@lowers("concat", calls=("concat",), kinds=(HELD,))
def _concat(p: CallPlanner, node: Node) -> None:
    parts = [p.take(value) for value in node.inputs]
    axis = node.attrs["axis"] % len(on_card(node.outputs[0]))
    p.give(node.outputs[0], p.call("concat", parts, dim=axis) if len(parts) > 1 else parts[0])


@lowers("pad", calls=("slice", "pad"), kinds=(HELD,), constants=(1, 2), layout=ROWS)
def _pad(p: CallPlanner, node: Node) -> None:
    """In rows, as in tiles nothing can be put in front. Negative counts are a slice."""
    x, shape, counts = p.take(node.inputs[0]), on_card(node.inputs[0]), p.integers(node.inputs[1])
    value = p.number(node.inputs[2])
    if value is None:
        p.refuse("what is put around is not known before a run")
    before, after = counts[: len(counts) // 2] or [0], counts[len(counts) // 2 :] or [0]
    if min(counts, default=0) < 0:
        starts = [max(0, -count) for count in before]
        ends = [size - max(0, -count) for size, count in zip(shape, after, strict=True)]
        x = p.call("slice", x, starts, ends)
    pairs = [(max(0, low), max(0, high)) for low, high in zip(before, after, strict=True)]
    p.give(node.outputs[0], p.call("pad", x, pairs, value=float(value)) if any(map(any, pairs)) else x)


@lowers("gather", calls=("slice", *PICKING), kinds=(HELD, INT), layout=ROWS)
def _gather(p: CallPlanner, node: Node) -> None:
    """A single position that is known is a slice. Those of a run must not be negative: the library's are unsigned."""
    x, positions, result = *node.inputs, node.outputs[0]
    shape, tiles = on_card(x), Form(p.floats)
    axis: int = node.attrs["axis"] % len(shape)
    size = shape[axis]
    place = p.number(positions)
    if place is not None:
        starts, ends = [0] * len(shape), list(shape)
        starts[axis] = int(place) % size
        ends[axis] = starts[axis] + 1
        part = p.call("slice", p.take(x, tiles), starts, ends)
        p.give(result, p.call("reshape", part, list(on_card(result))), tiles)
        return
    known = p.constant(positions)
    if known is None:
        ids = p.call("reshape", p.take(positions, Form("uint32", ROWS)), [1, prod(sizes(positions))])
    else:
        ids = _ids(p, known.reshape(-1) % size)
    found, made = _read(p, p.take(x), shape, axis, ids, sizes(positions))
    p.give(result, found if made == on_card(result) else p.call("reshape", found, list(on_card(result))), tiles)


@lowers("trilu", calls=("tril", "triu"), constants=(1,), kinds=(HELD,))
def _trilu(p: CallPlanner, node: Node) -> None:
    (diagonal,) = p.integers(node.inputs[1])
    call = "triu" if node.attrs["upper"] else "tril"
    p.give(node.outputs[0], p.call(call, p.take(node.inputs[0]), diagonal=diagonal))
