"""What a target is: it probes itself, says which nodes it takes, and compiles segments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast

from assay.ir.dtypes import is_array, read_only
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
    """One node that ran: its results, for reading only, how long it took, and the bytes alive after it."""

    node: Node
    results: tuple[Any, ...]
    seconds: float
    live_bytes: int

    def __post_init__(self) -> None:
        """The run goes on with the results: whoever watches must not change them."""
        object.__setattr__(self, "results", tuple(map(_protected, self.results)))


def _protected(result: Any) -> Any:
    if isinstance(result, list):
        return [_protected(item) for item in cast("list[Any]", result)]
    return read_only(result) if is_array(result) else result


Observer: TypeAlias = Callable[[Event], None]

Bodies: TypeAlias = Mapping[Graph, Callable[[Sequence[Any], Observer | None, Allowance | None], tuple[Any, ...]]]
"""Bodies of nodes that somebody has compiled: functions of their inputs, then of what they capture."""


class Executable(Protocol):
    """A compiled segment."""

    @property
    def addressed(self) -> Collection[int]:
        """The inputs that are read by address alone: a tensor of torch's in host memory will do as well as an array."""
        ...

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

    def compile(self, segment: Graph, bodies: Bodies) -> Executable:
        """Make `segment` runnable; every node of it was supported. CompileFailed if that cannot be done here.

        `bodies` of its nodes are run as given, the others are the target's own to run."""
        ...
