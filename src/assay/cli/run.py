"""`assay run`: a model on a target, once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from assay.cli.chains import TargetOption, check_timed, chosen
from assay.cli.inputs import DimOption, InputOption, ModelArgument, RandomOption, make_feeds
from assay.cli.numbers import MOST_SECONDS, number_option
from assay.cli.output import CommandOutput, JsonOption, reporting
from assay.cli.sizes import told_if_it_fails
from assay.errors import BadFeed, NotFound
from assay.runtime.targets import is_modelled
from assay.targets.base import DEVICE_MODEL

ModeOption = Annotated[
    Literal["exact", "precise"],
    typer.Option("--mode", metavar="exact|precise", help="Round at every op, or carry floats in f64."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="Save every output there as NAME.npy.")
]
TimeOption = Annotated[
    float | None,
    number_option(
        "--time-limit", least=1e-9, most=MOST_SECONDS, metavar="SECONDS", help="Stop the run after this time."
    ),
]
MemoryOption = Annotated[
    str | None, typer.Option("--memory-limit", metavar="SIZE", help="The most memory for results, such as 1GiB.")
]
DisableOption = Annotated[
    list[str] | None,
    typer.Option("--disable-pass", metavar="NAME", help="Leave out a pass, such as fold; may be repeated."),
]
ExplainOption = Annotated[bool, typer.Option("--explain", help="Show where every node ran, and why not on the target.")]
ObserveOption = Annotated[
    list[str] | None,
    typer.Option("--observe", metavar="NAME", help="Show an intermediate value too; may be repeated."),
]
ProfileOption = Annotated[
    bool, typer.Option("--profile", help="Run once more and show which calls of the program took longest.")
]
_SLOWEST = 10


def run(
    model: ModelArgument,
    inputs: InputOption = None,
    random: RandomOption = None,
    dim: DimOption = None,
    target: TargetOption = None,
    mode: ModeOption = "exact",
    disable_pass: DisableOption = None,
    observe: ObserveOption = None,
    explain: ExplainOption = False,
    profile: ProfileOption = False,
    output: OutputOption = None,
    time_limit: TimeOption = None,
    memory_limit: MemoryOption = None,
    json: JsonOption = None,
) -> None:
    """Run a model and show its outputs."""
    from assay.runtime.load import read
    from assay.runtime.session import SessionOptions

    with reporting(json) as report:
        budget = _budget(time_limit, memory_limit)
        started = time.perf_counter()
        source = read(model)
        chain = chosen(target)
        modelled = is_modelled(chain)
        if profile:
            check_timed(chain, "leave out --profile")
        options = SessionOptions(target=chain, mode=mode, disabled_passes=tuple(disable_pass or ()))
        made = cache(lambda: source.session(options))  # not before the options that say what it is fed are read
        feeds = make_feeds(source, inputs, random, dim, lambda: made().lowered)
        session = made()
        observed_names = session.observable(observe or ())
        loaded = time.perf_counter()
        with told_if_it_fails(feeds.assumed):
            results = session.run(feeds.values, budget=budget)
        finished = time.perf_counter()
        memory = session.peak_bytes
        seen = session.observe(feeds.values, observed_names) if observed_names else {}
        saved = {} if output is None else save({**seen, **results}, output)
        rows, observed = _rows(results, saved), _rows(seen, saved)
        show(report, rows)
        if observed:
            report.text()
            show(report, observed, "observed")
        taken = "" if memory is None else f", {memory / (1 << 20):.1f} MiB for intermediate results"
        took = "" if modelled else f" in {finished - loaded:.2f} s"
        report.text(f"loaded in {loaded - started:.2f} s, ran{took} on {chain} ({mode}){taken}")
        if modelled:
            report.text(DEVICE_MODEL)
        report.result(
            {
                "model": str(model),
                "target": chain,
                "mode": mode,
                "seconds": {"load": loaded - started, "run": None if modelled else finished - loaded},
                "modelled": modelled,
                "peak_bytes": memory,
                "outputs": rows,
                "observed": observed,
                **(_explained(report, session) if explain else {"nodes": None}),
                "profile": _profiled(report, session, feeds.values) if profile else None,
            }
        )


def _rows(results: Mapping[str, Any], saved: Mapping[str, str]) -> list[dict[str, Any]]:
    leaves = [leaf for name, value in results.items() for leaf in _leaves(name, value)]
    return [leaf | {"saved": saved.get(leaf["name"], "")} for leaf in leaves]


def _explained(report: CommandOutput, session: Any) -> dict[str, Any]:
    """Show where every node ran and what targets note; the same as JSON has it."""
    found = session.explain()
    report.text()
    report.text(found)
    return {"nodes": [asdict(node) for node in found.nodes], "notes": [asdict(note) for note in found.notes]}


def _profiled(report: CommandOutput, session: Any, feeds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Show the calls that took longest; all of them, in order, as JSON has them."""
    times = session.times(feeds)
    whole = sum(each.seconds for each in times) or 1.0
    slowest = sorted(times, key=lambda each: -each.seconds)[:_SLOWEST]
    columns = (">ms", ">share", "ops", "sources", "names", "ran on")
    rows = [
        (
            f"{each.seconds * 1e3:.3f}",
            f"{each.seconds / whole:.1%}",
            *(" + ".join(words) for words in (each.ops, each.sources, each.names)),
            each.target,
        )
        for each in slowest
    ]
    report.text()
    report.table(f"The slowest of {len(times)} calls of the program", columns, rows)
    return [asdict(each) for each in times]


