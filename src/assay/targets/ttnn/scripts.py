"""Programs as plain Python scripts against the library alone: one for each op of a model, with what is right beside it.

A script needs NumPy, the library and a card, and nothing of this package. It makes its inputs, calls the library as the
program does, and tells how near the result is to that of the oracle, which lies beside it in a file of arrays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from assay.ir.dtypes import Array, is_array
from assay.ir.graph import Graph, Node, Value
from assay.limits import Limits
from assay.targets.reference.interpreter import Interpreter
from assay.targets.ttnn.lowering import planned
from assay.targets.ttnn.plan import CallProgram, LibraryCall, Make, Named, Ref, kind_of, on_card, sizes
from assay.targets.ttnn.rows.collectives import COLLECTIVES

ENVIRONMENT = "ASSAY_TTNN_SCRIPTS"
"""The variable with the folder that scripts are written to."""
_ENOUGH = 0.99
_FEW = 8


def chosen_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where scripts go: `$ASSAY_TTNN_SCRIPTS`; None if nobody wants any."""
    name = environment.get(ENVIRONMENT, "")
    return Path(name) if name else None


def write_scripts(segment: Graph, matrices: str, limits: Limits, place: Path) -> list[Path]:
    """A script for each op of a segment; nodes with equal calls on equal shapes share one. What chips exchange has
    none, as a script opens one chip. The scripts' paths."""
    folder = place / segment.name
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, Path] = {}
    for node in (each for each in segment.nodes if each.op not in COLLECTIVES.rows):
        alone = _alone(node, segment)
        text = _Script(alone, planned(alone, matrices=matrices))
        body = "\n".join(text.lines())
        if body in written or not text.program.steps:
            continue
        path = folder / f"{len(written) + 1:04}_{re.sub(r'[^a-z0-9_]', '_', node.op)}.py"
        right = _computed(alone, limits)
        names = {f"right{at}": each for at, each in enumerate(right)}
        np.savez_compressed(path.with_suffix(".npz"), **cast(Any, {**names, **text.arrays}))
        path.write_text(_HEAD.format(op=node.op, origin=node.origin, enough=_ENOUGH) + body + _TAIL)
        written[body] = path
    return list(written.values())


def _alone(node: Node, segment: Graph) -> Graph:
    """A graph of one node. Weights are given to it, as all else is; other constants stay what they are."""
    read = dict.fromkeys(value for value in node.inputs if value is not None)
    constants = {value: segment.constants[value] for value in read if _stays_constant(segment.constants.get(value))}
    return Graph(node.op, tuple(value for value in read if value not in constants), node.outputs, (node,), constants)


def _stays_constant(content: Array | None) -> bool:
    """Whether a constant may decide which calls are made: numbers, positions, shapes. Weights do not."""
    return content is not None and (content.dtype.kind != "f" or content.size <= _FEW)


def _computed(graph: Graph, limits: Limits) -> list[Array]:
    """What the oracle makes of the inputs that a script makes."""
    inputs = [_content(number, value).astype(_numpy(value)) for number, value in enumerate(graph.inputs)]
    with np.errstate(all="ignore"):
        found, _ = Interpreter(graph, "exact", limits, {}).submit(inputs)
    return [np.asarray(each).astype(np.float32) for each in found]


def _content(number: int, value: Value) -> Array:
    """The input of that number, as a script makes it."""
    random = np.random.RandomState(number)
    if kind_of(value) == "int":
        return random.randint(0, 2, sizes(value))
    floats = random.standard_normal(sizes(value))
    return floats > 0 if kind_of(value) == "bool" else floats.astype(np.float32)


def _numpy(value: Value) -> Any:
    return cast(Any, value.type).dtype.numpy


