"""Variants: programs made for the content of inputs that decide sizes.

Some models take a shape, axes or counts as an input, so that only a run tells how large their results are. A target
that plans memory cannot take such nodes. A variant is the same model lowered for what these inputs hold in a run: then
all sizes are known, and it serves every later run in which they hold the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from assay.errors import AssayError
from assay.ir.dtypes import Array
from assay.ir.facts import SMALL
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType, Type

MOST = 4
"""A model whose deciding inputs hold ever new content gets no more variants than this."""

_FEW = 8
"""No tensor that can be resized has more axes."""

Made = TypeVar("Made")


def deciding_inputs(graph: Graph) -> tuple[int, ...]:
    """The places of the inputs of a core graph whose content decides sizes that are not known before a run."""
    maker = {value: node for node in graph.nodes for value in node.outputs}
    waiting = [value for node in graph.nodes if _is_open(node) for value in _small(node)]
    seen: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            waiting.extend(_small(maker[value]) if value in maker else ())
    return tuple(index for index, value in enumerate(graph.inputs) if value in seen and _may_decide(value.type))


def _is_open(node: Node) -> bool:
    """Whether only a run tells how large a result of the node is, or what the node does."""
    kinds = (value.type for value in node.outputs)
    return node.op == "deferred" or any(isinstance(kind, TensorType) and not kind.is_sized for kind in kinds)


def _small(node: Node) -> Iterator[Value]:
    """The inputs of a node that may be sizes, axes or the like."""
    for value in node.inputs:
        if value is not None and isinstance(value.type, TensorType) and len(value.type.shape or ()) <= 1:
            yield value


def _may_decide(kind: Type) -> bool:
    """Scalars may decide sizes, lists of integers or flags, and short lists of other numbers, such as scales."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return False
    short = all(isinstance(dim, int) and dim <= _FEW for dim in kind.shape)
    return short or kind.dtype.kind in ("int", "uint", "bool")


class Variants(Generic[Made]):
    """What `make` made for the content of the inputs at `places`. Threads may share it."""

    def __init__(self, places: Sequence[int], make: Callable[[Mapping[int, Array]], Made]) -> None:
        self._places, self._make = places, make
        self._made: dict[tuple[tuple[tuple[int, ...], bytes], ...], Made | None] = {}
        self._lock = threading.Lock()

    def find(self, inputs: Sequence[Array]) -> Made | None:
        """The variant for these inputs, made now if need be; None where there cannot be one or there are too many."""
        content = {place: inputs[place] for place in self._places}
        if any(array.size > SMALL for array in content.values()):
            return None
        key = tuple((array.shape, array.tobytes()) for array in content.values())
        with self._lock:
            if key not in self._made and len(self._made) < MOST:
                self._made[key] = self._attempt(content)
            return self._made.get(key)

    def _attempt(self, content: Mapping[int, Array]) -> Made | None:
        """A variant; None if the model cannot be lowered for this, which the run itself will then say."""
        try:
            return self._make(content)
        except AssayError:
            return None
