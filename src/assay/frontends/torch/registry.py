"""The table of aten lowerings: small functions under `@aten`, which mirror the aten schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.ir.dtypes import DType
from assay.ir.graph import Node, Value
from assay.ir.types import TensorType, Type
from assay.ops.builder import Builder

Results = Value | tuple[Any, ...] | list[Any]
Rule = Callable[..., Results]


@dataclass(frozen=True)
class Call:
    """One aten node as its lowering sees it: what torch says that the results are."""

    node: Node

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


def rule_for(name: str) -> Rule | None:
    """The lowering of an overload; None if there is none."""
    return _TABLE.get(name)


def entered() -> Mapping[str, Rule]:
    """All lowerings by the name of their overload."""
    return dict(_TABLE)


__all__ = ["Builder", "Call", "Results", "Rule", "aten", "entered", "rule_for"]
