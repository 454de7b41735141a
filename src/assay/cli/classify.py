"""`assay classify`: what images and texts are."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.chains import TargetOption, chosen, where_it_ran
from assay.cli.numbers import count_option
from assay.cli.output import DIFFERS, JsonOption, reporting
from assay.runtime.targets import is_modelled

if TYPE_CHECKING:
    from assay.jobs.classifying import Classifier

ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="A bundle or a folder of Hugging Face's form: ViT, CLIP or BERT.", show_default=False
    ),
]
GivenArgument = Annotated[
    list[str],
    typer.Argument(metavar="FILE|TEXT…", help="Images, or texts, as the model takes them.", show_default=False),
]
NameOption = Annotated[
    list[str] | None, typer.Option("--name", metavar="TEXT", help="For CLIP, what may be seen; may be repeated.")
]
TemplateOption = Annotated[str, typer.Option("--template", metavar="TEXT", help="For CLIP, how names are described.")]
TopOption = Annotated[int, count_option("--top", help="Show so many labels.")]
CompareOption = Annotated[
    str | None, typer.Option("--compare-with", metavar="TARGET", help="Look again there, and compare the labels.")
]
_NEAR = 1e-3
"""Probabilities that are no farther apart are the same."""


def classify(
    model: ModelArgument,
    given: GivenArgument,
    name: NameOption = None,
    template: TemplateOption = "a photo of a {}.",
    top: TopOption = 5,
    target: TargetOption = None,
    compare_with: CompareOption = None,
    json: JsonOption = None,
) -> None:
    """Say what images or texts are."""
    with reporting(json) as report:
        chain = chosen(target)
        other = None if compare_with is None else chosen(compare_with)
        classifier = _opened(model, chain)
        more: dict[str, Any] = {"template": template}
        started = time.perf_counter()
        found = {each: classifier(each, name or (), **more) for each in given}
        seconds = time.perf_counter() - started
        for each, ranked in found.items():
            report.table(each, ("label", ">probability"), [(label, f"{odds:.4f}") for label, odds in ranked[:top]])
        modelled = is_modelled(chain)
        took = "" if modelled else f" in {seconds:.2f} s"
        report.text(f"[{len(given)}{took}, on {where_it_ran(chain)}]")
        results = [{"given": each, "labels": [_told(*pair) for pair in ranked[:top]]} for each, ranked in found.items()]
        told = {"model": str(model), "target": chain, "results": results}
        told |= {"seconds": None if modelled else seconds, "modelled": modelled}
        compared = None
        if other is not None:
            theirs = _opened(model, other)
            same = all(_alike(ranked, theirs(each, name or (), **more)) for each, ranked in found.items())
            compared = {"with": other, "same": same}
            report.text(f"{other}: {'the same' if same else 'other'} labels and probabilities")
        report.result({**told, "job": classifier.job.digest, "compared": compared})
        if compared is not None and not compared["same"]:
            raise typer.Exit(DIFFERS)


def _opened(model: Path, chain: str) -> Classifier:
    from assay.jobs.classifying import open_classifier
    from assay.runtime.options import SessionOptions

    return open_classifier(model, SessionOptions(target=chain))


def _told(label: str, odds: float) -> dict[str, Any]:
    return {"label": label, "odds": odds}


def _alike(ours: list[tuple[str, float]], theirs: list[tuple[str, float]]) -> bool:
    """Whether the best label is the same, and every label about as probable."""
    other = dict(theirs)
    return ours[0][0] == theirs[0][0] and all(abs(odds - other[label]) < _NEAR for label, odds in ours)
