"""What every command shares: exit codes, the JSON result, tables and progress bars."""

from __future__ import annotations

import json
import math
import sys
import unicodedata
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from typer.exceptions import TyperException

from assay.errors import AssayError, NotFound
from assay.needs import explained

OK, DIFFERS, USAGE, REFUSED, FAILED, DEFECT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

EXIT_CODES: Mapping[int, str] = {
    OK: "all is well",
    DIFFERS: "the command worked and the result is not right: outputs diverge, cases fail",
    USAGE: "bad usage: an option, file, target, name or input that does not fit or does not exist",
    REFUSED: "the model could not be imported, lowered or compiled",
    FAILED: "the model failed while it ran",
    DEFECT: "a defect in Assay itself (run again with --debug to see where)",
    INTERRUPTED: "interrupted",
}
"""What the process's exit code means, for every command."""

_CODE_OF_STAGE = {
    "argument": USAGE,
    "feed": USAGE,
    "lookup": USAGE,
    "unsupported": USAGE,
    "import": REFUSED,
    "limits": REFUSED,
    "lower": REFUSED,
    "verify": REFUSED,
    "compile": REFUSED,
    "run": FAILED,
}

JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON to FILE, or with '-' to stdout alone."),
]


_TOLD = "the JSON result tells of this error"
_PIPED_WIDTH = 1000
"""Tables that go to a file or a pipe are as wide as their content."""


def exit_code(error: AssayError) -> int:
    """The exit code that an error ends the process with."""
    return _CODE_OF_STAGE.get(error.stage, DEFECT)


class CommandOutput:
    """Where a command's result goes: tables to stdout, JSON to where `--json` says."""

    def __init__(self, where: str | None) -> None:
        self._where = where
        self._file: IO[str] | None = None
        width = None if sys.stdout.isatty() else _PIPED_WIDTH
        self.console = Console(quiet=where == "-", highlight=False, soft_wrap=True, width=width)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print rows under a title; columns whose name starts with '>' are right-aligned."""
        table = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
        for column in columns:
            justify = "right" if column.startswith(">") else "left"
            table.add_column(column.removeprefix(">"), justify=justify, overflow="fold")
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        self.console.print(table)

    def text(self, line: object = "") -> None:
        """Print a line as it is."""
        self.console.print(str(line), markup=False)

    def piece(self, text: str) -> None:
        """Print a piece of a text that goes on; what a terminal would obey is left out."""
        plain = "".join(sign for sign in text if sign in "\n\t" or unicodedata.category(sign) != "Cc")
        self.console.out(plain, end="", highlight=False)

    def result(self, data: Mapping[str, Any]) -> None:
        """The command's result as one JSON document."""
        self._write(json.dumps(jsonable(data), indent=2) + "\n")

    def line(self, data: Mapping[str, Any]) -> None:
        """One line of a result that is JSON lines; it is on disk when this returns."""
        self._write(json.dumps(jsonable(data)) + "\n")

    def close(self) -> None:
        """Close the JSON file."""
        if self._file is not None and self._file is not sys.stdout:
            self._file.close()

    def _write(self, text: str) -> None:
        if self._where is None:
            return
        out = self._file = self._file or self._open(self._where)
        out.write(text)
        out.flush()

    def _open(self, where: str) -> IO[str]:
        if where == "-":
            return sys.stdout
        try:
            return Path(where).open("w", encoding="utf-8")
        except OSError as error:
            raise NotFound(f"'{where}' cannot be written: {error.strerror}", hint="give another file") from error


class Interrupted(Exception):
    """Ctrl-C, of which the JSON result already tells."""


class CommandError(NamedTuple):
    """How an error ends the command: the exit code, and what JSON tells of it."""

    code: int
    stage: str
    message: str
    where: str = ""
    hint: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The error as the JSON result has it."""
        told = {"stage": self.stage, "message": self.message, "where": self.where, "hint": self.hint}
        return {"error": told, "exit_code": self.code}


def ending(error: BaseException) -> CommandError:
    """How an error ends the command."""
    if isinstance(error, AssayError):
        return CommandError(exit_code(error), error.stage, error.message, error.where, error.hint)
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return CommandError(INTERRUPTED, "interrupted", "interrupted")
    if isinstance(error, TyperException):
        return CommandError(USAGE, "usage", error.format_message(), hint="--help lists what there is")
    return CommandError(DEFECT, "defect", f"{type(error).__name__}: {error}", hint=EXIT_CODES[DEFECT])


@contextmanager
def reporting(where: str | None) -> Generator[CommandOutput]:
    """A report for one command; what ends the command goes into the JSON too."""
    report = CommandOutput(where)
    try:
        with explained():
            yield report
    except typer.Exit:
        raise
    except KeyboardInterrupt as error:
        report.line(ending(error).as_dict())
        raise Interrupted from error
    except Exception as error:
        report.line(ending(error).as_dict())
        error.add_note(_TOLD)
        raise
    finally:
        report.close()


def tell_in_json(error: BaseException, arguments: Sequence[str]) -> None:
    """An error that no report told goes to where `--json` among the arguments says."""
    where = _json_argument(arguments)
    if where is None or isinstance(error, Interrupted) or _TOLD in getattr(error, "__notes__", ()):
        return
    report = CommandOutput(where)
    with suppress(NotFound):  # a file that cannot be written may be what the error is about
        report.line(ending(error).as_dict())
    report.close()


def _json_argument(arguments: Sequence[str]) -> str | None:
    """The value of `--json`, whatever else is wrong with the arguments."""
    for index, argument in enumerate(arguments):
        name, found, value = argument.partition("=")
        if name == "--json":
            return value if found else next(iter(arguments[index + 1 :]), None)
    return None


def jsonable(item: Any) -> Any:
    """`item` with numbers that JSON lacks (NaN, infinities) as strings."""
    if isinstance(item, Mapping):
        return {str(key): jsonable(value) for key, value in item.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(item, list | tuple):
        return [jsonable(part) for part in item]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(item, float) and not math.isfinite(item):
        return str(item)
    return item


@contextmanager
def progress(what: str) -> Generator[Progress]:
    """A progress bar on stderr, shown on a terminal only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar.add_task(what, total=None)
        yield bar
