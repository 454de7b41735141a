"""Where the nodes of a session run, as a table."""

from __future__ import annotations

from collections import Counter
from typing import Any

from assay.cli.output import CommandOutput

_SHOWN = 12


def placed_ops(explanation: Any) -> list[dict[str, Any]]:
    """How many nodes each core op has, where they run and why; those for which there is a reason come first."""
    counts = Counter((node.op, node.target, node.reason) for node in explanation.nodes).most_common()
    rows = [{"op": op, "target": target, "reason": why, "nodes": n} for (op, target, why), n in counts]
    return sorted(rows, key=lambda row: not row["reason"])


def show_ops(report: CommandOutput, name: str, rows: list[dict[str, Any]]) -> None:
    """The table; what is rare is told as a sum."""
    report.text()
    title = f"{name}: {sum(row['nodes'] for row in rows)} nodes"
    cells = [(row["op"], row["nodes"], row["target"], row["reason"]) for row in rows[:_SHOWN]]
    rest = sum(row["nodes"] for row in rows[_SHOWN:])
    more = [(f"… {len(rows) - _SHOWN} more ops", rest, "", "")] if rest else []
    report.table(title, ("op", ">nodes", "target", "reason"), [*cells, *more])
