"""Reading and writing at positions, and orders of elements.

On the card positions are unsigned. Those that are known are counted from the front before they get there; those of a
run are brought there by a remainder, so that negative ones count from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.graph import Node, Value
from assay.targets.base import limitation
from assay.targets.ttnn.plan import ROWS, TILE, CallPlanner, Form, Named, Ref, kind_of, on_card, sizes
from assay.targets.ttnn.table import ALL, FLOAT, INT, lowers

PICKING = ("Tensor", "to_layout", "permute", "reshape", "embedding", "repeat", "gather")
"""The calls by which rows are read at positions."""
COUNTING = ("remainder", "typecast", "multiply", "sum")
"""The calls by which positions of a run are counted from the front."""
_UNSIGNED, _SIGNED = Form("uint32", ROWS), Form("int32", ROWS)


# --- positions as the library takes them


def _known(p: CallPlanner, places: Array) -> Ref:
    """Places that are known, as ids (1, n)."""
    return p.call("Tensor", places.astype(np.uint32).reshape(1, -1), Named("uint32"), Named("device"), Named(ROWS))


def _counted(p: CallPlanner, positions: Value | None, size: int) -> Ref:
    """Positions along an axis of this size, from the front, in rows of their own shape."""
    known = p.constant(positions)
    if known is None:
        return p.call("typecast", p.call("remainder", p.take(positions, _SIGNED), size), Named("uint32"))
    return p.call("reshape", _known(p, known % size), list(on_card(positions)))


def _flat(p: CallPlanner, positions: Value | None, over: Sequence[int]) -> Ref:
    """Positions (…, axes) in the first axes of a tensor as ids (1, n) in the matrix that has these as rows."""
    known = p.constant(positions)
    if known is not None:
        return _known(p, flat_places(known, over))
    strides = np.cumprod([1, *reversed(over[1:])])[::-1]
    lines = [prod(sizes(positions)[:-1]), len(over)]
    found = p.call("reshape", p.take(positions, _SIGNED), lines)
    for call, numbers in (("remainder", np.array(over)), ("multiply", strides)):
        row = p.call("Tensor", numbers.astype(np.int32)[None], Named("int32"), Named("device"), Named(ROWS))
        found = p.call(call, found, row)
    total = p.call("to_layout", p.call("sum", found, dim=[1], keepdim=True), Named(ROWS))
    return p.call("reshape", p.call("typecast", total, Named("uint32")), [1, lines[0]])


def flat_places(positions: Array, over: Sequence[int]) -> Array:
    """The rows that positions (…, axes) are in the matrix of a tensor that has these sizes in its first axes."""
    places = positions.reshape(-1, len(over))
    return np.ravel_multi_index(tuple(places[:, at] % size for at, size in enumerate(over)), tuple(over))


# --- reading


def _rows_at(p: CallPlanner, matrix: Ref, width: int, ids: Ref, count: int, kind: str) -> Ref:
    """The rows of a matrix in rows at ids (1, n), in tiles. The library's embedding has tables of floats alone."""
    if kind != "int":
        return p.call("embedding", ids, matrix, layout=Named(TILE))
    places = p.call("reshape", ids, [count, 1])
    if width > 1:
        places = p.call("repeat", places, [1, width])
    return p.call("to_layout", p.call("gather", matrix, 0, index=places), Named(TILE))


def _read(
    p: CallPlanner, x: Ref, shape: tuple[int, ...], axis: int, ids: Ref, positions: tuple[int, ...], kind: str
) -> tuple[Ref, tuple[int, ...]]:
    """A tensor in rows, read along an axis at the positions in a tensor of ids (1, n): as rows of a matrix."""
    front = [axis, *(each for each in range(len(shape)) if each != axis)]
    turned = x if axis == 0 else p.call("permute", x, front)
    rest = [shape[each] for each in front[1:]]
    matrix = turned if len(rest) == 1 else p.call("reshape", turned, [shape[axis], prod(rest)])
    found = _rows_at(p, matrix, prod(rest), ids, prod(positions), kind)
    apart = p.call("reshape", found, [*positions, *rest] or [1])
    made = (*shape[:axis], *positions, *shape[axis + 1 :])
    count = len(positions)
    back = [*range(count, count + axis), *range(count), *range(count + axis, len(made))]
    return apart if back == sorted(back) else p.call("permute", apart, back), made


