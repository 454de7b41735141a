"""Parts of compiled programs that are broken on purpose: kernels, loops, rewrites, transfers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node, Value

Patch = AbstractContextManager[Any]


def negated_kernel(core: str) -> Callable[[str], Patch]:
    """The native kernel of a core op or a target's own gives results of the wrong sign."""

    def make(op: str) -> Patch:
        from assay.targets.cpu.registry import KERNELS
        from assay.targets.shared import pointwise

        emitter = KERNELS.emitters[core]

        def broken(p: Any, node: Node) -> None:
            emitter.emit(p, node)
            wrong = Value(-1, node.outputs[0].type)
            p._ends.add(wrong)  # it is read: in place of the right one
            pointwise.emit(p, [Node("neg", node.outputs, (wrong,), node.origin)])
            p.alias(node.outputs[0], p.view(wrong))

        return patch.dict(KERNELS.emitters, {core: replace(emitter, emit=broken)})

    return make


def wrong_loop(op: str) -> Patch:
    """In loops over several elementwise nodes, those that come from the op are off by a hundredth."""
    from assay.targets.cpu import executable, scalar
    from assay.targets.cpu.registry import KERNELS

    unit, expression = KERNELS.writer.unit, scalar.expression

    def wrong(node: Node, arguments: Sequence[str]) -> str:
        text = expression(node, arguments)
        return f"({text}) * 1.01f" if node.origin.op == op else text

    def broken(work: Any, loops: Any) -> Any:
        with patch.object(scalar, "expression", wrong if len(work.nodes) > 1 else expression):
            return unit(work, loops)

    table = replace(KERNELS, writer=replace(KERNELS.writer, unit=broken))
    return patch.object(executable, "KERNELS", table)


def wrong_norms(op: str) -> Patch:
    """Norms that are folded into weights are folded with a larger epsilon."""
    from assay.targets.cpu import target

    fold_norms = target.fold_norms

    def broken(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
        larger = tuple(
            replace(node, attrs={**node.attrs, "epsilon": 0.5}) if node.op == "batch_norm" else node
            for node in graph.nodes
        )
        changed = replace(graph, nodes=larger)
        folded = fold_norms(changed, static, numbers)
        return graph if folded is changed else folded

    return patch.object(target, "fold_norms", broken)


def wrong_pass(op: str) -> Patch:
    """A standard pass puts other ops in place of those that the op became."""
    import assay.passes

    def simplify(graph: Graph) -> Graph:
        nodes = (replace(n, op="abs") if n.op == "relu" and n.origin.op == op else n for n in graph.nodes)
        return assay.passes.simplify(replace(graph, nodes=tuple(nodes)))

    broken = tuple(simplify if each.__name__ == "simplify" else each for each in assay.passes.STANDARD)
    return patch.object(assay.passes, "STANDARD", broken)


class DamagingDevice:
    """Memory that loses the sign of what is moved there."""

    def upload(self, array: Array) -> Array:
        """Another content than the array's."""
        return np.abs(array) if array.dtype.kind == "f" else array

    def download(self, buffer: Any) -> Array:
        """The content of the buffer."""
        return buffer


def damaged_transfers(target: Any, op: str) -> None:
    """The target has memory of its own, and what is moved there does not arrive as it was."""
    target.open = DamagingDevice
