"""The native CPU target: segments become tapes of C kernels, compiled once for the machine at hand."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from functools import cache

from assay.errors import CompileFailed
from assay.ir.graph import Graph, Node
from assay.limits import Limits
from assay.ops.lowering import adapt
from assay.targets.base import YES, Bodies, Executable, Probe, Support
from assay.targets.cpu import kernels, ops
from assay.targets.cpu.compiler import find_compiler, search
from assay.targets.cpu.executable import CpuExecutable
from assay.targets.cpu.norms import fold_norms
from assay.targets.cpu.prepack import prepack
from assay.targets.cpu.registry import KERNELS
from assay.targets.cpu.toolchain import shared_toolchain
from assay.targets.shared.refusals import untyped
from assay.targets.threads import Threads, available_threads

__all__ = ["CpuTarget", "kernels", "ops"]


class CpuTarget:
    """Native code for the processor of this machine. Without a C compiler it takes no node."""

    name = "cpu"

    def __init__(self, mode: str, limits: Limits, threads: Threads = available_threads) -> None:
        self.mode, self.limits, self.threads = mode, limits, threads

    def probe(self) -> Probe:
        """Which compiler is there; the target can be asked for even if there is none."""
        found = search()
        details = {"compiler": "none" if found.compiler is None else str(found.compiler)}
        return Probe(True, details={**details, **({"but": found.complaint} if found.complaint else {})})

    def support(self, node: Node) -> Support:
        """Whether this node has a kernel, and if not why."""
        reason = self._refusal(node)
        return Support(False, reason) if reason else YES

    def prepare(self, graph: Graph, static: Collection[int]) -> Graph:
        """The graph in ops that have kernels, where there are such, and with weights in the form that those read."""
        if self.mode != "exact" or find_compiler() is None:
            return graph
        folded = fold_norms(graph, [graph.inputs[index] for index in static])
        taken = adapt(folded, lambda node: self.support(node).ok, self.limits)
        return prepack(taken, [taken.inputs[index] for index in static])

    def compile(self, segment: Graph, bodies: Bodies) -> Executable:
        """The segment as native code; CompileFailed if the compiler cannot make it."""
        chain = shared_toolchain()
        if chain is None:
            raise CompileFailed("there is no C compiler", hint="install gcc or clang, or set CC")
        return CpuExecutable(segment, chain, self.limits, self.threads)

    def _refusal(self, node: Node) -> str:
        if self.mode != "exact":
            return f"the mode '{self.mode}' is the oracle's"
        if find_compiler() is None:
            return _no_compiler()
        return untyped(node) or KERNELS.refusal(node) or self._refused_body(node)

    def _refused_body(self, node: Node) -> str:
        """A reason to refuse a node for what is in its bodies."""
        inner = ((each, self._refusal(each)) for region in node.regions for each in region.nodes)
        return next((f"in its body, {each.op}: {reason}" for each, reason in inner if reason), "")


@cache
def _no_compiler() -> str:
    complaint = search().complaint
    reason = f"there is no C compiler ({complaint})" if complaint else "there is no C compiler"
    warnings.warn(
        f"{reason}: everything runs on the reference target; install gcc or clang, or set CC",
        RuntimeWarning,
        stacklevel=2,
    )
    return reason
