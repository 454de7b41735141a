"""The tape: what a planned segment does, as calls of kernels on views, for all sizes at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from assay.ir.dims import Dim
from assay.ir.graph import Node
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.sizes import Sizes
from assay.targets.shared.views import Storage, View


class Control(IntEnum):
    """What a step does to the order of steps.

    LOOP begins a loop and leads to its NEXT if there is no round at all; NEXT leads back to it while there are more. IF
    leads to its ELSE if the condition does not hold, ELSE to the END behind it. CHECK ends the run with an error unless
    a size is as large as it must be.
    """

    RUN = 0
    LOOP = 1
    NEXT = 2
    IF = 3
    ELSE = 4
    END = 5
    CHECK = 6


@dataclass(slots=True)
class Step:
    """One kernel call; the last `writes` operands are written, the others read.

    A kernel that `takes_epilogue` hands each part of its result on to `epilogue`, if there is such a call. A step with
    another `control` than RUN calls no kernel; it may go on at `target`.
    """

    kernel: Kernel | None
    operands: list[View]
    numbers: list[Dim]
    floats: list[float]
    rows: Dim
    cols: Dim
    row_grain: Dim
    col_grain: Dim
    work: Dim
    scratch: Dim
    writes: int = 1
    takes_epilogue: bool = False
    nodes: tuple[Node, ...] = ()
    epilogue: Step | None = None
    control: Control = Control.RUN
    target: Step | None = None

    @property
    def parts(self) -> list[Step]:
        """The step, and the one that goes on with its result."""
        return [self] if self.epilogue is None else [self, self.epilogue]

    def touches(self, storage: Storage) -> bool:
        """Whether the call reads or writes `storage`."""
        return any(view.storage is storage for view in self.operands)

    def written(self) -> list[Storage]:
        """The storages that the call writes to."""
        return [view.storage for view in self.operands[len(self.operands) - self.writes :]]


@dataclass(slots=True)
class Tape:
    """Steps with the memory they work on; `given` lists the caller's storages in the order it must provide them."""

    sizes: Sizes
    steps: list[Step] = field(default_factory=list[Step])
    given: list[Storage] = field(default_factory=list[Storage])
    errors: list[tuple[Node, str]] = field(default_factory=list[tuple[Node, str]])
    """What each error cell stands for."""

    @property
    def order(self) -> list[Step]:
        """The steps in the order in which they run, each followed by its epilogue."""
        return [part for step in self.steps for part in step.parts]


def liveness(tape: Tape) -> dict[Storage, tuple[int, int]]:
    """The first and the last step of `tape.order` that touches each storage.

    An epilogue counts from the step that it belongs to. What is touched within a loop and outside of it lives for
    all of the loop: another round may read it.
    """
    order = tape.order
    index = {id(step): at for at, step in enumerate(order)}
    lives: dict[Storage, tuple[int, int]] = {}
    for step in tape.steps:
        for part in step.parts:
            for view in part.operands:
                first, last = lives.get(view.storage, (index[id(step)], 0))
                lives[view.storage] = first, max(last, index[id(part)])
    loops = [(index[id(step.target)], index[id(step)]) for step in order if step.control is Control.NEXT]
    for begin, end in loops:  # those inside of others first, as they end first
        for storage, (first, last) in lives.items():
            if first <= end and last >= begin and not begin < first <= last < end:
                lives[storage] = min(first, begin), max(last, end)
    return lives
