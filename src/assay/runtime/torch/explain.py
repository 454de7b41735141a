"""`assay.explain`: what torch and Assay made of a model. Graphs, graph breaks, recompiles, and every aten op's lot."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.runtime.explanation import aligned
from assay.runtime.torch.accounts import (
    STATUSES,
    AtenNode,
    SizeInput,
    account,
    calls_of,
    plain_name,
    size_inputs,
)
from assay.runtime.torch.backend import Options, options_from
from assay.runtime.torch.graphs import CompiledGraph, Phase
from assay.runtime.torch.watch import Break, GuardFailure, Watched, as_calls, watching


@dataclass(frozen=True, slots=True)
class GraphReport:
    """One aten graph: `nodes` counts its ops, `call` is the number of the call that compiled it, from 0."""

    index: int
    phase: Phase
    call: int
    nodes: int
    inputs: int
    sizes: tuple[SizeInput, ...]
    core_nodes: int
    segments: int


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A line at which torch left a graph; `count` says how often, recompiles included.

    `left` names the function that runs eagerly as a whole for it; it is empty where torch compiles what is before and
    behind the line.
    """

    file: str
    line: int
    code: str
    reason: str
    hints: tuple[str, ...]
    left: str
    count: int


@dataclass(frozen=True, slots=True)
class Recompile:
    """A function compiled again in call `call`, or given up (it runs eagerly then), and what had changed."""

    call: int
    function: str
    file: str
    line: int
    reasons: tuple[str, ...]
    guards: tuple[str, ...]
    given_up: bool


