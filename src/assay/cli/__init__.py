"""The command line: `assay COMMAND …`. One file for each command; `main` turns errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from typer.exceptions import TyperException
from typer.rich_utils import rich_format_error

from assay import __version__
from assay.cli.bench import bench
from assay.cli.classify import classify
from assay.cli.compare import compare
from assay.cli.conformance import conformance
from assay.cli.demo import demo
from assay.cli.embed import embed
from assay.cli.evidence import evidence
from assay.cli.fuzz import fuzz
from assay.cli.generate import chat, generate
from assay.cli.imports import import_weights
from assay.cli.inspect import inspect
from assay.cli.mutate import mutate
from assay.cli.opinfo import opinfo
from assay.cli.output import EXIT_CODES, INTERRUPTED, CommandError, ending, tell_in_json
from assay.cli.report import report
from assay.cli.run import run
from assay.cli.sweep import sweep
from assay.cli.targets import targets
from assay.cli.trace import trace
from assay.cli.transcribe import transcribe
from assay.cli.zoo import zoo
from assay.errors import AssayError
from assay.needs import explained

_EPILOG = "\n\n".join(["Exit codes:", *(f"[bold]{code:>3}[/bold]  {meaning}" for code, meaning in EXIT_CODES.items())])

app = typer.Typer(
    name="assay",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
_COMMANDS = (
    *(
        run,
        inspect,
        compare,
        generate,
        chat,
        transcribe,
        classify,
        embed,
        bench,
        conformance,
        opinfo,
        fuzz,
        mutate,
        demo,
        targets,
        trace,
    ),
    *(sweep, report),
)
for _command in _COMMANDS:
    app.command()(_command)
app.command("import")(import_weights)
app.add_typer(evidence, name="evidence")
app.add_typer(zoo, name="zoo")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_show_version)
]


@app.callback(epilog=_EPILOG, no_args_is_help=True)
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")] = False,
    version: VersionOption = False,
) -> None:
    """Run models, see where every op went, and find the first op that made a number wrong."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    plain = [argument for argument in given if argument != "--debug"]
    try:
        with explained():
            code = app(plain, prog_name="assay", standalone_mode=False) or 0
        if code != INTERRUPTED:
            sys.exit(code)
        error: BaseException = KeyboardInterrupt()
    except Exception as raised:
        error = raised
    tell_in_json(error, plain)
    if debug:
        raise error
    _print_error(error)
    sys.exit(ending(error).code)


def _print_error(error: BaseException) -> None:
    """What ended the command, in words on stderr."""
    if isinstance(error, TyperException):
        rich_format_error(cast("Any", error))
        return
    ended = ending(error)
    print(error if isinstance(error, AssayError) else _words(ended), file=sys.stderr)


def _words(error: CommandError) -> str:
    return error.message if error.code == INTERRUPTED else f"assay: {error.message}\n  hint: {error.hint}"
