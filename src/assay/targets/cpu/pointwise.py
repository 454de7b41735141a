"""Elementwise nodes as loops: one unit of them is one C function that reads each input and writes each result once.

The loop runs over the axes in the order in which the results lie in memory. Axes that every operand steps through
evenly are joined; the innermost that remains are the columns of the grid, the others its rows. A unit that
goes on with the result of a matrix product or a convolution becomes the continuation of that call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.ir.dims import Dim, eq, product
from assay.ir.graph import Node, Value
from assay.targets.cpu import scalar
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.tape import Step
from assay.targets.shared.tensors import dtype_of, shape_of
from assay.targets.shared.views import View

if TYPE_CHECKING:
    from assay.targets.cpu.planner import Planner

_COLUMNS = 64
"""Threads take multiples of this many elements."""


def takes(node: Node) -> bool:
    """Whether a node is computed element by element."""
    return not scalar.refusal(node)


def emit(p: Planner, nodes: Sequence[Node]) -> None:
    """Plan a unit of elementwise nodes over one shape."""
    shape = shape_of(nodes[-1].outputs[0])
    made = {value for node in nodes for value in node.outputs}
    read = list(dict.fromkeys(v for node in nodes for v in node.inputs if v is not None and v not in made))
    literals = {value: text for value in read if (text := _literal(p, value)) is not None}
    inputs = [value for value in read if value not in literals]
    views = [p.view(value).expanded(shape) for value in inputs]
    order = _order(shape, views)
    host = _host(p, views, order)
    kept = [value for node in nodes for value in node.outputs if p.is_read_elsewhere(value)]
    free = [value for value, view in zip(inputs, views, strict=True) if _may_be_overwritten(p, value, view, views)]
    results = [_result(p, value, shape, order, free) for value in kept]
    loops = _loops(shape, order, [*views, *results], host)
    if loops is None:
        host, loops = None, _loops(shape, order, [*views, *results], None)
    assert loops is not None
    source = _source(nodes, inputs, literals, kept, loops)
    p.step(
        Kernel(source),
        [*views, *results],
        loops.numbers,
        rows=loops.rows,
        cols=loops.cols,
        col_grain=_COLUMNS,
        work=sum(map(scalar.work, nodes)),
        writes=len(results),
    )
    if host is not None:
        p.attach(host)


def copy(p: Planner, source: View, target: View) -> None:
    """Plan a copy of one view to another of the same shape; elements move as they are, whatever they mean."""
    loops = _loops(target.shape, target.order, [source, target], None)
    assert loops is not None
    kind = scalar.bits(target.dtype)
    body = f"{loops.element(1)} = {loops.element(0)};"
    p.step(
        Kernel(_function(loops, [f"const {kind}", kind], [body])),
        [source, target],
        loops.numbers,
        rows=loops.rows,
        cols=loops.cols,
        col_grain=_COLUMNS,
    )


def _literal(p: Planner, value: Value) -> str | None:
    """A constant of one element as a C literal, its dtype's compute type."""
    content = p.constant_of(value)
    if content is None or content.size != 1:
        return None
    return scalar.literal(dtype_of(value), content.reshape(-1)[0])


def _order(shape: Sequence[Dim], views: Sequence[View]) -> tuple[int, ...]:
    """The memory order of the first operand that is not broadcast, else row-major."""
    for view in views:
        if all(stride != 0 or size == 1 for stride, size in zip(view.strides, shape, strict=True)):
            return view.order
    return tuple(range(len(shape)))


def _may_be_overwritten(p: Planner, value: Value, view: View, views: Sequence[View]) -> bool:
    """Whether a result may take the place of an operand: nobody reads it later, and the unit reads it in one way."""
    alone = all(other == view for other in views if other.buffer is view.buffer)
    return alone and view.fills_buffer(view.order) and p.is_last_reader(value)


def _result(p: Planner, value: Value, shape: Sequence[Dim], order: Sequence[int], free: list[Value]) -> View:
    """Memory for a result: that of an operand that is no longer needed and lies just so, else fresh."""
    wanted = p.result(value, order)
    if wanted.buffer.given:
        return wanted
    for candidate in free:
        view = p.view(candidate).expanded(shape)
        if view.dtype.numpy.itemsize == wanted.dtype.numpy.itemsize and view.strides == wanted.strides:
            free.remove(candidate)
            taken = View(view.buffer, wanted.dtype, wanted.shape, wanted.strides)
            p.alias(value, taken)
            return taken
    return wanted


