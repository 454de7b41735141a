"""Write docs/native-ops.md, which core ops the native target computes itself; `--check` only says if it is right."""

from __future__ import annotations

import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.lowering import adapt
from assay.ops.registry import OpDef
from assay.targets.cpu import CpuTarget

PATH = Path(__file__).parent.parent / "docs" / "native-ops.md"
HEAD = """\
# Ops on the native target

Generated from the definitions and their samples by `python tools/nativetable.py`; do not edit.

A core op runs on the target `cpu` by a kernel of its own, or by kernels of the parts that it is composed of. What has
neither goes to the oracle, node by node; `explain` shows the reason. Strings, sequences, files and control flow (the
host ops) are always the oracle's; so is what depends on sizes that only a run tells. A dtype that stands in two
columns is computed in different ways for different arguments.

"""
TARGET = CpuTarget("exact", DEFAULT)


def table() -> str:
    """The text of docs/native-ops.md."""
    lines = [HEAD + "| op | a kernel | by its parts | the oracle |", "|---|---|---|---|"]
    for definition in sorted((d for d in CORE if not d.host and not d.regions), key=lambda d: d.name):
        ways: dict[str, list[str]] = defaultdict(list)
        reasons: dict[str, None] = {}
        for dtype in definition.main_dtypes:
            found, why = _ways(definition, dtype)
            for way in found:
                ways[way].append(str(dtype))
            reasons.update(dict.fromkeys(why))
        oracle = f"{', '.join(ways['oracle'])}: {'; '.join(reasons)}" if ways["oracle"] else ""
        lines.append(f"| `{definition.name}` | {', '.join(ways['kernel'])} | {', '.join(ways['parts'])} | {oracle} |")
    return "\n".join(lines) + "\n"


def _ways(definition: OpDef, dtype: DType) -> tuple[set[str], list[str]]:
    """How the samples of a dtype run, and the reasons of the nodes that the oracle gets."""
    rng = np.random.default_rng(zlib.crc32(f"{definition.name} {dtype}".encode()))
    ways: set[str] = set()
    reasons: dict[str, None] = {}
    for sample in definition.samples(rng, dtype):
        graph = _single(definition, sample)
        if all(TARGET.support(node).ok for node in graph.nodes):
            ways.add("kernel")
            continue
        parts = adapt(graph, lambda node: TARGET.support(node).ok, DEFAULT)
        refused = [f"{n.op}: {s.reason}" for n in parts.nodes if not (s := TARGET.support(n)).ok]
        ways.add("oracle" if refused else "parts")
        reasons.update(dict.fromkeys(refused))
    return ways, list(reasons)


def _single(definition: OpDef, sample: Any) -> Graph:
    b = Builder()
    values = [
        None if x is None else b.constant(x) if index in sample.fixed else b.input(_type(x))
        for index, x in enumerate(sample.inputs)
    ]
    results = b.emit(definition.name, *values, **sample.attrs)
    return b.finish(definition.name, [v for v in values if v is not None and v not in b.constants], results)


def _type(x: Any) -> TensorType:
    return TensorType(dtypes.of(x), x.shape)


def main() -> Iterator[str]:
    """Write the page, or with `--check` only compare it."""
    text = table()
    if "--check" not in sys.argv:
        PATH.write_text(text)
    elif not PATH.exists() or PATH.read_text() != text:
        yield "docs/native-ops.md is not up to date: run python tools/nativetable.py"


if __name__ == "__main__":
    sys.exit("\n".join(main()) or None)