@dataclass
class _Script:
    """The text of a program's script. Arrays that calls are given go into the file beside it."""

    graph: Graph
    program: CallProgram
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])

    def lines(self) -> Iterator[str]:
        """The inputs, the calls, and the comparison."""
        numbers = {value: number for number, value in enumerate(self.graph.inputs)}
        for each in self.program.given:
            shape, kind = on_card(each.value), kind_of(each.value)
            constant = self.graph.constants.get(each.value)
            if constant is not None:
                what = self._written(constant.reshape(shape).astype(np.int32 if kind == "int" else np.float32))
            else:
                what = f"given({numbers[each.value]}, {list(shape)}, {kind!r})"
            yield f"{_name(each.ref)} = ttnn.Tensor({what}, ttnn.{each.form.dtype}, device, ttnn.{each.form.layout})"
        for step in self.program.steps:
            yield self._call(step)
        yield f"results = [{', '.join(_name(ref) for ref in self.program.outputs)}]"

    def _call(self, step: LibraryCall) -> str:
        results = ", ".join(map(_name, step.results))
        given = [self._written(each) for each in step.args]
        given += [f"{name}={self._written(each)}" for name, each in step.kwargs.items()]
        return f"{results} = ttnn.{step.op}({', '.join(given)})"

    def _written(self, argument: Any) -> str:
        """An argument as Python writes it."""
        if isinstance(argument, Ref):
            return _name(argument)
        if isinstance(argument, Named):
            return "device" if argument.path == "device" else f"ttnn.{argument.path}"
        if isinstance(argument, Make):
            inner = [self._written(each) for each in argument.args]
            inner += [f"{name}={self._written(each)}" for name, each in argument.kwargs.items()]
            return f"ttnn.{argument.path}({', '.join(inner)})"
        if is_array(argument):
            name = f"array{len(self.arrays)}"
            self.arrays[name] = argument
            return f"arrays[{name!r}]"
        if isinstance(argument, list | tuple):
            inner = ", ".join(map(self._written, cast("list[Any]", argument)))
            return f"[{inner}]" if isinstance(argument, list) else f"({inner},)"
        return repr(argument)


def _name(ref: Ref) -> str:
    return f"t{ref.number}"


_HEAD = '''"""{op}, {origin}: as a program for a Tenstorrent card calls the library, compared with what is right.

Made by Assay. It needs NumPy, ttnn and a card: python FILE. It ends with 0 if the correlation is at least {enough}.
"""

import sys
from pathlib import Path

import numpy as np
import ttnn

ENOUGH = {enough}
arrays = np.load(Path(__file__).with_suffix(".npz"))
device = ttnn.open_device(device_id=0, l1_small_size=32768)


def given(number, shape, kind):
    """The input of that number, with which the right result was computed."""
    random = np.random.RandomState(number)
    if kind == "int":
        return random.randint(0, 2, shape).astype("i4")
    floats = random.standard_normal(shape)
    return (floats > 0 if kind == "bool" else floats).astype("f4")


def fetched(tensor):
    """A result as an array of the host's."""
    here = tensor.cpu()
    narrow = (ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b)
    return (ttnn.to_dtype(here, ttnn.float32) if here.dtype in narrow else here).to_numpy().astype("f8")


def correlation(found, right):
    """Pearson's, of the elements that are finite in both; 1 if all are equal."""
    kept = np.isfinite(found) & np.isfinite(right)
    found, right = found[kept], right[kept]
    if np.array_equal(found, right):
        return 1.0
    return float(np.corrcoef(found, right)[0, 1]) if found.std() and right.std() else 0.0


'''
_TAIL = """
worst = 1.0
for number, tensor in enumerate(results):
    right = arrays[f"right{number}"].astype("f8").reshape(-1)
    found = fetched(tensor).reshape(-1)
    assert found.shape == right.shape, f"{found.shape} is not {right.shape}"
    worst = min(worst, correlation(found, right))
    error = np.nanmax(np.abs(found - right))
    print(f"result {number}: correlation {correlation(found, right):.6f}, largest error {error:.3g}")
if results and not any(fetched(each).any() for each in results):
    print("the card gave nothing but zeros: a mock computes nothing")
sys.exit(worst < ENOUGH)
"""
