"""Write src/assay/ops/core_ops.pyi, the core ops as typed methods; `--check` only says if it is right."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.ops import CORE
from assay.ops.registry import OpDef, Param

PATH = Path(__file__).parent.parent / "src" / "assay" / "ops" / "core_ops.pyi"
HEAD = '''\
"""Generated from the definitions by `python tools/corestub.py`; do not edit."""

'''
KNOWN = {
    "Any": "typing",
    "Array": "assay.ir.dtypes",
    "DType": "assay.ir.dtypes",
    "Graph": "assay.ir.graph",
    "Mapping": "collections.abc",
    "OpInput": "assay.ops.inputs",
    "Sequence": "collections.abc",
    "Value": "assay.ir.graph",
}
"""Where the names in signatures come from."""


def stub() -> str:
    """The text of core_ops.pyi."""
    methods = "".join(_method(definition) for definition in sorted(CORE, key=lambda each: each.name))
    body = f'class CoreOps:\n    """Every core op as a method that emits it and gives its first result."""\n\n{methods}'
    return HEAD + "".join(_imports(body)) + "\n" + body


def _imports(body: str) -> Iterator[str]:
    words = set(re.findall(r"\b[A-Z]\w+\b", body))
    modules: dict[str, list[str]] = {}
    for name in sorted(words & KNOWN.keys()):
        modules.setdefault(KNOWN[name], []).append(name)
    own = sorted(module for module in modules if module.startswith("assay."))
    for group in (sorted(modules.keys() - set(own)), own):
        yield from (f"from {module} import {', '.join(modules[module])}\n" for module in group)
        yield "\n" if group and group is not own else ""


def _method(definition: OpDef) -> str:
    """One op: inputs by position, attributes by keyword."""
    inputs = [_input(param) for param in definition.params]
    attrs = list(_attrs(definition))
    variadic = any(param.kind == "variadic" for param in definition.params)
    given = ["self", *inputs]
    if inputs and not variadic:
        given.append("/")
    if attrs and not variadic:
        given.append("*")
    return _wrapped(definition.name, [*given, *attrs])


def _input(param: Param) -> str:
    if param.kind == "variadic":
        return f"*{param.name}: OpInput | None"
    return f"{param.name}: OpInput" if param.kind == "one" else f"{param.name}: OpInput | None = None"


def _attrs(definition: OpDef) -> Iterator[str]:
    parameters = inspect.signature(definition.reference).parameters
    for name, default in definition.attrs.items():
        kind = parameters[name].annotation
        words = kind if isinstance(kind, str) else "Any"
        yield f"{name}: {words}" + ("" if default is inspect.Parameter.empty else " = ...")
    if definition.regions:
        yield "regions: tuple[Graph, ...]"


def _wrapped(name: str, parameters: Sequence[str]) -> str:
    """The signature as the formatter has it."""
    line = f"    def {name}({', '.join(parameters)}) -> Value: ..."
    if len(line) <= 120:
        return line + "\n"
    inner = f"        {', '.join(parameters)}"
    if len(inner) <= 120:
        return f"    def {name}(\n{inner}\n    ) -> Value: ...\n"
    return f"    def {name}(\n" + "".join(f"        {each},\n" for each in parameters) + "    ) -> Value: ...\n"


def main() -> Iterator[str]:
    """Write the stub, or with `--check` only compare it."""
    text = stub()
    if "--check" not in sys.argv:
        PATH.write_text(text)
    elif not PATH.exists() or PATH.read_text() != text:
        yield "src/assay/ops/core_ops.pyi is not up to date: run python tools/corestub.py"


if __name__ == "__main__":
    sys.exit("\n".join(main()) or None)
