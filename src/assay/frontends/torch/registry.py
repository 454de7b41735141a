"""The table of aten lowerings: small functions under `@aten`, which mirror the aten schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.ir.dtypes import DType
from assay.ir.graph import Node, Value
from assay.ir.types import TensorType, Type
from assay.ops.builder import Builder
from assay.ops.lowering import Lowering

Results = Value | tuple[Any, ...] | list[Any]
Rule = Callable[..., Results]


@dataclass(frozen=True)
class Call:
    """One aten node as its lowering sees it: what torch says that the results are."""

    node: Node
    lowering: Lowering

    def one(self, name: str, result: int) -> Call:
        """This call as one of the overload `name` that has only result number `result`."""
        return replace(self, node=replace(self.node, op=name, outputs=(self.node.outputs[result],)))

    @property
    def orders(self) -> tuple[Any, ...]:
        """For each input how its axes lie in memory when eager runs; empty if all are in their usual order."""
        return self.node.attrs["orders"]

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of the results."""
        return tuple(value.type for value in self.node.outputs)

    @property
    def dtype(self) -> DType:
        """The dtype of the first result, after torch's promotion."""
        kind = self.node.outputs[0].type
        assert isinstance(kind, TensorType)
        return kind.dtype


_TABLE: dict[str, Rule] = {}
_LEFT: dict[str, str] = {}


def aten(*names: str) -> Callable[[Rule], Rule]:
    """Enter a lowering `(builder, call, *args, **kwargs) -> results` for these overloads (`aten.add.Tensor`).

    Arguments are those of the aten schema: tensors and symbolic numbers are values, numbers are numbers,
    lists are lists.
    """

    def enter(rule: Rule) -> Rule:
        for name in names:
            if name in _TABLE:
                raise ValueError(f"{name} has two lowerings")
            _TABLE[name] = rule
        return rule

    return enter


def leave_to_torch(reason: str, *names: str) -> None:
    """Enter overloads that torch itself must run, and why."""
    _LEFT.update(dict.fromkeys(names, reason))


def reason_left(name: str) -> str:
    """Why an overload without a lowering is run by torch itself."""
    return _LEFT.get(name, f"{name} has no lowering")


def rule_for(name: str) -> Rule | None:
    """The lowering of an overload; None if there is none."""
    return _TABLE.get(name)


def entered() -> Mapping[str, Rule]:
    """All lowerings by the name of their overload."""
    return dict(_TABLE)


__all__ = ["Builder", "Call", "Results", "Rule", "aten", "entered", "leave_to_torch", "reason_left", "rule_for"]
