"""Which op made a result wrong, and which stage of the compiler: the program that really runs, value by value.

Every value that the compiled programs of the aten graphs compute is set beside what torch computes there. The first
wrong one names the op. Then the graph runs again, in other ways, and a stage is guilty only if a run proves it:

* still wrong without any optional pass: the *lowering*, if the oracle gives it too, else the *kernel* of the op
* right without the pass `fusion`: the *fusion*
* right without another pass: that *pass*, if the oracle finds the program that it made wrong too, else the *kernel* of
  what the pass put there
* wrong in what a device was given: the *transfer*
* none of these: *unknown*

Rounding adds up, so a value may be wrong by what it was handed. A lowering or a kernel is blamed only if the op is
wrong by itself, on the inputs that torch has there; else the search goes on with the next wrong value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import fx

from assay.evidence.sweep.accuracy import judged
from assay.evidence.sweep.subjects import Subject, floats_as
from assay.frontends.torch.decompositions import decompositions, kept_whole, wide_gradients
from assay.frontends.torch.importer import origin_of
from assay.frontends.torch.private.dynamo import aot_autograd, boxed
from assay.frontends.torch.private.ops import pytree
from assay.frontends.torch.types import has_array, to_array
from assay.ir.dtypes import Array
from assay.ir.graph import Origin
from assay.limits import DEFAULT
from assay.ops.registry import CORE, widen
from assay.passes import standard_passes
from assay.runtime.pipeline import Compiled
from assay.runtime.targets import ORACLE, make_chain
from assay.runtime.torch.backend import Options, Traced, compile_traced, traced
from assay.runtime.torch.graphs import Phase
from assay.runtime.transfers import Transfer


@dataclass(frozen=True, slots=True)
class Suspect:
    """The first value that is wrong though all before it are right: its op, its name, how wrong it is, where it comes
    from, and the part of the compiler that made it wrong."""

    op: str
    name: str
    complaint: str
    place: str
    component: str = "unknown"


def first_wrong(subject: Subject, options: Options) -> Suspect | None:
    """The op that a wrong result comes from; None if every value that the programs compute is right."""
    search = _Search(replace(options, cache=False))

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        made = aot_autograd(
            fw_compiler=search.compiler("forward"),
            bw_compiler=search.compiler("backward"),
            inference_compiler=search.compiler("inference"),
            decompositions=decompositions(),
        )
        with kept_whole(), wide_gradients():
            return made(module, inputs)

    compiled: Any = cast(Any, torch).compile(subject.module, backend=backend, dynamic=False, isolate_recompiles=True)
    subject.step(compiled)
    return search.found


@dataclass(slots=True)
class _Search:
    """The graphs of a model as torch runs them; the first wrong value of all."""

    options: Options
    found: Suspect | None = None

    def compiler(self, phase: Phase) -> Callable[..., Any]:
        def compiler(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
            graph = traced(module, self.options, phase)

            @boxed
            def run(arguments: list[Any]) -> Any:
                plain = _Kept(module)
                results = plain.run(*arguments)
                exact = _Kept(module, wide=True)
                with torch.no_grad():
                    exact.run(*arguments)
                if self.found is None:
                    self.found = _first_suspect(_Trial(graph, self.options, list(arguments), plain.kept, exact.kept))
                return results

            return run

        return compiler


class _Kept(fx.Interpreter):
    """torch's own run of a graph that keeps every tensor; with `wide`, every float of it in f64."""

    def __init__(self, module: fx.GraphModule, *, wide: bool = False) -> None:
        super().__init__(module)
        self.kept: dict[str, Any] = {}
        self._wide = wide

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if self._wide:
            result = pytree.tree_map(floats_as(torch.float64), result)
        if isinstance(result, torch.Tensor):
            self.kept[n.name] = result.detach()
        return result


@dataclass(frozen=True, slots=True)
class _Way:
    """How a graph is compiled for one trial."""

    disabled: frozenset[str] = frozenset()
    target: str = ""
    """Another chain than the one that was asked for."""
    refine: Callable[[Compiled], Compiled] = lambda made: made


