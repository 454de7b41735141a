"""Elementwise nodes as loops: one unit of them is one kernel that reads each input and writes each result once.

The loops run over the axes in the order in which the results lie in memory. A unit that goes on with the result of a
matrix product or a convolution becomes the epilogue of that call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.ir.dims import Dim
from assay.ir.dtypes import DType
from assay.ir.graph import Node, Value
from assay.targets.base import Limitation
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.loops import Loops, loop_nest
from assay.targets.shared.tape import Step
from assay.targets.shared.tensors import dtype_of, shape_of
from assay.targets.shared.views import View

if TYPE_CHECKING:
    from assay.targets.shared.planner import Planner

_COLUMNS = 64
"""Threads take multiples of this many elements."""


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A unit of elementwise nodes: it reads `inputs`, then writes those of its values that others read, `kept`.

    Constants of one element are no inputs, but `literals`. In a loop nest, operands are the inputs, then what is kept.
    """

    nodes: Sequence[Node]
    inputs: Sequence[Value]
    literals: Mapping[Value, str]
    kept: Sequence[Value]


@dataclass(frozen=True, slots=True)
class Writer:
    """How a target writes elementwise work as kernels."""

    ops: Collection[str]
    """The ops that are computed element by element."""
    limitations: Sequence[Limitation]
    """Which of their nodes are not."""
    work: Callable[[Node], int]
    """About how many instructions an element of a node takes."""
    literal: Callable[[DType, Any], str]
    """A number of a dtype, as text in a kernel."""
    unit: Callable[[Elementwise, Loops], Kernel]
    copy: Callable[[DType, Loops], Kernel]
    """Elements of a dtype from the first operand to the second, as they are."""


def emit(p: Planner, nodes: Sequence[Node]) -> None:
    """Plan a unit of elementwise nodes over one shape."""
    shape = shape_of(nodes[-1].outputs[0])
    made = {value for node in nodes for value in node.outputs}
    read = list(dict.fromkeys(v for node in nodes for v in node.inputs if v is not None and v not in made))
    literals = {value: text for value in read if (text := _literal(p, value)) is not None}
    inputs = [value for value in read if value not in literals]
    readers = {value: node for node in reversed(nodes) for value in node.inputs if value is not None}
    views = [p.broadcast(readers[value], value, shape) for value in inputs]
    order = _order(shape, views)
    host = _host(p, views, order)
    kept = [value for node in nodes for value in node.outputs if p.is_read_elsewhere(value)]
    pairs = zip(inputs, views, strict=True)
    free = [value for value, view in pairs if _may_be_overwritten(p, value, view, views) and not _reads(host, view)]
    results = [_result(p, value, shape, order, free) for value in kept]
    loops = loop_nest(shape, order, [*views, *results], host)
    if loops is None:
        host, loops = None, loop_nest(shape, order, [*views, *results], None)
    assert loops is not None
    writer = p.kernels.writer
    p.step(
        writer.unit(Elementwise(nodes, inputs, literals, kept), loops),
        [*views, *results],
        loops.numbers,
        rows=loops.rows,
        cols=loops.cols,
        col_grain=_COLUMNS,
        work=sum(map(writer.work, nodes)),
        writes=len(results),
    )
    if host is not None:
        p.attach(host)


def copy(p: Planner, source: View, target: View) -> None:
    """Plan a copy of one view to another of the same shape; elements move as they are, whatever they mean."""
    loops = loop_nest(target.shape, target.order, [source, target], None)
    assert loops is not None
    p.step(
        p.kernels.writer.copy(target.dtype, loops),
        [source, target],
        loops.numbers,
        rows=loops.rows,
        cols=loops.cols,
        col_grain=_COLUMNS,
    )


def _literal(p: Planner, value: Value) -> str | None:
    """A constant of one element as the target writes it."""
    content = p.constant_of(value)
    if content is None or content.size != 1:
        return None
    return p.kernels.writer.literal(dtype_of(value), content.reshape(-1)[0])


def _order(shape: Sequence[Dim], views: Sequence[View]) -> tuple[int, ...]:
    """The memory order of the first operand that is not broadcast, else row-major."""
    for view in views:
        if all(stride != 0 or size == 1 for stride, size in zip(view.strides, shape, strict=True)):
            return view.order
    return tuple(range(len(shape)))


def _may_be_overwritten(p: Planner, value: Value, view: View, views: Sequence[View]) -> bool:
    """Whether a result may take the place of an operand: nobody reads it later, and the unit reads it in one way."""
    alone = all(other == view for other in views if other.storage is view.storage)
    return alone and view.fills_storage(view.order) and p.is_last_reader(value)


def _reads(host: Step | None, view: View) -> bool:
    """Whether a call still reads the memory of a view while parts of its result are handed on."""
    return host is not None and view.storage in [each.storage for each in host.operands[: -host.writes]]


def _result(p: Planner, value: Value, shape: Sequence[Dim], order: Sequence[int], free: list[Value]) -> View:
    """Memory for a result: that of an operand that is no longer needed and lies just so, else fresh."""
    wanted = p.result(value, order)
    if wanted.storage.given:
        return wanted
    for candidate in free:
        view = p.view(candidate).expanded(shape)
        if view.dtype.numpy.itemsize == wanted.dtype.numpy.itemsize and view.strides == wanted.strides:
            free.remove(candidate)
            taken = View(view.storage, wanted.dtype, wanted.shape, wanted.strides)
            p.alias(value, taken)
            return taken
    return wanted


def _host(p: Planner, views: Sequence[View], order: Sequence[int]) -> Step | None:
    """The call whose result this unit goes on with, part by part; None if there is none."""
    for view in views:
        if view.fills_storage(order):
            found = p.host(view.storage)
            if found is not None and all(v == view for v in views if v.storage is view.storage):
                return found
    return None
