"""A segment as a program of the library's calls, with every value in the form that its readers want.

A *form* is how a value lies on the card: dtype, layout (tiles or rows) and the order of its axes. A value may have
several; each conversion is made once, when somebody first wants it, and is noted with its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType
from assay.targets.base import NodeRefused
from assay.targets.ttnn.formats import BLOCK_BYTES
from assay.targets.ttnn.formats import TILE as TILE_SIZE

TILE, ROWS = "TILE_LAYOUT", "ROW_MAJOR_LAYOUT"
PLAIN, CHANNELS_LAST = "plain", "channels last"


class Ref(NamedTuple):
    """A tensor of a program, by its number."""

    number: int


class Named(NamedTuple):
    """Something that the library has a name for."""

    path: str


@dataclass(frozen=True, slots=True)
class Make:
    """What a call of the library gives that makes no tensor: a configuration."""

    path: str
    kwargs: Mapping[str, Any]
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """How a value lies on the card."""

    dtype: str
    layout: str = TILE
    order: str = PLAIN

    @property
    def lies(self) -> str:
        """In tiles or rows."""
        return "tiles" if self.layout == TILE else "rows"

    def __str__(self) -> str:
        return f"{self.dtype} {self.lies}" + ("" if self.order == PLAIN else f", {self.order}")


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """One call of the library, made for `node`. What does not depend on a run's inputs runs `once`."""

    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[Ref, ...]
    node: Node
    once: bool

    @property
    def reads(self) -> list[Ref]:
        """The tensors that the call takes."""
        return list(_refs([*self.args, *self.kwargs.values()]))


@dataclass(frozen=True, slots=True)
class Given:
    """What a program is given: a value, the tensor that it is in the program, and its form."""

    value: Value
    ref: Ref
    form: Form


@dataclass(frozen=True, slots=True)
class Promise:
    """What a tensor must be if the table is right about the library."""

    ref: Ref
    shape: tuple[int, ...]
    form: Form

    def __str__(self) -> str:
        return f"{self.form.dtype.upper()} {list(self.shape)} {self.form.layout.removesuffix('_LAYOUT')}"


@dataclass(frozen=True, slots=True)
class Conversion:
    """A value that a reader wants in another form than it has, the `goal`, or one step of the way to that. Without a
    reader it is wanted by what follows the segment."""

    value: Value
    have: Form
    want: Form
    goal: Form
    reader: Node | None
    once: bool


@dataclass(frozen=True, slots=True)
class CallProgram:
    """A segment in the library's calls; plain data but for the nodes and values that it refers to."""

    given: tuple[Given, ...]
    steps: tuple[LibraryCall, ...]
    outputs: tuple[Ref, ...]
    promises: tuple[Promise, ...]
    conversions: tuple[Conversion, ...]

    def calls(self) -> list[dict[str, Any]]:
        """The steps as the worker takes them; each frees what is read for the last time, what was given aside."""
        last = {ref: at for at, step in enumerate(self.steps) for ref in (*step.reads, *step.results)}
        kept = {*self.outputs, *(each.ref for each in self.given)}
        frees: dict[int, list[int]] = {}
        for ref, at in last.items():
            if ref not in kept:
                frees.setdefault(at, []).append(ref.number)
        return [
            {
                "op": step.op,
                "args": [_plain(each) for each in step.args],
                "kwargs": {name: _plain(each) for name, each in step.kwargs.items()},
                "results": [ref.number for ref in step.results],
                "frees": frees.get(at, []),
            }
            for at, step in enumerate(self.steps)
        ]

    @property
    def given_bytes(self) -> int:
        """The bytes of what the program is given: weights and inputs."""
        return sum(bytes_on_card(on_card(each.value), each.form) for each in self.given)


def _refs(arguments: Sequence[Any]) -> list[Ref]:
    found: list[Ref] = []
    for each in arguments:
        if isinstance(each, Ref):
            found.append(each)
        elif isinstance(each, list | tuple) and not isinstance(each, Named):
            found += _refs(each)  # pyright: ignore[reportUnknownArgumentType]
    return found