@dataclass(frozen=True, slots=True)
class OpReport:
    """One aten op: how many nodes, how many of each status, the core ops it became, where they run, and why."""

    op: str
    count: int
    converted: int
    removed: int
    opaque: int
    fallback: int
    core: tuple[str, ...]
    targets: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TorchExplanation:
    """What happened to a torch model. `str` of it is a text for people, `to_json` gives all of it as plain data."""

    target: str
    graphs: tuple[GraphReport, ...]
    breaks: tuple[GraphBreak, ...]
    recompiles: tuple[Recompile, ...]
    ops: tuple[OpReport, ...]
    nodes: tuple[AtenNode, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [_summary(self), _graphs(self), _breaks(self), _recompiles(self), _ops(self), _reasons(self)]
        return "\n\n".join(part for part in parts if part)


def explain(
    model: Callable[..., Any],
    *args: Any,
    calls: Sequence[Any] | None = None,
    dynamic: bool | None = None,
    train: bool | None = None,
    options: Options | Mapping[str, Any] | None = None,
    quiet: bool = False,
    **kwargs: Any,
) -> TorchExplanation:
    """Run `model(*args, **kwargs)` through the backend, print what happened (unless `quiet`), and return it.

    `calls` gives several tuples of arguments instead, one for each call, so that recompiles show. `dynamic` is
    torch.compile's. `train` puts the model into training mode with gradients or into evaluation mode without; by
    default it stays as it is, and the backward graphs run if an output requires a gradient. `options` are the
    backend's. The model really runs; its mode, buffers and gradients, torch's random numbers and the compiled
    code of other `torch.compile` calls are left as they were. Arguments that it changes in place stay changed.
    """
    chosen = options_from(options or {})
    wanted = as_calls(calls, args, kwargs)
    with watching(model, options=chosen, dynamic=dynamic, train=train, backward=train) as (seen, run):
        for arguments in wanted:
            run(arguments)
    explanation = explained(seen)
    if not quiet:
        print(explanation)
    return explanation


def explained(seen: Watched) -> TorchExplanation:
    """The explanation of what was watched."""
    nodes = [row for index, graph in enumerate(seen.graphs) for row in account(index, graph, seen.target, seen.late)]
    return TorchExplanation(
        seen.target,
        tuple(_graph(index, *each) for index, each in enumerate(zip(seen.graphs, seen.calls, strict=True))),
        _counted_breaks(seen.breaks),
        _grouped_failures(seen),
        tuple(_op(op, [row for row in nodes if row.op == op]) for op in sorted({row.op for row in nodes})),
        tuple(nodes),
    )


def _graph(index: int, graph: CompiledGraph, call: int) -> GraphReport:
    segments = sum(len(each.plan.segments) for each in (graph.prelude, graph.program) if each is not None)
    inputs = sum(node.op == "placeholder" for node in graph.fx.graph.nodes)
    sizes = size_inputs(graph.fx)
    return GraphReport(
        index, graph.phase, call, len(calls_of(graph.fx)), inputs, sizes, len(graph.placements), segments
    )


def _op(op: str, rows: Sequence[AtenNode]) -> OpReport:
    found = Counter(row.status for row in rows)
    core = tuple(dict.fromkeys(name for row in rows for name in row.core))
    places = [("torch",) if row.status == "opaque" else row.targets for row in rows]
    targets = tuple(dict.fromkeys(target for each in places for target in each))
    reasons = tuple(dict.fromkeys(f"{row.status}: {row.reason}" for row in rows if row.reason))
    counts = found["converted"], found["removed"], found["opaque"], found["fallback"]
    return OpReport(op, len(rows), *counts, core, targets, reasons)


# --- graph breaks


_JUMPS = {
    "generic_jump": "a branch depends on the content of a tensor",
    "step_unsupported": "torch cannot trace this instruction",
    "comprehension_graph_break": "torch cannot trace into this comprehension",
}
"""torch's internal words for breaks that it does not explain itself."""


def _counted_breaks(breaks: Iterable[Break]) -> tuple[GraphBreak, ...]:
    counts = Counter((each.file, each.line, each.code, *_reason_and_hints(each.message), each.left) for each in breaks)
    return tuple(GraphBreak(*found, count) for found, count in counts.items())


def _reason_and_hints(message: str) -> tuple[str, tuple[str, ...]]:
    """The reason and the hints in torch's message."""
    lines = [line.strip() for line in message.splitlines()]
    title = lines[0] if lines else ""
    jump = _JUMPS.get(title.partition(" ")[0])
    explanation = next((line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")), "")
    hints = tuple(line.removeprefix("Hint: ") for line in lines if line.startswith("Hint: "))
    return jump or (f"{title}: {explanation}" if explanation else title), hints


# --- recompiles

_NUMBER = r"(?P<old>\S+), actual (?P<new>\S+)"
_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            rf"tensor '(?P<name>.+)' size mismatch at index (?P<at>\d+)\. expected {_NUMBER}",
            "{name} has size {new} in dim {at}; it was compiled for {old}",
        ),
        (
            rf"tensor '(?P<name>.+)' stride mismatch at index (?P<at>\d+)\. expected {_NUMBER}",
            "{name} has stride {new} in dim {at}; it was compiled for {old}",
        ),
        (
            rf"tensor '(?P<name>.+)' rank mismatch\. expected {_NUMBER}",
            "{name} has {new} dims; it was compiled for {old}",
        ),
        (
            rf"tensor '(?P<name>.+)' dtype mismatch\. expected {_NUMBER}",
            "{name} is of dtype {new}; it was compiled for {old}",
        ),
        (
            r"tensor '(?P<name>.+)' requires_grad mismatch\. expected requires_grad=0",
            "{name} requires a gradient now; it was compiled without",
        ),
        (
            r"tensor '(?P<name>.+)' requires_grad mismatch\. expected requires_grad=1",
            "{name} requires no gradient now; it was compiled with",
        ),
        (
            r"tensor '(?P<name>.+)' dispatch key set mismatch.*",
            "{name} is another kind of tensor (device, layout or inference mode) than it was compiled for",
        ),
        (r"GLOBAL_STATE changed: (?P<name>.+)", "torch's global state changed: {name}"),
        (
            r"___check_type_id\((?P<name>[^,]+), .*",
            "{name} is of another type than it was compiled for",
        ),
        (r"not (?P<name>___.+)", "`{name}` holds now; it did not when it was compiled"),
        (
            r"(?P<name>[^\s()]+) == (?P<old>\S+)",
            "{name} was {old} when it was compiled",
        ),
    )
)
"""Guards in plain words; another guard is quoted."""


def _grouped_failures(seen: Watched) -> tuple[Recompile, ...]:
    """One entry for each compilation, with what every earlier compilation lacked."""
    groups: dict[str, list[GuardFailure]] = {}
    for failure in seen.failures:
        groups.setdefault(failure.compilation, []).append(failure)
    rows: list[Recompile] = []
    for compilation, failures in groups.items():
        first = failures[0]
        guards = tuple(dict.fromkeys(_guard(failure.guard) for failure in failures))
        reasons = tuple(dict.fromkeys(map(_in_words, guards)))
        given_up = compilation in seen.given_up
        rows.append(Recompile(first.call, _function(first), first.file, first.line, reasons, guards, given_up))
    return tuple(rows)


