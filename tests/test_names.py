"""One name, one class: no two public classes or type aliases of the package have the same name (docs/glossary.md)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "assay"


def public_types(source: str) -> Iterator[str]:
    """The names of the public classes and type aliases of a module, and of the public classes inside them."""
    for node in ast.walk(ast.parse(source)):
        name = _defined(node)
        if name is not None and not name.startswith("_"):
            yield name


def _defined(node: ast.AST) -> str | None:
    if isinstance(node, ast.ClassDef):
        return node.name
    is_alias = isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation)
    return node.target.id if is_alias and isinstance(node.target, ast.Name) else None


def test_no_two_public_types_have_the_same_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in public_types(path.read_text()):
            homes[name].append(str(path.relative_to(PACKAGE)))
    assert len(homes) > 400  # the package was really read
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_what_counts_as_a_public_type() -> None:
    source = "class A:\n    class B: ...\nclass _C: ...\nD: TypeAlias = int\ne: int = 1\n"
    assert sorted(public_types(source)) == ["A", "B", "D"]
