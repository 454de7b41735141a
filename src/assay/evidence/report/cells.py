"""What stands in a table: cells, columns, tables, and how each kind of cell is written for a reader.

A table is made once. Markdown, HTML, CSV and JSON all show these rows, so that they cannot disagree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import itemgetter
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from assay.units import size

Kind = Literal[
    "text", "long", "code", "status", "mark", "link", "links", "count", "number", "error", "part", "times", "ms",
    "seconds", "bytes", "counted", "ratio",
]  # fmt: skip
"""What a column holds; `part` is a figure of at most 1 that is 1 only if nothing is wrong, such as a PCC."""


class Link(Struct, frozen=True):
    """A name that leads to a page (`models/bert`, without an ending) or, if `file` is set, to a file."""

    text: str
    page: str
    file: bool = False


class Ratio(Struct, frozen=True):
    """So many of so many."""

    part: int
    whole: int

    @property
    def value(self) -> Fraction:
        """The exact ratio; 0 of 0 is 0."""
        return Fraction(self.part, self.whole) if self.whole else Fraction(0)


class DistinctCount(Struct, frozen=True):
    """A total, and how many different ones there are in it."""

    total: int
    unique: int


Cell: TypeAlias = str | int | float | Ratio | DistinctCount | Link | tuple[Link, ...] | None
Datum: TypeAlias = str | int | float | list[str] | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in data, its title for readers, what it holds, what it means."""

    key: str
    title: str
    kind: Kind = "text"
    meaning: str = ""


Row: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. `name` is the name of its data files."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""

    def place(self, key: str) -> int:
        """Where a column stands."""
        return next(place for place, column in enumerate(self.columns) if column.key == key)

    def column(self, key: str) -> list[Cell]:
        """The cells of a column."""
        place = self.place(key)
        return [row[place] for row in self.rows]

    def without(self, *keys: str) -> Table:
        """The table without some columns."""
        kept = [place for place, column in enumerate(self.columns) if column.key not in keys]
        if len(kept) > 1:
            rows = tuple(map(itemgetter(*kept), self.rows))
        else:
            rows = tuple(tuple(row[place] for place in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[place] for place in kept), rows=rows)

    def by(self, key: str) -> Mapping[str, Table]:
        """A table for each page that a column of links leads to, without that column."""
        place = self.place(key)
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            cell = row[place]
            for link in cell if isinstance(cell, tuple) else (cell,):
                if isinstance(link, Link):
                    found.setdefault(link.page, []).append(row)
        return {page: replace(self, rows=tuple(rows)).without(key) for page, rows in found.items()}

    def tidy(self) -> Table:
        """The table without columns that are empty in every row, but for the first."""
        empty = [
            column.key
            for place, column in enumerate(self.columns)
            if place and all(row[place] is None or row[place] in ("", ()) for row in self.rows)
        ]
        return self.without(*empty) if self.rows else self

    def where(self, keep: Callable[[Row], bool]) -> Table:
        """The table with some rows alone."""
        return replace(self, rows=tuple(row for row in self.rows if keep(row)))

    def plain(self, *keys: str) -> Table:
        """The table without those of the columns that say the same in every row; the note says it instead."""
        said: list[str] = []
        dropped: list[str] = []
        for place, column in enumerate(self.columns):
            if column.key not in keys or not self.rows:
                continue
            first = self.rows[0][place]
            if all(row[place] == first for row in self.rows):
                dropped.append(column.key)
                text = written(first, column.kind)
                said += [] if text == "–" else [f"{column.title.lower()} {text}"]
        note = " ".join(part for part in (self.note, f"All of it: {', '.join(said)}." if said else "") if part)
        return replace(self.without(*dropped), note=note)


class CellCache:
    """Cells as one form of a report writes them: each distinct one is rendered once."""

    def __init__(self, render: Callable[[Cell, Kind, str], str]) -> None:
        self._render = render
        self._known: dict[tuple[Kind, str], dict[Cell, str]] = {}

    def rows(self, table: Table, up: str) -> Iterable[tuple[str, ...]]:
        """The rows of a table on a page from which `up` leads to the top of the report."""
        if not table.rows:
            return ()
        columns = zip(*table.rows, strict=True)
        return zip(
            *(self._column(cells, column.kind, up) for cells, column in zip(columns, table.columns, strict=True)),
            strict=True,
        )

    def _column(self, cells: Iterable[Cell], kind: Kind, up: str) -> list[str]:
        known = self._known.setdefault((kind, up), {})
        found: list[str] = []
        for cell in cells:
            text = known.get(cell)
            if text is None:
                text = known[cell] = self._render(cell, kind, up)
            found.append(text)
        return found


