"""How one aten node becomes core ops: by its lowering, else as an opaque node that torch itself runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from assay.errors import LowerFailed
from assay.frontends.torch import ops as ops  # enters the lowerings
from assay.frontends.torch.importer import BY_MEMORY, decoded, function_of
from assay.frontends.torch.private.ops import HigherOrderOperator, schema_of
from assay.frontends.torch.registry import Call, reason_left, rule_for
from assay.frontends.torch.types import (
    has_array,
    in_order,
    lent_tensor,
    shown_tensor,
    to_array,
    torch_dtype,
)
from assay.ir.dtypes import Array, DType, is_array, read_only
from assay.ir.graph import Node, Value, used
from assay.ir.types import Shape, TensorType, Type, UnknownType
from assay.ops.definitions.opaque import RUNNERS
from assay.ops.lowering import DIALECTS, Dialect, Lowering
from assay.ops.registry import Effect, FactMissing


def lower_node(lowering: Lowering, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
    """The core values of an aten node's results; what fails to lower becomes opaque, with the reason."""
    if any(isinstance(value.type, UnknownType) for value in (*used(node), *node.outputs)):
        return _opaque(lowering, node, inputs, "no array carries the layout or dtype of its tensors")
    rule = rule_for(node.op)
    if rule is None or "reason" in node.attrs:
        return _opaque(lowering, node, inputs, node.attrs.get("reason") or reason_left(node.op))
    mark = len(lowering.builder.nodes)
    try:
        args = decoded(node.attrs["args"], inputs, bodies=node.regions)
        kwargs = {key: decoded(arg, inputs, bodies=node.regions) for key, arg in node.attrs["kwargs"]}
        results = rule(lowering.builder, Call(node, lowering), *args, **kwargs)
        flat = list(_flat(results))
        _check(node, flat)
    except FactMissing:
        raise
    except Exception as error:
        del lowering.builder.nodes[mark:]
        return _opaque(lowering, node, inputs, f"the lowering failed: {type(error).__name__}: {error}")
    return flat


def _flat(results: Any) -> Any:
    if isinstance(results, tuple | list):
        for part in results:  # pyright: ignore[reportUnknownVariableType]
            yield from _flat(part)
    elif results is not None:
        yield results


def _check(node: Node, results: Sequence[Value]) -> None:
    """What came out must be what torch says, as far as it is known."""
    if len(results) < len(node.outputs):
        raise LowerFailed(f"{len(results)} results where torch has {len(node.outputs)}")
    for result, expected in zip(results, node.outputs, strict=False):
        mine, theirs = result.type, expected.type
        if not isinstance(mine, TensorType) or not isinstance(theirs, TensorType):
            continue
        if mine.dtype is not theirs.dtype or not _may_be(mine.shape, theirs.shape):
            raise LowerFailed(f"{mine} where torch has {theirs}")


def _may_be(mine: Shape, theirs: Shape) -> bool:
    """Whether two shapes can be the same one: an unknown one is any, a symbol any size."""
    if mine is None or theirs is None:
        return True
    known = zip(mine, theirs, strict=False)
    return len(mine) == len(theirs) and all(a == b for a, b in known if isinstance(a, int) and isinstance(b, int))


def _opaque(lowering: Lowering, node: Node, inputs: Sequence[Value | None], reason: str) -> Sequence[Value]:
    kinds = tuple(str(value.type) for value in node.outputs)
    attrs: dict[str, Any] = {"target": node.op, **node.attrs, "reason": reason}
    attrs.pop("contiguous", None)
    return lowering.builder.emit("opaque", *inputs, **attrs, kinds=kinds, effect=_effect(node).value)


def _effect(node: Node) -> Effect:
    """Observable if the op may check something or draw random numbers."""
    function = function_of(node.op)
    draws = torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
    seen = isinstance(function, HigherOrderOperator) or not node.outputs or draws
    return Effect.OBSERVABLE if seen else Effect.ORDERED


def run_opaque(
    target: str, args: Any, kwargs: Any, orders: Any, modules: Any, inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """Run an overload through torch on arrays, whose axes lie in memory as `orders` says."""
    function = function_of(target)
    schema = schema_of(function)
    as_tensor = _copied if schema is not None and schema.is_mutable else lent_tensor
    first = shown_tensor if function in BY_MEMORY else as_tensor
    placed = [in_order(value, order) for value, order in zip(inputs, orders, strict=True)] if orders else inputs
    given = [(as_tensor if at else first)(value) if is_array(value) else value for at, value in enumerate(placed)]
    held = tuple if isinstance(function, HigherOrderOperator) else list
    positional = _as_torch(decoded(args, given, _number, modules), held)
    named = {key: _as_torch(decoded(arg, given, _number, modules), held) for key, arg in kwargs}
    outcome = cast(Any, function)(*positional, **named)
    lent = [value for value in placed if is_array(value)]
    return tuple(_back(part, lent) for part in _flat(outcome))


def _number(value: Any) -> Any:
    """A symbolic number as torch's functions take it."""
    return value.item() if isinstance(value, torch.Tensor) else value


def _as_torch(value: Any, held: type[list[Any] | tuple[Any, ...]]) -> Any:
    """A decoded argument with torch's dtypes; its sequences are lists or tuples."""
    if isinstance(value, list):
        return held(_as_torch(part, held) for part in cast("list[Any]", value))
    return torch_dtype(value) if isinstance(value, DType) else value


def _copied(array: Array) -> torch.Tensor:
    return lent_tensor(array.copy(order="K"))


def _back(value: Any, lent: Sequence[Array]) -> Any:
    """A result as an array, protected if it lies in memory that was only lent."""
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    if not has_array(tensor):
        return tensor
    array = to_array(tensor)
    return read_only(array) if any(np.may_share_memory(array, each) for each in lent) else array


def result_types_of(node: Node, inputs: Sequence[Type | None]) -> Sequence[Type]:
    """torch has said what the results are."""
    return [value.type for value in node.outputs]


DIALECTS["aten"] = Dialect(lower_node, result_types_of, typed=True)
RUNNERS["aten"] = run_opaque
