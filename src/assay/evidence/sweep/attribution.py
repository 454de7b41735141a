"""Which op made a result wrong: every value of the aten graphs beside what torch itself computes there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._dynamo import optimize
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.utils import _pytree as pytree

from assay.evidence.sweep.accuracy import judged
from assay.evidence.sweep.subjects import Subject, floats_as
from assay.frontends.torch.decompositions import decompositions, kept_whole, wide_gradients
from assay.frontends.torch.importer import origin_of
from assay.frontends.torch.types import has_array, to_array
from assay.ir.dtypes import Array
from assay.limits import DEFAULT
from assay.ops.registry import widen
from assay.runtime.targets import make_chain
from assay.runtime.torch.accounts import calls_of
from assay.runtime.torch.backend import Options, compile_graph


@dataclass(frozen=True, slots=True)
class Suspect:
    """The first value that is wrong though all before it are right: its op, its name, and how wrong it is."""

    op: str
    name: str
    complaint: str
    place: str


@dataclass(slots=True)
class _Search:
    target: str
    found: Suspect | None = None
    values: dict[str, Array] = field(default_factory=dict[str, Array])

    def compiler(self, module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        options = Options(self.target, observe=lambda name, _, value: self.values.__setitem__(name, value), cache=False)
        compiled = compile_graph(module, options, make_chain(self.target, "exact", DEFAULT, torch.get_num_threads))

        def run(*arguments: Any) -> Any:
            plain = _Kept(module)
            results = plain.run(*arguments)
            exact = _Kept(module, wide=True)
            with torch.no_grad():
                exact.run(*arguments)
            self.values.clear()
            compiled(list(arguments))
            self.found = self.found or self._first_wrong(module, plain.kept, exact.kept)
            return results

        return make_boxed_func(run)

    def _first_wrong(self, module: fx.GraphModule, plain: dict[str, Any], exact: dict[str, Any]) -> Suspect | None:
        for node in calls_of(module):
            found, right = self.values.get(node.name), plain.get(node.name)
            if found is None or right is None or not has_array(right):
                continue
            output = judged(node.name, found, to_array(right), widen(to_array(exact[node.name])))
            if not output.ok:
                origin = origin_of(node)
                return Suspect(origin.op, node.name, output.complaint, str(origin))
        return None


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


def first_wrong(subject: Subject, target: str) -> Suspect | None:
    """The op that a wrong result comes from; None if every value of the graphs is right when they run op by op."""
    search = _Search(target)

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        made = aot_autograd(fw_compiler=search.compiler, decompositions=decompositions())
        with kept_whole(), wide_gradients():
            return made(module, inputs)

    region: Any = optimize(backend, dynamic=False, isolate_recompiles=True)
    subject.step(region(subject.module))
    return search.found
