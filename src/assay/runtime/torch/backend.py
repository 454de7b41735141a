"""`torch.compile(model, backend="assay")`: AOTAutograd hands over aten graphs, each becomes a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch import fx

from assay.errors import BadFeed, LowerFailed, hint_for
from assay.frontends.torch import import_fx
from assay.frontends.torch.decompositions import decompositions, rules_of_eager
from assay.frontends.torch.importer import Imported
from assay.frontends.torch.private.dynamo import aot_autograd, boxed
from assay.frontends.torch.private.ops import forward_results, is_wrapper_subclass, static_inputs
from assay.ir.graph import Graph
from assay.limits import DEFAULT
from assay.memory import lasting_results
from assay.runtime.pipeline import Compiled, compiled, core_graph
from assay.runtime.program import Program
from assay.runtime.settings import Interface, Settings
from assay.runtime.stages import stage
from assay.runtime.targets import Chain, default_target, make_chain
from assay.runtime.torch.arguments import Arguments, arguments_of, check_devices, memory_orders
from assay.runtime.torch.call import ResultsForTorch
from assay.runtime.torch.gradients import without_idle_gradients
from assay.runtime.torch.graphs import CompiledGraph, Phase, current_observer, record
from assay.runtime.torch.observation import Observe, Observed
from assay.runtime.torch.state import CountedTensors, GraphFunction, Prepared, watched
from assay.runtime.writes import writes
from assay.store import open_store

_PLACED_BY_DATA = "data says where in an input a result lies: the oracle alone gives such views"


@dataclass(frozen=True, slots=True)
class Options:
    """How `torch.compile` uses Assay.

    `target` is a chain such as `vulkan,cpu`: a node runs on the first target that takes it. With `strict`, an op
    without a lowering is an error, not an opaque node. `observe` is called with every value of the aten graphs that the
    programs compute, after each run. `disabled_passes` are switched off. `cache` keeps lowered graphs on disk; a path
    says where.

    What depends on parameters and buffers alone is computed once in graphs for inference, and again when one was
    written. With `tracking` the kernel is asked for that in every call, and it sees every write; `assay targets` says
    whether it can be asked. If not, or without `tracking`, nothing of the kind is kept.

    `frozen` promises that parameters and buffers change only in ways that torch counts, if at all: by in-place ops,
    optimizers, `load_state_dict`, or by a new tensor in their place, but not behind a `.data` or in a NumPy array that
    shares their memory. The kernel is not asked then, and graphs for training keep what depends on parameters, too.
    """

    target: str = field(default_factory=default_target)
    mode: str = "exact"
    strict: bool = False
    observe: Observe | None = None
    cache: bool | str = True
    tracking: bool = True
    frozen: bool = False
    disabled_passes: Sequence[str] = ()


def options_from(given: Options | Mapping[str, Any]) -> Options:
    """Options out of `options={…}`; BadFeed names an unknown key and the close ones, or a value that does not fit."""
    if isinstance(given, Options):
        return given
    known = [each.name for each in fields(Options)]
    for key in given:
        if key not in known:
            raise BadFeed(f"the backend has no option '{key}'", hint=hint_for(key, known))
    options = Options(**given)
    kinds: dict[str, type | tuple[type, ...]] = {
        **dict.fromkeys(("target", "mode"), str),
        **dict.fromkeys(("strict", "tracking", "frozen"), bool),
        "cache": (bool, str),
    }
    for key, kind in kinds.items():
        if not isinstance(getattr(options, key), kind):
            raise BadFeed(f"the option '{key}' is {getattr(options, key)!r}", hint=f"see help(assay.Options.{key})")
    if options.observe is not None and not callable(options.observe):
        raise BadFeed("the option 'observe' cannot be called", hint="give a function of (name, origin, array)")
    return options


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Options | Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The entry that dynamo calls with a graph; gives what runs in its place.

    `mode` is `torch.compile`'s own and means nothing here: it says how hard inductor should try.
    """
    chosen = options_from(options or {})
    chain = make_chain(chosen.target, chosen.mode, DEFAULT, torch.get_num_threads)
    _refuse_subclasses(module, inputs)
    make = aot_autograd(
        fw_compiler=_compiler("forward", chosen, chain),
        bw_compiler=_compiler("backward", chosen, chain),
        inference_compiler=_compiler("inference", chosen, chain),
        decompositions=decompositions(),
    )
    with rules_of_eager():
        return make(module, inputs)


def _refuse_subclasses(module: fx.GraphModule, inputs: Sequence[Any]) -> None:
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    for name, value in zip(names, inputs, strict=False):
        if is_wrapper_subclass(value):
            raise BadFeed(
                f"the input '{name}' is a {type(value).__name__}, a tensor subclass",
                hint="pass plain tensors: convert it before the compiled part, or leave that part to eager",
            )


