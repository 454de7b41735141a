"""What a target is: it probes itself, says which nodes it takes, and compiles segments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from assay.ir.graph import Graph, Node
from assay.targets.budget import Allowance


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a target can be used here; `reason` says why not, `details` gives versions and limits."""

    present: bool
    reason: str = ""
    details: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a target takes a node; a refusal has a reason."""

    ok: bool
    reason: str = ""


YES = Support(True)


@dataclass(frozen=True, slots=True)
class Event:
    """One node that ran: its results, how long it took, and the bytes alive after it."""

    node: Node
    results: tuple[Any, ...]
    seconds: float
    live_bytes: int


Observer: TypeAlias = Callable[[Event], None]


class Executable(Protocol):
    """A compiled segment."""

    def run(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[Any, ...]:
        """The segment's outputs for its inputs, in order. Safe to call from several threads.

        RunStopped and OutOfMemory when the allowance is used up.
        """
        ...

    @property
    def peak_bytes(self) -> int | None:
        """The memory for intermediate results in the latest run; None where it is not planned as a whole."""
        ...


class Target(Protocol):
    """A place where graphs run."""

    name: str

    def probe(self) -> Probe:
        """Look whether the target is there; never raises."""
        ...

    def support(self, node: Node) -> Support:
        """Whether this node can run here."""
        ...

    def prepare(self, graph: Graph, static: Collection[int]) -> Graph:
        """The graph rewritten as it suits the target, its inputs and results the same. The inputs at the places
        `static` change rarely: what depends on them and on constants alone will be computed once."""
        ...

    def compile(self, segment: Graph) -> Executable:
        """Make `segment` runnable; every node of it was supported. CompileFailed if that cannot be done here."""
        ...