def _guard(text: str) -> str:
    """A guard without the number of the compilation that it belongs to and without torch's stack."""
    body = text.partition("\nUser stack trace:")[0]
    return plain_name(re.sub(r"^\d+/\d+: ", "", body)).strip()


def _in_words(guard: str) -> str:
    code = guard.partition("  #")[0].strip()
    for pattern, words in _WORDS:
        found = pattern.fullmatch(code)
        if found:
            return words.format(**found.groupdict())
    return f"the guard `{code}` does not hold"


def _function(failure: GuardFailure) -> str:
    resumed = re.fullmatch(r"torch_dynamo_resume_in_(.+)_at_(\d+)", failure.function)
    return f"{resumed[1]} from line {resumed[2]} on" if resumed else failure.function


# --- the text


def _summary(explanation: TorchExplanation) -> str:
    totals = Counter(row.status for row in explanation.nodes)
    statuses = ", ".join(f"{totals[status]} {status}" for status in STATUSES)
    made = [
        (len(explanation.graphs), "graph"),
        (len(explanation.breaks), "graph break"),
        (len(explanation.recompiles), "recompile"),
    ]
    counts = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in made)
    nodes, ops = len(explanation.nodes), len(explanation.ops)
    return f"{counts} on {explanation.target}\n{nodes} nodes of {ops} aten ops: {statuses}"


def _graphs(explanation: TorchExplanation) -> str:
    rows = [
        (str(g.index), g.phase, str(g.call), str(g.nodes), str(g.core_nodes), str(g.inputs), str(g.segments))
        for g in explanation.graphs
    ]
    lines = aligned(("graph", "phase", ">call", ">aten nodes", ">core nodes", ">inputs", ">segments"), rows)
    sizes = [
        f"  graph {graph.index}: {', '.join(map(str, graph.sizes))}" for graph in explanation.graphs if graph.sizes
    ]
    return "\n".join([*lines, *(["Symbolic inputs", *sizes] if sizes else [])]) if rows else ""


def _breaks(explanation: TorchExplanation) -> str:
    lines: list[str] = []
    for each in explanation.breaks:
        times = f" ({each.count} times)" if each.count > 1 else ""
        lines.append(f"  {_place(each.file, each.line)}{times}  {each.code}")
        lines.append(f"    {each.reason}")
        lines += [f"    {each.left} runs eagerly as a whole"] if each.left else []
    return "\n".join(["Graph breaks", *lines]) if lines else ""


def _recompiles(explanation: TorchExplanation) -> str:
    lines: list[str] = []
    for each in explanation.recompiles:
        given_up = ": given up, it runs eagerly" if each.given_up else ""
        lines.append(f"  call {each.call}  {each.function} ({_place(each.file, each.line)}){given_up}")
        lines.extend(f"    {reason}" for reason in each.reasons)
    return "\n".join(["Recompiles", *lines]) if lines else ""


def _ops(explanation: TorchExplanation) -> str:
    columns = ("aten op", ">nodes", *(f">{status}" for status in STATUSES), "runs on", "as")
    rows = [
        (
            each.op,
            *(str(count) for count in (each.count, each.converted, each.removed, each.opaque, each.fallback)),
            ", ".join(each.targets) or "-",
            ", ".join(each.core) or "-",
        )
        for each in explanation.ops
    ]
    counts = [sum(row.status == status for row in explanation.nodes) for status in STATUSES]
    total = ("total", str(len(explanation.nodes)), *map(str, counts), "", "")
    return "\n".join(aligned(columns, [*rows, total])) if rows else ""


def _reasons(explanation: TorchExplanation) -> str:
    """Why nodes are not simply converted, the reason that keeps most of them first. That a removed value is needed
    nowhere or known needs no line."""
    away = [node for node in explanation.nodes if node.reason and node.status != "removed"]
    ops: dict[tuple[str, str], list[str]] = {}
    for node in away:
        ops.setdefault((node.status, node.reason), []).append(node.op)
    ordered = sorted(ops.items(), key=lambda item: -len(item[1]))
    rows = [(str(len(found)), status, reason, ", ".join(sorted(set(found)))) for (status, reason), found in ordered]
    return "\n".join(["Why", *aligned((">nodes", "status", "reason", "aten ops"), rows)]) if rows else ""


def _place(file: str, line: int) -> str:
    return f"{Path(file).name}:{line}"