def _plain(argument: Any) -> Any:
    if isinstance(argument, Ref):
        return {"value": argument.number}
    if isinstance(argument, Named):
        return {"name": argument.path}
    if isinstance(argument, Make):
        kwargs = {name: _plain(each) for name, each in argument.kwargs.items()}
        return {"make": argument.path, "args": [_plain(each) for each in argument.args], "kwargs": kwargs}
    return [_plain(each) for each in argument] if isinstance(argument, list | tuple) else argument  # pyright: ignore[reportUnknownVariableType]


def sizes(value: Value | None) -> tuple[int, ...]:
    """The shape of a tensor whose sizes are all known."""
    assert value is not None
    assert isinstance(value.type, TensorType)
    return tuple(dim for dim in value.type.shape or () if isinstance(dim, int))


def on_card(value: Value | None) -> tuple[int, ...]:
    """The shape that a value has on the card, where every tensor has an axis."""
    return sizes(value) or (1,)


_TILE_BYTES: Mapping[str, int] = {
    "bfloat16": 2048,
    "float32": 4096,
    "int32": 4096,
    "uint32": 4096,
    "uint16": 2048,
    **BLOCK_BYTES,
}


_LINE_BYTES = 32
_WASTE = 4
"""A tensor that would be so many times as large in tiles, such as the weights of a convolution, lies in rows."""


