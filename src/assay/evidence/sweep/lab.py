"""The aten graphs of a case, traced once and run again and again: on the target, and by torch in several ways.

Runs by torch show the operands of ops with an edge (`compare/edges.py`), and can have some of them pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import fx

from assay.errors import RunFailed
from assay.evidence.compare.edges import EDGES
from assay.evidence.compare.noisy import NoisyArithmetic, named_arguments
from assay.evidence.sweep.subjects import Results, Subject, floats_as
from assay.frontends.torch.decompositions import decompositions, rules_of_eager
from assay.frontends.torch.private.dynamo import aot_autograd, boxed
from assay.frontends.torch.private.ops import pytree
from assay.frontends.torch.types import to_array
from assay.ir.dtypes import Array
from assay.limits import DEFAULT
from assay.runtime.targets import make_chain
from assay.runtime.torch.backend import Options, compile_graph
from assay.runtime.torch.graphs import Phase


class OperandPosition(NamedTuple):
    """An argument of a node with an edge: the number of the graph, the names of node and argument."""

    graph: int
    node: str
    name: str


Operands = dict[OperandPosition, Array]


class Pin(NamedTuple):
    """Elements of an operand that are taken from the target."""

    where: Array
    values: Array


Pins = Mapping[OperandPosition, Pin]


class Edge(NamedTuple):
    """A node with an edge, with its arguments by name: tensors as nodes, everything else as it is."""

    node: fx.Node
    op: str
    arguments: Mapping[str, Any]

    def tensors(self) -> dict[str, fx.Node]:
        """The arguments that are tensors."""
        return {name: each for name, each in self.arguments.items() if isinstance(each, fx.Node)}


def edges_of(module: fx.GraphModule) -> Iterator[Edge]:
    """The nodes of an aten graph with an edge that floats may come near."""
    for node in module.graph.nodes:
        packet = getattr(node.target, "overloadpacket", None)
        op = getattr(packet, "__name__", "")
        if node.op == "call_function" and op in EDGES:
            edge = Edge(node, op, named_arguments(node.target, node.args, node.kwargs))
            if "self" in edge.tensors() and any(map(_is_float, edge.tensors().values())):
                yield edge


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


# --- runs


Watch = Callable[[int, fx.Node, Any], None]
"""Called with the number of a graph, a node of it and what the node gave."""


@dataclass(frozen=True, slots=True)
class TorchRun:
    """How torch runs the graphs: with operands pinned, in f64 or not, with the noise of a seed in every op or without.

    `watch` sees every result.
    """

    pins: Pins = field(default_factory=dict[OperandPosition, Pin])
    wide: bool = False
    noise: int | None = None
    watch: Watch | None = None


class _Torch(fx.Interpreter):
    """torch's run of a graph. `seen` gets the operands of nodes with an edge, which then are pinned."""

    def __init__(self, module: fx.GraphModule, index: int, way: TorchRun, seen: Operands) -> None:
        super().__init__(module)
        self._edges = {edge.node: edge for edge in edges_of(module)}
        self._index, self._way, self._seen = index, way, seen

    def run_node(self, n: fx.Node) -> Any:
        if n in self._edges:
            for name, operand in self._edges[n].tensors().items():
                self._pin(OperandPosition(self._index, n.name, name), operand)
        result = super().run_node(n)
        if self._way.wide:
            result = pytree.tree_map(floats_as(torch.float64), result)
        if self._way.watch is not None:
            self._way.watch(self._index, n, result)
        return result

    def _pin(self, operand: OperandPosition, node: fx.Node) -> None:
        value = self.env[node]
        self._seen[operand] = _wide_array(value)
        pin = self._way.pins.get(operand)
        if pin is not None:
            where, values = torch.as_tensor(pin.where), torch.as_tensor(pin.values)
            self.env[node] = torch.where(where, values.to(value.dtype), value)


def _wide_array(tensor: torch.Tensor) -> Array:
    return to_array(tensor.detach().double()).copy()


def _showing(module: fx.GraphModule, index: int) -> tuple[fx.GraphModule, list[OperandPosition]]:
    """Graph number `index` with the operands of its nodes with an edge as further results."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    results: Any = graph.graph_copy(module.graph, copies)
    shown = [
        (OperandPosition(index, edge.node.name, name), copies[node])
        for edge in edges_of(module)
        for name, node in edge.tensors().items()
    ]
    graph.output((*results, *(node for _, node in shown)))
    return fx.GraphModule(module, graph), [operand for operand, _ in shown]


class _Ready(NamedTuple):
    """A graph, the same on the target, and which operands that gives beside its results."""

    module: fx.GraphModule
    compiled: Callable[[list[Any]], list[Any]]
    shown: Sequence[OperandPosition]


class Lab:
    """The graphs of a case, which are traced and compiled with the first run."""

    def __init__(self, subject: Subject, target: str) -> None:
        self._subject, self._target = subject, target
        self._graphs: list[_Ready] = []
        self._turn: Callable[[int, list[Any]], Sequence[Any]] = lambda index, arguments: ()
        compiled = cast(Any, torch).compile(
            subject.compiled, backend=self._backend, dynamic=False, isolate_recompiles=True
        )
        self._call = subject.through(compiled)

    @property
    def modules(self) -> list[fx.GraphModule]:
        """The graphs, in the order in which they were traced."""
        return [graph.module for graph in self._graphs]

    def on_target(self) -> tuple[Results, Operands]:
        """What the target gives, and the operands that its ops with an edge have."""
        seen: Operands = {}

        def turn(index: int, arguments: list[Any]) -> Sequence[Any]:
            graph = self._graphs[index]
            results = graph.compiled(arguments)
            count = len(results) - len(graph.shown)
            seen.update((operand, _wide_array(x)) for operand, x in zip(graph.shown, results[count:], strict=True))
            return results[:count]

        return self._run(turn), seen

    def by_torch(self, way: TorchRun) -> tuple[Results, Operands]:
        """What torch gives, and the operands that its ops with an edge have before they are pinned."""
        seen: Operands = {}
        mode = nullcontext() if way.noise is None else NoisyArithmetic(way.noise)

        def turn(index: int, arguments: list[Any]) -> Sequence[Any]:
            with mode, torch.no_grad():
                return _Torch(self._graphs[index].module, index, way, seen).run(*arguments)

        return self._run(turn), seen

    def _run(self, turn: Callable[[int, list[Any]], Sequence[Any]]) -> Results:
        done: set[int] = set()

        def once(index: int, arguments: list[Any]) -> Sequence[Any]:
            if index in done:
                raise RunFailed("a graph runs more than once in one call of the model", where="kinks")
            done.add(index)
            return turn(index, arguments)

        self._turn = once
        return self._subject.run(self._call)

    def _backend(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        made = aot_autograd(
            fw_compiler=self._compiler("forward"),
            bw_compiler=self._compiler("backward"),
            inference_compiler=self._compiler("inference"),
            decompositions=decompositions(),
        )
        with rules_of_eager():
            return made(module, inputs)

    def _compiler(self, phase: Phase) -> Callable[..., Any]:
        def compiler(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
            index = len(self._graphs)
            shown, operands = _showing(module, index)
            chain = make_chain(self._target, "exact", DEFAULT, torch.get_num_threads)
            compiled = compile_graph(shown, Options(self._target, cache=False), chain, phase)
            self._graphs.append(_Ready(module, compiled, operands))

            @boxed
            def run(arguments: list[Any]) -> Sequence[Any]:
                return self._turn(index, arguments)

            return run

        return compiler
