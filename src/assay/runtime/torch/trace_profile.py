"""A run as a profile in the trace event format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.ir.graph import Node
from assay.runtime.torch.accounts import plain_name
from assay.runtime.torch.graphs import CompiledGraph
from assay.targets.base import Event

_PROCESS = 1
_TRACKS = {"graphs": 1, "aten ops": 2, "core ops": 3}


@dataclass(slots=True)
class _Slice:
    """A stretch of time, in seconds."""

    start: float
    end: float
    node: Node
    made: int
    live: int


@dataclass(slots=True)
class NodeTimes:
    """An observer that notes when each node ran; it keeps no results."""

    slices: list[_Slice] = field(default_factory=list[_Slice])

    def note(self, event: Event) -> None:
        """Note a node that has just ended. What it ran inside itself ended before it and lies within it."""
        end = time.perf_counter()
        start = end - event.seconds
        for inner in reversed(self.slices):
            if inner.end <= start:
                break
            start = min(start, inner.start)
        made = sum(getattr(result, "nbytes", 0) for result in event.results)
        self.slices.append(_Slice(start, end, event.node, made, event.live_bytes))


def profile(clock: NodeTimes, graphs: Mapping[str, CompiledGraph]) -> dict[str, Any]:
    """The trace of the graphs, by name, that ran: graphs, their aten ops and core ops as tracks, and the live bytes."""
    begun = clock.slices[0].start if clock.slices else 0.0
    known = {
        placement.node: (name, at)
        for name, graph in graphs.items()
        for at, placement in enumerate(graph.program.plan.placements)
    }
    ops = {(name, node.origin.name): node.op for name, graph in graphs.items() for node in graph.imported.graph.nodes}
    events = [_named("process_name", 0, "assay"), *(_named("thread_name", at, name) for name, at in _TRACKS.items())]
    outer = [each for each in clock.slices if each.node in known]
    for run in _runs(outer, known):
        name = known[run[0].node][0]
        events.append(_complete("graphs", name, run[0].start - begun, run[-1].end - begun, {"core nodes": len(run)}))
        for group in _by_origin(run):
            origin = group[0].node.origin
            told = {"name": origin.name, "module": plain_name(origin.module), "source": f"{origin.file}:{origin.line}"}
            op = ops.get((name, origin.name), origin.op)
            events.append(_complete("aten ops", op, group[0].start - begun, group[-1].end - begun, told))
    for each in clock.slices:
        told = {"aten": each.node.origin.op, "name": each.node.origin.name, "bytes made": each.made}
        told["results"] = ", ".join(str(value.type) for value in each.node.outputs)
        events.append(_complete("core ops", each.node.op, each.start - begun, each.end - begun, told))
    events += [_counted(each.end - begun, each.live) for each in outer]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _runs(slices: Sequence[_Slice], known: Mapping[Node, tuple[str, int]]) -> list[list[_Slice]]:
    """The slices of each run of a graph: its nodes come in order, so a step back is another run."""
    runs: list[list[_Slice]] = []
    last = ("", -1)
    for each in slices:
        place = known[each.node]
        if place[0] != last[0] or place[1] <= last[1]:
            runs.append([])
        runs[-1].append(each)
        last = place
    return runs


def _by_origin(run: Sequence[_Slice]) -> list[list[_Slice]]:
    """Neighbours that came from one aten node, together."""
    groups: list[list[_Slice]] = []
    for each in run:
        if not groups or groups[-1][0].node.origin.name != each.node.origin.name:
            groups.append([])
        groups[-1].append(each)
    return groups


def _complete(track: str, name: str, start: float, end: float, told: Mapping[str, Any]) -> dict[str, Any]:
    times = {"ts": _microseconds(start), "dur": _microseconds(end - start)}
    return {"ph": "X", "cat": track, "name": name, "pid": _PROCESS, "tid": _TRACKS[track], **times, "args": dict(told)}


def _counted(at: float, live: int) -> dict[str, Any]:
    return {"ph": "C", "name": "live bytes", "pid": _PROCESS, "ts": _microseconds(at), "args": {"bytes": live}}


def _named(what: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": track, "args": {"name": name}}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
