"""The table of ONNX lowerings: small functions under `@onnx_op`, one per op and span of versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np

from assay.errors import LowerFailed
from assay.frontends.onnx.types import dtype_of
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import Type
from assay.ops.builder import Builder
from assay.ops.lowering import Lowering

Int: TypeAlias = int
Float: TypeAlias = float
Str: TypeAlias = str
"""The types, under names that the accessors of `Source` do not hide."""
Results = Value | tuple[Value, ...]
Rule = Callable[..., Results]


@dataclass(frozen=True)
class Source:
    """One ONNX node as its lowering sees it. Attributes have the standard's defaults filled in."""

    node: Node
    lowering: Lowering

    @property
    def attrs(self) -> Mapping[str, Any]:
        """All attributes."""
        return self.node.attrs

    @property
    def version(self) -> Int:
        """The real version of the op."""
        return split_name(self.node.op)[2]

    @property
    def results(self) -> Int:
        """How many results the node names."""
        return len(self.node.outputs)

    def has(self, name: Str) -> bool:
        """True if the attribute was given or has a default."""
        return name in self.node.attrs

    def get(self, name: Str, kind: type | tuple[type, ...], default: Any) -> Any:
        """An attribute of the expected kind; LowerFailed if it is missing or of another kind."""
        value = self.node.attrs.get(name, default)
        if value is _REQUIRED:
            raise LowerFailed(f"the attribute '{name}' is missing", where=str(self.node.origin))
        if value is not None and not isinstance(value, kind):
            raise LowerFailed(f"the attribute '{name}' has the wrong type", where=str(self.node.origin))
        return value

    @overload
    def int(self, name: Str, default: Int = ...) -> Int: ...
    @overload
    def int(self, name: Str, default: None) -> Int | None: ...
    def int(self, name: Str, default: Any = ...) -> Any:
        """An integer attribute."""
        return self.get(name, Int, _REQUIRED if default is ... else default)

    def flag(self, name: Str, default: Any = ...) -> bool:
        """An integer attribute that means yes or no."""
        return bool(self.int(name, default))

    @overload
    def float(self, name: Str, default: Float = ...) -> Float: ...
    @overload
    def float(self, name: Str, default: None) -> Float | None: ...
    def float(self, name: Str, default: Any = ...) -> Any:
        """A float attribute."""
        return self.get(name, Float, _REQUIRED if default is ... else default)

    @overload
    def str(self, name: Str, default: Str = ...) -> Str: ...
    @overload
    def str(self, name: Str, default: None) -> Str | None: ...
    def str(self, name: Str, default: Any = ...) -> Any:
        """A string attribute."""
        return self.get(name, Str, _REQUIRED if default is ... else default)

    @overload
    def ints(self, name: Str, default: tuple[Int, ...] = ...) -> tuple[Int, ...]: ...
    @overload
    def ints(self, name: Str, default: None) -> tuple[Int, ...] | None: ...
    def ints(self, name: Str, default: Any = ...) -> Any:
        """A list of integers."""
        return self.get(name, tuple, _REQUIRED if default is ... else default)

    @overload
    def floats(self, name: Str, default: tuple[Float, ...] = ...) -> tuple[Float, ...]: ...
    @overload
    def floats(self, name: Str, default: None) -> tuple[Float, ...] | None: ...
    def floats(self, name: Str, default: Any = ...) -> Any:
        """A list of floats."""
        return self.get(name, tuple, _REQUIRED if default is ... else default)

    @overload
    def strings(self, name: Str, default: tuple[Str, ...] = ...) -> tuple[Str, ...]: ...
    @overload
    def strings(self, name: Str, default: None) -> tuple[Str, ...] | None: ...
    def strings(self, name: Str, default: Any = ...) -> Any:
        """A list of strings."""
        return self.get(name, tuple, _REQUIRED if default is ... else default)

    @overload
    def array(self, name: Str, default: Array = ...) -> Array: ...
    @overload
    def array(self, name: Str, default: None) -> Array | None: ...
    def array(self, name: Str, default: Any = ...) -> Any:
        """A tensor attribute."""
        return self.get(name, np.ndarray, _REQUIRED if default is ... else default)

    def dtype(self, name: Str) -> DType:
        """An attribute that holds an element type's code."""
        return dtype_of(self.int(name))

    def body(self, name: Str) -> Graph:
        """The source graph of a body."""
        index = self.int(name)
        if not 0 <= index < len(self.node.regions):
            raise LowerFailed(f"the attribute '{name}' is no graph", where=str(self.node.origin))
        return self.node.regions[index]

    def region(self, name: Str, inputs: Sequence[Type]) -> Graph:
        """A body lowered for inputs of these types."""
        return self.lowering.region(self.body(name), inputs)


_REQUIRED = object()
_TABLE: dict[tuple[str, str], list[tuple[int, Rule]]] = {}


def onnx_op(*names: str, since: int = 1, domain: str = "") -> Callable[[Rule], Rule]:
    """Enter a lowering `(builder, source, *inputs) -> results` for these ops from version `since` on,
    up to where a lowering with a larger `since` takes over. Absent optional inputs come as None."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            rows = _TABLE.setdefault((domain, name), [])
            rows.append((since, rule))
            rows.sort(key=lambda row: row[0])
        return rule

    return enter


def rule_for(domain: str, op_type: str, version: int) -> Rule | None:
    """The lowering that serves an op at its real version; None if there is none."""
    serving = [rule for since, rule in _TABLE.get((domain, op_type), ()) if since <= version]
    return serving[-1] if serving else None


def entered() -> Mapping[tuple[str, str], Sequence[int]]:
    """For each op with lowerings, the versions from which each serves."""
    return {key: [since for since, _ in rows] for key, rows in _TABLE.items()}


def split_name(op: str) -> tuple[str, str, int]:
    """The domain, type and version in a symbolic op name such as `onnx.com.microsoft.Gelu@1`."""
    name, _, version = op.removeprefix("onnx.").rpartition("@")
    domain, _, op_type = name.rpartition(".")
    return domain, op_type, int(version)


__all__ = ["Builder", "Results", "Rule", "Source", "entered", "onnx_op", "rule_for", "split_name"]
