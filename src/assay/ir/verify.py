"""The rules that every graph keeps, at every level; one pass over the graph checks them all."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import NoReturn, cast

import numpy as np

from assay.errors import VerifyFailed
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import LinkType, MapType, OptionalType, SequenceType, TensorType, UnknownType

NodeCheck = Callable[[Node], str | None]
"""What a level asks of a node: a complaint, or None."""

_TYPES = (TensorType, SequenceType, OptionalType, MapType, LinkType, UnknownType)
_CARRIERS = frozenset(dtype.numpy for dtype in dtypes.ALL)
_SCALARS = frozenset[type]({int, float, bool, str, bytes, NoneType, DType})


def verify(graph: Graph, check_node: NodeCheck | None = None) -> None:
    """Raise `VerifyFailed`, naming the node, if `graph` or one of its regions breaks a rule of the IR.

    Every value is a `Value` with a type and an id of its own, and is defined once, before its uses. A region
    sees what is defined in the graphs around it before the node that holds it; outside, nothing of it is seen.
    A region of another level than the graph around it is isolated: it has ids of its own and sees nothing outside.
    Outputs and names point to values that the graph sees, constants have exactly the type of their value,
    inputs and outputs have names for all or for none, a node has an origin, and attributes are of the kinds
    that `Attr` lists. `check_node` adds the rules of a level.
    """
    _Verifier(check_node).graph(graph)


class _Verifier:
    def __init__(self, check_node: NodeCheck | None) -> None:
        self.check_node = check_node
        self.visible: set[Value] = set()  # from where the walk stands
        self.ids: dict[int, Value] = {}  # of all that was defined so far, anywhere

    def graph(self, graph: Graph) -> None:
        mine: list[Value] = []
        for value in (*graph.inputs, *graph.constants):
            self.define(value, graph, mine)
        for value, array in graph.constants.items():
            _require(_mismatch(value.type, array), graph, f"constant {value}")
        for node in graph.nodes:
            self.node(node, mine, graph.level)
        for value in graph.outputs:
            self.use(value, graph, "the output")
        for name, value in graph.names.items():
            self.use(value, graph, f"the name '{name}'")
        for what, values, names in (
            ("inputs", graph.inputs, graph.input_names),
            ("outputs", graph.outputs, graph.output_names),
        ):
            if names and len(names) != len(values):
                _fail(f"there are {len(names)} names for {len(values)} {what}", graph)
        self.visible.difference_update(mine)

    def node(self, node: Node, mine: list[Value], level: str) -> None:
        for value in node.inputs:
            if value is not None:
                self.use(value, node, "the input")
        if not node.origin.op:
            _fail("the origin of the node names no op", node)
        for key, attr in node.attrs.items():
            _require(_not_attr(attr), node, f"attribute '{key}'")
        for region in node.regions:
            (self if region.level == level else _Verifier(None)).graph(region)
        for value in node.outputs:
            self.define(value, node, mine)
        if self.check_node is not None:
            _require(self.check_node(node), node)

    def define(self, value: Value, at: Node | Graph, mine: list[Value]) -> None:
        _require(_not_value(value), at)
        known = self.ids.get(value.id)
        if known is not None:
            _fail(f"{value} is defined twice" if known is value else f"{value} has the id of another value", at)
        self.ids[value.id] = value
        self.visible.add(value)
        mine.append(value)

    def use(self, value: Value, at: Node | Graph, what: str) -> None:
        _require(_not_value(value), at)
        if value not in self.visible:
            ended = self.ids.get(value.id) is value
            why = "belongs to a region that ends before" if ended else "is not defined before it is used"
            _fail(f"{what} {value} {why}", at)


def _not_value(value: object) -> str | None:
    if not isinstance(value, Value):
        return f"{value!r} is no value of the graph"
    kind = cast(object, value.type)
    return None if isinstance(kind, _TYPES) else f"{value} has no type but {kind!r}"


def _mismatch(kind: object, array: object) -> str | None:
    """What is wrong with `array` as the content of a value of type `kind`."""
    complaint = _not_tensor(array)
    if complaint is not None:
        return complaint
    actual = TensorType(dtypes.of(cast(Array, array)), cast(Array, array).shape)
    return None if actual == kind else f"has the type {kind} and the content {actual}"


def _not_attr(attr: object) -> str | None:
    if isinstance(attr, tuple):
        return next(filter(None, map(_not_attr, cast(tuple[object, ...], attr))), None)
    if isinstance(attr, np.ndarray):
        return _not_tensor(attr)  # pyright: ignore[reportUnknownArgumentType]
    return None if type(attr) in _SCALARS else f"is of type {type(attr).__name__}"


def _not_tensor(array: object) -> str | None:
    if not isinstance(array, np.ndarray):
        return f"is of type {type(array).__name__}, not an array"
    given = cast(Array, array)
    if given.dtype not in _CARRIERS:
        return f"is an array of NumPy's {given.dtype}, which no element type is carried by"
    if given.dtype == dtypes.string.numpy and not all(type(item) is str for item in given.flat):
        return "is an array of objects that are not all strings"
    return None


def _require(complaint: str | None, at: Node | Graph, what: str = "") -> None:
    if complaint is not None:
        _fail(f"{what} {complaint}".strip(), at)


def _fail(message: str, at: Node | Graph) -> NoReturn:
    where = f"{at!r} from {at.origin}" if isinstance(at, Node) else f"graph '{at.name}'"
    raise VerifyFailed(message, where=where)
