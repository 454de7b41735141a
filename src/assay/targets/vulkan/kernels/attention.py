"""Attention in one kernel: a workgroup takes a few queries of a head and goes along the keys, some for each lane.

Scores are never in memory. `peak` and `total` are a query's largest score and its sum of exponentials so far; what was
summed under a smaller peak decays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from assay.ir.dims import Dim, floordiv, product
from assay.ir.dtypes import boolean
from assay.ir.graph import Node
from assay.targets.base import limitation
from assay.targets.shared.attention import head_strides, heads_of, unclear_heads
from assay.targets.shared.limitations import other_roundings
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of
from assay.targets.vulkan import functions as f
from assay.targets.vulkan.code import ShaderValue, Variable
from assay.targets.vulkan.kernels.elements import FLOAT
from assay.targets.vulkan.kernels.handing import along, handed
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import Shader, TensorOperand
from assay.targets.vulkan.storage import rounded
from assay.targets.vulkan.templates import template

_KEYS = 2
"""Keys of a lane at a time."""
_WIDEST = 256
"""Elements of a value for which there is room in registers."""
_HELD = 256
"""Elements of results that a workgroup keeps there."""
_QUERIES = 8
"""Queries of a workgroup, at most."""


@limitation(f"there is no kernel for values of unknown size or of more than {_WIDEST} elements")
def _long_values(node: Node) -> bool:
    size = shape_of(node.inputs[2])[-1]
    return not isinstance(size, int) or not 0 < size <= _WIDEST


@emits(
    "sdpa",
    FLOAT,
    unless=(unclear_heads, other_roundings("precision", "softmax_precision", "accumulate"), _long_values),
)
def sdpa(p: Planner, node: Node) -> None:
    """One call for the whole of it."""
    *batch, heads, queries, size = shape_of(node.inputs[0])
    q, k, v, mask, result = heads_of(p, node)
    keys, out_size = v.shape[-2:]
    assert isinstance(out_size, int)
    operands = [view for view in (q, k, v, mask, result) if view is not None]
    strides = [stride for view in operands for stride in head_strides(view)]
    numbers = [queries, keys, size, heads, floordiv(heads, k.shape[-3]), *strides]
    if mask is not None:
        numbers.append(mask.strides[-1])
    kernel = template(
        write_attention,
        [view.dtype for view in operands],
        len(numbers),
        texels=(1, 1, 1),
        by_group=True,
        height=_height(queries, out_size),
        out_size=out_size,
        scale=None if node.attrs["scale"] is None else float(node.attrs["scale"]),
        causal=bool(node.attrs["causal"]),
        softcap=float(node.attrs["softcap"]),
        masked=mask is not None,
    )
    p.step(kernel, operands, numbers, rows=product((*batch, heads)) * queries)


def _height(queries: Dim, out_size: int) -> int:
    """Queries that a workgroup takes: no more than there are, and than there is room for."""
    most = min(_QUERIES, max(_HELD // out_size, 1))
    wanted = min(queries, most) if isinstance(queries, int) else most
    return next(height for height in (8, 4, 2, 1) if height <= max(wanted, 1))


class _Query(NamedTuple):
    """What is kept of a query: some columns of its result for each lane, and a lane's part of `total`."""

    peak: Variable
    total: Variable
    bias: Variable
    """The largest number that a mask added to a score of this lane."""
    result: list[Variable]

    @classmethod
    def new(cls, s: Shader, kind: str, width: int) -> _Query:
        """A query before its first key."""
        peak, total, bias = (s.variable(kind, start) for start in (-math.inf, 0.0, -math.inf))
        return cls(peak, total, bias, [s.variable(kind, 0.0) for _ in range(width)])


