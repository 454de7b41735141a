"""What became of a model's ops: the op table of a record, its configurations, and the values that cross targets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import fx

from assay.evidence.records import Configuration, OpUse, Transfers
from assay.frontends.torch.types import dtype_of, is_carried
from assay.ir.types import size_in_bytes
from assay.runtime.partition import Plan, crossings
from assay.runtime.torch.accounts import AtenNode, calls_of
from assay.runtime.torch.explain import TorchExplanation
from assay.runtime.torch.watch import Watched

_OWN_WORDS = (torch.dtype, torch.device, torch.layout, torch.memory_format)


def op_uses(explanation: TorchExplanation) -> tuple[OpUse, ...]:
    """One row for each op."""
    return tuple(OpUse(**asdict(each)) for each in explanation.ops)


def configurations(seen: Watched, nodes: Iterable[AtenNode]) -> tuple[Configuration, ...]:
    """The distinct ways in which ops are used, with how often and what became of them."""
    rows = {(row.graph, row.name): row for row in nodes}
    found: dict[str, tuple[Configuration, Counter[str]]] = {}
    for index, graph in enumerate(seen.graphs):
        for call in calls_of(graph.fx):
            row = rows[index, call.name]
            made = configuration(row.op, call)
            entry = found.setdefault(f"{made.op} {made.text}", (made, Counter()))
            entry[1][row.status] += 1
    return tuple(
        Configuration(made.op, made.args, made.kwargs, counts.total(), **counts) for made, counts in found.values()
    )


def configuration(op: str, call: fx.Node) -> Configuration:
    """What a node of an aten graph is called with."""
    return Configuration(op, tuple(_plain(each) for each in call.args), {k: _plain(v) for k, v in call.kwargs.items()})


def _plain(value: Any) -> Any:
    """An argument as JSON has it."""
    if isinstance(value, fx.Node):
        return _plain(value.meta.get("val"))
    if isinstance(value, torch.Tensor):
        kind = dtype_of(value.dtype).name if is_carried(value.dtype) else str(value.dtype)
        return {"dtype": kind, "shape": [int(size) for size in value.shape]}
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return cast(Any, value).node.hint
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, _OWN_WORDS) or (isinstance(value, float) and not math.isfinite(value)):
        return {"torch": str(value)}
    return value if value is None or isinstance(value, bool | int | float | str) else {"torch": str(value)}


def transfers(plans: Iterable[Plan]) -> Transfers:
    """The values that segments take from segments of other targets, and their bytes where the sizes are known."""
    sizes = [size_in_bytes(value.type) or 0 for plan in plans for value in crossings(plan)]
    return Transfers(len(sizes), sum(sizes))