def picked(
    p: CallPlanner, x: Ref, shape: tuple[int, ...], axis: int, places: Array, kind: str
) -> tuple[Ref, tuple[int, ...]]:
    """The elements of a tensor in tiles at known places of an axis, and the shape that they have."""
    return _read(p, p.call("to_layout", x, Named(ROWS)), shape, axis, _known(p, places), (len(places),), kind)


@lowers("flip", calls=PICKING, kinds=(ALL,))
def _flip(p: CallPlanner, node: Node) -> None:
    x, shape = p.take(node.inputs[0]), on_card(node.inputs[0])
    axes: tuple[int, ...] = node.attrs["axes"]
    for axis in axes:
        x, shape = picked(p, x, shape, axis % len(shape), np.arange(shape[axis])[::-1], kind_of(node.outputs[0]))
    p.give(node.outputs[0], x)


@lowers("gather", calls=("slice", *PICKING, *COUNTING), kinds=(ALL, INT), layout=ROWS)
def _gather(p: CallPlanner, node: Node) -> None:
    """A single position that is known is a slice."""
    x, positions, result = *node.inputs, node.outputs[0]
    shape, tiles = on_card(x), Form(p.usual(result).dtype)
    axis: int = node.attrs["axis"] % len(shape)
    place = p.number(positions)
    if place is not None:
        starts, ends = [0] * len(shape), list(shape)
        starts[axis] = int(place) % shape[axis]
        ends[axis] = starts[axis] + 1
        part = p.call("slice", p.take(x, tiles), starts, ends)
        p.give(result, p.call("reshape", part, list(on_card(result))), tiles)
        return
    ids = p.call("reshape", _counted(p, positions, shape[axis]), [1, prod(sizes(positions))])
    found, made = _read(p, p.take(x), shape, axis, ids, sizes(positions), kind_of(result))
    p.give(result, found if made == on_card(result) else p.call("reshape", found, list(on_card(result))), tiles)


@limitation("a batch is not shared with the positions")
def _batched(node: Node) -> bool:
    return bool(node.attrs["batch_dims"])


@lowers("gather_nd", calls=(*PICKING, *COUNTING), kinds=(ALL, INT), layout=ROWS, unless=(_batched,))
def _gather_nd(p: CallPlanner, node: Node) -> None:
    """The axes that positions count are the rows of a matrix."""
    x, positions, result = *node.inputs, node.outputs[0]
    matrix, over, width = _as_matrix(p, x, sizes(positions)[-1])
    ids, count = _flat(p, positions, over), prod(sizes(positions)[:-1])
    found = _rows_at(p, matrix, width, ids, count, kind_of(result))
    p.give(result, p.call("reshape", found, list(on_card(result))), Form(p.usual(result).dtype))


def _as_matrix(p: CallPlanner, x: Value | None, axes: int) -> tuple[Ref, tuple[int, ...], int]:
    """A tensor in rows as a matrix whose rows are its first axes; with these axes, and how long a row is."""
    shape = on_card(x)
    over, width = shape[:axes], prod(shape[axes:])
    return p.call("reshape", p.take(x), [prod(over), width]), over, width


@lowers("gather_elements", calls=("gather", "Tensor", *COUNTING), kinds=(ALL, INT), layout=ROWS)
def _gather_elements(p: CallPlanner, node: Node) -> None:
    x, positions = node.inputs
    axis: int = node.attrs["axis"] % len(on_card(x))
    index = _counted(p, positions, on_card(x)[axis])
    p.give(node.outputs[0], p.call("gather", p.take(x), axis, index=index))


# --- writing

_WRITING = {"none": "scatter", "add": "scatter_add"}


@limitation("the library writes and adds at positions, and does nothing else there")
def _other_reduction(node: Node) -> bool:
    return node.attrs["reduction"] not in _WRITING


