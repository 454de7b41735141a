"""What every command shares: exit codes, the JSON result, tables and progress bars."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from assay.errors import AssayError, NotFound

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


_PIPED_WIDTH = 1000
"""Tables that go to a file or a pipe are as wide as their content."""


def exit_code(error: AssayError) -> int:
    """The exit code that an error ends the process with."""
    return _CODE_OF_STAGE.get(error.stage, DEFECT)


class Report:
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
            raise NotFound(f"'{where}' cannot be written: {error.strerror}") from error


@contextmanager
def reporting(where: str | None) -> Generator[Report]:
    """A report for one command; an error of Assay goes into the JSON too before it ends the command."""
    report = Report(where)
    try:
        yield report
    except AssayError as error:
        told = {"stage": error.stage, "message": error.message, "where": error.where, "hint": error.hint}
        report.line({"error": told, "exit_code": exit_code(error)})
        raise
    finally:
        report.close()


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
