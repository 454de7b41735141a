"""Elementwise units and copies as C functions: rows outside, columns inside, places by strides."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir.dtypes import DType
from assay.targets.cpu import scalar
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.loops import Loops
from assay.targets.shared.pointwise import Elementwise, Writer
from assay.targets.shared.tensors import dtype_of


def _unit(unit: Elementwise, loops: Loops) -> Kernel:
    """A unit as C: every input loaded, every node an expression, every result stored."""
    names = dict(unit.literals)
    body: list[str] = []
    for index, value in enumerate(unit.inputs):
        dtype = dtype_of(value)
        names[value] = f"a{index}"
        body.append(f"const {scalar.compute_type(dtype)} a{index} = {scalar.load(dtype, _element(loops, index))};")
    for node in unit.nodes:
        value = node.outputs[0]
        names[value] = f"t{len(names)}"
        text = scalar.expression(node, [names[v] for v in node.inputs if v is not None])
        body.append(f"const {scalar.compute_type(dtype_of(value))} {names[value]} = {text};")
    for index, value in enumerate(unit.kept, start=len(unit.inputs)):
        body.append(f"{_element(loops, index)} = {scalar.store(dtype_of(value), names[value])};")
    kinds = [f"const {scalar.ctype(dtype_of(v))}" for v in unit.inputs]
    return Kernel(_function(loops, [*kinds, *(scalar.ctype(dtype_of(v)) for v in unit.kept)], body))


def _copy(dtype: DType, loops: Loops) -> Kernel:
    """A copy as C: elements move as they are, whatever they mean."""
    kind = scalar.bits(dtype)
    return Kernel(_function(loops, [f"const {kind}", kind], [f"{_element(loops, 1)} = {_element(loops, 0)};"]))


def _element(loops: Loops, operand: int) -> str:
    """The element of an operand in the current column."""
    stride = loops.inner_strides[operand]
    if stride == 0:
        return f"*p{operand}"
    return f"p{operand}[x]" if stride == 1 else f"p{operand}[x * s{operand}]"


def _function(loops: Loops, kinds: Sequence[str], body: Sequence[str]) -> str:
    """The whole C file: rows outside, columns inside, places by the strides in `n`."""
    depth = len(loops.outer)
    lines = [
        '#include "math.h"',
        "void kernel(const call *c, char *scratch, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {",
        "  const int64_t *n = c->n;",
        "  (void)scratch, (void)n;",
    ]
    for operand, stride in enumerate(loops.inner_strides):
        if stride not in (0, 1):
            lines.append(f"  const int64_t s{operand} = n[{depth + operand * (depth + 1) + depth}];")
    lines += _odometer_start(depth)
    lines.append("  for (int64_t r = r0; r < r1; r++) {")
    for operand, kind in enumerate(kinds):
        first = depth + operand * (depth + 1)
        place = "".join(f" + i{axis} * n[{first + axis}]" for axis in range(depth))
        lines.append(f"    {kind} *p{operand} = ({kind} *)c->p[{operand}]{place};")
    lines += ["#pragma GCC ivdep", "    for (int64_t x = c0; x < c1; x++) {"]
    lines += [f"      {line}" for line in body]
    lines += ["    }", *_odometer_step(depth), "  }", "}", ""]
    return "\n".join(lines)


def _odometer_start(depth: int) -> list[str]:
    if depth == 0:
        return []
    lines = ["  int64_t rest = r0;"]
    for axis in range(depth - 1, 0, -1):
        lines.append(f"  int64_t i{axis} = rest % n[{axis}]; rest /= n[{axis}];")
    return [*lines, "  int64_t i0 = rest;"]


def _odometer_step(depth: int) -> list[str]:
    if depth == 0:
        return []
    text = "i0++;"
    for axis in range(1, depth):
        text = f"if (++i{axis} == n[{axis}]) {{ i{axis} = 0; {text} }}"
    return [f"    {text}"]


C_WRITER = Writer(scalar.OPS, scalar.LIMITATIONS, scalar.work, scalar.literal, _unit, _copy)
