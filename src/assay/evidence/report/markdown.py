"""Pages as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from assay.evidence.report.cells import NUMERIC, Cell, CellCache, Kind, Link, Table, written
from assay.evidence.report.charts import Chart
from assay.evidence.report.checks import Check
from assay.evidence.report.pages import HOME, SECTIONS, Facts, Page, PageBlock, Remark

_LISTED = 60
"""How many links a cell lists; the data files have all."""
ROWS = 400
"""How many rows of a table one file holds."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")


def memory() -> CellCache:
    """What pages of one report share, so that no cell is rendered twice."""
    return CellCache(_cell)


def files(page: Page, failed: tuple[Check, ...] = (), known: CellCache | None = None) -> Iterator[tuple[str, str]]:
    """The page by its file name; rows that are too many for one file go on in further ones."""
    known = known or memory()
    parts = _parts(page)
    for number, part in enumerate(parts, 1):
        yield f"{part.path}.md", "\n".join(_page(part, failed, known, _steps(parts, number))) + "\n"


def _parts(page: Page) -> list[Page]:
    """The page in parts, of whose tables none has more than `ROWS` rows; all but long tables stand in the first."""
    most = max((len(block.rows) for block in page.blocks if isinstance(block, Table)), default=0)
    return [_part(page, start) for start in range(0, max(most, 1), ROWS)]


def _part(page: Page, start: int) -> Page:
    blocks = [_cut(block, start) if isinstance(block, Table) else block for block in page.blocks]
    if not start:
        return replace(page, blocks=tuple(blocks))
    left = tuple(block for block in blocks if isinstance(block, Table) and block.rows)
    return replace(page, path=f"{page.path}.{start // ROWS + 1}", blocks=left)


def _cut(table: Table, start: int) -> Table:
    """The rows of a table from `start` on, as many as a file takes; its note tells which they are."""
    if len(table.rows) <= ROWS:
        return table if not start else replace(table, rows=())
    rows = table.rows[start : start + ROWS]
    told = f"Rows {start + 1:,} to {start + len(rows):,} of {len(table.rows):,}."
    return replace(table, rows=rows, note=" ".join(filter(None, (table.note, told))))


def _steps(parts: Sequence[Page], here: int) -> str:
    """Links from one part of a page to the others."""
    if len(parts) == 1:
        return ""
    names = [part.path.rpartition("/")[2] for part in parts]
    links = [f"**{n}**" if n == here else f"[{n}](<{name}.md>)" for n, name in enumerate(names, 1)]
    return f"Parts of this page: {' '.join(links)}"


def as_markdown(page: Page, failed: tuple[Check, ...] = (), known: CellCache | None = None) -> str:
    """The page in one piece; checks of the report that failed stand at its top."""
    return "\n".join(_page(page, failed, known or memory())) + "\n"


def _page(page: Page, failed: tuple[Check, ...], known: CellCache, steps: str = "") -> Iterator[str]:
    up = "../" * page.path.count("/")
    yield f"# {_plain(page.title)}"
    yield ""
    yield " · ".join(f"[{name}]({up}{path}.md)" for path, name in SECTIONS.items())
    if steps:
        yield ""
        yield steps
    for check in failed:
        yield ""
        yield f"> **A self-check of this report fails:** {_plain(check.name)}: {_plain(check.detail)}"
    for block in page.blocks:
        yield ""
        yield from _block(block, up, known)
    if page.path == HOME:
        yield ""
        yield "This page is generated: do not edit it. `assay report` writes every table as CSV and JSON too."


def _block(block: PageBlock, up: str, known: CellCache) -> Iterator[str]:
    if isinstance(block, Table):
        yield from _table(block, up, known)
    elif isinstance(block, Chart):
        yield f"![{_plain(block.title)}]({up}charts/{block.name}.svg)"
    elif isinstance(block, Remark):
        yield f"> {_plain(block.text)}{_cell(block.link, 'link', up) if block.link else ''}"
    else:
        yield from _facts(block, up)


def _facts(block: Facts, up: str) -> Iterator[str]:
    yield from (f"- **{_plain(name)}**: {_cell(cell, kind, up)}" for name, cell, kind in block.facts)


def _table(table: Table, up: str, known: CellCache) -> Iterator[str]:
    yield f"## {_plain(table.title)}"
    yield ""
    if table.note:
        yield _plain(table.note)
        yield ""
    if not table.rows:
        yield "None."
        return
    yield from table_lines(table, up, known)
    explained = [column for column in table.columns if column.meaning]
    if explained:
        yield ""
        yield "; ".join(f"*{_plain(column.title)}*: {_plain(column.meaning.rstrip('.'))}" for column in explained) + "."


def table_lines(table: Table, up: str, known: CellCache | None = None) -> Iterator[str]:
    """The rows under their titles; `up` leads from the page to the folder of the report."""
    yield f"| {' | '.join(_plain(column.title) for column in table.columns)} |"
    yield f"|{'|'.join('---:' if column.kind in NUMERIC else '---' for column in table.columns)}|"
    yield from (f"| {' | '.join(row)} |" for row in (known or memory()).rows(table, up))


def _cell(cell: Cell, kind: Kind, up: str) -> str:
    if isinstance(cell, Link):
        return _link(cell, up)
    if isinstance(cell, tuple) and cell:
        more = f", … and {len(cell) - _LISTED} more" if len(cell) > _LISTED else ""
        return ", ".join(_link(link, up) for link in cell[:_LISTED]) + more
    text = written(cell, kind)
    return _code(text) if kind == "code" and text != "–" else _plain(text)


def _link(link: Link, up: str) -> str:
    return f"[{_plain(link.text)}](<{up}{link.page}{'' if link.file else '.md'}>)"


def _code(text: str) -> str:
    """Text within backticks, more of them than the text has in a row."""
    flat = " ".join(text.split()).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", flat)), default=0))
    edge = " " if "`" in flat else ""
    return f"{fence}{edge}{flat}{edge}{fence}"


def _plain(text: str) -> str:
    """Text that Markdown takes for nothing else, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split())) if text else ""
