"""What a target is: it probes itself, says which nodes it takes, rewrites the segments it is given and compiles them.

Arrays live in host memory. A target with memory of its own has a `Device` that moves them there and back; its
executables take and give `Buffer`s, so that two of its segments hand over without the host.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from assay.errors import CompileFailed
from assay.ir.dtypes import Array, DType, is_array, read_only
from assay.ir.graph import Graph, Node, Value
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


class NodeRefused(CompileFailed):
    """A target could not compile a segment because of one node: it may well take the segment without that."""

    def __init__(self, message: str, node: Node, *, hint: str = "") -> None:
        super().__init__(message, where=f"{node.op}, {node.origin}", hint=hint)
        self.node = node


@dataclass(frozen=True, slots=True, eq=False)
class Limitation:
    """Nodes that a target does not take, and why: a row of the table by which it refuses.

    It covers the nodes of `ops` (None: of every op) to which it `applies`. The same rows say what a test may find
    refused, and what the docs list as such.
    """

    reason: str
    applies: Callable[[Node], bool] = lambda node: True
    ops: Collection[str] | None = None


def limitation(reason: str, *ops: str) -> Callable[[Callable[[Node], bool]], Limitation]:
    """Make a limitation of the decorated predicate of nodes; without `ops` it is about every op."""
    return lambda applies: Limitation(reason, applies, ops or None)


@dataclass(frozen=True)
class Limitations:
    """The rows of a target, in the order in which a node is compared with them: a later one may rely on the earlier."""

    rows: tuple[Limitation, ...]
    _of_op: dict[str, tuple[Limitation, ...]] = field(default_factory=dict[str, tuple[Limitation, ...]], repr=False)

    def first(self, node: Node) -> Limitation | None:
        """The row that covers a node, its bodies left out; None if none does."""
        rows = self._of_op.get(node.op)
        if rows is None:
            rows = tuple(row for row in self.rows if row.ops is None or node.op in row.ops)
            self._of_op[node.op] = rows
        return next((row for row in rows if row.applies(node)), None)

    def support(self, node: Node) -> Support:
        """What a target with these limitations says to a node. It takes one with bodies if it takes all their nodes."""
        row = self.first(node)
        if row is not None:
            return Support(False, row.reason)
        inner = ((each, self.support(each)) for region in node.regions for each in region.nodes)
        refused = (Support(False, f"in its body, {each.op}: {found.reason}") for each, found in inner if not found.ok)
        return next(refused, YES)


class TransferCost(NamedTuple):
    """What moving data between the host and a device costs: seconds for each transfer, and bytes per second."""

    seconds: float
    bytes_per_second: float

    def of(self, sizes: Sequence[int]) -> float:
        """The seconds that one transfer of each size takes."""
        return len(sizes) * self.seconds + sum(sizes) / self.bytes_per_second


class Buckets(NamedTuple):
    """The sizes that a target compiles for, in ascending order: a symbolic size is padded to the next of them."""

    sizes: tuple[int, ...]

    @classmethod
    def powers_of_two(cls, most: int) -> Buckets:
        """1, 2, 4 … up to `most`."""
        return cls(tuple(1 << at for at in range(most.bit_length())))

    @classmethod
    def multiples_of(cls, step: int, most: int) -> Buckets:
        """Multiples of `step` up to `most`."""
        return cls(tuple(range(step, most + 1, step)))

    def of(self, size: int) -> int:
        """The bucket of a size; the size itself if it is 0 or larger than all buckets."""
        at = bisect_left(self.sizes, size)
        return self.sizes[at] if size > 0 and at < len(self.sizes) else size


DEVICE_MODEL = "device model: nothing ran on a device, and no time of a run is told"
"""What reports say of results that are `modelled`."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What the runtime must know of a target before it compiles for it.

    `transfers` is None for a target that works in host memory. A target whose `sizes` are "specialised" is given
    graphs in which every size is a number: a program for each set of sizes, of which `programs` are kept. With
    `buckets`, symbolic sizes are padded to those, where that is exact.
    `rounds_to` is the dtype that the target rounds float results to, if that is narrower than what they state: verdicts
    on its results use the noise floor of that dtype. Results that are `modelled` come from a model of the device, where
    there is none: no time of theirs is told. `operations_per_second` is a rough figure, used to weigh
    transfers against the work that they make possible.
    """

    transfers: TransferCost | None = None
    sizes: str = "symbolic"
    buckets: Buckets | None = None
    programs: int = 8
    rounds_to: DType | None = None
    modelled: bool = False
    operations_per_second: float = 1e10

    @property
    def own_memory(self) -> bool:
        """Whether data has to be moved to the target and back."""
        return self.transfers is not None


class NamedPass(NamedTuple):
    """A rewrite of a segment that its target makes before it compiles it.

    `apply` takes the segment, those of its inputs that are known before a run, as they depend on weights alone, and ids
    for the values that it makes. Its result has the same inputs and outputs. A pass that is `required` cannot be
    switched off; one without `apply` is part of `compile`.
    """

    name: str
    apply: Callable[[Graph, Collection[Value], Iterator[int]], Graph] | None = None
    required: bool = False


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


class Stopwatch:
    """An observer that wants times alone: those of the program as it runs without an observer.

    A target that runs node by node calls it as it calls any observer. One that computes several nodes in one call uses
    `note`.
    """

    def __init__(self) -> None:
        self.seconds: dict[tuple[Node, ...], float] = {}
        """By the nodes that were computed together. The rounds of a loop are added up."""

    def __call__(self, event: Event) -> None:
        """A node ran by itself. Control flow is left out: what runs in its bodies is noted."""
        if not event.node.regions:
            self.note((event.node,), event.seconds)

    def note(self, nodes: Sequence[Node], seconds: float) -> None:
        """These nodes were computed by one call."""
        key = tuple(nodes)
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds


Bodies: TypeAlias = Mapping[Graph, Callable[[Sequence[Any], Observer | None, Allowance | None], tuple[Any, ...]]]
"""Bodies of nodes that somebody has compiled: functions of their inputs, then of what they capture."""


class Buffer(Protocol):
    """A tensor in the memory of a device. Its content may still be on its way there: `download` waits for it."""

    @property
    def nbytes(self) -> int:
        """The bytes that the tensor takes on the device."""
        ...


class Device(Protocol):
    """The memory of a target."""

    def upload(self, array: Array) -> Buffer:
        """The array's content on the device. The array may change as soon as this returns."""
        ...

    def download(self, buffer: Buffer) -> Array:
        """The content of a buffer as an array of the host, which is the caller's alone."""
        ...


