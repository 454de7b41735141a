"""Levels: which ops a graph may hold. The verifier asks of every node."""

from __future__ import annotations

from assay.ir.graph import Node
from assay.ir.verify import NodeCheck
from assay.ops.registry import CORE, OPS


def core_level(node: Node) -> str | None:
    """Core graphs hold core ops alone: what is wrong with a node, or None."""
    return None if node.op in CORE else f"'{node.op}' is no core op"


def target_level(target: str) -> NodeCheck:
    """The rule of graphs that `target` has prepared: they hold core ops and ops of its own."""

    def check(node: Node) -> str | None:
        own = node.op.startswith(f"{target}.") and node.op in OPS
        return None if own or node.op in CORE else f"'{node.op}' is neither a core op nor one of '{target}'"

    return check
