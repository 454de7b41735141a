"""`assay zoo`: the PyTorch models that Assay is tried with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import JsonOption, reporting
from assay.errors import NotFound, hint_for

if TYPE_CHECKING:
    from assay.zoo.torch.model import Model

zoo = typer.Typer(no_args_is_help=True, help="List and show the PyTorch models that Assay is tried with.")

LibraryOption = Annotated[
    str | None, typer.Option("--library", metavar="NAME", help="Only the models of a library, such as timm.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A model, by any of its names.", show_default=False)]


@zoo.command(name="list")
def list_(library: LibraryOption = None, json: JsonOption = None) -> None:
    """List the models with what they are called with in full size; nothing is built."""
    with reporting(json) as report:
        models = [model for name, model in _names().items() if name == model.name]
        libraries = sorted({model.library for model in models})
        if library is not None and library not in libraries:
            raise NotFound(f"the zoo has no library '{library}'", hint=hint_for(library, libraries))
        chosen = [model for model in models if library in (None, model.library)]
        columns = ("model", "library", "family", "modes", ">parameters", "inputs", "weights")
        report.table("", columns, [_row(model) for model in chosen])
        report.text(f"{len(chosen)} models, of which {sum('train' in model.modes for model in chosen)} can be trained")
        report.result({"models": [_facts(model) for model in chosen]})


@zoo.command()
def show(name: NameArgument, json: JsonOption = None) -> None:
    """Show how a model is made in its two sizes, and what each is called with."""
    with reporting(json) as report:
        model = _model(name)
        facts = {**_facts(model), **_details(model)}
        report.table("", ("", ""), [(key, _as_text(value)) for key, value in facts.items() if value not in ("", [])])
        report.result(facts)


def _names() -> dict[str, Model]:
    from assay.zoo.torch import NAMES

    return NAMES


def _model(name: str) -> Model:
    from assay.zoo.torch import find

    return find(name)


def _row(model: Model) -> tuple[object, ...]:
    return (
        model.name,
        model.library,
        model.family,
        ", ".join(model.modes),
        f"{model.count:,}",
        "; ".join(f"{name} {list(shape)}" for name, shape in model.shapes("full").items()),
        "random, trained" if model.weights else "random",
    )


def _facts(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "library": model.library,
        "family": model.family,
        "modes": list(model.modes),
        "parameters": model.count,
        "dtype": model.full_dtype,
        "inputs": {name: list(shape) for name, shape in model.shapes("full").items()},
        "trained": model.weights is not None,
    }


def _details(model: Model) -> dict[str, Any]:
    return {
        "aliases": list(model.aliases),
        "constructor": model.constructor,
        "full settings": dict(model.full),
        "small settings": dict(model.small),
        "small inputs": {name: list(shape) for name, shape in model.shapes("small").items()},
        "small lengths": list(model.lengths),
        "unavailable": model.unavailable,
        "note": model.note,
    }


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "as the library has it"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    return f"{value:,}" if type(value) is int else str(value)
