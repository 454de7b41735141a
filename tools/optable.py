"""Write docs/ops.md, the table of all ops, from their definitions; `--check` only says whether it is right."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ops import CORE
from assay.ops.registry import OpDef
from assay.targets.cpu.ops import CPU_OPS
from assay.targets.ttnn.ops import TTNN_OPS
from assay.targets.vulkan.ops import VULKAN_OPS

PATH = Path(__file__).parent.parent / "docs" / "ops.md"

HEAD = """\
# The core ops

Generated from the op definitions in `src/assay/ops/` by `python tools/optable.py`; do not edit.

There are {total} core ops. {milli} of them are *milli-ops*, the closed set that a target must have to run every model
(of which {regions} hold regions: control flow, and work that waits for facts). {host} are *host ops* on strings,
sequences and files. The other {composite} are *composites*: each is defined by its reference and falls apart into
milli-ops where a target does not take it whole.

A signature names the inputs with their dtypes, then the results; `?` marks an optional input, `*` a variadic one, and
attributes follow the semicolon. A letter stands for one dtype out of those in the next column. The tolerance is how
far a correct kernel may be from the reference; `accumulated` grows with the number of terms.
"""

OWNED = """\
## Ops that targets own

What a target makes of a graph before it compiles it may hold ops of its own besides core ops. They are no part of the
core set: no front end makes them, and no other target is asked for them. They are defined in the same way, each with a
reference and parts, so the oracle runs them too.
"""

GROUPS: dict[str, Sequence[DType]] = {
    "all": dtypes.TENSORS,
    "floats": dtypes.FLOATS,
    "integers": dtypes.INTEGERS,
    "tiny floats": dtypes.TINY_FLOATS,
    "tiny integers": dtypes.TINY_INTEGERS,
    "complex": dtypes.COMPLEX,
}
"""Names for dtypes that come together, largest first."""


def table() -> str:
    """The text of docs/ops.md."""
    every = list(CORE)
    counts = {
        "total": len(every),
        "milli": sum(d.is_milli and not d.host for d in every),
        "regions": sum(bool(d.regions) and not d.host for d in every),
        "host": sum(d.host for d in every),
        "composite": sum(not d.is_milli and not d.host for d in every),
    }
    lines = [HEAD.format(**counts)]
    for family, members in groupby(sorted(every, key=lambda d: d.family), key=lambda d: d.family):
        lines += [f"## {family.capitalize()}", "", *rows(members), ""]
    lines.append(OWNED)
    for owned in (CPU_OPS, TTNN_OPS, VULKAN_OPS):
        lines += [f"### {owned.owner}", "", *rows(iter(owned)), ""]
    lines += ["## Names for dtypes", "", *(f"- {name}: {', '.join(map(str, group))}" for name, group in GROUPS.items())]
    return "\n".join(lines) + "\n"


def rows(members: Iterator[OpDef]) -> Iterator[str]:
    """The table of one family."""
    yield "| op | kind | signature | dtypes | tolerance | meaning |"
    yield "|---|---|---|---|---|---|"
    for d in members:
        meaning = " ".join(d.doc.split()).replace("|", "\\|")
        kind = "host" if d.host else "milli" if d.is_milli else "composite"
        yield f"| `{d.name}` | {kind} | `{signature(d)}` | {kinds(d)} | {d.tolerance.name.lower()} | {meaning} |"


def signature(d: OpDef) -> str:
    """`(x: T, k: i64?; axis, largest=true) → T, i64`."""
    marks = {"one": "", "optional": "?", "variadic": "*"}
    inputs = ", ".join(f"{p.name}: {p.dtype}{marks[p.kind]}" for p in d.params)
    attrs = ", ".join(name + spell(default) for name, default in d.attrs.items())
    return f"({inputs}{'; ' + attrs if attrs else ''}) → {', '.join(d.results)}"


def spell(default: object) -> str:
    """An attribute's default as it stands after its name, nothing if it has none."""
    if default is inspect.Parameter.empty:
        return ""
    if isinstance(default, bool) or default is None:
        return f"={str(default).lower()}"
    return f'="{default}"' if isinstance(default, str) else f"={default!r}"


def kinds(d: OpDef) -> str:
    """The dtypes of every type variable, groups by their names."""
    return "; ".join(f"{name}: {grouped(allowed)}" for name, allowed in d.typevars.items())


def grouped(allowed: Sequence[DType]) -> str:
    """Dtypes, those that make up a whole group under its name."""
    left, names = list(allowed), list[str]()
    for name, group in GROUPS.items():
        if left and set(group) <= set(left):
            names.append(name)
            left = [dtype for dtype in left if dtype not in group]
    return ", ".join([*names, *map(str, left)])


def main() -> int:
    """0 if the file is, or has been made, right."""
    text = table()
    if "--check" in sys.argv[1:]:
        return 0 if PATH.exists() and PATH.read_text() == text else 1
    PATH.write_text(text)
    print(f"{PATH.relative_to(Path.cwd()) if PATH.is_relative_to(Path.cwd()) else PATH}: {len(list(CORE))} ops")
    return 0


if __name__ == "__main__":
    sys.exit(main())
