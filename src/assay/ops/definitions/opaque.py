"""Source ops that no lowering knows, run by the framework that they came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay.ir.facts import Fact
from assay.ir.parser import parse_type
from assay.ir.types import Type
from assay.ops.registry import Effect, op

RUNNERS: dict[str, Callable[[str, Any, Any, Any, Any, Sequence[Any]], tuple[Any, ...]]] = {}
"""How the ops of a dialect are run as they are; a front end enters itself when it is imported."""


def _declared(*inputs: Fact, kinds: Sequence[str], **attrs: Any) -> list[Type]:
    return [parse_type(kind) for kind in kinds]


@op("any* -> any", types=_declared, host=True, effect=Effect.ORDERED)
def opaque(
    *inputs: Any,
    target: str,
    args: Any,
    kwargs: Any,
    kinds: Sequence[str],
    reason: str,
    orders: Sequence[Any] = (),
    modules: Sequence[Any] = (),
    effect: str = Effect.ORDERED.value,
) -> tuple[Any, ...]:
    """A source op run by its own framework; `reason` says why it was not lowered. One with an `observable` effect is
    never dropped. `modules` are bodies that it is given, as its framework has them: a graph with such a node is not
    kept on disk."""
    return RUNNERS[target.partition(".")[0]](target, args, kwargs, orders, modules, inputs)
