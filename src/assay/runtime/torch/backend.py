"""`torch.compile(model, backend="assay")`: AOTAutograd hands over aten graphs, each becomes a program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from assay.errors import BadFeed, LowerFailed, hint_for
from assay.frontends.torch import import_fx
from assay.frontends.torch.decompositions import (
    decompositions,
    drawn_once,
    kept_whole,
    laid_out_batch_norms,
    wide_gradients,
)
from assay.frontends.torch.importer import Imported
from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Origin, Value
from assay.ir.types import size_in_bytes
from assay.limits import DEFAULT
from assay.memory import free_memory, with_room
from assay.ops.lowering import lower
from assay.passes.hoist import hoist
from assay.passes.layout import take_as_laid_out
from assay.runtime.graph_cache import lowered_graph
from assay.runtime.session import Program, optimized, place_program
from assay.runtime.stages import stage
from assay.runtime.targets import default_target, make_target
from assay.runtime.torch.arguments import Arguments, arguments_of, check_devices, memory_orders
from assay.runtime.torch.call import returned_to_torch
from assay.runtime.torch.gradients import without_idle_gradients
from assay.runtime.torch.graphs import CompiledGraph, Phase, current_observer, record
from assay.runtime.torch.state import Prepared
from assay.store import open_store
from assay.targets.base import Event, Observer, Target

_PLACED_BY_DATA = "data says where in an input a result lies: the oracle alone gives such views"

Observe = Callable[[str, Origin, Array], None]
"""Called with each value of the aten graph: its name there, where it came from, and its content."""


@dataclass(frozen=True, slots=True)
class Options:
    """How `torch.compile` uses Assay.

    With `strict`, an op without a lowering is an error, not an opaque node. `observe` is called with every value
    of the aten graphs when they run, unoptimised. `cache` keeps lowered graphs on disk; a path says where.

    `frozen` promises that parameters and buffers change only in ways that torch counts, if at all: by in-place ops,
    optimizers, `load_state_dict`, or by a new tensor in their place, but not behind a `.data` or in a NumPy array that
    shares their memory. What depends on them alone is then computed once, and again after such a change.
    """

    target: str = field(default_factory=default_target)
    mode: str = "exact"
    strict: bool = False
    observe: Observe | None = None
    cache: bool | str = True
    frozen: bool = False


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
        **dict.fromkeys(("strict", "frozen"), bool),
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
    target = make_target(chosen.target, chosen.mode, DEFAULT, torch.get_num_threads)
    _refuse_subclasses(module, inputs)
    compiled = aot_autograd(
        fw_compiler=_compiler("forward", chosen, target),
        bw_compiler=_compiler("backward", chosen, target),
        inference_compiler=_compiler("inference", chosen, target),
        decompositions=decompositions(),
    )
    with kept_whole(), wide_gradients(), laid_out_batch_norms(), drawn_once():
        return compiled(module, inputs)


def _refuse_subclasses(module: fx.GraphModule, inputs: Sequence[Any]) -> None:
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    for name, value in zip(names, inputs, strict=False):
        if is_traceable_wrapper_subclass(value):
            raise BadFeed(
                f"the input '{name}' is a {type(value).__name__}, a tensor subclass",
                hint="pass plain tensors: convert it before the compiled part, or leave that part to eager",
            )


def _compiler(phase: Phase, options: Options, target: Target) -> Callable[..., Any]:
    def compiler(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(without_idle_gradients(graph) if phase == "backward" else graph, options, target, phase)

    return compiler


def compile_graph(
    module: fx.GraphModule, options: Options, target: Target, phase: Phase = "inference"
) -> Callable[..., Any]:
    """A function from torch's values to torch's values, in lists, that runs an aten graph."""
    check_devices([(node.name, node.meta.get("val")) for node in module.graph.nodes])
    with stage("import"):
        imported = import_fx(module, name=phase, visible=_visible(phase))
    with stage("lower"):
        graph = _core_graph(imported, options)
        if options.strict:
            _refuse_opaque(graph)
    turned = {} if options.observe is not None else memory_orders(module)
    with stage("compile"):
        graph = take_as_laid_out(graph, turned)
        if any(entry.place is not None and entry.place.depends_on_data for entry in imported.returned):
            program, prepared = place_program(graph, target, options.mode, DEFAULT, refused=_PLACED_BY_DATA), None
        else:
            static = _static(phase) if options.frozen and options.observe is None else ()
            program, prepared = _with_prelude(graph, static, target, options.mode)
    record(CompiledGraph(phase, module, imported, program, None if prepared is None else prepared.prelude))
    observer = None if options.observe is None else _observer(graph, options.observe)
    run = partial(_run, program, prepared, observer, arguments_of(module, program.addressed, turned))

    def boxed(arguments: list[Any]) -> list[Any]:
        with stage("run"):
            return returned_to_torch(run(arguments), imported.returned, arguments)

    boxed._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return boxed


def _core_graph(imported: Imported, options: Options) -> Graph:
    """The graph in core ops: optimised, from the cache if it is there; where values are observed, as it was lowered."""
    if options.observe is not None:
        return lower(imported.graph, imported.facts)
    store = open_store(None if options.cache is True else options.cache) if options.cache else None
    return lowered_graph(
        imported.graph,
        imported.facts,
        lambda: optimized(lower(imported.graph, imported.facts), options.mode),
        store=store,
        options=(options.mode, torch.__version__),
    )


def _visible(phase: Phase) -> int | None:
    """How many of a graph's results the caller sees: not what is kept for the backward graph, nor what that gives."""
    if phase == "inference":
        return None
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    return 0 if metadata is None or phase == "backward" else metadata.num_forward_returns


