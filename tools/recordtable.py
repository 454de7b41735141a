"""Write docs/records.md, every field of the records, from their definitions; `--check` only says if it is right."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay.evidence.records import schema
from assay.evidence.records.diff import KINDS

PATH = Path(__file__).parent.parent / "docs" / "records.md"

HEAD = """\
# The records

Generated from the definitions in `src/assay/evidence/records/schema.py` by `python tools/recordtable.py`; do not edit.

A file of records is JSON lines: one `Record` a line, appended as soon as a case is done. This is format {format}; a
reader refuses others. Times are in seconds, memory is in bytes. A figure that was not measured, or that is no finite
number, is null or left out; so is every field that has its default.

`assay evidence validate` checks files, `merge` makes one of several, `diff` compares two, `show` makes them readable,
and `assay report` makes pages of them.
"""

RULES = """\
## Rules

A line is damaged, and is told with its file, line and reason, unless

- it is JSON with these fields and types, and of this format;
- its stage is one of its stages;
- it has a cause if it is not green, and none if it is;
- none of its outputs is wrong if it is green;
- it has no verdict unless it is green;
- no op ran elsewhere if it is a plain `pass`;
- a `fail_…` status is that of the stage that failed (for records with the stages below);
- the nodes of each op add up: converted + removed + opaque + fallback = count.
"""


def page() -> str:
    """The text of docs/records.md."""
    lines = [HEAD.format(format=schema.FORMAT), *structs(), RULES]
    lines += ["## Statuses", "", *two_columns("status", "meaning", _statuses()), ""]
    lines += ["## Stages", "", *stages(), ""]
    lines += ["## Changes", "", "What `assay evidence diff` tells of a case.", ""]
    lines += two_columns("change", "meaning", {kind.replace("_", " "): text for kind, text in KINDS.items()})
    return "\n".join(lines) + "\n"


def structs() -> Iterator[str]:
    """A table for each kind of object, the record itself first."""
    tree = ast.parse(inspect.getsource(schema))
    found = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in sorted(found, key=lambda node: node.name != "Record"):
        yield f"## {node.name}"
        yield ""
        yield ast.get_docstring(node) or ""
        yield ""
        yield "| field | type | default | meaning |"
        yield "|---|---|---|---|"
        for index, field in enumerate(node.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                kind, default = _typed(field.annotation), _default(field.value)
                yield f"| `{field.target.id}` | {kind} | {default} | {_described(node.body, index)} |"
        yield ""


def _typed(annotation: ast.expr) -> str:
    """A type as JSON has it; names of other tables are links."""
    text = ast.unparse(annotation)
    words = getattr(schema, text, None)
    choices = getattr(words, "__args__", ())
    if choices and text != "Status":
        return ", ".join(f"`{choice}`" for choice in choices)
    if text == "Status":
        return "[status](#statuses)"
    bare = text.removesuffix(" | None").removeprefix("tuple[").removesuffix(", ...]")
    if inspect.isclass(words := getattr(schema, bare, None)) and words.__module__ == schema.__name__:
        shown = f"[{bare}](#{bare.lower()})"
        return f"list of {shown}" if text.startswith("tuple[") else shown
    return "`" + text.replace("|", "\\|") + "`"


def _default(value: ast.expr | None) -> str:
    if value is None:
        return "required"
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        return f"`{schema.FORMAT}`, always written"
    text = {"tuple(STAGES)": "all [stages](#stages)", "Speed()": "nothing measured"}.get(ast.unparse(value))
    return text or f"`{ast.unparse(value)}`".replace("`None`", "null").replace("`()`", "`[]`")


def _described(body: list[ast.stmt], index: int) -> str:
    """The docstring that follows a field."""
    after = body[index + 1] if index + 1 < len(body) else None
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        return " ".join(after.value.value.split()).replace("|", "\\|")
    return ""


def _statuses() -> Mapping[str, str]:
    marks = {**dict.fromkeys(schema.GREEN, " (green)"), **dict.fromkeys(schema.NOT_TRIED, " (says nothing of Assay)")}
    return {f"`{status}`": text + marks.get(status, "") for status, text in schema.STATUSES.items()}


def stages() -> Iterator[str]:
    """The stages with the status of a failure at each."""
    yield "| stage | meaning | a failure there is |"
    yield "|---|---|---|"
    for stage, text in schema.STAGES.items():
        yield f"| `{stage}` | {text} | `{schema.STATUS_AT[stage]}` |"


def two_columns(left: str, right: str, rows: Mapping[str, str]) -> Iterator[str]:
    """A table of two columns."""
    yield f"| {left} | {right} |"
    yield "|---|---|"
    for name, text in rows.items():
        yield f"| {name} | {text} |"


def main() -> int:
    """0 if the file is, or has been made, right."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PATH.exists() and PATH.read_text() == text else 1
    PATH.write_text(text)
    print(f"{PATH.relative_to(Path.cwd()) if PATH.is_relative_to(Path.cwd()) else PATH}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
