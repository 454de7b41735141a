"""`assay bench`: Assay and its peers on the same models, in turns in one run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.cli.chains import TargetOption, check_timed, chosen
from assay.cli.inputs import DimOption, check_dims, make_feeds, symbolic_dims
from assay.cli.numbers import MOST_SECONDS, MOST_THREADS, count_option, number_option
from assay.cli.output import DIFFERS, CommandOutput, JsonOption, progress, reporting
from assay.errors import BadFeed, NotFound, hint_for
from assay.evidence.bench.records import SELF, BenchRun, Match, read
from assay.needs import require

if TYPE_CHECKING:
    from assay.evidence.bench.models import BenchModel
    from assay.evidence.bench.run import BenchSettings
    from assay.evidence.bench.suites import Suite
    from assay.runtime.load import Loaded

ModelsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL…", help="Models by name (--list shows them), .onnx and .pt2 files.", show_default=False
    ),
]
SuiteOption = Annotated[str | None, typer.Option("--suite", metavar="NAME", help="All models of a suite: cpu or onnx.")]
PeersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--peer",
        help="Who runs beside Assay: eager, inductor, onnxruntime, openvino (default: all; suite onnx: onnxruntime).",
    ),
]
FormOption = Annotated[
    Literal["onnx", "program"],
    typer.Option("--form", metavar="onnx|program", help="What Assay gets of a torch model: ONNX, or its export."),
]
PictureOption = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE.svg", help="Draw the ratios as bars.", show_default=False)
]
DocsOption = Annotated[
    Path | None,
    typer.Option(
        "--docs", metavar="FILE", help="The page whose tables to write (default: that of the suite, if there is one)."
    ),
]

RepeatOption = Annotated[
    int | None, count_option("--repeat", metavar="N", help="How many rounds (default: 20; suite onnx: 9).")
]
SecondsOption = Annotated[
    float | None,
    number_option("--seconds", most=MOST_SECONDS, help="About how long a turn takes (default: 0.3; suite onnx: 0.15)."),
]
ColdOption = Annotated[
    bool | None,
    typer.Option("--cold/--no-cold", help="Whether empty caches are measured too (default: yes; suite onnx: no)."),
]
TimeoutOption = Annotated[
    float | None,
    number_option(
        "--timeout",
        most=MOST_SECONDS,
        help="Seconds that a preparation or a turn may take (default: 900; suite onnx: 120).",
    ),
]


def bench(
    models: ModelsArgument = None,
    suite: SuiteOption = None,
    peer: PeersOption = None,
    target: TargetOption = None,
    form: FormOption = "onnx",
    threads: Annotated[
        int, count_option("--threads", least=0, most=MOST_THREADS, help="Threads for each (0: as many as cores).")
    ] = 0,
    repeat: RepeatOption = None,
    seconds: SecondsOption = None,
    cold: ColdOption = None,
    timeout: TimeoutOption = None,
    dim: DimOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run whose records FILE holds.")] = False,
    picture: PictureOption = None,
    docs: DocsOption = None,
    listed: Annotated[bool, typer.Option("--list", help="Only list the models and suites of the zoo.")] = False,
    json: JsonOption = None,
) -> None:
    """Time Assay and its peers on the same models: each in a process of its own, in turns, never two at once.

    Every result is first compared with torch's in f64, of a model of the suite onnx with onnxruntime's. The JSON result
    is JSON lines: the run, for each model as soon as it is done one line for each contestant and one for the ratios, at
    last the summary.
    """
    from assay.evidence.bench.peers import check_peers
    from assay.evidence.bench.picture import picture as drawn
    from assay.evidence.bench.run import check_resumed, header
    from assay.evidence.machine import cores

    with reporting(None if resume else json) as report:  # an error leaves the records as they are
        require("torch")
        if listed:
            return _list(report)
        check_peers(peer or ())
        plan = _suite(suite, peers=peer, repeat=repeat, seconds=seconds, cold=cold, timeout=timeout)
        chain = chosen(target)
        check_timed(chain, "choose another target")
        settings = _settings(plan, chain, threads or cores(), form)
        subjects = _subjects([*plan.models, *(models or ())], dim)
        earlier = _earlier(json) if resume else None
        if earlier is None:
            earlier = BenchRun(header(settings, _command(settings, suite, models or ())), [])
        check_resumed(earlier.header, settings)
    with reporting(json) as report:
        run = _finished(earlier, subjects, settings, report)
        _show_all(report, run)
        if picture is not None:
            picture.write_text(drawn(run), encoding="utf-8")
        page = docs or plan.page
        if docs is not None or (suite and page.is_file()):
            plan.write(page, run)
            report.text(f"written: {page}")
    raise typer.Exit(0 if all(match.own and match.own.status == "ok" for match in run.matches) else DIFFERS)


def _finished(
    earlier: BenchRun, subjects: Iterable[BenchModel], settings: BenchSettings, report: CommandOutput
) -> BenchRun:
    """The run with all that it lacked; every record goes to the report."""
    from assay.evidence.bench.run import run_model

    matches = list(earlier.matches)
    lines = [earlier.header, *(line for match in matches for line in match.lines())]
    for line in lines:
        report.line(line)
    done = {match.model for match in matches}
    for subject in subjects:
        if subject.name in done:
            continue
        with _telling(subject.name) as tell:
            matches.append(run_model(subject, settings, tell))
        for line in matches[-1].lines():
            report.line(line)
        _show(report, matches[-1], settings)
    run = BenchRun(earlier.header, matches)
    report.line({"record": "summary", **run.summary()})
    return run


def _list(report: CommandOutput) -> None:
    from assay.evidence.bench.suites import SUITES
    from assay.zoo.onnx_models import ONNX_MODELS
    from assay.zoo.torch.workloads import WORKLOADS

    suites = {suite: list(plan.models) for suite, plan in SUITES.items()}
    models = [*WORKLOADS, *ONNX_MODELS]
    rows = [(name, ", ".join(suite for suite, names in suites.items() if name in names)) for name in models]
    report.table("", ("model", "suite"), rows)
    report.result({"models": models, "suites": suites})


def _suite(name: str | None, **asked: Any) -> Suite:
    """The suite, or one without models, with what the user asked for instead of what it says."""
    from assay.evidence.bench.suites import SUITES, Suite

    if name is not None and name not in SUITES:
        raise NotFound(f"there is no suite '{name}'", hint=hint_for(name, SUITES))
    return replace(
        SUITES[name] if name else Suite(), **{key: value for key, value in asked.items() if value is not None}
    )


def _settings(plan: Suite, target: str, threads: int, form: str) -> BenchSettings:
    from assay.evidence.bench.run import BenchSettings

    how = (plan.repeat, plan.seconds, plan.cold, plan.timeout, plan.starts)
    return BenchSettings(target, tuple(plan.peers), threads, form, *how)


def _subjects(names: Sequence[str], dims: Sequence[str] | None) -> list[BenchModel]:
    """What to run; everything that does not exist is found out before anything starts."""
    if not names:
        raise BadFeed("there is no model to run", hint="name some, or give --suite cpu; --list shows the zoo's")
    models = list(dict.fromkeys(names))
    sources = {name: source for name in models if (source := _source(name)) is not None}
    known = {dim: None for source in sources.values() for dim in symbolic_dims(source.inputs)}
    sizes = check_dims(known, dims or ())
    return [_subject(name, sources.get(name), sizes) for name in models]


def _source(name: str) -> Loaded | None:
    """The ONNX model in a file; None for a model that brings its inputs along."""
    from assay.runtime.load import read as read_model
    from assay.zoo.onnx_models import ONNX_MODELS
    from assay.zoo.torch.workloads import WORKLOADS

    if name in WORKLOADS or name in ONNX_MODELS:
        return None
    path = Path(name)
    if not path.suffix:
        names = hint_for(name, (*WORKLOADS, *ONNX_MODELS))
        hint = f"{names}; `assay bench --list` shows all. The name of a file ends in .onnx or .pt2"
        raise NotFound(f"there is no model '{name}'", hint=hint)
    return None if path.suffix == ".pt2" and os.path.isfile(path) else read_model(path)


def _subject(name: str, source: Loaded | None, sizes: Mapping[str, int]) -> BenchModel:
    """A model as it is run, with random inputs if it is an ONNX file."""
    from assay.evidence.bench.models import BenchModel
    from assay.zoo.onnx_models import ONNX_MODELS
    from assay.zoo.torch.workloads import WORKLOADS

    if name in ONNX_MODELS:
        return BenchModel(name, ONNX_MODELS[name].path(), ONNX_MODELS[name].feeds(), judge="onnxruntime")
    if source is None:
        return BenchModel(name) if name in WORKLOADS else BenchModel(name, Path(name))
    own = [f"{dim}={size}" for dim, size in sizes.items() if dim in symbolic_dims(source.inputs)]
    return BenchModel(name, Path(name), make_feeds(source, None, 0, own).values)


def _earlier(json: str | None) -> BenchRun | None:
    """The run that the file holds, None if there is no such file yet."""
    if json is None or json == "-":
        raise typer.BadParameter("--resume needs --json FILE")
    path = Path(json)
    found = read(path) if path.is_file() else None
    return found if found and found.header else None


def _command(settings: BenchSettings, suite: str | None, models: Sequence[str]) -> str:
    """The command that makes such a run again."""
    words = ["assay", "bench", *models, *(["--suite", suite] if suite else [])]
    words += [word for peer in settings.peers for word in ("--peer", peer)]
    words += ["--form", settings.form] if settings.form != "onnx" else []
    words += ["--target", settings.target, "--threads", str(settings.threads), "--repeat", str(settings.repeat)]
    return shlex.join(words if settings.cold else [*words, "--no-cold"])


@contextmanager
def _telling(model: str) -> Generator[Callable[[str], None]]:
    """What is being done: beside a bar on a terminal, elsewhere as lines on stderr."""
    with progress(model) as bar:

        def tell(text: str) -> None:
            bar.update(bar.task_ids[0], description=f"{model}: {text}")
            if not sys.stderr.isatty() and not text.startswith("round"):
                print(f"{model}: {text}", file=sys.stderr)

        yield tell


def _show(report: CommandOutput, match: Match, settings: BenchSettings) -> None:
    from assay.evidence.bench.page import figures, noise_cell, ratio_cell

    columns = (">one run, ms", ">cold, s", ">warm, s", ">first run, ms", ">peak, MiB", ">kept, MiB", ">error")
    rows = [
        (
            result.contestant,
            *figures(result),
            "" if result.contestant == SELF else ratio_cell(match, result.contestant),
            "" if result.status == "ok" else f"{result.status}: {result.reason}",
        )
        for result in match.results.values()
    ]
    title = f"{match.model} (target {settings.target}, {settings.threads} threads)"
    report.table(title, ("", *columns, ">÷ Assay", ""), rows)
    for reason, count in (match.own.left if match.own else {}).items():
        report.text(f"not on {settings.target}: {count} × {reason}")
    report.text(f"used of the machine by others meanwhile: {noise_cell(match)}\n")


def _show_all(report: CommandOutput, run: BenchRun) -> None:
    from assay.evidence.bench.page import ratio_cell

    rows = [
        (
            match.model,
            *(ratio_cell(match, peer) for peer in run.peers),
            match.best or "",
            f"{found.middle:.2f}" if (found := match.best_ratio) else "",
        )
        for match in run.matches
    ]
    columns = ("model", *(f">{peer}" for peer in run.peers), "best peer", ">best ÷ Assay")
    report.table("A peer's time ÷ Assay's", columns, rows)
    facts = run.summary()
    if facts["compared"]:
        mean, least = facts["mean_of_best"], facts["least_of_best"]
        report.text(f"best peer ÷ Assay: geometric mean {mean:.2f}, least {least:.2f}")
    for what, key in {
        "cold compile ÷ inductor's": "cold_over_inductor",
        "warm start ÷ onnxruntime's": "warm_over_onnxruntime",
        "largest error ÷ onnxruntime's": "error_over_onnxruntime",
    }.items():
        if facts[key] is not None:
            report.text(f"{what}: geometric mean {facts[key]:.2f}")
