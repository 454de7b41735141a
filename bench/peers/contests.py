"""Contests: who does the same work in turns, each in a process of its own, and the table of what that took."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assay.errors import NotFound
from assay.processes import Worker, WorkerFailed, WorkerLimits

FOLDER = Path(__file__).parent
OURS = "assay"
LIMITS = WorkerLimits(start=600, seconds=600)
UNITS = {"memory": (1.0, "×"), "wrong words": (100.0, "%")}
"""Of figures that are no times: the factor and the sign to print them with."""


class Contest(NamedTuple):
    """What is done: `materials` puts files that everybody reads into a folder and tells where they are; `cases` are
    requests by name. `judged` gives figures of a text that was made for a request, none if it is not looked at."""

    materials: Callable[[Path], dict[str, Any]]
    cases: Callable[[], dict[str, Any]]
    judged: Callable[[Any, str], dict[str, float]] = lambda request, text: {}


class Entry(NamedTuple):
    """Who takes part in a contest. `service` is a function in a file of bench/peers: it is given the materials, and
    gives the handler of cases, which replies with `figures` by name (times in seconds) and `text`."""

    contest: str
    name: str
    service: str
    package: str = ""


def opened(entry: Entry, materials: Mapping[str, Any], python: str) -> Worker | None:
    """Somebody's process; None if it cannot be had."""
    if entry.package and not _has(python, entry.package):
        print(f"{entry.contest}: {entry.name} is left out: {python} has no package {entry.package}")
        return None
    return Worker(f"{FOLDER / entry.service}", dict(materials), limits=LIMITS, python=python if entry.package else "")


def _has(python: str, package: str) -> bool:
    return subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0


def run_contest(
    name: str, contest: Contest, entries: Sequence[Entry], chosen: Collection[str], rounds: int, python: str
) -> None:
    """Run the chosen cases of a contest, all if none is, and print a line for each case and figure."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            materials = contest.materials(Path(folder))
        except NotFound as error:
            print(f"{name}: left out: {error.message}")
            return
        found = {each.name: opened(each, materials, python) for each in entries if each.contest == name}
        workers = {who: worker for who, worker in found.items() if worker is not None}
        try:
            for case, request in contest.cases().items():
                if case in (chosen or [case]):
                    replies = _measured(workers, request, rounds)
                    _show(name, case, replies, lambda text, request=request: contest.judged(request, text))
        finally:
            for worker in workers.values():
                worker.close()


def _measured(workers: Mapping[str, Worker], request: Any, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """The replies of everybody in every round; who fails is out."""
    replies: dict[str, list[dict[str, Any]]] = {who: [] for who in workers}
    for index in range(rounds + 1):
        for who in list(replies):
            try:
                reply = workers[who].ask(request)
            except WorkerFailed as error:
                print(f"{who} failed: {error}")
                del replies[who]
                continue
            if index:
                replies[who].append(reply)
    return replies


def _show(
    contest: str, case: str, replies: Mapping[str, list[dict[str, Any]]], judged: Callable[[str], dict[str, float]]
) -> None:
    medians = {
        who: {figure: statistics.median(each["figures"][figure] for each in given) for figure in given[0]["figures"]}
        | judged(given[-1]["text"])
        for who, given in replies.items()
    }
    for figure in dict.fromkeys(figure for own in medians.values() for figure in own):
        ours = medians.get(OURS, {}).get(figure)
        factor, unit = UNITS.get(figure, (1e3, "ms"))
        for who, own in medians.items():
            ratio = f"{own[figure] / ours:7.2f}" if ours else f"{'':7}"
            print(
                f"{contest:11} {case:19} {figure:11} {who:15} {own[figure] * factor:10.1f} {unit:2} {ratio}", flush=True
            )
    for text in dict.fromkeys(given[-1]["text"] for given in replies.values()):
        told = [who for who, given in replies.items() if given[-1]["text"] == text]
        print(f"    {', '.join(told)}: {text[:200]!r}", flush=True)


def options_of(description: str | None, contests: Collection[str]) -> argparse.Namespace:
    """What the command line says of contests."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contests", nargs="*", choices=[*contests, []], default=[])
    parser.add_argument("--case", action="append", default=[], dest="cases")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    return parser.parse_args()


def run_contests(options: argparse.Namespace, contests: Mapping[str, Contest], entries: Sequence[Entry]) -> None:
    """Run the contests that the command line names, else all."""
    for name in options.contests or contests:
        run_contest(name, contests[name], entries, options.cases, options.rounds, options.python)
