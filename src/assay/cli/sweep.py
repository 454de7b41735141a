"""`assay sweep`: the models of the zoo on targets, each in a process of its own; what comes out is records."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from assay.cli.chains import DEFAULT, METAVAR, chosen_all
from assay.cli.numbers import MOST_GIB, MOST_SECONDS, MOST_THREADS, MOST_WORKERS, count_option, number_option
from assay.cli.output import DIFFERS, CommandOutput, JsonOption, progress, reporting
from assay.errors import BadFeed

if TYPE_CHECKING:
    from assay.evidence.records import Record
    from assay.evidence.sweep.jobs import Job

_TELL_EVERY = 30.0

Listed = Annotated[list[str] | None, typer.Option("--models", metavar="NAME", help="Only this model; may be repeated.")]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option("--targets", "-t", metavar=METAVAR, help=f"A target or a chain; may be repeated {DEFAULT}."),
]
ModeOption = Annotated[Literal["eval", "train"], typer.Option("--mode", metavar="eval|train", help="What a case is.")]
SizeOption = Annotated[
    Literal["small", "full"], typer.Option("--size", metavar="small|full", help="Which variant of the models.")
]
ExecutorOption = Annotated[
    Literal["local", "ray"], typer.Option("--executor", metavar="local|ray", help="Where cases run.")
]
InjectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--inject",
        metavar="KIND[:OP]",
        help="Break something on purpose ('all': every kind), and check that the record says so.",
    ),
]


def sweep(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file that records are appended to.")],
    models: Listed = None,
    targets: TargetsOption = None,
    mode: ModeOption = "eval",
    size: SizeOption = "small",
    ops: Annotated[
        bool, typer.Option("--ops", help="Run each op configuration of the file's models by itself.")
    ] = False,
    inject: InjectOption = None,
    shard: Annotated[str, typer.Option("--shard", metavar="I/N", help="Only part I of N.")] = "1/1",
    workers: Annotated[
        int, count_option("--workers", most=MOST_WORKERS, metavar="N", help="How many cases at once.")
    ] = 1,
    executor: ExecutorOption = "local",
    threads: Annotated[
        int, count_option("--threads", least=0, most=MOST_THREADS, help="Threads of a case (0: cores ÷ workers).")
    ] = 0,
    rounds: Annotated[
        int, count_option("--rounds", least=0, metavar="N", help="Timed runs of a case, at most; 0 for verdicts alone.")
    ] = 10,
    timeout: Annotated[
        float, number_option("--timeout", most=MOST_SECONDS, metavar="S", help="Seconds that a case may take.")
    ] = 900.0,
    memory: Annotated[
        float, number_option("--memory", most=MOST_GIB, metavar="GIB", help="Memory that a case may take.")
    ] = 20.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run whose records FILE holds.")] = False,
    json: JsonOption = None,
) -> None:
    """Run models of the zoo on targets, compare them with torch, and append a record of each to FILE.

    A crash, a hang or a case that takes too much memory is a record too. Stop it at any time and go on with --resume.
    """
    wanted = chosen_all(targets)
    from assay.evidence.machine import cores
    from assay.evidence.records import read
    from assay.evidence.records.merge import merged
    from assay.evidence.sweep.executors import make_executor
    from assay.evidence.sweep.jobs import CaseLimits, parse_shard, part
    from assay.evidence.sweep.machine import environment
    from assay.evidence.sweep.run import SweepSettings, model_jobs, op_jobs, remaining
    from assay.evidence.sweep.run import sweep as run_sweep

    own = threads or max(cores() // workers, 1)
    where = environment(shlex.join(["assay", *sys.argv[1:]]), own, workers)
    settings = SweepSettings(where, CaseLimits(timeout, int(memory * 2**30)), own, rounds)
    if ops and inject:
        raise BadFeed("faults are broken into models, not into single ops", hint="leave out --ops")
    if ops:
        jobs = op_jobs(read(out).records, wanted, settings, models or ())
    else:
        jobs = model_jobs(models or (), wanted, mode, size, _faults(inject or ()), settings)
    jobs = part(jobs, parse_shard(shard))
    todo = remaining(jobs, out, resume or ops)
    with reporting(json) as report:
        with _telling(len(todo)) as tell:
            for record in run_sweep(todo, make_executor(executor, workers), out):
                tell(record)
        cases = {job.case for job in jobs}
        found = [record for record in merged(read(out).records) if record.case in cases]
        _show(report, found, jobs)
        statuses = Counter(record.status for record in found)
        report.result({"cases": len(jobs), "run": len(todo), "statuses": statuses, "misreported": _misreported(found)})
    failed = [record for record in found if not record.green and record.status != "skipped"]
    wrong = _misreported(found) if inject else failed
    raise typer.Exit(DIFFERS if wrong else 0)


def _faults(given: Sequence[str]) -> list[str]:
    """The faults asked for; `all` stands for each kind that needs no op, target or option of its own."""
    from assay.evidence.sweep.faults import FAULTS, find_fault

    anywhere = [kind for kind, fault in FAULTS.items() if fault.only is None]
    faults = [kind for each in given for kind in (anywhere if each == "all" else [each])]
    for each in faults:
        find_fault(each.partition(":")[0])
    return faults


@contextmanager
def _telling(total: int) -> Generator[Callable[[Record], None]]:
    """How far the sweep is: a bar on a terminal, elsewhere a line on stderr from time to time."""
    started = told = time.monotonic()
    done: Counter[str] = Counter()
    with progress("cases") as bar:

        def tell(record: Record) -> None:
            nonlocal told
            done[record.words] += 1
            bar.update(bar.task_ids[0], completed=done.total(), total=total)
            now = time.monotonic()
            if sys.stderr.isatty() or (now - told < _TELL_EVERY and done.total() < total):
                return
            told, minutes = now, (now - started) / 60
            left = minutes / done.total() * (total - done.total())
            words = ", ".join(f"{count} {status}" for status, count in done.items())
            print(f"{done.total()} of {total}: {words}; {minutes:.1f} min, {left:.0f} left", file=sys.stderr)

        yield tell


def _show(report: CommandOutput, records: Sequence[Record], jobs: Sequence[Job]) -> None:
    counts = Counter(record.words for record in records)
    report.text(f"{len(records)} cases of {len(jobs)}: {', '.join(f'{n} {s}' for s, n in counts.items()) or 'none'}")
    for record in records:
        words, cause = record.verdict, record.cause
        if cause is not None:
            words = f"{record.status} at {record.stage}: {cause.op} {cause.error}: {cause.detail}"
        if words:
            fault = f" [{record.case.fault}]" if record.case.fault else ""
            report.text(f"{record.case.name}{fault} on {record.case.target}: {words}")
    for complaint in _misreported(records):
        report.text(f"misreported: {complaint}")


def _misreported(records: Sequence[Record]) -> list[str]:
    """The faults whose records do not say what was broken."""
    from assay.evidence.sweep.faults import find_fault, op_of

    complaints: list[str] = []
    for record in records:
        kind, _, op = record.case.fault.partition(":")
        told = find_fault(kind).misreported(record, op or op_of(kind)) if kind else ""
        complaints += [f"{record.case.fault} on {record.case.target}: {told}"] if told else []
    return complaints
