"""Imports go one way, and `import assay` stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "assay"

# Lowest first. A module imports from its own layer and from lower ones.
LAYERS = [
    {"errors", "limits", "memory", "needs", "processes", "store", "svg", "units"},
    {"ir"},
    {"ops"},
    {"passes"},
    {"frontends", "targets"},
    {"runtime", "capi"},
    {"evidence", "zoo", "jobs"},
    {"server", "cli", "__main__"},
]
# One layer, but these two do not know each other.
APART = {"frontends", "targets"}
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
ROOT = "assay"


def rank_of(part: str, source: Path) -> int | None:
    """The layer of a part of the package; a module at the top, such as `onnx_backend`, ranks with `runtime`."""
    if part in RANK:
        return RANK[part]
    return None if (source / part).is_dir() else RANK["runtime"]


def imported(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import that can run: at the top, in functions and classes, not under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            yield from imported(ast.Module(body=child.orelse, type_ignores=[]))
        else:
            yield from imported(child)


def names(statement: ast.Import | ast.ImportFrom, package: list[str]) -> list[list[str]]:
    """The dotted names that the statement, found in `package`, may load."""
    if isinstance(statement, ast.Import):
        return [alias.name.split(".") for alias in statement.names]
    start = package[: len(package) - statement.level + 1] if statement.level else []
    module = start + (statement.module.split(".") if statement.module else [])
    return [[*module, alias.name] for alias in statement.names]


def part_of(name: list[str], source: Path) -> str | None:
    """The part of the package that a dotted name lies in: `ir`, `cli`, ..., or `assay` for a name of `__init__.py`."""
    if name[0] != ROOT:
        return None
    if len(name) > 1 and ((source / name[1]).is_dir() or (source / f"{name[1]}.py").is_file()):
        return name[1]
    return ROOT


def violations(source: Path) -> list[str]:
    """The imports under `source` (the folder of the package `assay`) that go the wrong way."""
    found: list[str] = []
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source)
        here = ROOT if inside.name == "__init__.py" and len(inside.parts) == 1 else inside.with_suffix("").parts[0]
        mine = rank_of(here, source)
        if mine is None:
            found.append(f"{inside}: {here} is in no layer")
            continue
        for statement in imported(ast.parse(path.read_text(encoding="utf-8"))):
            parts = {part_of(name, source) for name in names(statement, [ROOT, *inside.parts[:-1]])}
            for there in sorted(part for part in parts if part is not None):
                theirs = rank_of(there, source)
                apart = here != there and {here, there} == APART
                if theirs is None or theirs > mine or apart:
                    found.append(f"{inside}:{statement.lineno}: {here} imports {there}")
    return found


def write(source: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return source


LAYOUT = {
    "__init__.py": "from assay.runtime.session import Session",
    "errors.py": "",
    "limits.py": "from assay.errors import Problem",
    "onnx_backend.py": "from assay.frontends import onnx",
    "ir/dims.py": "from assay.errors import Problem",
    "ops/table.py": "from assay.ir import dims",
    "passes/fold.py": "from ..ops import table",
    "frontends/onnx.py": "from assay.passes.fold import fold",
    "targets/cpu/emit.py": "from ...ops.table import op",
    "runtime/session.py": "import assay.targets.cpu.emit",
    "evidence/lines.py": "from assay.zoo import rows",
    "zoo/rows.py": "import numpy",
    "cli/main.py": "from assay import Session, errors",
}
WRONG = {
    "upward": ("ir/dims.py", "from assay.ops import table", "ir/dims.py:1: ir imports ops"),
    "plain": ("ir/dims.py", "import assay.runtime.session", "ir/dims.py:1: ir imports runtime"),
    "from the root": ("ops/table.py", "from assay import cli", "ops/table.py:1: ops imports cli"),
    "relative": ("passes/fold.py", "from ..runtime import session", "passes/fold.py:1: passes imports runtime"),
    "relative, deep": ("targets/cpu/emit.py", "from ... import cli", "targets/cpu/emit.py:1: targets imports cli"),
    "sideways": ("frontends/onnx.py", "import assay.targets.cpu", "frontends/onnx.py:1: frontends imports targets"),
    "in a function": ("ir/dims.py", "def f():\n    import assay.cli", "ir/dims.py:2: ir imports cli"),
    "public names": ("ir/dims.py", "from assay import Session", "ir/dims.py:1: ir imports assay"),
    "top module": ("ops/table.py", "import assay.onnx_backend", "ops/table.py:1: ops imports onnx_backend"),
    "lowest": ("errors.py", "from assay.ir import dims", "errors.py:1: errors imports ir"),
    "otherwise": (
        "ir/dims.py",
        "if TYPE_CHECKING:\n    pass\nelse:\n    from assay.ops import table",
        "ir/dims.py:4: ir imports ops",
    ),
    "no layer": ("extras/more.py", "", "extras/more.py: extras is in no layer"),
}


def test_imports_go_one_way() -> None:
    assert any(SOURCE.rglob("*.py")), "nothing was checked"
    assert violations(SOURCE) == []


def test_an_allowed_tree_passes(tmp_path: Path) -> None:
    assert violations(write(tmp_path, LAYOUT)) == []


@pytest.mark.parametrize(("name", "text", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_import_is_seen(tmp_path: Path, name: str, text: str, message: str) -> None:
    assert violations(write(tmp_path, LAYOUT | {name: text})) == [message]


@pytest.mark.parametrize("condition", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_imports_for_types_alone_do_not_count(tmp_path: Path, condition: str) -> None:
    text = f"if {condition}:\n    from assay.runtime.session import Session\n"
    assert violations(write(tmp_path, LAYOUT | {"ir/dims.py": text})) == []


def test_import_assay_loads_numpy_and_ml_dtypes_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); import assay\n"
        "new = {name.partition('.')[0] for name, module in sys.modules.items()"
        " if name not in before and getattr(module, '__file__', None)}\n"
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "assay" in loaded
    assert set(loaded) <= {"assay", "numpy", "ml_dtypes"}
