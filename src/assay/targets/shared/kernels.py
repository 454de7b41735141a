"""The kernels of a target: which ops have one, the function that plans each, and who writes elementwise loops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from assay.ir.dtypes import DType, string
from assay.ir.graph import Node, Value, used
from assay.ops.registry import OPS
from assay.targets.base import Limitation, Limitations
from assay.targets.shared.limitations import UNTYPED, no_kernel_for, unchecked_operands
from assay.targets.shared.pointwise import Writer

if TYPE_CHECKING:
    from assay.targets.shared.planner import Planner

Emit = Callable[["Planner", Node], None]


@dataclass(frozen=True, slots=True)
class Emitter:
    """How a node of one op is planned.

    `dtypes` are those of the first input (None: any), `unless` are the nodes that cannot be planned. `reads` are the
    inputs whose content is needed (None: all); the others only say what the result's type says too.
    A `view` needs no kernel as long as its result can lie where its first input lies.
    """

    emit: Emit
    dtypes: frozenset[DType] | None
    unless: Sequence[Limitation]
    reads: tuple[int, ...] | None
    view: bool


@dataclass(frozen=True, slots=True)
class KernelTable:
    """All that a planner knows about a target. An op without an emitter is elementwise, or has no kernel."""

    writer: Writer
    emitters: dict[str, Emitter] = field(default_factory=dict[str, Emitter])

    def emits(
        self,
        op: str,
        dtypes: Collection[DType] | None = None,
        *,
        unless: Sequence[Limitation] = (),
        reads: tuple[int, ...] | None = None,
        view: bool = False,
    ) -> Callable[[Emit], Emit]:
        """Enter the decorated function as the one that plans `op`."""

        def enter(emit: Emit) -> Emit:
            if op in self.emitters:
                raise ValueError(f"{op} is planned twice")
            self.emitters[op] = Emitter(emit, None if dtypes is None else frozenset(dtypes), tuple(unless), reads, view)
            return emit

        return enter

    def is_elementwise(self, node: Node) -> bool:
        """Whether a node that is supported is computed element by element."""
        return node.op not in self.emitters

    def is_view(self, node: Node) -> bool:
        """Whether the result of a node may lie where its first input lies."""
        emitter = self.emitters.get(node.op)
        return emitter is not None and emitter.view

    def reads(self, node: Node) -> list[Value]:
        """The inputs of a node whose content its kernel needs."""
        emitter = self.emitters.get(node.op)
        if emitter is None or emitter.reads is None:
            return list(used(node))
        return [value for value in (node.inputs[i] for i in emitter.reads) if value is not None]

    def limitations(self) -> Limitations:
        """All that there is no kernel for. Ask when every kernel is entered."""
        absent = Limitation("there is no kernel", self._is_absent)
        elementwise = [replace(row, ops=self.writer.ops) for row in (*self.writer.limitations, unchecked_operands)]
        return Limitations((*UNTYPED, absent, *elementwise, *chain(*map(self._of_op, self.emitters))))

    def _is_absent(self, node: Node) -> bool:
        return node.op not in self.emitters and node.op not in self.writer.ops

    def _of_op(self, op: str) -> Iterator[Limitation]:
        """The limitations of the kernel of an op."""
        emitter = self.emitters[op]
        missing = [] if emitter.dtypes is None else [each for each in _first_dtypes(op) if each not in emitter.dtypes]
        if missing:
            yield no_kernel_for(missing, op)
        for row in emitter.unless:
            yield replace(row, ops=(op,))


def _first_dtypes(op: str) -> Sequence[DType]:
    """The dtypes in which an op is defined, strings left out, if its first input may have several."""
    definition = OPS[op]
    allowed = definition.typevars.get(definition.params[0].dtype, ()) if definition.params else ()
    return [dtype for dtype in allowed if dtype is not string]