@lowers(
    "scatter_nd",
    calls=(*_WRITING.values(), "slice", "concat", *PICKING, *COUNTING),
    kinds=(ALL, INT, ALL),
    layout=ROWS,
    unless=(_other_reduction,),
)
def _scatter_nd(p: CallPlanner, node: Node) -> None:
    """What is written at known positions is read from old and new rows together: the last, where there are several.
    If these are a few runs along the first axis, they are joined as they lie."""
    x, positions, updates = node.inputs
    result = node.outputs[0]
    runs = _runs(node, p.constant(positions))
    if runs:
        parts = [_run(p, updates if new else x, start, end) for new, start, end in runs]
        p.give(result, parts[0] if len(parts) == 1 else p.call("concat", parts, dim=0))
        return
    matrix, over, width = _as_matrix(p, x, sizes(positions)[-1])
    count = prod(sizes(positions)[:-1])
    new = p.call("reshape", p.take(updates), [count, width])
    known = p.constant(positions)
    if known is not None and node.attrs["reduction"] == "none":
        places = np.arange(prod(over))
        places[flat_places(known, over)] = prod(over) + np.arange(count)
        both = p.call("concat", [matrix, new], dim=0)
        found = _rows_at(p, both, width, _known(p, places), prod(over), kind_of(result))
        p.give(result, p.call("reshape", found, list(on_card(result))), Form(p.usual(result).dtype))
        return
    index = p.call("reshape", _flat(p, positions, over), [count, 1])
    if width > 1:
        index = p.call("repeat", index, [1, width])
    found = p.call(_WRITING[node.attrs["reduction"]], matrix, 0, index, new)
    p.give(result, p.call("reshape", found, list(on_card(result))))


_FEW = 8
_MOST_AXES = 4


def _runs(node: Node, known: Array | None) -> list[tuple[bool, int, int]]:
    """The rows of a result along its first axis as runs of old and new rows: whether they are new, start, end. Empty if
    they are no such, or too many."""
    rows = on_card(node.inputs[0])
    if known is None or node.attrs["reduction"] != "none" or known.ndim != 2 or known.shape[1] != 1:
        return []
    places = np.arange(rows[0])
    places[known[:, 0]] = rows[0] + np.arange(len(known))
    cuts = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), rows[0]]
    found = [(int(places[start]), end - start) for start, end in pairwise(cuts)]
    split = [run for start, count in found for run in _apart(start, start + count, rows[0])]
    return split if len(split) <= _FEW and len(rows) <= _MOST_AXES else []


def _apart(start: int, end: int, old: int) -> list[tuple[bool, int, int]]:
    """A run through old and new rows, each by itself."""
    runs = [(False, start, min(end, old)), (True, max(start, old) - old, end - old)]
    return [(new, first, last) for new, first, last in runs if first < last]


def _run(p: CallPlanner, x: Value | None, start: int, end: int) -> Ref:
    """Some rows of a tensor, along its first axis."""
    shape = on_card(x)
    if (start, end) == (0, shape[0]):
        return p.take(x)
    return p.call("slice", p.take(x), [start, *(0 for _ in shape[1:])], [end, *shape[1:]])


@lowers(
    "scatter_elements",
    calls=(*_WRITING.values(), "Tensor", *COUNTING),
    kinds=(ALL, INT, ALL),
    layout=ROWS,
    unless=(_other_reduction,),
)
def _scatter_elements(p: CallPlanner, node: Node) -> None:
    x, positions, updates = node.inputs
    axis: int = node.attrs["axis"] % len(on_card(x))
    index = _counted(p, positions, on_card(x)[axis])
    p.give(node.outputs[0], p.call(_WRITING[node.attrs["reduction"]], p.take(x), axis, index, p.take(updates)))


# --- orders


def _ordered(p: CallPlanner, node: Node, call: str, places: str, *arguments: int, **options: bool) -> None:
    """Values, and where they came from in a dtype. Which of equal ones comes first is up to the library."""
    x, (values, index) = node.inputs[0], node.outputs
    axis: int = node.attrs["axis"] % len(on_card(x))
    found = p.calls(2, call, p.take(x), *arguments, dim=axis, **options)
    p.give(values, found[0])
    p.give(index, found[1], Form(places))


@limitation("of longer rows, the library gives places in one of two dtypes")
def _long(node: Node) -> bool:
    return _length(node) > 1 << 15


def _length(node: Node) -> int:
    """The size of the axis that is ordered."""
    shape, axis = on_card(node.inputs[0]), int(node.attrs["axis"])
    return shape[axis]


@lowers("sort", calls=("sort",), kinds=(FLOAT,), unless=(_long,))
def _sort(p: CallPlanner, node: Node) -> None:
    _ordered(p, node, "sort", "uint16", descending=bool(node.attrs["descending"]))


@lowers("topk", calls=("topk",), kinds=(FLOAT,), constants=(1,))
def _topk(p: CallPlanner, node: Node) -> None:
    places = "uint16" if _length(node) <= 1 << 16 else "uint32"
    _ordered(p, node, "topk", places, *p.integers(node.inputs[1]), largest=bool(node.attrs["largest"]), sorted=True)
