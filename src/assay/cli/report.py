"""`assay report`: pages, tables and charts of records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import DIFFERS, JsonOption, reporting
from assay.errors import BadFeed, NotFound, hint_for
from assay.needs import require

RecordsArgument = Annotated[
    list[Path], typer.Argument(metavar="RECORDS…", help="Files of records.", show_default=False)
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the pages go.")]

FormsOption = Annotated[
    list[str] | None, typer.Option("--form", help="Only this form of markdown, html, data; may be repeated.")
]
PageOption = Annotated[
    Path | None, typer.Option("--page", metavar="FILE", help="Write all models, failures and fallbacks to one page.")
]
ReadmeOption = Annotated[
    Path | None,
    typer.Option("--readme", metavar="FILE", help="Put totals and ten models between their marks in FILE."),
]


def report(
    records: RecordsArgument,
    output: OutputOption,
    title: Annotated[str, typer.Option("--title", help="The title of the report.")] = "Evidence",
    form: FormsOption = None,
    page: PageOption = None,
    readme: ReadmeOption = None,
    json: JsonOption = None,
) -> None:
    """Make a report of records: Markdown, HTML that needs no server, and the same rows as CSV and JSON.

    The report checks itself; a check that fails is shown on every page, and the command exits with 1.
    """
    with reporting(json) as out:
        require("jinja2")
        from assay.evidence.report import FORMS, gathered, make_report, uncollected, write, write_page, write_readme

        if readme is not None and page is None:
            raise BadFeed("--readme leads to the page of --page", hint="give --page FILE too")
        for each in form or ():
            if each not in FORMS:
                raise NotFound(f"there is no form '{each}'", hint=hint_for(each, FORMS))
        with uncollected():
            known = gathered(records, output)
            found = make_report(known, title)
            written = write(output, found, form or FORMS)
        if page is not None:
            write_page(page, found, known)
            if readme is not None:
                write_readme(readme, found, known, page)
        for check in found.checks:
            if not check.ok:
                out.text(f"self-check failed: {check.name}: {check.detail}")
        first = "index.html" if "html" in (form or FORMS) else written[0]
        out.text(f"{len(found.pages)} pages, {len(found.tables)} tables, {len(written)} files: {output / first}")
        checks = [{"name": each.name, "ok": each.ok, "detail": each.detail} for each in found.checks]
        out.result({"files": len(written), "checks": checks})
    if not all(check.ok for check in found.checks):
        raise typer.Exit(DIFFERS)