@dataclass(slots=True)
class _Trial:
    """One graph with the arguments of a call, and what torch computes there: as it is, and in f64."""

    graph: Traced
    options: Options
    arguments: list[Any]
    plain: Mapping[str, Any]
    exact: Mapping[str, Any]
    seen: dict[_Way, dict[str, Array]] = field(default_factory=dict[_Way, dict[str, Array]])
    """The values of the ways that were tried."""

    def wrong(self, way: _Way) -> Iterator[tuple[fx.Node, str]]:
        """The nodes whose values are wrong, in order, and how wrong each is."""
        values = self._values(way)
        for node in self.graph.module.graph.nodes:
            complaint = self._complaint(node.name, values) if node.op == "call_function" else ""
            if complaint:
                yield node, complaint

    def is_right(self, name: str, way: _Way) -> bool:
        """Whether a value is right; of one that is not computed in this way, whether all others are."""
        values = self._values(way)
        return not self._complaint(name, values) if name in values else next(self.wrong(way), None) is None

    def is_right_alone(self, node: fx.Node) -> bool:
        """Whether a node is right by itself, on what torch has for its inputs."""
        module = _alone(node)
        inputs = [self.plain[each.name] for each in module.graph.nodes if each.op == "placeholder"]
        exact = _Kept(module, wide=True)
        with torch.no_grad():
            plain = _Kept(module)
            plain.run(*inputs)
            exact.run(*inputs)
        graph = traced(module, replace(self.options, tracking=False, frozen=False), "inference")
        trial = _Trial(graph, self.options, inputs, plain.kept, exact.kept)
        return trial.is_right(node.name, _Way())

    def passes(self) -> list[str]:
        """The passes that can be switched off, in order."""
        chain = make_chain(self.options.target, self.options.mode, DEFAULT)
        own = [each.name for target in chain for each in target.passes() if not each.required]
        return list(dict.fromkeys([*(each.__name__ for each in standard_passes(self.options.mode)), *own]))

    def _complaint(self, name: str, values: Mapping[str, Array]) -> str:
        found, right = values.get(name), self.plain.get(name)
        if found is None or right is None or not has_array(right):
            return ""
        return judged(name, found, to_array(right), widen(to_array(self.exact[name]))).complaint

    def _values(self, way: _Way) -> dict[str, Array]:
        if way not in self.seen:
            values: dict[str, Array] = {}

            def keep(name: str, origin: Origin, value: Array) -> None:
                values[name] = value

            options = replace(
                self.options,
                target=way.target or self.options.target,
                disabled_passes=tuple(sorted(way.disabled)),
                observe=keep,
            )
            chain = make_chain(options.target, options.mode, DEFAULT, torch.get_num_threads)
            compile_traced(self.graph, options, chain, way.refine)(list(self.arguments))
            self.seen[way] = values
        return self.seen[way]


def _first_suspect(trial: _Trial) -> Suspect | None:
    for node, complaint in trial.wrong(_Way()):
        component = _component(trial, node.name)
        if component in _OF_ONE_OP and trial.is_right_alone(node):
            continue
        origin = origin_of(_maker(node))
        return Suspect(origin.op, node.name, complaint, str(origin), component)
    return None


_OF_ONE_OP = ("lowering", "kernel")
"""What makes an op wrong by itself, too."""


def _maker(node: fx.Node) -> fx.Node:
    """The call that a value comes from: one result of several is taken out of a tuple."""
    return cast(fx.Node, node.args[0]) if node.target is operator.getitem else node


def _alone(node: fx.Node) -> fx.GraphModule:
    """A graph of one call, whose inputs are what the call reads; a result of several comes out as it does there."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    maker = _maker(node)
    for each in maker.all_input_nodes:
        copies[each] = graph.placeholder(each.name)
        copies[each].meta = each.meta
    for each in dict.fromkeys((maker, node)):
        copies[each] = graph.node_copy(each, copies.__getitem__)
    graph.output((copies[node],))
    return fx.GraphModule(torch.nn.Module(), graph)


def _component(trial: _Trial, name: str) -> str:
    """The part of the compiler that makes a value wrong; a run has proved it, or it is unknown."""
    passes = trial.passes()
    if not trial.is_right(name, _Way(frozenset(passes))):
        if not trial.is_right(name, _Way(target=ORACLE)):
            return "lowering"
        return "transfer" if _is_damaged(trial) else "kernel"
    guilty = [each for each in passes if trial.is_right(name, _Way(frozenset({each})))]
    if not guilty:
        return "unknown"
    if "fusion" in guilty:
        return "fusion"
    if not trial.is_right(name, _Way(refine=Compiled.on_oracle)):
        return f"pass {guilty[0]}"
    return _kernel(trial, name, guilty[0])


def _kernel(trial: _Trial, name: str, pass_name: str) -> str:
    """The kernels of what a pass put in place of an op; of the target's own ops, if there are such."""
    ops: list[str] = []

    def note(made: Compiled) -> Compiled:
        nodes = made.program.plan.graph.nodes
        ops.extend(node.op for node in nodes if node.origin.name == name and pass_name in node.origin.passes)
        return made

    trial.is_right(name, _Way(refine=note))
    own = [op for op in ops if op not in CORE]
    return " ".join(["kernel", *dict.fromkeys(own or ops)])


def _is_damaged(trial: _Trial) -> bool:
    """Whether something does not arrive on a device as it was."""
    damaged: list[Transfer] = []

    def check(made: Compiled) -> Compiled:
        made.program.damaged = damaged
        return made

    trial.is_right("", _Way(refine=check))
    return bool(damaged)
