"""Tables as CSV and JSON: the same rows that the pages show."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import msgspec

from assay.evidence.report.cells import Datum, Table, data_columns, data_keys

_FORMULA = frozenset("=+-@\t\r")


def as_json(table: Table) -> str:
    """A list of objects; a pair of numbers is two members, links are names."""
    keys = data_keys(table.columns)
    encode = msgspec.json.Encoder().encode
    rows = b",\n".join([encode(dict(zip(keys, row, strict=True))) for row in zip(*data_columns(table), strict=True)])
    return f"[\n{rows.decode()}\n]\n"


def as_csv(table: Table) -> str:
    """The same with a line of names first; lists are joined by `; `.

    Text that a spreadsheet would take for a formula stands behind an apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(data_keys(table.columns))
    writer.writerows(zip(*map(_tame, data_columns(table)), strict=True))
    return out.getvalue()


def _tame(cells: Sequence[Datum]) -> list[Datum]:
    flat = ["; ".join(cell) if isinstance(cell, list) else cell for cell in cells]
    return [f"'{cell}" if isinstance(cell, str) and cell[:1] in _FORMULA else cell for cell in flat]