def _host(p: Planner, views: Sequence[View], order: Sequence[int]) -> Step | None:
    """The call whose result this unit goes on with, part by part; None if there is none."""
    for view in views:
        if view.fills_buffer(order):
            found = p.host(view.buffer)
            if found is not None and all(v == view for v in views if v.buffer is view.buffer):
                return found
    return None


@dataclass(frozen=True, slots=True)
class Loops:
    """A loop nest: sizes of the outer axes, the columns, and each operand's strides through these."""

    outer: tuple[Dim, ...]
    cols: Dim
    outer_strides: tuple[tuple[Dim, ...], ...]
    inner_strides: tuple[Dim, ...]

    @property
    def rows(self) -> Dim:
        """The number of rows of the grid."""
        return product(self.outer)

    @property
    def numbers(self) -> list[Dim]:
        """What the function reads from `n`: the outer sizes, then each operand's strides, the inner one last."""
        strides = [
            stride
            for outer, inner in zip(self.outer_strides, self.inner_strides, strict=True)
            for stride in (*outer, inner)
        ]
        return [*self.outer, *strides]

    def element(self, operand: int) -> str:
        """The element of an operand in the current column, as C."""
        stride = self.inner_strides[operand]
        if stride == 0:
            return f"*p{operand}"
        return f"p{operand}[x]" if stride == 1 else f"p{operand}[x * s{operand}]"


def _loops(shape: Sequence[Dim], order: Sequence[int], views: Sequence[View], host: Step | None) -> Loops | None:
    """The fewest loops that visit all elements in `order`; None if the grid cannot be that of `host`."""
    axes = [axis for axis in order if shape[axis] != 1]
    cut = None if host is None else _cut(shape, axes, host)
    if host is not None and cut is None:
        return None
    blocks: list[list[int]] = []
    for at, axis in enumerate(axes):
        if blocks and at != cut and _one_step(shape, views, blocks[-1][-1], axis):
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    if host is not None and cut is not None and (not blocks or blocks[-1][0] != axes[cut]):
        return None
    sizes = [product(shape[axis] for axis in block) for block in blocks] or [1]
    strides = [[view.strides[block[-1]] for block in blocks] or [1] for view in views]
    return Loops(tuple(sizes[:-1]), sizes[-1], tuple(tuple(s[:-1]) for s in strides), tuple(s[-1] for s in strides))


def _cut(shape: Sequence[Dim], axes: Sequence[int], host: Step) -> int | None:
    """The first of `axes` that belongs to the columns of `host`; None if no cut gives its rows and columns."""
    for cut in range(len(axes)):
        inner = product(shape[axis] for axis in axes[cut:])
        if eq(inner, host.cols):
            return cut if eq(product(shape[axis] for axis in axes[:cut]), host.rows) else None
    return None


def _one_step(shape: Sequence[Dim], views: Sequence[View], outer: int, inner: int) -> bool:
    return all(view.strides[outer] == view.strides[inner] * shape[inner] for view in views)


def _source(
    nodes: Sequence[Node], inputs: Sequence[Value], literals: dict[Value, str], kept: Sequence[Value], loops: Loops
) -> str:
    names = dict(literals)
    body: list[str] = []
    for index, value in enumerate(inputs):
        dtype = dtype_of(value)
        names[value] = f"a{index}"
        body.append(f"const {scalar.compute_type(dtype)} a{index} = {scalar.load(dtype, loops.element(index))};")
    for node in nodes:
        value = node.outputs[0]
        names[value] = f"t{len(names)}"
        text = scalar.expression(node, [names[v] for v in node.inputs if v is not None])
        body.append(f"const {scalar.compute_type(dtype_of(value))} {names[value]} = {text};")
    for index, value in enumerate(kept, start=len(inputs)):
        body.append(f"{loops.element(index)} = {scalar.store(dtype_of(value), names[value])};")
    kinds = [f"const {scalar.ctype(dtype_of(v))}" for v in inputs] + [scalar.ctype(dtype_of(v)) for v in kept]
    return _function(loops, kinds, body)


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
