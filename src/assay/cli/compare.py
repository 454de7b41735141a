"""`assay compare`: one model on two engines, value by value."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from assay.cli.inputs import DimOption, InputOption, ModelArgument, RandomOption, make_feeds
from assay.cli.numbers import MOST_FACTOR, number_option
from assay.cli.output import DIFFERS, CommandOutput, JsonOption, reporting
from assay.cli.sizes import told_if_it_fails
from assay.targets.base import DEVICE_MODEL

_ENGINE = "A target such as cpu, cpu:-fold (without that pass), reference:precise; a peer: onnxruntime, onnx-reference."
FirstArgument = Annotated[str, typer.Argument(metavar="A", help=_ENGINE, show_default=False)]
SecondArgument = Annotated[str, typer.Argument(metavar="B", help="What to compare it with.", show_default=False)]
_SHOWN = 25
_VERDICT = {True: "differs", False: "inherits", None: "diverged"}
_BLAME = {
    True: "the op's own: it differs on equal inputs, too",
    False: "inherited: on equal inputs the op gives equal results",
    None: "whether the op's own or inherited is not known: it could not be run alone",
}
_JUDGED = "Judge by {} tolerance, not by the noise floor."
RelativeOption = Annotated[float | None, number_option("--rtol", most=MOST_FACTOR, help=_JUDGED.format("a relative"))]
AbsoluteOption = Annotated[float | None, number_option("--atol", most=MOST_FACTOR, help=_JUDGED.format("an absolute"))]


def compare(
    model: ModelArgument,
    a: FirstArgument,
    b: SecondArgument,
    inputs: InputOption = None,
    random: RandomOption = None,
    dim: DimOption = None,
    rtol: RelativeOption = None,
    atol: AbsoluteOption = None,
    every: Annotated[bool, typer.Option("--all", help=f"Show every value, not the {_SHOWN} that matter most.")] = False,
    json: JsonOption = None,
) -> None:
    """Run a model on two engines, compare every value that both compute, and find the first where they part."""
    from assay.evidence.compare.models import Judge, compare_models
    from assay.evidence.engines import engine
    from assay.runtime.load import read

    with reporting(json) as report:
        source = read(model)
        engines = [engine(spec) for spec in (a, b)]
        for each in engines:
            each.version()
        feeds = make_feeds(source, inputs, random, dim)
        with told_if_it_fails(feeds.assumed):
            found = compare_models(model, a, b, feeds.values, Judge(rtol, atol))
        modelled = [each.name for each in engines if each.is_modelled]
        _show(report, found, every)
        for name in modelled:
            report.text(f"{name}: {DEVICE_MODEL}")
        first = found.first_divergence
        report.result(
            {
                "model": str(model),
                "a": a,
                "b": b,
                "modelled": modelled,
                "compared": len(found.values),
                "diverged": len(found.diverged),
                "first_divergence": None if first is None else first.as_dict(),
                "first_fault": None if found.first_fault is None else found.first_fault.as_dict(),
                "values": [value.as_dict() for value in found.values],
                "only_a": found.only_first,
                "only_b": found.only_second,
            }
        )
    raise typer.Exit(DIFFERS if found.diverged else 0)


def _show(report: CommandOutput, found: Any, every: bool) -> None:
    chosen = found.values if every else _telling(found)
    rows = [
        (
            value.name + (" (output)" if value.is_output else ""),
            value.op,
            value.type,
            *_figures(value),
            _VERDICT[value.own] if value.diverged else "agrees",
        )
        for value in chosen
    ]
    columns = ("value", "op", "type", ">max abs", ">max rel", ">max ulp", ">SNR dB", ">PCC", ">noise", "verdict")
    report.table(f"{found.first} against {found.second}", columns, rows)
    left = len(found.values) - len(chosen)
    if left:
        report.text(f"… and {left} more values (--all shows them)")
    report.text()
    report.text(f"{len(found.values)} values compared, {len(found.diverged)} diverge")
    for who, names in ((found.first, found.only_first), (found.second, found.only_second)):
        if names:
            report.text(f"{len(names)} values were seen on {who} alone")
    first, fault = found.first_divergence, found.first_fault
    if first is not None:
        report.text(f"first divergence: '{first.name}' of {first.op} '{first.node}': {first.closeness}")
        farther = f"; {first.outlier} is farther from the precise oracle" if first.outlier else ""
        report.text(f"  {_BLAME[first.own]}{farther}")
        if first.passes:
            report.text(f"  passes changed its node; to see whether one is at fault, compare {', '.join(first.passes)}")
    if fault is not None and fault is not first:
        report.text(f"first op that differs by itself: {fault.op} '{fault.node}', which makes '{fault.name}'")
    elif first is not None and fault is None:
        report.text("no op that could be run alone differs by itself: rounding is handed on, and grows on the way")


def _telling(found: Any) -> list[Any]:
    """The outputs, the first divergences, and what differs most, in the model's order."""
    chosen = {v.name for v in found.values if v.is_output} | {v.name for v in found.diverged[:_SHOWN]}
    worst = sorted(found.values, key=lambda v: -(v.closeness.max_abs / v.allowed if v.allowed else v.closeness.max_rel))
    chosen.update(v.name for v in worst[: max(0, _SHOWN - len(chosen))])
    return [v for v in found.values if v.name in chosen]


def _figures(value: Any) -> tuple[str, ...]:
    close = value.closeness
    if close.difference:
        return (close.difference, "", "", "", "", "")
    figures = (close.max_abs, close.max_rel, close.max_ulp, value.signal.snr)
    pcc = "" if value.signal.pcc is None else f"{value.signal.pcc:.9f}"
    return (*map(_short, figures), pcc, _short(value.noise))


def _short(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.3g}"
