"""`assay trace`: the aten graphs of a torch model as files."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, cast

import typer

from assay.cli.chains import TargetOption, chosen
from assay.cli.output import JsonOption, reporting
from assay.errors import AssayError, BadFeed, ImportFailed, NotFound, RunFailed, hint_for
from assay.needs import require

TracedArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A .pt2 file of torch.export, or MODULE:FACTORY (FILE.py:FACTORY), a function whose code is run.",
        show_default=False,
    ),
]
FolderOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write, new or empty.", show_default=False)
]
BackwardOption = Annotated[bool, typer.Option("--backward", help="Trace the gradients of the outputs' sum too.")]
DynamicOption = Annotated[
    bool | None, typer.Option("--dynamic/--static", help="Sizes symbolic from the start, or all fixed.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an earlier trace in the folder.")]

_FORMS = "give a .pt2 file or MODULE:FACTORY"


def trace(
    model: TracedArgument,
    output: FolderOption,
    backward: BackwardOption = False,
    dynamic: DynamicOption = None,
    target: TargetOption = None,
    force: ForceOption = False,
    json: JsonOption = None,
) -> None:
    """Write a torch model's graphs, op counts, size distributions and a profile; show what became of every op."""
    with reporting(json) as report:
        require("torch")
        chain = chosen(target)
        from assay.runtime.torch.trace import trace as write

        traced, calls = _model(model)
        settings: dict[str, Any] = {"backward": backward, "dynamic": dynamic, "force": force}
        try:
            done = write(traced, calls=calls, out=output, options={"target": chain}, **settings)
        except AssayError:
            raise
        except Exception as error:
            text = " ".join(str(error).split("\n")[:2])
            raise RunFailed(f"{type(error).__name__}: {text}", where=model, hint="does it run in torch?") from error
        report.text(done.explanation)
        report.text(f"\n{len(done.files)} files in {done.folder}")
        told = {"model": model, "folder": str(done.folder), "files": done.files}
        report.result(told | {"explanation": done.explanation.to_json()})


def _model(text: str) -> tuple[Any, list[Any] | None]:
    """The model and the call to make; None for an exported program, which brings its own."""
    module, colon, name = text.rpartition(":")
    if colon and module and name.isidentifier():
        return _from_factory(text, _module(module), name)
    if not text.endswith(".pt2"):
        raise BadFeed(f"'{text}' is no model that can be traced", hint=_FORMS)
    if not os.path.isfile(text):
        raise NotFound(f"there is no model file '{text}'", hint="check the path")
    from assay.frontends.torch.archive import read_program

    return read_program(Path(text), samples=True), None


def _module(name: str) -> ModuleType:
    """A module by its name, also one in the current folder, or by its file."""
    if not name.endswith(".py"):
        _search_here()
        if _is_module(name):
            return _imported(name, lambda: importlib.import_module(name))
        raise NotFound(f"there is no module '{name}'", hint=_FORMS)
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None or not os.path.isfile(name):
        raise NotFound(f"there is no file '{name}'", hint="check the path")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    loader = spec.loader
    _imported(name, lambda: loader.exec_module(module))
    return module


def _search_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _imported(name: str, run: Any) -> Any:
    try:
        return run()
    except Exception as error:
        hint = "the module's own code failed"
        raise ImportFailed(f"{type(error).__name__}: {error}", where=name, hint=hint) from error


def _from_factory(text: str, module: ModuleType, name: str) -> tuple[Any, list[Any]]:
    """What a factory returns: (model, args) or (model, args, kwargs)."""
    from assay.runtime.torch.watch import CallArguments

    factory = getattr(module, name, None)
    if not callable(factory):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise NotFound(f"'{module.__name__}' has no function '{name}'", hint=hint_for(name, known))
    made = _imported(text, factory)
    parts: list[Any] = list(cast("tuple[Any, ...]", made)) if isinstance(made, tuple) else []
    none: dict[str, Any] = {}
    model, args, kwargs = (*parts, none)[:3] if len(parts) in (2, 3) else (None, (), none)
    if not callable(model) or not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
        hint = "return (model, (argument, …)) or (model, (argument, …), {name: argument})"
        raise BadFeed(f"'{text}' returned no model with its arguments", hint=hint)
    return model, [CallArguments(tuple(cast("list[Any]", args)), cast("dict[str, Any]", kwargs))]