class Run(Protocol):
    """A run of an executable that was started."""

    def wait(self) -> None:
        """Return when the run is over. Raises what went wrong in it: RunFailed, RunStopped, OutOfMemory."""
        ...

    @property
    def peak_bytes(self) -> int | None:
        """The memory for intermediate results of a run that is over; None where it is not planned as a whole."""
        ...


class Finished:
    """A run that was over when it was submitted. One of these may stand for many runs."""

    __slots__ = ("peak_bytes",)

    def __init__(self, peak_bytes: int | None = None) -> None:
        self.peak_bytes = peak_bytes

    def wait(self) -> None:
        """There is nothing to wait for."""


class Executable(Protocol):
    """A compiled segment. Inputs and outputs are arrays, or buffers where the target has memory of its own."""

    @property
    def addressed(self) -> Collection[int]:
        """The inputs that are read by address alone: a tensor of torch's in host memory will do as well as an array."""
        ...

    def bind(self, statics: Mapping[int, Any]) -> Executable:
        """An executable of the other inputs: the inputs at these places are given for all its runs.

        They stay where the target works. This executable is left as it is, so runs of both may overlap.
        """
        ...

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        """Start a run: the segment's outputs, in order, and the run. Safe to call from several threads.

        Outputs that are arrays are complete. Buffers may still be on their way: they can be handed to the next run at
        once, and `Device.download` waits for them. The observer is called for every node before the run is over.
        RunStopped and OutOfMemory when the allowance is used up.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProgramNote:
    """Something to be told of a compiled segment: a sentence, and a table under it if there are rows.

    Columns whose name starts with '>' are aligned to the right.
    """

    text: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


@runtime_checkable
class Noted(Protocol):
    """An executable that has more to tell than where nodes run; `explain` shows it."""

    def notes(self) -> Sequence[ProgramNote]:
        """What is to be told."""
        ...


class Target(Protocol):
    """A place where graphs run."""

    name: str

    def probe(self) -> Probe:
        """Look whether the target is there; never raises."""
        ...

    @property
    def traits(self) -> Traits:
        """What the runtime must know of the target."""
        ...

    def limitations(self) -> Limitations:
        """All that the target does not take here, in this mode, with the reasons."""
        ...

    def support(self, node: Node) -> Support:
        """Whether this node can run here: what `limitations` say to it. Asks no other process, and gives the same
        answer each time."""
        ...

    def passes(self) -> Sequence[NamedPass]:
        """The target's own rewrites of a segment, in order."""
        ...

    def open(self) -> Device | None:
        """The target's memory; None for one that works in host memory. Programs ask for it when they are compiled, so
        it costs little; a buffer of one of its devices is good for all of them."""
        ...

    def compile(
        self, segment: Graph, bodies: Bodies, disabled: Collection[str] = (), device: Device | None = None
    ) -> Executable:
        """Make `segment` runnable; every node of it was supported. CompileFailed if that cannot be done here.

        `bodies` of its nodes are run as given, the others are the target's own to run. `disabled` names passes that
        are part of compiling and are switched off. `device` is the target's memory as `open` gave it, and counts what
        is moved: constants go there by it."""
        ...
