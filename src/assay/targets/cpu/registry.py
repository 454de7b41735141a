"""Which core ops have a kernel, and the function that plans each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.ir.dtypes import DType
from assay.ir.graph import Node

if TYPE_CHECKING:
    from assay.targets.cpu.planner import Planner

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


EMITTERS: dict[str, Emitter] = {}


def emits(
    op: str,
    dtypes: Collection[DType] | None = None,
    *,
    unless: Refusal = lambda node: "",
    reads: tuple[int, ...] | None = None,
    view: bool = False,
) -> Callable[[Emit], Emit]:
    """Enter the decorated function as the one that plans `op`."""

    def enter(emit: Emit) -> Emit:
        if op in EMITTERS:
            raise ValueError(f"{op} is planned twice")
        EMITTERS[op] = Emitter(emit, None if dtypes is None else frozenset(dtypes), unless, reads, view)
        return emit

    return enter