def _compiler(phase: Phase, options: Options, chain: Chain) -> Callable[..., Any]:
    def compiler(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(without_idle_gradients(graph) if phase == "backward" else graph, options, chain, phase)

    return compiler


def compile_graph(
    module: fx.GraphModule, options: Options, chain: Chain, phase: Phase = "inference"
) -> Callable[..., Any]:
    """A function from torch's values to torch's values, in lists, that runs an aten graph."""
    return compile_traced(traced(module, options, phase), options, chain)


@dataclass(frozen=True, slots=True)
class Traced:
    """An aten graph, imported, with all that torch tells of it while it is traced."""

    module: fx.GraphModule
    phase: Phase
    imported: Imported
    interface: Interface


def traced(module: fx.GraphModule, options: Options, phase: Phase) -> Traced:
    """An aten graph that AOTAutograd hands over right now."""
    check_devices([(node.name, node.meta.get("val")) for node in module.graph.nodes])
    with stage("import"):
        imported = import_fx(module, name=phase, visible=_visible(phase))
    return Traced(module, phase, imported, _interface(module, imported, options, phase))


def compile_traced(
    graph: Traced, options: Options, chain: Chain, refine: Callable[[Compiled], Compiled] = lambda made: made
) -> Callable[..., Any]:
    """A function from torch's values to torch's values, in lists, that runs a traced graph; `refine` may put other
    programs in place of those that were compiled."""
    module, imported = graph.module, graph.imported
    settings = _settings(options, chain)
    core = core_graph(imported.graph, imported.facts, settings)
    if options.strict:
        _refuse_opaque(core)

    def made(interface: Interface) -> Compiled:
        return refine(compiled(core, settings, interface))

    first = made(graph.interface)
    record(CompiledGraph(graph.phase, module, imported, first.program, first.prelude))
    run = _runner(graph, first, options, lambda: made(replace(graph.interface, static=())))

    returned = ResultsForTorch(imported.returned)

    @boxed
    def run_boxed(arguments: list[Any]) -> list[Any]:
        with stage("run"):
            return returned.of(run(arguments), arguments)

    return run_boxed


def _settings(options: Options, chain: Chain) -> Settings:
    store = open_store(None if options.cache is True else options.cache) if options.cache else None
    disabled = frozenset(options.disabled_passes)
    return Settings(chain, options.mode, disabled=disabled, store=store, versions=(torch.__version__,))


def _interface(module: fx.GraphModule, imported: Imported, options: Options, phase: Phase) -> Interface:
    """How torch will call the program."""
    by_data = any(entry.place is not None and entry.place.depends_on_data for entry in imported.returned)
    inputs = len(imported.graph.inputs)
    static = [at for at in _static(phase) if at < inputs] if _keeps(options, phase) and not by_data else []
    return Interface(static, memory_orders(module), _PLACED_BY_DATA if by_data else "")


def _keeps(options: Options, phase: Phase) -> bool:
    """Whether what depends on parameters is kept: someone must tell when they change. Those in training do so all the
    time."""
    return options.frozen or (options.tracking and phase == "inference" and writes() is not None)


def _visible(phase: Phase) -> int | None:
    """How many of a graph's results the caller sees: not what is kept for the backward graph, nor what that gives."""
    if phase == "inference":
        return None
    return 0 if phase == "backward" else forward_results() or 0


def _static(phase: Phase) -> Sequence[int]:
    """Which inputs are parameters and buffers; the backward graph gets its own as saved values, unmarked."""
    return () if phase == "backward" else static_inputs()


def _runner(graph: Traced, made: Compiled, options: Options, plain: Callable[[], Compiled]) -> GraphFunction:
    """What runs a compiled graph on torch's arguments; `plain` is the same compiled so that it keeps nothing."""
    ways = _Ways(graph.module, graph.interface.orders, options.observe)
    if made.prelude is None:
        return ways.of(made.program)
    prepare = ways.prepared(made)
    if options.frozen:
        return Prepared(made.reads, CountedTensors, prepare).run
    return Prepared(made.reads, watched, prepare, lambda: ways.of(plain().program)).run


@dataclass(frozen=True, slots=True)
class _Ways:
    """How the programs of a graph run: on torch's arguments, and `observe` is told of their values."""

    module: fx.GraphModule
    orders: Mapping[int, tuple[int, ...]]
    observe: Observe | None

    def of(self, program: Program) -> GraphFunction:
        """A program of all arguments."""
        seen, told = self._observed(program)
        return partial(_run, seen, arguments_of(self.module, seen.addressed, self.orders), told)

    def prepared(self, made: Compiled) -> Callable[[Sequence[Any]], GraphFunction]:
        """What runs the prelude on the arguments of a call, and gives the program bound to its results."""
        assert made.prelude is not None
        (prelude, told_early), (program, told) = self._observed(made.prelude), self._observed(made.program)
        seen = Compiled(program, prelude, made.reads)
        handed = arguments_of(self.module, program.addressed, self.orders)

        def prepare(arguments: Sequence[Any]) -> GraphFunction:
            given = handed.arrays(arguments)
            with lasting_results():
                results = prelude.run([given[at] for at in made.reads])
            told_early(results)
            return partial(_run, seen.bound(results), handed, told)

        return prepare

    def _observed(self, program: Program) -> tuple[Program, GraphFunction]:
        """A program, and what makes its results those of the graph."""
        if self.observe is None:
            return program, lambda results: results
        seen = Observed(program, self.observe)  # where a view is observed, it needs its array
        return seen.program, seen.told


def _run(program: Program, handed: Arguments, told: GraphFunction, arguments: Sequence[Any]) -> Sequence[Any]:
    watching = current_observer()
    given = handed.given(arguments) if watching is None else handed.arrays(arguments)
    return told(program.run(given, watching))


def _refuse_opaque(graph: Graph) -> None:
    for node in graph.walk():
        if node.op == "opaque":
            raise LowerFailed(node.attrs["reason"], where=str(node.origin), hint="compile without strict=True")
