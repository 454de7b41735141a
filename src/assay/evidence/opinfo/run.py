"""PyTorch's op database (OpInfo) through `torch.compile(backend="assay")`, compared with eager sample by sample."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from queue import SimpleQueue
from typing import Any, cast

import assay
from assay.errors import BadFeed, NotFound, hint_for
from assay.evidence.opinfo.records import OpUnit, UnitResults
from assay.evidence.opinfo.workers import OpInfoSettings, UnitRunner
from assay.needs import explained


def list_units(ops: Sequence[str], dtypes: Sequence[str], grad: bool) -> list[OpUnit]:
    """What there is to do; NotFound for an op or dtype that does not exist, Missing where the database cannot be."""
    with explained():
        from assay.evidence.opinfo.cases import check_dtypes, units
    check_dtypes(dtypes)
    return units(ops, dtypes, grad)


def check_peers(names: Sequence[str]) -> None:
    """NotFound for a backend that dynamo does not have."""
    import torch

    known: list[str] = cast("Any", torch.compiler).list_backends(exclude_tags=None)
    for name in names:
        if name not in known:
            raise NotFound(f"dynamo has no backend '{name}'", hint=hint_for(name, known))


def header(settings: OpInfoSettings, command: str, units: int) -> dict[str, Any]:
    """The first line of a run's records."""
    return {
        "record": "run",
        "command": command,
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "versions": versions(),
        "target": settings.target,
        "peers": list(settings.peers),
        "samples": settings.limit,
        "units": units,
    }


def versions() -> dict[str, str]:
    """What the results depend on."""
    found = {"assay": assay.__version__}
    for package in ("torch", "numpy", "ml_dtypes"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**found, "Python": platform.python_version()}


def check_resumed(before: Mapping[str, Any], settings: OpInfoSettings) -> None:
    """BadFeed if an earlier run was about something else."""
    asked = {"target": settings.target, "peers": list(settings.peers), "samples": settings.limit}
    for key, value in asked.items():
        if before.get(key) != value:
            raise BadFeed(
                f"the run to resume had {key} {before.get(key)}, this one has {value}",
                hint="give the same options, or start anew without --resume",
            )


def run_units(
    units: Sequence[OpUnit],
    settings: OpInfoSettings,
    workers: int,
    make: Callable[[OpInfoSettings], UnitRunner] = UnitRunner,
) -> Iterator[UnitResults]:
    """The findings of all units as they come, from so many processes at once."""
    with ThreadPoolExecutor(workers) as pool, ExitStack() as stack:
        idle: SimpleQueue[UnitRunner] = SimpleQueue()
        for _ in range(workers):
            idle.put(stack.enter_context(make(settings)))

        def found(unit: OpUnit) -> UnitResults:
            runner = idle.get()
            try:
                return runner.run(unit)
            finally:
                idle.put(runner)

        todo = iter(units)
        running: set[Future[UnitResults]] = {pool.submit(found, unit) for unit in islice(todo, workers)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                running |= {pool.submit(found, unit) for unit in islice(todo, 1)}
                yield future.result()