def _budget(seconds: float | None, memory: str | None) -> Any:
    """What the run may take; None if nothing limits it."""
    from assay.targets.budget import Budget

    if seconds is None and memory is None:
        return None
    return Budget(seconds, None if memory is None else _bytes(memory))


def _bytes(text: str) -> int:
    from assay.units import parsed_size

    try:
        return parsed_size(text)
    except ValueError as error:
        raise BadFeed(str(error), hint="such as 1GiB, 500MB or 4096") from error


def show(report: CommandOutput, rows: list[dict[str, Any]], what: str = "output") -> None:
    """A table of outputs, or of what else was computed."""
    cells = [
        (r["name"], r["dtype"], _dims(r["shape"]), *(_number(r[k]) for k in ("min", "mean", "max")), r["saved"])
        for r in rows
    ]
    report.table("", (what, "dtype", "shape", ">min", ">mean", ">max", "saved as"), cells)


def save(results: dict[str, Any], folder: Path) -> dict[str, str]:
    """Write every array as a .npy file; the paths by name. Items of sequences get their number in the name."""
    import numpy as np

    saved: dict[str, str] = {}
    leaves = [leaf for name, value in results.items() for leaf in _arrays(name, value)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in leaves:
            path = folder / _file_name(name)
            np.save(path, array.astype(str) if array.dtype == object else array, allow_pickle=False)
            saved[name] = str(path)
    except OSError as error:
        raise NotFound(
            f"the outputs cannot be saved in '{folder}': {error.strerror}", hint="give another folder"
        ) from error
    return saved


_LONGEST = 200
"""Bytes; file systems take no more than 255."""


def _file_name(name: str) -> str:
    """A file name for an output, whose own name may be of any length and have any characters."""
    plain = "".join(sign if sign.isprintable() and sign != "/" else "_" for sign in name)
    if len(plain.encode("utf-8", "replace")) > _LONGEST:
        plain = f"{plain[: _LONGEST // 4]}~{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}"
    return f"{plain}.npy"


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            yield from _arrays(f"{name}.{index}", item)
    elif hasattr(value, "dtype"):
        yield name, value


def _leaves(name: str, value: Any) -> Iterator[dict[str, Any]]:
    """One description for each array in an output; for what is no array, its kind."""
    found = False
    for leaf, array in _arrays(name, value):
        found = True
        yield {"name": leaf, **described(array)}
    if not found:
        text = "nothing" if value is None else repr(value)[:60]
        yield {"name": name, "dtype": text, "shape": None, "min": None, "mean": None, "max": None}


def described(array: Any) -> dict[str, Any]:
    """dtype, shape and the range of an array's content (None where there is none)."""
    import numpy as np

    from assay.ir import dtypes

    dtype = dtypes.of(array)
    found: dict[str, Any] = {"dtype": dtype.name, "shape": list(array.shape), "min": None, "mean": None, "max": None}
    if array.size and dtype.kind not in ("string", "complex"):
        with np.errstate(all="ignore"):
            wide = array.astype(np.float64)
            found |= {"min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}
    return found


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _dims(shape: list[int] | None) -> str:
    return "" if shape is None else "[" + ", ".join(map(str, shape)) + "]"
