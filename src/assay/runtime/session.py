"""The session: one model made runnable on a target. Run it, observe any value, see where each op went."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.errors import BadArgument, NotFound, hint_for
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value, named_values
from assay.ir.types import TensorType
from assay.runtime.device_tensors import run_shapes
from assay.runtime.explanation import Explanation, explained_nodes, op_name
from assay.runtime.feeds import FeedCheck, continuable, place_of
from assay.runtime.options import SessionOptions as SessionOptions
from assay.runtime.options import options_from
from assay.runtime.partition import transferred_bytes
from assay.runtime.pipeline import ModelPrograms, Runnable, placed
from assay.runtime.program import Program
from assay.runtime.results import handed_out
from assay.runtime.runs import NOTHING_KEPT, Kept, ProgramRun
from assay.runtime.settings import Interface, Settings
from assay.runtime.state import KeptState
from assay.runtime.targets import make_chain
from assay.runtime.transfers import Ledger
from assay.store import open_store
from assay.targets.base import Event, Observer, Stopwatch, Target
from assay.targets.budget import Budget


@dataclass(frozen=True, slots=True)
class OpTime:
    """One node that ran: what it came from, where it ran, how long it took, the bytes that it made and that live on."""

    source: str
    name: str
    op: str
    target: str
    seconds: float
    result_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class CallTime:
    """Nodes that the program computes together: their ops, what these came from, where they ran and for how long."""

    ops: tuple[str, ...]
    sources: tuple[str, ...]
    names: tuple[str, ...]
    target: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What a model keeps from run to run: the first content of the inputs that take it, by name.

    The output `name` in `renewals` is no result but the new content of the input `renewals[name]`: of one in
    `initial`, or of one that is fed and changed in place.
    """

    initial: Mapping[str, Any] = field(default_factory=dict[str, Any])
    renewals: Mapping[str, str] = field(default_factory=dict[str, str])