class _Grid:
    """Where the queries of a workgroup lie, and what belongs to them."""

    def __init__(self, s: Shader, group: ShaderValue, height: int) -> None:
        self.s, self.operands = s, s.operands
        self.queries, self.keys, self.size, heads, shared = (s.number(at) for at in range(5))
        tiles = (self.queries + (height - 1)) / height
        matrix = group / tiles
        self.first = (group - matrix * tiles) * height
        self._batch = matrix / heads
        self._head = matrix - self._batch * heads
        self._key_head = self._head / shared

    def row(self, operand: int, index: ShaderValue, *, of_keys: bool = False) -> ShaderValue:
        """Where a row of an operand begins."""
        batch, head, step = (self.s.number(5 + 3 * operand + at) for at in range(3))
        return self._batch * batch + (self._key_head if of_keys else self._head) * head + index * step


def write_attention(
    s: Shader, *, out_size: int, scale: float | None, causal: bool, softcap: float, masked: bool, height: int = 1
) -> None:
    """The queries of a workgroup against all keys."""
    kind, width = s.operands[-1].kind, -(-out_size // s.local_size)
    with s.groups(s.rows) as group:
        grid = _Grid(s, group, height)
        factor = s.value(scale, kind) if scale is not None else 1.0 / f.sqrt(s.cast(s.greatest(grid.size, 1), kind))
        inside = [grid.first + at for at in range(height)]
        rows = [s.least(row, grid.queries - 1) for row in inside]
        found = [_Query.new(s, kind, width) for _ in rows]
        with s.loop(s.value(0, "u32"), grid.keys, _KEYS * s.local_size) as block:
            begins = [block + part * s.local_size for part in range(_KEYS)]
            scores = _products(s, grid, rows, [begin + s.lane() for begin in begins])
            for query, row, line in zip(found, rows, scores, strict=True):
                for part, begin in enumerate(begins):
                    value = f.tanh(line[part] * factor / softcap) * softcap if softcap else line[part] * factor
                    line[part] = _biased(grid, query, value, row, begin + s.lane(), causal, masked)
            for begin, weights in zip(begins, zip(*_weights(s, found, scores), strict=True), strict=True):
                _add_values(s, grid, found, weights, begin, out_size)
        totals = s.together([query.total.get() for query in found], _sums)
        biases = s.together([query.bias.get() for query in found], _larger_ones) if masked else totals
        for row, query, total, bias in zip(inside, found, totals, biases, strict=True):
            nothing = bias.equals(-math.inf) if masked else grid.keys.equals(0)
            with s.when(row < grid.queries):
                _store(s, grid, query, row, total, nothing, out_size)


def _products(
    s: Shader, grid: _Grid, rows: Sequence[ShaderValue], keys: Sequence[ShaderValue]
) -> list[list[ShaderValue]]:
    """Queries times keys."""
    q, k = s.operands[:2]
    lefts = [grid.row(0, row) for row in rows]
    rights = [grid.row(1, s.least(key, grid.keys - 1), of_keys=True) for key in keys]
    sums = [[s.variable(k.kind, 0.0) for _ in keys] for _ in rows]

    def take(at: ShaderValue, left: Sequence[ShaderValue]) -> None:
        right = [k.load(place + at) for place in rights]
        for line, a in zip(sums, left, strict=True):
            for total, b in zip(line, right, strict=True):
                total.set(total.get() + a * b)

    s.exact = False
    along(s, grid.size, lefts, lambda row, at: q.load(row + at), take)
    s.exact = True
    return [[total.get() for total in line] for line in sums]


def _biased(
    grid: _Grid, query: _Query, score: ShaderValue, row: ShaderValue, key: ShaderValue, causal: bool, masked: bool
) -> ShaderValue:
    """A score with all that is added to it; -∞ for what is no key. Keys that are left out count if they are no numbers,
    as they do for the oracle."""
    s = grid.s
    bias = s.value(0.0, score.kind)
    if masked:
        place = grid.row(3, row) + s.least(key, grid.keys - 1) * s.number(5 + 3 * len(grid.operands))
        bias = _bias(s, grid.operands[3], place, score.kind)
    if causal:
        bias = bias + s.select(key <= row, s.value(0.0, score.kind), s.value(-math.inf, score.kind))
    there = key < grid.keys
    if masked:
        query.bias.set(_larger(query.bias.get(), s.select(there, bias, -math.inf)))
    return s.select(there, score + bias if masked or causal else score, -math.inf)


def _bias(s: Shader, mask: TensorOperand, place: ShaderValue, kind: str) -> ShaderValue:
    value = mask.load(place)
    if mask.dtype is boolean:
        return s.select(value, s.value(0.0, kind), s.value(-math.inf, kind))
    return s.cast(value, kind)


def _weights(s: Shader, found: Sequence[_Query], scores: Sequence[Sequence[ShaderValue]]) -> list[list[ShaderValue]]:
    """Exponentials of scores. What was summed so far decays if there is a new peak."""
    tops = [_largest(line) for line in scores]
    tops = s.together(tops, _larger_ones)
    weights: list[list[ShaderValue]] = []
    for query, line, top in zip(found, scores, tops, strict=True):
        before = query.peak.get()
        peak = _larger(before, top)
        shift, old_shift = (s.select(f.is_infinite(each), 0.0, each) for each in (peak, before))
        decay = s.select(before.equals(-math.inf), 1.0, f.exp(old_shift - shift))
        made = [f.exp(score - shift) for score in line]
        query.peak.set(peak)
        total = query.total.get() * decay
        for weight in made:
            total = total + weight
        query.total.set(total)
        for column in query.result:
            column.set(column.get() * decay)
        weights.append(made)
    return weights


def _add_values(
    s: Shader,
    grid: _Grid,
    found: Sequence[_Query],
    weights: Sequence[ShaderValue],
    begin: ShaderValue,
    out_size: int,
) -> None:
    """Add weighted values of as many keys as there are lanes, which lie across the columns now."""
    v, zero = s.operands[2], s.value(0, "u32")
    of_lane = handed(s, weights)
    count = s.select(begin < grid.keys, s.least(grid.keys - begin, s.local_size), zero)
    with s.loop(zero, count) as lane:
        factors, row = of_lane(lane), grid.row(2, begin + lane, of_keys=True)
        values = [v.load(row + s.least(column, out_size - 1)) for column in _columns(s, found[0])]
        s.exact = False
        for query, factor in zip(found, factors, strict=True):
            for total, value in zip(query.result, values, strict=True):
                total.set(total.get() + factor * value)
        s.exact = True


def _columns(s: Shader, query: _Query) -> list[ShaderValue]:
    return [s.lane() + at * s.local_size for at in range(len(query.result))]


def _store(
    s: Shader,
    grid: _Grid,
    query: _Query,
    row: ShaderValue,
    total: ShaderValue,
    nothing: ShaderValue,
    out_size: int,
) -> None:
    """Sums over the total, or zeros where there was `nothing` to attend to."""
    out = s.operands[-1]
    place = grid.row(len(s.operands) - 1, row)
    for column, value in zip(_columns(s, query), query.result, strict=True):
        found = s.select(nothing, 0.0, value.get() / total)
        with s.when(column < out_size):
            out.store(place + column, rounded(s, found, out.dtype))


def _sums(a: Sequence[ShaderValue], b: Sequence[ShaderValue]) -> list[ShaderValue]:
    return [one + other for one, other in zip(a, b, strict=True)]


def _larger_ones(a: Sequence[ShaderValue], b: Sequence[ShaderValue]) -> list[ShaderValue]:
    return [_larger(one, other) for one, other in zip(a, b, strict=True)]


def _larger(a: ShaderValue, b: ShaderValue) -> ShaderValue:
    return a.shader.select(a > b, a, b)


def _largest(values: Sequence[ShaderValue]) -> ShaderValue:
    found = values[0]
    for value in values[1:]:
        found = _larger(found, value)
    return found
