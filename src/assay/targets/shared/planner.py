"""The planner: turns a segment into a tape, unit by unit. Kernels' planning functions talk to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from assay.ir.dims import UNKNOWN, Dim, dim_max, eq, le, product
from assay.ir.dtypes import Array, DType, i64
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value, used
from assay.ir.types import symbol_axes
from assay.limits import Limits
from assay.ops.conditions import Condition, at_least, broadcasts, noting
from assay.ops.registry import OPS
from assay.targets.shared import pointwise
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.fusion import Unit, fuse
from assay.targets.shared.growth import GROWTH_SYMBOLS, CacheGrowth
from assay.targets.shared.kernels import KernelTable
from assay.targets.shared.sizes import Sizes
from assay.targets.shared.tape import Control, Step, Tape
from assay.targets.shared.tensors import dtype_of, shape_of
from assay.targets.shared.views import Storage, View, dense_strides


class Planner:
    """Plans one segment. Afterwards `tape` holds the calls, and `outputs` says where the results lie.

    The caller provides the storages of the inputs, then those of the constants, then `made`: memory for results.
    """

    def __init__(
        self,
        graph: Graph,
        constants: Mapping[Value, Array],
        limits: Limits,
        kernels: KernelTable,
        *,
        fused: bool = True,
        row_major: bool = False,
        growth: CacheGrowth | None = None,
    ) -> None:
        """`constants` are those of the graph and of the bodies in it, `kernels` those of the target. Without `fused`,
        nodes are planned one by one. Results that must be `row_major` are whole storages in that order; others may be
        in any order, or lie in inputs. Those that grow have room behind them."""
        self.graph, self.constants, self.limits, self.kernels = graph, constants, limits, kernels
        self.sources = symbol_sources(graph)
        self.growth = growth
        self.tape = Tape(Sizes([*self.sources, *(GROWTH_SYMBOLS if growth else ())]))
        self.errors = Storage(0, given=True)
        self.made: list[Storage] = []
        self._views: dict[Value, View] = {}
        for value in graph.inputs:
            self._views[value] = _provided(value)
        for value, array in constants.items():
            self._views[value] = replace(_provided(value), strides=_strides(array))
        self._fused, self._row_major = fused, row_major
        self._readers = _readers(graph, kernels)
        self._ends = {value for each in _with_bodies(graph) for value in each.outputs}
        self._caller_values = _caller_values(graph, kernels)
        self._outside: set[Storage] = set()
        self._nodes: tuple[Node, ...] = ()
        self._required: set[tuple[Dim, int]] = set()
        self._planned: set[Node] = set()
        self.body(graph)
        self.outputs = [self._output(value) for value in graph.outputs]
        self.tape.given = [self._views[value].storage for value in (*graph.inputs, *constants)] + self.made

    # --- where values lie

    def view(self, value: Value | None) -> View:
        """How the memory of a value lies."""
        assert value is not None
        return self._views[value]

    def broadcast(self, node: Node, value: Value | None, shape: Sequence[Dim]) -> View:
        """A value as `node` takes it, broadcast to `shape`. Runs in which it does not fit end with an error.

        A copy is made if its strides are too involved for those of the broadcast to be computed.
        """
        view = self.view(value)
        pairs = zip(reversed(view.shape), reversed(shape), strict=False)
        self.require(node, *(broadcasts(old, new) for old, new in pairs if old != 1 and not eq(old, new)))
        expanded = view.expanded(shape)
        return self.copied(view).expanded(shape) if UNKNOWN in expanded.strides else expanded

    def dense(self, value: Value | None, order: Sequence[int] | None = None) -> View:
        """A value in row-major order (or with its axes in `order`) without gaps; a copy if it lies otherwise."""
        view = self.view(value)
        return view if view.is_dense_in(range(view.rank) if order is None else order) else self.copied(view, order)

    def inner(self, value: Value | None) -> View:
        """A value whose last axis has the stride 1; a copy if it has another."""
        view = self.view(value)
        fits = not view.shape or view.strides[-1] == 1 or view.shape[-1] == 1
        return view if fits else self.copied(view)

    def constant_of(self, value: Value | None) -> Array | None:
        """The content of a constant; None for what is none."""
        return None if value is None else self.constants.get(value)

    def result(self, value: Value, order: Sequence[int] | None = None) -> View:
        """Memory for a result, without gaps, its axes in `order`."""
        assert not self.grows(value)
        made = self._fresh(dtype_of(value), shape_of(value), order, value in self._caller_values)
        self._views[value] = made
        return made

    def grows(self, value: Value) -> bool:
        """Whether a result continues an input and has room behind it."""
        return self.growth is not None and value in self.growth.inputs

    def grown_result(self, value: Value) -> View:
        """Memory for a result that grows."""
        assert self.growth is not None
        room = self._fresh(dtype_of(value), self.growth.room(value), None, True)
        self._views[value] = made = replace(room, shape=tuple(shape_of(value)), strides=self.growth.strides(value))
        return made

    def temporary(self, dtype: DType, shape: Sequence[Dim], order: Sequence[int] | None = None) -> View:
        """Memory for a tensor that is needed for a while."""
        return self._fresh(dtype, shape, order, False)

    def alias(self, value: Value, view: View) -> None:
        """A result lies where something else already lies."""
        self._views[value] = view

    def copied(self, view: View, order: Sequence[int] | None = None) -> View:
        """A copy without gaps, its axes in `order`."""
        made = self.temporary(view.dtype, view.shape, order)
        self.copy(view, made)
        return made

    def copy(self, source: View, target: View) -> None:
        """Copy one view to another of the same shape."""
        pointwise.copy(self, source, target)

    def is_last_reader(self, value: Value) -> bool:
        """Whether nothing but the nodes that are planned now still reads the memory of a value of the arena."""
        storage = self.view(value).storage
        if storage.given or storage in self._outside:
            return False
        return not any(self._is_read_later(other) for other, view in self._views.items() if view.storage is storage)

    def is_read_elsewhere(self, value: Value) -> bool:
        """Whether anything but the nodes that are planned now reads a value."""
        return value in self._ends or any(node not in self._nodes for node in self._readers.get(value, ()))

    # --- calls

    def error_cell(self, node: Node, message: str) -> View:
        """A number that a kernel sets to report that `node` cannot be computed."""
        self.tape.errors.append((node, message))
        return View(self.errors, i64, (), (), len(self.tape.errors) - 1)

    def step(
        self,
        kernel: Kernel,
        operands: Sequence[View],
        numbers: Sequence[Dim],
        *,
        rows: Dim,
        cols: Dim = 1,
        row_grain: Dim = 1,
        col_grain: Dim = 1,
        work: Dim = 1,
        floats: Sequence[float] = (),
        scratch: Dim = 0,
        writes: int = 1,
        takes_epilogue: bool = False,
    ) -> Step:
        """Call a kernel on a grid of rows × cols; the last `writes` operands are written, the others read.

        Threads take parts that are multiples of the grains; `work` is about the number of operations per cell of the
        grid. A kernel that `takes_epilogue` hands each part of its one result on when it is finished.
        """
        grid = (rows, cols, row_grain, col_grain, work, scratch)
        made = Step(kernel, list(operands), list(numbers), list(floats), *grid, writes, takes_epilogue, self._nodes)
        self.tape.steps.append(made)
        return made

    def host(self, storage: Storage) -> Step | None:
        """The call that makes `storage`, if it hands its parts on and may as well run right now."""
        steps = self.tape.steps
        for at in range(len(steps) - 1, -1, -1):
            if steps[at].control is Control.CHECK:
                continue
            if steps[at].control is not Control.RUN:
                return None
            if storage in steps[at].written():
                free = steps[at].takes_epilogue and steps[at].epilogue is None
                return steps[at] if free and _may_wait(steps[at], steps[at + 1 :]) else None
            if steps[at].touches(storage):
                return None
        return None

    def attach(self, host: Step) -> None:
        """Make the latest call the epilogue of `host`, which moves to its place."""
        latest = self.tape.steps.pop()
        self.tape.steps.remove(host)
        host.epilogue = latest
        self.tape.steps.append(host)

    def require(self, node: Node, *conditions: Condition) -> None:
        """End runs in which a condition does not hold with an error, before anything else is done."""
        for condition in conditions:
            size, least, text = condition.size, condition.least, condition.text
            if size is UNKNOWN or le(least, size) is True or (size, least) in self._required:
                continue
            self._required.add((size, least))
            self.control(Control.CHECK, [self.error_cell(node, text)], [size, least])

    # --- bodies

    def body(self, graph: Graph) -> None:
        """Plan the nodes of a graph whose inputs have their views: the whole one, or a body in it."""
        before = set(self._required)
        for unit in fuse(_needed(graph, self.kernels), self._may_join, self.kernels.reads):
            self._plan(unit)
        self._required = before

    def round(self, graph: Graph) -> None:
        """Plan a body that runs several times: what lies outside of it stays for the next time."""
        before = self._outside
        self._outside = before | {view.storage for view in self._views.values()}
        self.body(graph)
        self._outside = before

    def control(
        self, kind: Control, operands: Sequence[View] = (), numbers: Sequence[Dim] = (), target: Step | None = None
    ) -> Step:
        """A step that decides which one comes next."""
        grid = (0, 0, 1, 1, 1, 0)
        made = Step(None, list(operands), list(numbers), [], *grid, 0, False, self._nodes, control=kind, target=target)
        self.tape.steps.append(made)
        return made

    # --- inner workings

    def _may_join(self, node: Node) -> bool:
        return self._fused and self.kernels.is_elementwise(node)

    def _plan(self, unit: Unit) -> None:
        self._nodes = tuple(unit.nodes)
        self._planned.update(unit.nodes)
        for node in unit.nodes:
            self.require(node, *_conditions(node))
        if unit.shape is not None or self.kernels.is_elementwise(unit.nodes[0]):
            pointwise.emit(self, unit.nodes)
        else:
            self.kernels.emitters[unit.nodes[0].op].emit(self, unit.nodes[0])

    def _fresh(self, dtype: DType, shape: Sequence[Dim], order: Sequence[int] | None, given: bool) -> View:
        size = product(shape) * dtype.numpy.itemsize
        storage = Storage(size if le(0, size) else dim_max(size, 0), given)
        if given:
            self.made.append(storage)
        return View(storage, dtype, tuple(shape), dense_strides(shape, order))

    def _is_read_later(self, value: Value) -> bool:
        return value in self._ends or any(node not in self._planned for node in self._readers.get(value, ()))

    def _output(self, value: Value) -> View:
        """Where a result lies: in an input or in memory for results, where it is put if it is not there yet."""
        view = self.view(value)
        if self.grows(value) or self._may_stay(view):
            return view
        made = self._fresh(view.dtype, view.shape, None, True)
        self.copy(view, made)
        return made

    def _may_stay(self, view: View) -> bool:
        """Whether a result may lie where it is."""
        own = view.storage in self.made
        if not own and all(self._views[each].storage is not view.storage for each in self.graph.inputs):
            return False
        if self._row_major:
            return view.offset == 0 and view.is_dense
        return not own or view.is_dense_in(view.order)


def _provided(value: Value) -> View:
    """An input, which comes in row-major order."""
    shape = shape_of(value)
    return View(Storage(0, given=True), dtype_of(value), shape, dense_strides(shape))


def _strides(array: Array) -> tuple[int, ...]:
    """A constant's strides in elements; axes of size 1 have those of a dense array, which compare better."""
    width = array.dtype.itemsize
    dense = cast("tuple[int, ...]", dense_strides(array.shape))
    sizes = zip(array.shape, array.strides, dense, strict=True)
    return tuple(own if size == 1 else stride // width for size, stride, own in sizes)


def symbol_sources(graph: Graph) -> dict[str, tuple[int, int]]:
    """The symbols of the inputs' dims: for each, an input and the axis of it that has its size."""
    found: dict[str, tuple[int, int]] = {}
    for index, value in enumerate(graph.inputs):
        for name, axis in symbol_axes(value.type):
            found.setdefault(name, (index, axis))
    return found


def _conditions(node: Node) -> list[Condition]:
    """What must hold of the sizes for a node to make sense, and only a run tells."""
    if all(isinstance(dim, int) for value in used(node) for dim in shape_of(value)):
        return []
    definition = OPS[node.op]
    with noting() as found:
        if not definition.regions:
            definition.infer([None if value is None else Fact(value.type) for value in node.inputs], node.attrs)
    results = (dim for value in node.outputs for dim in shape_of(value))
    return [*found, *(at_least(dim, 0) for dim in results)]


def _needed(graph: Graph, kernels: KernelTable) -> list[Node]:
    """The nodes whose results are read, by others or by the caller."""
    wanted: set[Value] = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if wanted.isdisjoint(node.outputs):
            continue
        kept.append(node)
        wanted.update(kernels.reads(node))
    return kept[::-1]


def _with_bodies(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.walk():
        yield from node.regions


def _readers(graph: Graph, kernels: KernelTable) -> dict[Value, list[Node]]:
    found: dict[Value, list[Node]] = {}
    for each in _with_bodies(graph):
        for node in _needed(each, kernels):
            for value in kernels.reads(node):
                found.setdefault(value, []).append(node)
    return found


def _caller_values(graph: Graph, kernels: KernelTable) -> set[Value]:
    """The outputs, and what they are views of."""
    found: set[Value] = set(graph.outputs)
    for node in reversed(_needed(graph, kernels)):
        if kernels.is_view(node) and not found.isdisjoint(node.outputs):
            found.update(value for value in node.inputs[:1] if value is not None)
    return found


def _may_wait(step: Step, later: Sequence[Step]) -> bool:
    """Whether a call may as well run after `later` ones."""
    written, parts = step.written(), [part for each in later for part in each.parts]
    return not any(part.touches(storage) for part in parts for storage in written) and not any(
        step.touches(storage) for part in parts for storage in part.written()
    )
