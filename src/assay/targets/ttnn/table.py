"""The op table: which core ops the library takes, as what calls, under what rules. Each family enters its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from assay.ir.graph import Node, Value
from assay.targets.base import Limitation, Limitations, limitation
from assay.targets.shared.limitations import UNTYPED
from assay.targets.shared.tensors import shape_of
from assay.targets.ttnn.plan import TILE, CallPlanner, kind_of

Emit: TypeAlias = Callable[[CallPlanner, Node], None]

FLOAT, BOOL, INT = frozenset({"float"}), frozenset({"bool"}), frozenset({"int"})
HELD = FLOAT | BOOL
ALL = HELD | INT
"""What the card holds: floats and bools in its floats, integers in 32 bits."""


@dataclass(frozen=True, slots=True)
class OpRow:
    """How the library takes one core op.

    `calls` are the functions of the library that it becomes. `kinds` says for each input what it may hold, the last
    entry serving all further ones. `constants` are inputs that are not on the card: shapes and the like. `layout` is
    what all operands are brought to, and `unless` are the limitations of this op.
    """

    emit: Emit
    calls: tuple[str, ...]
    kinds: tuple[frozenset[str], ...] = (FLOAT,)
    constants: frozenset[int] = frozenset()
    layout: str = TILE
    unless: tuple[Limitation, ...] = ()

    def operands(self, node: Node) -> Iterator[tuple[Value, frozenset[str]]]:
        """The inputs of a node that are on the card, with what each may hold."""
        for at, value in enumerate(node.inputs):
            if value is not None and at not in self.constants:
                yield value, self.kinds[min(at, len(self.kinds) - 1)]


@dataclass(frozen=True, slots=True)
class OpTable:
    """The rows by core op."""

    rows: dict[str, OpRow] = field(default_factory=dict[str, OpRow])

    def lowers(
        self,
        *ops: str,
        calls: Sequence[str],
        kinds: Sequence[frozenset[str]] = (FLOAT,),
        constants: Sequence[int] = (),
        layout: str = TILE,
        unless: Sequence[Limitation] = (),
    ) -> Callable[[Emit], Emit]:
        """Enter the decorated function as the one that makes calls of these ops."""

        def enter(emit: Emit) -> Emit:
            for op in ops:
                if op in self.rows:
                    raise ValueError(f"{op} has two rows")
                own = tuple(replace(each, ops=(op,)) for each in unless)
                self.rows[op] = OpRow(emit, tuple(calls), tuple(kinds), frozenset(constants), layout, own)
            return emit

        return enter

    def limitations(self) -> Limitations:
        """What the library is not asked for: what holds for all ops, then the limitations of each."""
        own = (each for row in self.rows.values() for each in row.unless)
        return Limitations((*UNTYPED, *_GENERAL, *own))


TABLE = OpTable()
lowers = TABLE.lowers


# --- what holds for all ops; each may rely on those before it


def _on_card(node: Node) -> Iterator[Value]:
    """The tensors of a node that lie on the card."""
    yield from (value for value, _ in TABLE.rows[node.op].operands(node))
    yield from node.outputs


def _wrongly_held(node: Node, kind: str) -> bool:
    """Whether an operand is of a kind that it must not be of."""
    return any(kind_of(value) == kind not in allowed for value, allowed in TABLE.rows[node.op].operands(node))


@limitation("programs of the library are for sizes that are numbers")
def _symbolic(node: Node) -> bool:
    values = (value for value in (*node.inputs, *node.outputs) if value is not None)
    return not all(isinstance(dim, int) for value in values for dim in shape_of(value))


@limitation("the table has no call of the library for it")
def _no_row(node: Node) -> bool:
    return node.op not in TABLE.rows


@limitation("the card holds f32, bf16 and bool (as bfloat16), i64 and i32 (as int32)")
def _not_held(node: Node) -> bool:
    return any(kind_of(value) not in ALL for value in _on_card(node))


@limitation("an empty tensor has no tile")
def _empty(node: Node) -> bool:
    return any(0 in shape_of(value) for value in _on_card(node))


@limitation("the library does not take integers here")
def _integers(node: Node) -> bool:
    return _wrongly_held(node, "int")


@limitation("the library does not take bools here")
def _bools(node: Node) -> bool:
    return _wrongly_held(node, "bool")


_GENERAL = (_symbolic, _no_row, _not_held, _empty, _integers, _bools)
