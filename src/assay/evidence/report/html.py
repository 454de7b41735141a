"""Pages as HTML: each is one file that needs no other, with its style and its script inside."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from assay.evidence.report.cells import NUMERIC, Cell, CellCache, Column, Kind, Link, Table, order, written
from assay.evidence.report.charts import Chart
from assay.evidence.report.checks import Check
from assay.evidence.report.pages import SECTIONS, Facts, Page, PageBlock

if TYPE_CHECKING:
    import jinja2

_LISTED = 4
"""How many links a cell shows at once; of more, half as many, and the rest behind a click."""
_WIDE = 36
"""How long a name may be before it is given room."""
_FOLDED = 160
"""How long a message may be before it is behind a click."""


def resource(name: str) -> str:
    """A file that belongs to the pages."""
    return (resources.files("assay.evidence.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    import jinja2

    loader = jinja2.PackageLoader("assay.evidence.report", "templates")
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(
        "page.html"
    )


@cache
def _inside() -> dict[str, Markup]:
    return {
        "style": Markup(resource("style.css") + resource("chart.css")),
        "script": Markup(resource("report.js")),
    }


def memory() -> CellCache:
    """What pages of one report share, so that no cell is rendered twice."""
    return CellCache(_whole)


def as_html(page: Page, report: str, failed: tuple[Check, ...] = (), known: CellCache | None = None) -> str:
    """The page of the report with this title; checks of the report that failed stand at its top."""
    known = known or memory()
    up = "../" * page.path.count("/")
    return _template().render(
        page=page,
        report=report,
        up=up,
        failed=failed,
        sections=SECTIONS,
        groups=[
            (kind, [(block, _body(block, up, known)) for block in blocks])
            for kind, blocks in groupby(page.blocks, _kind)
        ],
        **_inside(),
    )


def _kind(block: PageBlock) -> str:
    return type(block).__name__.lower()


def _body(block: PageBlock, up: str, known: CellCache) -> Markup:
    if isinstance(block, Table):
        return _table(block, up, known)
    if isinstance(block, Chart):
        return Markup(block.inline)
    if isinstance(block, Facts):
        return Markup("").join(
            Markup("<dt>{}</dt><dd>{}</dd>").format(name, Markup(_cell(cell, kind, up)))
            for name, cell, kind in block.facts
        )
    return Markup(_link(block.link, up)) if block.link else Markup("")


def _table(table: Table, up: str, known: CellCache) -> Markup:
    """The head and the rows of a table."""
    head = "".join(map(_head, table.columns))
    rows = "".join(f"<tr>{''.join(row)}</tr>\n" for row in known.rows(table, up))
    return Markup(f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>")


def _whole(cell: Cell, kind: Kind, up: str) -> str:
    """A cell with its tag; what it is sorted by stands in it where its text does not tell."""
    mark = ' class="n"' if kind in NUMERIC else ""
    return f"<td{mark}{_order(cell, kind)}>{_cell(cell, kind, up)}</td>"


def _head(column: Column) -> str:
    mark = ' class="n"' if column.kind in NUMERIC else ""
    tip = f' title="{escape(column.meaning)}"' if column.meaning else ""
    return f'<th scope="col"{mark} aria-sort="none"><button type="button"{tip}>{escape(column.title)}</button></th>'


def _order(cell: Cell, kind: Kind) -> str:
    if kind not in NUMERIC and kind != "links":
        return ""
    value = order(cell)
    return "" if value is None else f' data-v="{"Infinity" if value == math.inf else value}"'


def _cell(cell: Cell, kind: Kind, up: str) -> str:
    if isinstance(cell, Link):
        return _link(cell, up)
    if isinstance(cell, tuple) and cell:
        return _links(cell, up)
    text = written(cell, kind)
    if text == "–":
        return '<span class="none">–</span>'
    if kind == "status":
        return f'<span class="status s-{escape(text.partition(" ")[0])}">{escape(text)}</span>'
    if kind == "mark":
        return f'<span class="mark {"good" if text in ("right", "holds") else "bad"}">{escape(text)}</span>'
    if kind == "code":
        return _folded(text, "code")
    return _folded(text, "span") if kind in ("long", "text") and len(text) > _FOLDED else str(escape(text))


def _folded(text: str, tag: str) -> str:
    if len(text) <= _FOLDED:
        return f"<{tag}>{escape(text)}</{tag}>"
    begun = f"<summary><{tag}>{escape(text[: _FOLDED - 20])}…</{tag}></summary>"
    return f"<details>{begun}<{tag}>{escape(text)}</{tag}></details>"


def _links(links: tuple[Link, ...], up: str) -> str:
    if len(links) <= _LISTED:
        return _list(links, up)
    first, more = links[: _LISTED // 2], links[_LISTED // 2 :]
    rest = f"<details><summary>and {len(more):,} more</summary>{_list(more, up)}</details>"
    return _list(first, up) + rest


def _list(links: Iterable[Link], up: str) -> str:
    return f'<ul class="names">{"".join(f"<li>{_link(link, up)}</li>" for link in links)}</ul>'


def _link(link: Link, up: str) -> str:
    wide = ' class="wide"' if len(link.text) > _WIDE else ""
    return f'<a{wide} href="{up}{escape(link.page)}{"" if link.file else ".html"}">{escape(link.text)}</a>'
