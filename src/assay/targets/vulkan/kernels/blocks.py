"""Products of large matrices on graphics cards: a workgroup puts blocks of both sides into shared memory, step by step
along the depth, and each invocation keeps the sums of four rows and four columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from assay.ir.dims import Dim
from assay.targets.vulkan.code import LookupTable, ShaderValue
from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.shader import Shader, TensorOperand

SIDE = 64
"""Rows and columns of a block of sums."""
DEPTH = 16
"""Elements along the depth that are in shared memory at a time."""
_ACROSS = 16
"""Invocations along the columns, and along the rows."""
INVOCATIONS = _ACROSS * _ACROSS
_EACH = SIDE // _ACROSS
"""Rows and columns of an invocation."""
_BYTES = 2 * SIDE * DEPTH * 8
"""Shared memory for both sides, of the widest elements."""


def has_blocks(profile: Profile) -> bool:
    """Whether a device is best at blocks: shared memory is no memory like other, as it is on processors."""
    return profile.kind != "cpu" and profile.most_invocations >= INVOCATIONS and profile.shared_bytes >= _BYTES


def is_large(*sizes: Dim) -> bool:
    """Whether sizes are known, and large enough for a block to be filled at least by half."""
    return all(isinstance(size, int) and size >= SIDE // 2 for size in sizes)


class Side(NamedTuple):
    """A side of a product: an operand whose lines are its rows, or the columns of the right one."""

    operand: TensorOperand
    begin: ShaderValue
    """Where the first line of the block begins."""
    lines: ShaderValue
    """How many lines there are from that on."""
    step: ShaderValue
    """How far lines lie from each other."""
    along: ShaderValue
    """How far elements of a line lie from each other."""
    turned: bool
    """Whether lines, and not their elements, lie side by side."""


def add_blocks(s: Shader, left: Side, right: Side, depth: ShaderValue) -> list[list[ShaderValue]]:
    """The sums of products of an invocation, for each of its lines of the left side, and of the right one.

    All invocations of the workgroup must come here.
    """
    kind = left.operand.kind
    tables = [s.shared_table(kind, SIDE * DEPTH) for _ in range(2)]
    sums = [[s.variable(kind, 0) for _ in range(_EACH)] for _ in range(_EACH)]
    down, across = own_lines(s)
    with s.loop(s.value(0, "u32"), depth, DEPTH) as first:
        for side, table in zip((left, right), tables, strict=True):
            _put(s, side, table, first, depth)
        s.barrier()
        with s.loop(s.value(0, "u32"), DEPTH) as k:
            ours = [tables[0].load(k * SIDE + line) for line in down]
            theirs = [tables[1].load(k * SIDE + line) for line in across]
            for row, own in zip(sums, ours, strict=True):
                for total, other in zip(row, theirs, strict=True):
                    total.set(total.get() + own * other)
        s.barrier()
    return [[total.get() for total in row] for row in sums]


def own_lines(s: Shader) -> tuple[Sequence[ShaderValue], Sequence[ShaderValue]]:
    """The lines of the block that are an invocation's: of the left side, and of the right one."""
    lane = s.lane()
    down = lane / _ACROSS
    across = lane - down * _ACROSS
    return [down + at * _ACROSS for at in range(_EACH)], [across + at * _ACROSS for at in range(_EACH)]


def _put(s: Shader, side: Side, table: LookupTable, first: ShaderValue, depth: ShaderValue) -> None:
    """Put a block into shared memory, neighbours by neighbours; what is beyond the depth is 0."""
    wide = SIDE if side.turned else DEPTH
    for at in range(SIDE * DEPTH // INVOCATIONS):
        item = s.lane() + at * INVOCATIONS
        slow = item / wide
        quick = item - slow * wide
        line, k = (quick, slow) if side.turned else (slow, quick)
        inside = first + k < depth
        place = side.begin + s.least(line, side.lines - 1) * side.step + (first + k) * side.along
        found = side.operand.load(s.select(inside, place, side.begin))
        table.store(k * SIDE + line, s.select(inside, found, s.value(0, found.kind)))