class SessionRun:
    """A run of a session that was started."""

    def __init__(self, run: ProgramRun, finished: Callable[[Sequence[Any]], dict[str, Any]]) -> None:
        """`finished` makes what the session gives of the program's outputs."""
        self._run, self._finished = run, finished
        self._outputs: dict[str, Any] | None = None

    def outputs(self) -> dict[str, Any]:
        """Wait for the outputs, by name. Raises what went wrong in the run."""
        if self._outputs is None:
            self._outputs = self._finished(self._run.outputs())
        return self._outputs

    @property
    def transfers(self) -> Ledger | None:
        """What crossed between the host and devices; None if no device takes part."""
        return self._run.transfers

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that intermediate results took, known once there are outputs; None if some target does not
        tell."""
        return self._run.peak_bytes


class Session:
    """A model on a target. Thread-safe; compiled once, when it is made.

    Most models keep nothing between runs. `state` holds what the others keep, by the names of the inputs that take it:
    a run starts from there and leaves the new content there. `signature` says how the source nests its arguments and
    results, where that is more than a list of names (models of torch); else it is None.
    """

    def __init__(
        self,
        graph: Graph,
        options: SessionOptions | None = None,
        *,
        facts: Sequence[Fact] | None = None,
        memory: Memory | None = None,
        signature: Any = None,
    ) -> None:
        """`graph` is what a front end loaded (symbolic), or a core graph; `facts` say more of its inputs."""
        self.options = options_from(options)
        self.source = graph
        self.memory = memory or Memory()
        self.state = KeptState(self.memory.initial)
        self.signature = signature
        self.input_names = tuple(name for name in graph.input_names if name not in self.memory.initial)
        """The names of the inputs that a run must be given, in order."""
        self.output_names = tuple(name for name in graph.output_names if name not in self.memory.renewals)
        """The names of the outputs, in order."""
        self._model = ModelPrograms(graph, facts, _settings(self.options))
        self._latest: Runnable = self._model.general.program
        self._taken: tuple[int | None, Ledger | None] = None, None
        """The memory and the transfers of the latest run."""
        self._check = FeedCheck(graph)
        self._kept_state = _kept_outputs(graph, self.memory, self._model.deciding)
        self._unoptimized: Program | None = None
        self._lock = threading.Lock()
        self._running = threading.Lock()

    @property
    def target(self) -> Target:
        """The first target of the chain: the one that was asked for."""
        return self._model.settings.chain[0]

    @property
    def lowered(self) -> Graph:
        """The model in core ops, before the passes."""
        return self._model.lowered

    @property
    def graph(self) -> Graph:
        """The core graph that runs: lowered, optimised, placed."""
        return self._model.general.program.plan.graph

    @property
    def only_program(self) -> Program | None:
        """The program of all runs; None if runs choose among several, or something is kept from run to run."""
        return None if self.memory.initial or self.memory.renewals else self._model.only_program

    def run(
        self,
        feeds: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        keep: Collection[str] = (),
        budget: Budget | None = None,
        observer: Observer | None = None,
    ) -> dict[str, Any]:
        """The outputs by name (all, or those asked for). BadFeed says in a sentence what does not fit.

        An input that the model changes in place is changed: the array that was fed gets the new content. A run that
        uses up its budget ends with RunStopped or OutOfMemory and changes nothing; the session can be used again.
        `observer` is called for every node. Outputs in `keep` stay on the device that made them, if one did
        (`DeviceTensor`): they can be fed to the next run. In host memory, those that continue an input may lie where it
        lies, with what is new behind it (`GrownTensor`).
        """
        names = self.output_names if outputs is None else tuple(outputs)
        wanted = None if names == self.output_names else self._checked_names(names, self.output_names, "output")
        if not self.memory.renewals:
            by_name = self._results(self._given(feeds), budget, observer, keep, feeds)
        else:
            with self._running:
                by_name = self._renewed(feeds, budget, observer)
        return by_name if wanted is None else {name: by_name[name] for name in wanted}

    def submit(
        self, feeds: Mapping[str, Any], *, budget: Budget | None = None, observer: Observer | None = None
    ) -> SessionRun:
        """Start a run; its `outputs()` waits. What devices compute goes on meanwhile, the rest is over at once.

        A model that keeps something between runs is refused: its next run starts from what this one leaves.
        """
        if self.memory.renewals:
            raise BadArgument("a model that keeps something between runs cannot be submitted", hint="use `run`")
        given, allowance = self._given(feeds), None if budget is None else budget.begin()
        return SessionRun(self._chosen(given).submit(given, observer, allowance), self._finished)

    def reset(self) -> None:
        """Put the state back to what the model came with."""
        with self._running:
            self.state = KeptState(self.memory.initial)

    def explain(self) -> Explanation:
        """Every node, those in bodies too: source, op, target and, where there is something to say, the reason.

        Where the content of inputs decides sizes, this is what the latest run was made of.
        """
        plan = self._latest.plan
        rows = tuple(explained_nodes(plan))
        notes = tuple(self._latest.notes())
        return Explanation(rows, len(plan.segments), transferred_bytes(plan), self.target.name, notes)

    def ran_on(self, node: Node) -> str:
        """The target that ran a node in the latest run; the session's if it is none of that run's."""
        return self._latest.targets.get(node, self.target.name)

    def observe(self, feeds: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
        """Values of intermediate results by their source names (all that were computed if `names` is None).

        They are those of the program that runs, where it computes them (`computed_names`). What passes removed comes
        from the program before the passes, and so does what lies in bodies: there, values are those of the last
        iteration. A name in a branch not taken is absent from the full listing, and NotFound if asked for. In `precise`
        mode floats come in f64, as they are carried. State and inputs are read and left as they are.
        """
        chosen = self.observable(names)
        given = self._given(feeds)
        found = _observed(self._chosen(given), given, chosen) if self.options.mode == "exact" else {}
        removed = [name for name in chosen if name not in found]
        if removed:
            found |= _observed_in_bodies(self._plain(), given, removed)
        if names is None:
            return {name: found[name] for name in chosen if name in found}
        return {name: self._computed(name, found) for name in chosen}

    def observable(self, names: Iterable[str] | None = None) -> list[str]:
        """The names that `observe` takes, or those of `names`; NotFound if one of them is no value's."""
        known = named_values(self.lowered)
        return list(known) if names is None else self._checked_names(names, known, "value")

    @property
    def computed_names(self) -> tuple[str, ...]:
        """The source names of the values that the program computes; passes removed the others."""
        return tuple(named_values(self.graph))

    def times(self, feeds: Mapping[str, Any]) -> list[CallTime]:
        """What the program that `run` runs spends its time on, in order: one record for the nodes of each call.

        The rounds of a loop are added up. State and inputs are read and left as they are.
        """
        stopwatch, given = Stopwatch(), self._given(feeds)
        self._chosen(given).run(given, stopwatch)
        return [self._call_time(nodes, seconds) for nodes, seconds in stopwatch.seconds.items()]

    def _call_time(self, nodes: Sequence[Node], seconds: float) -> CallTime:
        origins = [node.origin for node in nodes]
        return CallTime(
            tuple(map(op_name, nodes)),
            tuple(dict.fromkeys(origin.op for origin in origins)),
            tuple(dict.fromkeys(origin.name for origin in origins)),
            self.ran_on(nodes[0]),
            seconds,
        )

    def profile(self, feeds: Mapping[str, Any]) -> list[OpTime]:
        """One record for each node, in order, with its bytes. Each node runs by itself and nothing is fused; `times` is
        for runs as they are. State and inputs are read and left as they are."""
        times: list[OpTime] = []

        def note(event: Event) -> None:
            made = sum(getattr(result, "nbytes", 0) for result in event.results)
            node, origin = event.node, event.node.origin
            place = self.ran_on(node)
            times.append(OpTime(origin.op, origin.name, op_name(node), place, event.seconds, made, event.live_bytes))

        given = self._given(feeds)
        self._chosen(given).run(given, note)
        return times

    @property
    def transfers(self) -> Ledger | None:
        """What crossed between the host and devices in the latest run; None if no device took part."""
        return self._taken[1]

    @property
    def resident(self) -> Ledger | None:
        """What was moved to devices once, for all runs of the program that ran latest: weights, tables and other
        constants; None if it has no device."""
        return self._latest.resident

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that intermediate results took in the latest run; None if some target does not tell."""
        return self._taken[0]

    def _given(self, feeds: Mapping[str, Any]) -> list[Any]:
        return self._check({**self.state, **feeds} if self.memory.initial else feeds)

    def _results(
        self,
        given: Sequence[Any],
        budget: Budget | None,
        observer: Observer | None,
        keep: Collection[str] = (),
        feeds: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        program = self._chosen(given)
        if keep and feeds is not None and isinstance(program, Program):
            given = continuable(self.source, program.continued, given, keep, feeds)
        run = program.submit(given, observer, None if budget is None else budget.begin())
        stays = keep and run.transfers is not None
        results = run.outputs(self._kept(program, given, keep) if stays else NOTHING_KEPT)
        self._taken = run.peak_bytes, run.transfers
        return self._finished(results)

    def _kept(self, program: Runnable, given: Sequence[Any], keep: Collection[str]) -> Kept:
        """The outputs that may stay on devices: those whose sizes are known before they are looked at."""
        graph = program.plan.graph
        kinds = [value.type for value in graph.outputs]
        shapes = run_shapes(kinds, [value.type for value in graph.inputs], given)
        named = zip(self.source.output_names, kinds, shapes, strict=True)
        return {
            at: (kind.dtype.numpy, shape)
            for at, (name, kind, shape) in enumerate(named)
            if name in keep and shape is not None and isinstance(kind, TensorType)
        }

    def _finished(self, results: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.source.output_names, handed_out(results), strict=True))

    def _renewed(self, feeds: Mapping[str, Any], budget: Budget | None, observer: Observer | None) -> dict[str, Any]:
        """The outputs of a run that leaves new content in the state and in inputs that were fed. State that a device
        has made stays there."""
        places = {name: place_of(name, feeds) for name in self.memory.renewals.values() if name not in self.state}
        given = self._check({**self.state.where_it_is(), **feeds})
        by_name = self._results(given, budget, observer, self._kept_state)
        for output, name in self.memory.renewals.items():
            content = by_name.pop(output)
            if name in self.state:
                self.state[name] = content
            else:
                np.copyto(places[name], content)
        return by_name

    def _chosen(self, given: Sequence[Any]) -> Runnable:
        """The program for these inputs."""
        self._latest = chosen = self._model.program_for(given)
        return chosen

    def _plain(self) -> Program:
        """The program in which every named value of the source is still computed."""
        with self._lock:
            if self._unoptimized is None:
                self._unoptimized = placed(self.lowered, self._model.settings, Interface(watched=True))
            return self._unoptimized

    def _computed(self, name: str, found: Mapping[str, Any]) -> Any:
        if name not in found:
            raise NotFound(f"'{name}' was not computed in this run", hint="it lies in a body that did not run")
        return found[name]

    def _checked_names(self, names: Iterable[str], known: Iterable[str], what: str) -> list[str]:
        listed = dict.fromkeys(known)
        chosen = list(names)
        for name in chosen:
            if name not in listed:
                raise NotFound(f"there is no {what} called '{name}'", hint=hint_for(name, listed))
        return chosen


def _kept_outputs(graph: Graph, memory: Memory, deciding: Collection[int]) -> frozenset[str]:
    """The outputs that devices keep for the next run: the new state, unless its content says which program runs."""
    looked_at = {graph.input_names[at] for at in deciding}
    kept = {name for name, state in memory.renewals.items() if state in memory.initial and state not in looked_at}
    return frozenset(kept)


def _settings(options: SessionOptions) -> Settings:
    """How the pipeline is to work, as a session's options say."""
    return Settings(
        make_chain(options.target, options.mode, options.limits, options.threads),
        options.mode,
        options.limits,
        options.optimizes,
        options.decomposed,
        frozenset(options.disabled_passes),
        open_store(None if options.cache is True else options.cache) if options.cache else None,
    )


