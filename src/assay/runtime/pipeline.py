"""The way of a graph to a program, the same for every front end:

    lower → passes → place → the target's own passes, on each segment → prelude → compile

`core_graph` takes the first two steps, from the disk if they were taken before; `compiled` takes the others.
`ModelPrograms` does both, and once more for sizes or contents of inputs that let a target take more of a model
(`variants.py`).
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from assay.errors import BadArgument, hint_for
from assay.ir.dtypes import is_array, read_only
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType, size_in_bytes
from assay.memory import free_memory, lasting_results, with_room
from assay.ops.lowering import lower
from assay.passes import apply, standard_passes
from assay.passes.layout import take_as_laid_out
from assay.runtime.buckets import PaddedProgram, Padding
from assay.runtime.explanation import explained_nodes
from assay.runtime.partition import partition
from assay.runtime.prepare import RESIDENT, prepared, split, with_constants
from assay.runtime.program import Program, compile_plan
from assay.runtime.settings import PLAIN, Interface, Settings
from assay.runtime.stages import stage
from assay.runtime.variants import VariantInputs, Variants, deciding_inputs, symbolic_inputs
from assay.targets.base import Traits

Runnable: TypeAlias = Program | PaddedProgram

KEPT = 8
"""So many variants are kept where no target says."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program and, where it has static inputs, the prelude that computes what it needs of them.

    `reads` are the places of the inputs that the prelude takes. `program` takes all inputs, then the prelude's results.
    """

    program: Program
    prelude: Program | None = None
    reads: tuple[int, ...] = ()

    def bound(self, results: Sequence[Any]) -> Program:
        """The program for these results of the prelude; its runs take what is no result of that."""
        assert self.prelude is not None
        made = (read_only(result) if is_array(result) else result for result in results)
        return self.program.bind(dict(zip(self.prelude.plan.graph.outputs, made, strict=True)))

    def on_oracle(self) -> Compiled:
        """The same programs, as prepared for their targets, computed by the oracle: what is wrong here is wrong by a
        rewrite, not by a kernel."""
        return Compiled(self.program.on_oracle(), self.prelude and self.prelude.on_oracle(), self.reads)


# --- lower and pass


def core_graph(source: Graph, facts: Sequence[Fact] | None, settings: Settings) -> Graph:
    """`source` in core ops, after the standard passes; found on disk if it was made before."""
    given = facts or [Fact(value.type) for value in source.inputs]
    options = (settings.mode, str(settings.decomposed), *sorted(settings.disabled), *settings.versions)

    def build() -> Graph:
        return optimized(lowered(source, given, settings), settings.mode, settings.disabled)

    with stage("lower"):
        if settings.store is None:
            return build()
        # Imported here, since that reads all sources of this package.
        from assay.runtime.graph_cache import lowered_graph

        return lowered_graph(source, given, build, store=settings.store, options=options)


def lowered(source: Graph, facts: Sequence[Fact] | None, settings: Settings) -> Graph:
    """`source` in core ops, before any pass: every value of the source that is computed at all has its name."""
    return lower(source, facts, decomposed=settings.decomposed, limits=settings.limits)


def optimized(graph: Graph, mode: str, disabled: Collection[str] = ()) -> Graph:
    """A core graph after the standard passes of the mode."""
    return apply(graph, standard_passes(mode), disabled=disabled)


# --- place, prepare, compile


def compiled(graph: Graph, settings: Settings, interface: Interface = PLAIN) -> Compiled:
    """A core graph made runnable: placed, prepared by the targets that got its segments, compiled."""
    with stage("compile"):
        _check_names(settings)
        graph = take_as_laid_out(graph, interface.orders)
        refused, watched = interface.refused, interface.watched
        plan = partition(graph, settings.chain, settings.limits, refused=refused, watched=watched)
        inputs = plan.graph.inputs  # placing may have made a new graph
        static = _with_room([inputs[at] for at in interface.static]) if settings.optimize else []
        ready = prepared(plan, static, settings)
        early, late = split(ready, static, settings)
        if early is None:
            return Compiled(compile_plan(late, settings.oracle, settings.disabled))
        prelude = compile_plan(early, settings.oracle, settings.disabled)
        if not early.graph.inputs:
            with lasting_results():
                made = prelude.run(())
            late = with_constants(late, dict(zip(early.graph.outputs, made, strict=True)))
            return Compiled(compile_plan(late, settings.oracle, settings.disabled))
        reads = tuple(inputs.index(value) for value in early.graph.inputs)
        return Compiled(compile_plan(late, settings.oracle, settings.disabled), prelude, reads)


def placed(graph: Graph, settings: Settings, interface: Interface = PLAIN) -> Program:
    """A core graph as it is: placed and compiled, prepared only as far as its targets require."""
    return compiled(graph, replace(settings, optimize=False), replace(interface, static=())).program


def _check_names(settings: Settings) -> None:
    """BadArgument if a pass is switched off that does not exist, or without which a target cannot compile."""
    known = {each.__name__: False for each in standard_passes(settings.mode)}
    known |= {each.name: each.required for target in settings.chain for each in target.passes()}
    if any(target.traits.own_memory for target in settings.chain):
        known[RESIDENT] = False
    for name in sorted(settings.disabled):
        if name not in known:
            raise BadArgument(f"there is no pass '{name}'", hint=hint_for(name, known))
        if known[name]:
            raise BadArgument(f"the pass '{name}' cannot be switched off", hint="its target compiles nothing without")


def _with_room(static: Sequence[Value]) -> list[Value]:
    """The static inputs whose results may be kept beside them; if memory is short for some, a warning says so."""
    sizes = {index: size_in_bytes(value.type) or 0 for index, value in enumerate(static)}
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
    return [static[index] for index in chosen]


# --- models


class ModelPrograms:
    """A model as programs: one that serves all inputs, and variants for sizes or contents that serve better.

    Variants are made when inputs ask for them and only if floats of the general program are left to the oracle.
    Threads may share this.
    """

    def __init__(
        self, source: Graph, facts: Sequence[Fact] | None, settings: Settings, interface: Interface = PLAIN
    ) -> None:
        self.source, self.settings, self.interface = source, settings, interface
        self.facts = facts or [Fact(value.type) for value in source.inputs]
        self._lowered: Graph | None = None
        self._lock = threading.Lock()
        self.general = self._compiled(self.facts)
        self.deciding, self._sized = self._looked_at()
        """The inputs whose content programs are chosen by, and those whose sizes are."""
        special = [target.traits for target in settings.chain if target.traits.sizes == "specialised"]
        self._variants = Variants[Runnable](min((each.programs for each in special), default=KEPT), self._variant)
        self._padding = self._make_padding(special)

    @property
    def lowered(self) -> Graph:
        """The model in core ops, before the passes."""
        with self._lock:
            if self._lowered is None:
                self._lowered = lowered(self.source, self.facts, self.settings)
            return self._lowered

    @property
    def only_program(self) -> Program | None:
        """The program that runs whatever the inputs are; None if that depends on them, or there is a prelude."""
        several = self.deciding or self._sized or self.general.prelude is not None
        return None if several else self.general.program

    def program_for(self, inputs: Sequence[Any]) -> Runnable:
        """The program that runs these inputs."""
        if not self.deciding and not self._sized:
            return self.general.program
        padded = None if self._padding is None else self._variants.find(self._rounded(self._padding, inputs))
        return padded or self._variants.find(self._known(inputs)) or self.general.program

    def _compiled(self, facts: Sequence[Fact]) -> Compiled:
        settings = self.settings
        if not settings.optimize:
            with stage("lower"):
                graph = lowered(self.source, facts, settings)
            return compiled(graph, settings, self.interface)
        return compiled(core_graph(self.source, facts, settings), settings, self.interface)

    def _looked_at(self) -> tuple[Sequence[int], Sequence[int]]:
        """The inputs whose content and those whose sizes variants are made for; none if nothing is to be gained:
        targets take all that has floats, or the model tells all sizes."""
        if self.interface.static or not self._missed(self.general.program):
            return (), ()
        return deciding_inputs(self.lowered), symbolic_inputs(self.source)

    def _make_padding(self, special: Sequence[Traits]) -> Padding | None:
        """How inputs are padded, where a target has buckets and there are sizes along which it is exact."""
        buckets = next((traits.buckets for traits in special if traits.buckets is not None), None)
        if buckets is None or self.deciding or not self._sized:
            return None
        padding = Padding(core_graph(self.source, self.facts, self.settings), buckets)
        return padding if padding.padded else None

    def _known(self, inputs: Sequence[Any]) -> VariantInputs:
        """What a variant for these inputs is made for."""
        shapes = {place: inputs[place].shape for place in self._sized}
        return VariantInputs({place: inputs[place] for place in self.deciding}, shapes)

    def _rounded(self, padding: Padding, inputs: Sequence[Any]) -> VariantInputs:
        """What a variant for the bucket of these inputs is made for."""
        sizes = padding.bucket(inputs)
        shapes = {place: padding.shape(place, sizes) or inputs[place].shape for place in self._sized}
        return VariantInputs({}, shapes, padded=True, bounded=padding.is_bounded(sizes))

    def _variant(self, known: VariantInputs) -> Runnable | None:
        """A program for this alone; None if targets take no more of it than of the program for all."""
        program = self._compiled([_learned(fact, at, known) for at, fact in enumerate(self.facts)]).program
        if self._missed(program) >= self._missed(self.general.program):
            return None
        if self._padding is None or not known.padded:
            return program
        return PaddedProgram(program, self._padding, self._padding.graph.outputs)

    def _missed(self, program: Program) -> int:
        """How many nodes with floats run elsewhere than they should: on the oracle, or, where a target of the chain
        takes only sizes that are known, on any other than the first."""
        *takers, oracle = (target.name for target in self.settings.chain)
        if not takers:
            return 0
        special = any(target.traits.sizes == "specialised" for target in self.settings.chain)
        rows = [row for row in explained_nodes(program.plan) if row.floats]
        return sum(row.target != takers[0] if special else row.target == oracle for row in rows)


def _learned(fact: Fact, place: int, known: VariantInputs) -> Fact:
    """What is known of an input in runs of a variant."""
    kind, shape = fact.type, known.shapes.get(place)
    if shape is not None and isinstance(kind, TensorType):
        kind = TensorType(kind.dtype, shape)
    return Fact(kind, known.content.get(place, fact.value))
