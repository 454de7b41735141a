"""The native CPU target: what it takes, how it rewrites it and how it compiles it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from functools import cache

from assay.errors import CompileFailed
from assay.ir.graph import Graph, Node, Value
from assay.limits import Limits
from assay.passes.decompose import decompose
from assay.targets.base import Bodies, Device, Executable, Limitations, NamedPass, Probe, Support, Traits
from assay.targets.cpu import kernels, ops
from assay.targets.cpu.compiler import find_compiler, search
from assay.targets.cpu.executable import CpuExecutable
from assay.targets.cpu.prepack import block_products, byte_panels, panels, quad_panels, sums_in_floats
from assay.targets.cpu.registry import KERNELS
from assay.targets.cpu.toolchain import shared_toolchain
from assay.targets.shared.limitations import other_mode, taking_nothing
from assay.targets.shared.norms import fold_norms, kept_for_folding
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

    def limitations(self) -> Limitations:
        """What has no kernel; everything, if the mode is another than `exact` or there is no compiler."""
        if self.mode != "exact":
            return other_mode(self.mode)
        return _LIMITATIONS if find_compiler() is not None else taking_nothing(_no_compiler())

    def support(self, node: Node) -> Support:
        """Whether this node has a kernel, and if not why."""
        return self.limitations().support(node)

    @property
    def traits(self) -> Traits:
        """Host memory, any size."""
        return Traits()

    def passes(self) -> Sequence[NamedPass]:
        """Weights take the form that kernels read fastest; what has no kernel becomes what has."""
        return (
            NamedPass("fold_norms", fold_norms),
            NamedPass("decompose", self._decomposed, required=True),
            NamedPass("quad_panels", quad_panels),
            NamedPass("byte_panels", byte_panels),
            NamedPass("block_products", block_products),
            NamedPass("exact_floats", sums_in_floats),
            NamedPass("panels", panels),
            NamedPass("fusion"),
        )

    def _decomposed(self, segment: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
        """The segment with the composites for which there is no kernel in parts."""
        return decompose(segment, lambda node: _KERNELS.support(node).ok, numbers, self.limits)

    def open(self) -> Device | None:
        """It works in host memory."""
        return None

    def compile(
        self, segment: Graph, bodies: Bodies, disabled: Collection[str] = (), device: Device | None = None
    ) -> Executable:
        """The segment as native code; CompileFailed if the compiler cannot make it."""
        chain = shared_toolchain()
        if chain is None:
            raise CompileFailed("there is no C compiler", hint="install gcc or clang, or set CC")
        return CpuExecutable(segment, chain, self.limits, self.threads, fused="fusion" not in disabled)


_KERNELS = KERNELS.limitations()
"""Nodes for which there is no kernel."""


_LIMITATIONS = Limitations(tuple(map(kept_for_folding, _KERNELS.rows)))


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