def _static(phase: Phase) -> Sequence[int]:
    """Which inputs are parameters and buffers; the backward graph gets its own as saved values, unmarked."""
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    return () if metadata is None or phase == "backward" else metadata.static_input_indices


def _with_prelude(graph: Graph, static: Sequence[int], target: Target, mode: str) -> tuple[Program, Prepared | None]:
    fixed = _with_room(graph, [index for index in static if index < len(graph.inputs)])
    suited = target.prepare(graph, fixed)
    prelude, rest = hoist(suited, {suited.inputs[index] for index in fixed})
    if not prelude.nodes:
        return place_program(suited, target, mode, DEFAULT), None
    positions = [suited.inputs.index(value) for value in prelude.inputs]
    prepared = Prepared(place_program(prelude, target, mode, DEFAULT), positions)
    return place_program(rest, target, mode, DEFAULT), prepared


def _with_room(graph: Graph, static: Sequence[int]) -> Sequence[int]:
    """The static inputs whose results may be kept beside them; if memory is short for some, a warning says so."""
    sizes = {index: size_in_bytes(graph.inputs[index].type) or 0 for index in static}
    free = free_memory()
    chosen = with_room(sizes, free)
    if free is not None and len(chosen) < len(sizes):
        left = sum(sizes.values()) - sum(sizes[index] for index in chosen)
        warnings.warn(
            f"{free >> 20:,} MiB of memory are free: parameters of {left >> 20:,} MiB are read as they lie, not in the "
            "form that is fastest",
            RuntimeWarning,
            stacklevel=2,
        )
    return chosen


def _run(
    program: Program,
    prepared: Prepared | None,
    observer: Observer | None,
    handed: Arguments,
    arguments: Sequence[Any],
) -> Sequence[Any]:
    early = () if prepared is None else prepared.results(arguments, handed)
    watching = observer or current_observer()
    given = handed.given(arguments) if watching is None else handed.arrays(arguments)
    return program.run([*given, *early], watching)


def _observer(graph: Graph, observe: Observe) -> Observer:
    names: dict[Value, list[str]] = {}
    for name, value in graph.names.items():
        names.setdefault(value, []).append(name)

    def note(event: Event) -> None:
        for value, result in zip(event.node.outputs, event.results, strict=True):
            for name in names.get(value, ()):
                observe(name, event.node.origin, result)

    return note


def _refuse_opaque(graph: Graph) -> None:
    for node in graph.walk():
        if node.op == "opaque":
            raise LowerFailed(node.attrs["reason"], where=str(node.origin), hint="compile without strict=True")
