"""Reports that Tenstorrent's ttnn-visualizer opens: a folder for each program that runs, written by the library."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay.ir.graph import Node
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.lowering import Taken
from assay.targets.ttnn.plan import Ref

ENVIRONMENT = "ASSAY_TTNN_REPORT"
"""The variable with the folder that reports are written to."""


def chosen_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where reports go: `$ASSAY_TTNN_REPORT`; None if nobody wants any."""
    name = environment.get(ENVIRONMENT, "")
    return Path(name) if name else None


def write_report(name: str, taken: Taken, library: Library, place: Path) -> Path:
    """The report of a program: a folder of its own in `place`, which is returned."""
    folder = _fresh(place, name)
    calls = taken.program.calls()
    library.report(folder.resolve(), list(_labels(taken)), calls, taken.given, taken.joins)
    about = {"report_name": folder.name, "card": f"mock {library.mock.name}", "calls": len(calls)}
    (folder / "config.json").write_text(json.dumps(about, indent=1))
    (folder / "graph.dot").write_text("\n".join(_picture(taken)) + "\n")
    return folder


def _picture(taken: Taken) -> Iterator[str]:
    """The calls of a program as Graphviz draws them: boxes for calls, with the source's names; arrows for tensors."""
    yield "digraph program {"
    yield "  node [shape=box, fontname=Helvetica]"
    made: dict[Ref, str] = {}
    shapes: dict[Ref, str] = {}
    for given, spec in zip(taken.program.given, taken.given, strict=True):
        made[given.ref], shapes[given.ref] = f"given{given.ref.number}", str(list(spec.shape))
        stays = ", style=filled, fillcolor=lightgrey" if spec.resident is not None else ""
        yield f"  {made[given.ref]} [label={_quoted(str(given.form))}, shape=ellipse{stays}]"
    for at, (step, specs) in enumerate(zip(taken.program.steps, taken.checked.specs, strict=True)):
        yield f"  call{at} [label={_quoted(step.op, step.node.origin.name or step.node.origin.op)}]"
        yield from (f"  {made[ref]} -> call{at} [label={_quoted(shapes[ref])}]" for ref in step.reads)
        for ref, spec in zip(step.results, specs, strict=False):
            made[ref], shapes[ref] = f"call{at}", "" if spec is None else str(list(spec.shape))
    for at, ref in enumerate(taken.program.outputs):
        yield f"  result{at} [shape=ellipse]"
        yield f"  {made[ref]} -> result{at} [label={_quoted(shapes[ref])}]"
    yield "}"


def _quoted(*lines: str) -> str:
    """Lines as Graphviz takes them, which is as JSON has them."""
    return json.dumps("\n".join(lines), ensure_ascii=False)


def _fresh(place: Path, name: str) -> Path:
    """A new folder for something of that name."""
    place.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        folder = place / f"{name}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{place} is full of reports")


def _labels(taken: Taken) -> Iterator[tuple[str, str]]:
    """What each input and each call is for, and where that is in the source."""
    readers: dict[Ref, Node] = {}
    for step in taken.program.steps:
        for ref in step.reads:
            readers.setdefault(ref, step.node)
    for given in taken.program.given:
        reader = readers.get(given.ref)
        yield ("a result" if reader is None else f"given to {reader.op}, {reader.origin}"), ""
    for step in taken.program.steps:
        origin = step.node.origin
        yield f"{step.node.op}, {origin}", f'File "{origin.file}", line {origin.line}' if origin.file else ""
