"""`assay opinfo`: PyTorch's op database through torch.compile, and the score."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from assay.cli.chains import TargetOption, chosen
from assay.cli.numbers import MOST_SECONDS, MOST_WORKERS, count_option, number_option
from assay.cli.output import DIFFERS, CommandOutput, JsonOption, progress
from assay.errors import NotFound
from assay.evidence.json_lines import written
from assay.evidence.opinfo.records import DTYPES, OpInfoRun, UnitResults, read
from assay.evidence.opinfo.summary import FAILED, failures, opaque_ops, summary
from assay.evidence.opinfo.workers import OpInfoSettings

OpsOption = Annotated[
    list[str] | None, typer.Option("--op", metavar="NAME", help="Only this op of the database; may be repeated.")
]
DtypesOption = Annotated[
    list[str] | None, typer.Option("--dtype", help=f"Only this dtype, of {', '.join(DTYPES)}; may be repeated.")
]
PeersOption = Annotated[
    list[str] | None,
    typer.Option("--peer", help="Another dynamo backend for the same samples, such as aot_eager; may be repeated."),
]
_SHOWN = 50
_TELL_EVERY = 60.0


def opinfo(
    target: TargetOption = None,
    op: OpsOption = None,
    dtype: DtypesOption = None,
    samples: Annotated[
        int | None, count_option("--samples", metavar="N", help="Only N samples of each op and dtype.")
    ] = None,
    grad: Annotated[bool, typer.Option("--grad/--no-grad", help="Whether f32 samples are differentiated too.")] = True,
    peer: PeersOption = None,
    workers: Annotated[
        int, count_option("--workers", least=0, most=MOST_WORKERS, help="How many processes (0: as many as cores).")
    ] = 0,
    timeout: Annotated[
        float, number_option("--timeout", most=MOST_SECONDS, help="Seconds that a group of samples may take.")
    ] = 300.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run whose records FILE holds.")] = False,
    docs: Annotated[
        Path | None,
        typer.Option("--docs", metavar="FILE", help="The page to write (docs/opinfo.md after a full run)."),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Run the samples of PyTorch's op database through torch.compile and compare with eager.

    The JSON result is JSON lines: the run, then for each op and dtype as soon as it is done one line for each sample
    and backend and one for the whole, at last the summary.
    """
    chain = chosen(target)
    from assay.evidence.opinfo.page import write_page
    from assay.evidence.opinfo.run import check_peers, check_resumed, header, list_units, run_units

    check_peers(peer or ())

    settings = OpInfoSettings(chain, tuple(peer or ()), samples, timeout)
    units = list_units(op or (), dtype or DTYPES, grad)
    before = _before(json) if resume else None
    if before is not None:
        check_resumed(before.header, settings)
    done = {finding.unit for finding in before.findings} if before else set[Any]()
    todo = [unit for unit in units if unit not in done]
    head = header(settings, _command(settings, op or (), dtype or (), grad), len(units))
    if before is not None:
        head = {**before.header, "date": f"{before.header['date']}, gone on with {head['date']},"}
    findings = list(before.findings) if before else []
    report = CommandOutput("-" if json == "-" else None)
    with _sink(json, before is not None) as write, _telling(len(todo)) as tell:
        if before is None:
            write(written([head]))
        for finding in run_units(todo, settings, workers or os.cpu_count() or 1):
            write(written(finding.lines()))
            findings.append(finding)
            tell(finding)
        run = OpInfoRun(head, findings)
        facts = summary(run)
        write(written([{"record": "summary", **facts.as_dict()}]))
    _show(report, run, facts)
    full = not (op or dtype or samples) and grad
    page = docs or (Path("docs/opinfo.md") if full and Path("docs").is_dir() else None)
    if page is not None:
        write_page(page, run)
        report.text(f"written: {page}")
    raise typer.Exit(DIFFERS if any(failures(run)) else 0)


def _command(settings: OpInfoSettings, ops: Sequence[str], dtypes: Sequence[str], grad: bool) -> str:
    """The command that gives the same page."""
    words = ["assay", "opinfo", "--target", settings.target]
    for name, values in {"--op": ops, "--dtype": dtypes, "--peer": settings.peers}.items():
        words += [word for value in values for word in (name, value)]
    words += [] if settings.limit is None else ["--samples", str(settings.limit)]
    return shlex.join(words if grad else [*words, "--no-grad"])


def _before(json: str | None) -> OpInfoRun | None:
    """The run that the file holds, None if there is no such file yet."""
    if json is None or json == "-":
        raise typer.BadParameter("--resume needs --json FILE")
    path = Path(json)
    found = read(path) if path.is_file() else None
    return found if found and found.header else None


@contextmanager
def _sink(where: str | None, append: bool) -> Generator[Callable[[str], None]]:
    """Where the records go: what is written is on disk at once."""
    with ExitStack() as stack:
        file = sys.stdout if where == "-" else stack.enter_context(_opened(where or os.devnull, append))

        def write(text: str) -> None:
            file.write(text)
            file.flush()

        if append:
            write("\n")  # the last line may have been cut short
        yield write


def _opened(where: str, append: bool) -> IO[str]:
    try:
        return Path(where).open("a" if append else "w", encoding="utf-8")
    except OSError as error:
        raise NotFound(f"'{where}' cannot be written: {error.strerror}") from error


@contextmanager
def _telling(total: int) -> Generator[Callable[[UnitResults], None]]:
    """How far the run is: a bar on a terminal, elsewhere a line on stderr from time to time."""
    started = told = time.monotonic()
    done = samples = 0
    with progress("ops × dtypes") as bar:

        def tell(finding: UnitResults) -> None:
            nonlocal done, samples, told
            done, samples = done + 1, samples + finding.samples
            bar.update(bar.task_ids[0], completed=done, total=total)
            now = time.monotonic()
            if sys.stderr.isatty() or now - told < _TELL_EVERY:
                return
            told, minutes = now, (now - started) / 60
            left = minutes / done * (total - done)
            print(f"{done} of {total} units, {samples:,} samples, {minutes:.0f} min, {left:.0f} left", file=sys.stderr)

        yield tell


def _show(report: CommandOutput, run: OpInfoRun, facts: Any) -> None:
    names = ("pass", "rounding", *FAILED, "no_graph", "nondeterministic", "skipped")
    heads = ("kind", ">samples", *(f">{peer} passes, Assay too" for peer in run.peers), *(f">{name}" for name in names))
    rows = [
        (
            row.kind,
            row.samples,
            *(str(row.peer.get(peer, "")) for peer in run.peers),
            *(row.statuses.get(n, 0) for n in names),
        )
        for row in facts.rows
    ]
    report.table("Samples", heads, rows)
    for peer, fraction in facts.peer.items():
        report.text(f"of the samples that {peer} passes, Assay passes {fraction}")
    report.text(f"ops without an opaque node: {facts.clean}; without training graphs: {facts.clean_inference}")
    if facts.gradients.whole:
        report.text(f"differentiable samples whose gradients match: {facts.gradients}")
    found = list(failures(run))
    for each in found[:_SHOWN]:
        report.text(f"{each.unit} sample {each.sample}: {each.verdict.status}: {each.verdict.reason}")
    if len(found) > _SHOWN:
        report.text(f"… and {len(found) - _SHOWN} more (all are in the JSON result)")
    for target, (reason, ops, _) in opaque_ops(run).items():
        report.text(f"opaque {target} ({', '.join(sorted(ops)[:5])}): {reason}")