def bytes_on_card(shape: tuple[int, ...], form: Form) -> int:
    """The bytes of a tensor on the card; in tiles, its last two axes are filled up to whole ones, and in rows each is
    filled up to a whole word of the memory."""
    *outer, rows, columns = (1, 1, *shape)
    if form.layout == TILE:
        return prod(outer) * -(-rows // TILE_SIZE) * -(-columns // TILE_SIZE) * _TILE_BYTES[form.dtype]
    line = columns * _TILE_BYTES[form.dtype] // TILE_SIZE**2
    return prod(outer) * rows * -(-line // _LINE_BYTES) * _LINE_BYTES


def handed_over(shape: tuple[int, ...], whole: bool, floats: str = "bfloat16") -> Form:
    """The form in which tensors, of whole numbers or of others, come to a program and leave it. Block formats are in
    tiles alone."""
    if whole:
        return Form("int32", ROWS)
    if floats in BLOCK_BYTES:
        return Form(floats)
    tiles, rows = Form(floats), Form(floats, ROWS)
    wasteful = bytes_on_card(shape, tiles) >= _WASTE * bytes_on_card(shape, rows)
    return rows if wasteful and len(shape) > _MATRIX else tiles


def fits_words(integers: Array) -> bool:
    """Whether integers fit the card's 32 bits."""
    return not integers.size or bool(integers.min() >= _WORD.min and integers.max() <= _WORD.max)


_WORD = np.iinfo(np.int32)


def kind_of(value: Value) -> str:
    """What a value counts as: `float`, `bool`, `int`, or the name of a dtype that the card does not hold."""
    assert isinstance(value.type, TensorType)
    return KINDS.get(value.type.dtype.name, value.type.dtype.name)


KINDS: Mapping[str, str] = {"f32": "float", "bf16": "float", "bool": "bool", "i64": "int", "i32": "int"}
"""The dtypes that the card holds in one of its own, and what they count as."""


@dataclass
class CallPlanner:
    """The program so far. Floats and bools are `floats` on the card; every call gets the layout of its table row.

    The inputs that are `bound` are given for all runs, like constants: in the form that is wanted of them. Matrices
    that products alone read are given in `matrices`, if that is said.
    """

    graph: Graph
    floats: str = "bfloat16"
    bound: Collection[Value] = ()
    matrices: str = ""
    steps: list[LibraryCall] = field(default_factory=list[LibraryCall])
    given: list[Given] = field(default_factory=list[Given])
    promises: list[Promise] = field(default_factory=list[Promise])
    conversions: list[Conversion] = field(default_factory=list[Conversion])
    _forms: dict[Value, dict[Form, Ref]] = field(default_factory=dict[Value, dict[Form, Ref]])
    _settled: set[Ref] = field(default_factory=set[Ref])
    _numbers: int = 0
    _node: Node | None = None
    _handing_over: bool = False
    _layout: str = TILE

    def __post_init__(self) -> None:
        self._narrow = matrices_of(self.graph) if self.matrices else frozenset[Value]()

    # --- for those who plan a segment

    def begin(self, node: Node, layout: str) -> None:
        """What follows is done for `node`, whose row of the table wants this layout."""
        self._node, self._layout = node, layout

    def finished(self) -> CallProgram:
        """The program, with its results in the form in which segments hand over."""
        self._handing_over = True
        outputs = tuple(self.take(value, self.boundary(value)) for value in self.graph.outputs)
        return CallProgram(tuple(self.given), tuple(self.steps), outputs, tuple(self.promises), tuple(self.conversions))

    def boundary(self, value: Value) -> Form:
        """The form in which a value comes from a segment or the host and goes there."""
        if value in self._narrow:
            return Form(self.matrices)
        return handed_over(on_card(value), kind_of(value) == "int", self.floats)

    # --- for the functions of the table

    def usual(self, value: Value) -> Form:
        """The form that the row of the node under way wants of a value."""
        return Form("int32" if kind_of(value) == "int" else self.floats, self._layout)

    def matrix_form(self, value: Value | None) -> Form:
        """The form that a product wants of its second operand."""
        assert value is not None
        return Form(self.matrices) if value in self._narrow else self.usual(value)

    def take(self, value: Value | None, form: Form | None = None) -> Ref:
        """A value in a form, by default the usual one; converted now if it is not there yet."""
        assert value is not None
        wanted = form or self.usual(value)
        forms = self._forms.setdefault(value, {})
        if wanted not in forms:
            have = self._source(value, wanted) if not forms else _nearest(forms, wanted)
            self._convert(value, have, wanted)
        return forms[wanted]

    def forms(self, value: Value | None) -> Mapping[Form, Ref]:
        """The forms in which a value is there."""
        return self._forms.get(value, {}) if value is not None else {}

    def constant(self, value: Value | None) -> Array | None:
        """The content of a constant; None for what is none."""
        return None if value is None else self.graph.constants.get(value)

    def number(self, value: Value | None) -> float | None:
        """The content of a constant of one element; None for anything else."""
        found = self.constant(value)
        return found.reshape(-1)[0].item() if found is not None and found.size == 1 else None

    def scalar(self, value: Value | None) -> float | int | None:
        """The same as the library takes numbers: whole ones for integers, else floats."""
        found = self.number(value)
        assert value is not None
        return found if found is None or kind_of(value) == "int" else float(found)

    def integers(self, value: Value | None) -> list[int]:
        """The content of a constant that the node under way cannot do without."""
        found = self.constant(value)
        if found is None:
            self.refuse("where to read is not known before a run")
        return [int(each) for each in found.reshape(-1).tolist()]

    def refuse(self, reason: str) -> NoReturn:
        """NodeRefused: only the content of a constant tells that the library does not take the node under way."""
        assert self._node is not None
        raise NodeRefused(reason, self._node)

    def call(self, op: str, *args: Any, **kwargs: Any) -> Ref:
        """Add a call of one result."""
        return self.calls(1, op, *args, **kwargs)[0]

    def calls(self, results: int, op: str, *args: Any, **kwargs: Any) -> tuple[Ref, ...]:
        """Add a call."""
        assert self._node is not None
        made = tuple(self._fresh() for _ in range(results))
        once = self._settled.issuperset(_refs([*args, *kwargs.values()]))
        self.steps.append(LibraryCall(op, args, kwargs, made, self._node, once))
        if once:
            self._settled.update(made)
        return made

    def give(self, value: Value, ref: Ref, form: Form | None = None) -> None:
        """Say which tensor a result is, and in which form it must be."""
        found = form or self.usual(value)
        self._forms.setdefault(value, {})[found] = ref
        self.promises.append(Promise(ref, shape_in(value, found), found))

    # --- forms

    def _source(self, value: Value, wanted: Form) -> Form:
        """The form in which something is given that nobody has asked for yet; what lasts comes as it is wanted."""
        lasting = value in self.graph.constants or value in self.bound
        form = Form(wanted.dtype, wanted.layout) if lasting else self.boundary(value)
        if value in self.graph.constants:
            self._check_width(self.graph.constants[value])
        ref = self._fresh()
        if lasting:
            self._settled.add(ref)
        self._forms[value][form] = ref
        self.given.append(Given(value, ref, form))
        return form

    def _check_width(self, content: Array) -> None:
        """Refuse integers that do not fit the card's."""
        if content.dtype.kind == "i" and not fits_words(content):
            self.refuse("an integer does not fit the card's 32 bits")

    def _convert(self, value: Value, have: Form, wanted: Form) -> None:
        """Go from form to form, one property at a time."""
        for step in _way(have, wanted):
            ref = self._forms[value][have]
            if step not in self._forms[value]:
                made = self._converted(value, ref, have, step)
                reader = None if self._handing_over else self._node
                self.conversions.append(Conversion(value, have, step, wanted, reader, made in self._settled))
                self.give(value, made, step)
            have = step

    def _converted(self, value: Value, ref: Ref, have: Form, want: Form) -> Ref:
        if have.dtype != want.dtype:
            return self.call("typecast", ref, Named(want.dtype))
        if have.layout != want.layout:
            return self.call("to_layout", ref, Named(want.layout))
        count, channels, *places = sizes(value)
        if want.order == CHANNELS_LAST:
            last = self.call("permute", ref, [0, *range(2, 2 + len(places)), 1])
            return self.call("reshape", last, [1, 1, count * prod(places), channels])
        apart = self.call("reshape", ref, [count, *places, channels])
        return self.call("permute", apart, [0, 1 + len(places), *range(1, 1 + len(places))])

    def _fresh(self) -> Ref:
        self._numbers += 1
        return Ref(self._numbers)


def matrices_of(graph: Graph) -> frozenset[Value]:
    """The matrices that a segment is given and that only products read, as their second operand; and what is kept on
    the card of such."""
    given = {value for value in (*graph.inputs, *graph.constants) if kind_of(value) == "float"}
    found = {value for value in given if len(sizes(value)) == _MATRIX}
    kept: set[Value] = set()
    for node in graph.nodes:
        if node.op == "ttnn.resident" and node.attrs["matrix"]:
            kept.update(node.outputs)
            continue
        second = node.inputs[1:2] if node.op in _PRODUCTS else ()
        found.difference_update(value for value in node.inputs if value is not None and value not in second)
    return frozenset(found | kept)


_MATRIX = 2
_PRODUCTS = ("matmul", "ttnn.linear")


def shape_in(value: Value, form: Form) -> tuple[int, ...]:
    """The shape of a value's tensor in a form."""
    if form.order == PLAIN:
        return on_card(value)
    count, channels, *places = sizes(value)
    return 1, 1, count * prod(places), channels


def _nearest(forms: Mapping[Form, Ref], wanted: Form) -> Form:
    """The form that is the fewest conversions away."""
    return min(forms, key=lambda have: len(_way(have, wanted)))


def _way(have: Form, wanted: Form) -> list[Form]:
    """The forms on the way to another, one property at a time. Axes change their order in rows."""
    turning = have.order != wanted.order
    stops = (
        replace(have, dtype=wanted.dtype),
        replace(have, dtype=wanted.dtype, layout=ROWS if turning else have.layout),
        replace(wanted, layout=ROWS if turning else have.layout),
        wanted,
    )
    return [stop for before, stop in pairwise((have, *stops)) if stop != before]
