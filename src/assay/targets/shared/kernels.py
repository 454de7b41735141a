"""The kernels of a target: which ops have one, the function that plans each, and who writes elementwise loops."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.ir.dtypes import DType
from assay.ir.graph import Node, Value, used
from assay.targets.shared.pointwise import Writer
from assay.targets.shared.refusals import unclear_operands
from assay.targets.shared.tensors import dtype_of

if TYPE_CHECKING:
    from assay.targets.shared.planner import Planner

Emit = Callable[["Planner", Node], None]
Refusal = Callable[[Node], str]


@dataclass(frozen=True, slots=True)
class Emitter:
    """How a node of one op is planned.

    `dtypes` are those of the first input (None: any), `unless` gives a reason to refuse a node or nothing. `reads`
    are the inputs whose content is needed (None: all); the others only say what the result's type says too.
    A `view` needs no kernel as long as its result can lie where its first input lies.
    """

    emit: Emit
    dtypes: frozenset[DType] | None
    unless: Refusal
    reads: tuple[int, ...] | None
    view: bool


@dataclass(frozen=True, slots=True)
class KernelTable:
    """All that a planner is told of a target. An op without an emitter is elementwise, or has no kernel."""

    writer: Writer
    emitters: dict[str, Emitter] = field(default_factory=dict[str, Emitter])

    def emits(
        self,
        op: str,
        dtypes: Collection[DType] | None = None,
        *,
        unless: Refusal = lambda node: "",
        reads: tuple[int, ...] | None = None,
        view: bool = False,
    ) -> Callable[[Emit], Emit]:
        """Enter the decorated function as the one that plans `op`."""

        def enter(emit: Emit) -> Emit:
            if op in self.emitters:
                raise ValueError(f"{op} is planned twice")
            self.emitters[op] = Emitter(emit, None if dtypes is None else frozenset(dtypes), unless, reads, view)
            return emit

        return enter

    def is_elementwise(self, node: Node) -> bool:
        """Whether a node is computed element by element."""
        return not self.writer.refusal(node)

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

    def refusal(self, node: Node) -> str:
        """Why no kernel takes a node whose types are known; empty if one does."""
        emitter = self.emitters.get(node.op)
        if emitter is None:
            return self.writer.refusal(node) or unclear_operands(node)
        dtype = dtype_of(next(value for value in (*node.inputs, *node.outputs) if value is not None))
        if emitter.dtypes is not None and dtype not in emitter.dtypes:
            return f"there is no kernel of {node.op} for {dtype}"
        return emitter.unless(node)