def _observed(program: Runnable, given: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """The values among `names` that a program computes outside of bodies, or is given."""
    graph = program.plan.graph
    wanted = {name: graph.names[name] for name in names if name in graph.names}
    fixed: dict[Value, Any] = {**graph.constants, **dict(zip(graph.inputs, given, strict=True))}
    computed = [value for value in dict.fromkeys(wanted.values()) if value not in fixed]
    watching = program.observing(computed)
    fixed.update(zip(watching.plan.graph.outputs, watching.run(given), strict=True))
    return {name: fixed[value] for name, value in wanted.items()}


def _observed_in_bodies(program: Program, given: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """The values among `names` that a program computes, in bodies too; an observer is called for every node."""
    graph = program.plan.graph
    named = named_values(graph)
    found: dict[Value, Any] = dict(zip(graph.inputs, given, strict=True))
    outputs = program.run(given, _collector({named[name] for name in names if name in named}, found))
    found.update(zip(graph.outputs, outputs, strict=True))
    found.update(_constants(graph))
    return {name: found[named[name]] for name in names if name in named and named[name] in found}


def _collector(wanted: set[Value], found: dict[Value, Any]) -> Callable[[Event], None]:
    def collect(event: Event) -> None:
        for value, result in zip(event.node.outputs, event.results, strict=True):
            if value in wanted:
                found[value] = result

    return collect


def _constants(graph: Graph) -> dict[Value, Any]:
    """The constants of `graph` and of the bodies in it."""
    found: dict[Value, Any] = dict(graph.constants)
    for node in graph.nodes:
        for region in node.regions:
            found.update(_constants(region))
    return found
