"""Variants: programs made for what some inputs hold, and for their sizes.

Some models take a shape, axes or counts as an input, so that only a run tells how large their results are. Others
compute with the sizes of their inputs in ways that no algebra of sizes follows. A target that plans memory cannot take
such nodes. A variant is the same model lowered for what these inputs hold in a run and for the sizes that they have:
then all is known, and it serves every later run in which that is the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from assay.errors import AssayError
from assay.ir.dtypes import Array
from assay.ir.facts import SMALL
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType, Type

MADE = 32
"""A model whose inputs are ever new gets no more variants than this in its life; those for buckets do not count."""

_FEW = 8
"""No tensor that can be resized has more axes."""

Made = TypeVar("Made")


def deciding_inputs(graph: Graph) -> tuple[int, ...]:
    """The positions of the inputs of a core graph whose content decides sizes that are not known before a run."""
    maker = {value: node for node in graph.nodes for value in node.outputs}
    waiting = [value for node in graph.nodes if _is_open(node) for value in _small(node)]
    seen: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            waiting.extend(_small(maker[value]) if value in maker else ())
    return tuple(index for index, value in enumerate(graph.inputs) if value in seen and _may_decide(value.type))


def symbolic_inputs(graph: Graph) -> tuple[int, ...]:
    """The positions of the inputs of a graph whose sizes are not all known."""
    kinds = [value.type for value in graph.inputs]
    return tuple(at for at, kind in enumerate(kinds) if isinstance(kind, TensorType) and not _is_fixed(kind))


def _is_fixed(kind: TensorType) -> bool:
    return kind.shape is not None and all(isinstance(dim, int) for dim in kind.shape)


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


@dataclass(frozen=True, slots=True)
class VariantInputs:
    """What a variant is made for: what inputs hold, and what shapes they have, by their places.

    Inputs may be `padded` to these shapes. If there are few of them for all inputs, they are `bounded`.
    """

    content: Mapping[int, Array]
    shapes: Mapping[int, tuple[int, ...]]
    padded: bool = False
    bounded: bool = False

    @property
    def key(self) -> Hashable:
        """Equal for runs that one variant serves."""
        held = tuple((array.shape, array.tobytes()) for array in self.content.values())
        return held, tuple(self.shapes.values()), self.padded


class Variants(Generic[Made]):
    """What `make` made for what is known of some inputs; so many are `kept`, those that were used last.

    `make` gives None, or raises an AssayError, where a variant is of no use. Threads may share this.
    """

    def __init__(self, kept: int, make: Callable[[VariantInputs], Made | None]) -> None:
        self._most, self._make = kept, make
        self._kept: OrderedDict[Hashable, Made | None] = OrderedDict()
        self._left = MADE
        self._lock = threading.Lock()

    def find(self, known: VariantInputs) -> Made | None:
        """The variant for this, made now if need be; None where there is none or there were too many."""
        if any(array.size > SMALL for array in known.content.values()):
            return None
        key = known.key
        with self._lock:
            if key not in self._kept:
                if not self._left and not known.bounded:
                    return None
                self._left -= not known.bounded
                self._kept[key] = self._attempt(known)
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return self._kept[key]

    def _attempt(self, wanted: VariantInputs) -> Made | None:
        """A variant; None if the model cannot be lowered for this, which the run itself will then say."""
        try:
            return self._make(wanted)
        except AssayError:
            return None