def percent(part: Fraction) -> str:
    """A part in percent to the nearest whole one, but 100 % is all of it and 0 % nothing."""
    if 0 < part < 1:
        whole = math.floor(part * 100 + Fraction(1, 2))
        return f"{min(whole, 99)} %" if whole else "<1 %"
    return f"{math.floor(part * 100)} %"


def figure(value: float) -> str:
    """A number with three digits that count."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "∞" if value > 0 else str(value)
    if 0.001 <= abs(value) < 100_000:
        digits = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.2e}")))))
        return f"{value:,.{digits}f}"
    return f"{value:.2e}"


def bounded(value: float) -> str:
    """An error in parts of what is allowed: what is above 1 never reads as 1."""
    text = figure(value)
    return ">1" if value > 1 and text == "1.00" else text


def part(value: float) -> str:
    """A figure that is 1 only if nothing is wrong: rounded down to six digits."""
    return f"{math.floor(value * 1e6) / 1e6:.6f}".rstrip("0").ljust(3, "0") if value < 1 else "1.0"


_FIGURES: Mapping[Kind, Callable[[float], str]] = {
    "count": lambda value: f"{value:,}",
    "number": figure,
    "error": bounded,
    "part": part,
    "times": lambda value: f"{figure(value)}×",
    "ms": lambda value: figure(value * 1e3),
    "seconds": figure,
    "bytes": size,
}
NUMERIC: tuple[Kind, ...] = (*_FIGURES, "counted", "ratio")
"""What is written to the right and sorted by its value."""


def written(cell: Cell, kind: Kind) -> str:
    """A cell as a reader sees it; `–` where there is nothing."""
    if cell is None or cell == "" or cell == ():
        return "–"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Link):
        return cell.text
    if isinstance(cell, tuple):
        return ", ".join(link.text for link in cell)
    if isinstance(cell, Ratio):
        return f"{cell.part}/{cell.whole} ({percent(cell.value)})" if cell.whole else "0/0"
    if isinstance(cell, DistinctCount):
        return f"{cell.total:,} ({cell.unique:,})"
    return _FIGURES[kind](cell)


def order(cell: Cell) -> float | str | None:
    """What a cell is sorted by; None is last."""
    if isinstance(cell, Ratio):
        return float(cell.value)
    if isinstance(cell, DistinctCount):
        return cell.total
    if isinstance(cell, Link):
        return cell.text
    if isinstance(cell, tuple):
        return len(cell)
    return cell


def number(cell: Cell) -> int:
    """A count; 0 where there is none."""
    return cell if isinstance(cell, int) else 0


def natural(text: str) -> list[tuple[str, int]]:
    """What texts are sorted by so that `UInt8` comes before `UInt32`."""
    return [(word.lower(), int(digits or 0)) for word, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", text)]


_MORE: Mapping[Kind, tuple[str, ...]] = {"counted": ("", "_unique"), "ratio": ("", "_of")}


def data_keys(columns: Iterable[Column]) -> list[str]:
    """The names of the columns in data: a pair of numbers has two."""
    return [column.key + more for column in columns for more in _MORE.get(column.kind, ("",))]


def data_columns(table: Table) -> list[Sequence[Datum]]:
    """The columns in data, one for each of `data_keys`: numbers as they are, names for links; none without rows."""
    columns = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    return [each for cells, column in zip(columns, table.columns, strict=True) for each in _data(cells, column.kind)]


_PLAIN: tuple[Kind, ...] = ("text", "long", "code", "status", "mark", "count", "bytes")
"""Kinds of columns whose cells are data as they stand."""


def _data(cells: tuple[Cell, ...], kind: Kind) -> Iterable[Sequence[Datum]]:
    """A column as one column of data, or as two."""
    if kind in _PLAIN:
        return (cast("tuple[Datum, ...]", cells),)
    if kind == "ratio":
        pairs = [(cell.part, cell.whole) if isinstance(cell, Ratio) else (None, None) for cell in cells]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if kind == "counted":
        pairs = [(cell.total, cell.unique) if isinstance(cell, DistinctCount) else (None, None) for cell in cells]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return ([_datum(cell) for cell in cells],)


def _datum(cell: Cell) -> Datum:
    if cell is None or isinstance(cell, str | int):
        return cell
    if isinstance(cell, Link):
        return cell.page if cell.file else cell.text
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else str(cell)
    return [link.text for link in cell] if isinstance(cell, tuple) else str(cell)
