"""`assay.trace`: the aten graphs of a model as files. Raw graphs, counts, size distributions, a profile of one run."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from assay.errors import BadFeed, RunFailed
from assay.runtime.torch.backend import Options, options_from
from assay.runtime.torch.explain import TorchExplanation, explained
from assay.runtime.torch.trace_charts import bar_chart
from assay.runtime.torch.trace_profile import NodeTimes, profile
from assay.runtime.torch.trace_raw import raw_graph
from assay.runtime.torch.watch import CallArguments, as_calls, watching

_SIDES = {"fw": ("forward", "inference"), "bw": ("backward",)}
"""How files name the graphs of a phase."""

_ENTRIES = frozenset(
    {"raw", "profile", "explanation.json"}
    | {f"{side}_node_count.csv" for side in _SIDES}
    | {f"{side}_total_{what}_size_dist" for side in _SIDES for what in ("input", "output")}
)
"""All that a trace puts into its folder."""

_MOST_BARS = 32
_LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class Trace:
    """What a trace wrote: the folder, the files in it, and the explanation of the same run."""

    folder: Path
    files: tuple[str, ...]
    explanation: TorchExplanation


def trace(
    model: Callable[..., Any] | ExportedProgram,
    *args: Any,
    out: str | Path,
    calls: Sequence[Any] | None = None,
    backward: bool = False,
    dynamic: bool | None = None,
    options: Options | Mapping[str, Any] | None = None,
    force: bool = False,
    **kwargs: Any,
) -> Trace:
    """Run `model(*args, **kwargs)` through the backend and write what it is made of into the folder `out`.

    `backward` traces the gradients of the sum of all outputs too; without it the model runs without gradients.
    `calls`, `dynamic` and `options` are as for `assay.explain`. An exported program without arguments runs with the
    example that it was exported with. The folder must not exist or be empty; `force` replaces an earlier trace.
    The folder appears when all is written. Every call runs twice: the profile is of the second time, when all is
    compiled.
    """
    folder = Path(out).expanduser().resolve()
    _check_folder(folder, force)
    chosen = options_from(options or {})
    run_model, wanted = _runnable(model, as_calls(calls, args, kwargs))
    clock = NodeTimes()
    with watching(run_model, options=chosen, dynamic=dynamic, train=None, backward=backward) as (seen, run):
        for arguments in wanted:
            run(arguments)
        for arguments in wanted:
            run(arguments, clock.note)
    if not seen.graphs:
        raise RunFailed("torch compiled nothing of this model", hint="it has no op on tensors that torch can trace")
    names = _graph_names([graph.phase for graph in seen.graphs])
    raws = [raw_graph(*each) for each in zip(names, seen.graphs, seen.calls, strict=True)]
    explanation = explained(seen)
    with _whole(folder) as partial:
        _write_json(partial / "explanation.json", explanation.to_json())
        for name, raw in zip(names, raws, strict=True):
            _write_json(partial / "raw" / f"{name}.json", raw)
        for side in _SIDES if backward else ("fw",):
            _write_statistics(partial, side, [raw for raw in raws if raw["phase"] in _SIDES[side]])
        _write_json(partial / "profile" / "trace.json", profile(clock, dict(zip(names, seen.graphs, strict=True))))
        files = sorted(str(path.relative_to(partial)) for path in partial.rglob("*") if path.is_file())
    return Trace(folder, tuple(files), explanation)


def _runnable(model: Any, calls: list[CallArguments]) -> tuple[Callable[..., Any], list[CallArguments]]:
    if not isinstance(model, ExportedProgram):
        return model, calls
    if any(call.args or call.kwargs for call in calls):
        return model.module(), calls
    if model.example_inputs is None:
        raise BadFeed("the exported program has no example inputs", hint="give the arguments to run it with")
    args, kwargs = model.example_inputs
    return model.module(), [CallArguments(tuple(args), kwargs)]


def _graph_names(phases: Iterable[str]) -> list[str]:
    """`forward_0`, `forward_1`, `backward_0` …: a number for each side."""
    counts: Counter[str] = Counter()
    names: list[str] = []
    for phase in phases:
        word = "backward" if phase == "backward" else "forward"
        names.append(f"{word}_{counts[word]}")
        counts[word] += 1
    return names


# --- statistics


def _write_statistics(folder: Path, side: str, raws: Sequence[Mapping[str, Any]]) -> None:
    nodes = [node for raw in raws for node in raw["nodes"]]
    counts = Counter(node["op"] for node in nodes).most_common()
    _write_csv(folder / f"{side}_node_count.csv", ("op_type", "count"), counts)
    files = file_names(op for op, _ in counts)
    for what in ("input", "output"):
        place = folder / f"{side}_total_{what}_size_dist"
        place.mkdir()
        for op, name in files.items():
            sizes = Counter(_total(node[f"{what}s"]) for node in nodes if node["op"] == op)
            _write_distribution(place / name, op, what, sizes)


def _total(values: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """The elements and bytes of all tensors among `values`; None if one is known only in the run."""
    tensors = [value for value in values if value["kind"] == "tensor"]
    if any(value["elements"] is None for value in tensors):
        return None
    return sum(value["elements"] for value in tensors), sum(value["bytes"] for value in tensors)


def _write_distribution(path: Path, op: str, what: str, sizes: Counter[tuple[int, int] | None]) -> None:
    """NAME.csv and NAME.svg: how many nodes have which total size."""
    known = sorted((size, count) for size, count in sizes.items() if size is not None)
    rows: list[tuple[Any, ...]] = [(op, *size, count) for size, count in known]
    rows += [(op, "", "", sizes[None])] if None in sizes else []
    _write_csv(path.with_name(f"{path.name}.csv"), ("op_type", "elements", "bytes", "nodes"), rows)
    by_bytes: Counter[int] = Counter()
    for (_, size), count in known:
        by_bytes[size] += count
    bars = _bars(by_bytes) + ([("unknown", sizes[None])] if None in sizes else [])
    picture = bar_chart(f"{op}: total {what} size", "bytes", bars)
    path.with_name(f"{path.name}.svg").write_text(picture, encoding="utf-8")


def _bars(sizes: Counter[int]) -> list[tuple[str, int]]:
    """A bar for each size, or for each power of two if there are many."""
    if len(sizes) <= _MOST_BARS:
        return [(f"{size:,}", count) for size, count in sorted(sizes.items())]
    bins: Counter[int] = Counter()
    for size, count in sizes.items():
        bins[size.bit_length()] += count
    return [(f"{1 << bits >> 1:,} to {(1 << bits) - 1:,}", count) for bits, count in sorted(bins.items())]


def file_names(ops: Iterable[str]) -> dict[str, str]:
    """A file name for each op, safe on every system and different from all others, capitals aside."""
    taken: set[str] = set()
    names: dict[str, str] = {}
    for op in ops:
        stem = re.sub(r"[^A-Za-z0-9._-]", "_", op).strip(".")[:_LONGEST_NAME] or "op"
        name, number = stem, 1
        while name.lower() in taken:
            number += 1
            name = f"{stem}.{number}"
        taken.add(name.lower())
        names[op] = name
    return names


# --- files


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    """A document in which every item of a list at the top has a line of its own."""
    path.parent.mkdir(exist_ok=True)
    entries = [f"{json.dumps(key)}: {_lines(value)}" for key, value in data.items()]
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")


def _lines(value: Any) -> str:
    if not isinstance(value, list | tuple) or not value:
        return json.dumps(value, allow_nan=False)
    return "[\n" + ",\n".join(json.dumps(item, allow_nan=False) for item in value) + "\n]"  # pyright: ignore[reportUnknownVariableType]


def _check_folder(folder: Path, force: bool) -> None:
    """BadFeed unless the folder can be made, is empty, or (with `force`) is an earlier trace."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BadFeed(f"'{folder}' is no folder", hint="give another one")
    entries = {path.name for path in folder.iterdir()}
    if entries and not force:
        raise BadFeed(f"the folder '{folder}' is not empty", hint="give another one, or force it")
    if not entries <= _ENTRIES:
        others = ", ".join(sorted(entries - _ENTRIES)[:3])
        raise BadFeed(f"the folder '{folder}' holds more than a trace: {others}", hint="give another one")


@contextmanager
def _whole(folder: Path) -> Generator[Path]:
    """A folder to write into, which takes the place of `folder` at the end, or leaves nothing behind."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise BadFeed(f"'{folder}' cannot be written: {error.strerror}", hint="give another folder") from error
    try:
        partial = beside / "new"
        partial.mkdir()
        yield partial
        _exchange(partial, folder, beside / "old")
    finally:
        shutil.rmtree(beside)


def _exchange(new: Path, folder: Path, old: Path) -> None:
    """Put `new` in the place of `folder`, whose content goes to `old`; all stays as it was if that fails."""
    if folder.exists():
        os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        if old.exists():
            os.rename(old, folder)
        raise
