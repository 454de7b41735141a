"""An FX graph of aten ops → symbolic graph. Sizes that torch keeps symbolic are ordinary i64 values."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import fx

from assay.errors import ImportFailed
from assay.frontends.torch.private.ops import (
    HigherOrderOperator,
    OpOverload,
    detect_fake_mode,
    pytree,
    run_and_save_rng_state,
    run_with_rng_state,
    unset_fake_temporarily,
)
from assay.frontends.torch.registry import rule_for
from assay.frontends.torch.returned import Returned, axis_order, returned_entries, storage_of
from assay.frontends.torch.types import dim_of, dtype_of, is_carried, to_array, type_of
from assay.ir import dtypes
from assay.ir.building import collector_paused
from assay.ir.dtypes import Array, read_only
from assay.ir.facts import Fact, tracked
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.types import TensorType

Refs = Value | tuple[Any, ...] | None

_ATEN = torch.ops.aten
BY_MEMORY = {_ATEN.as_strided.default, _ATEN.as_strided_copy.default, _ATEN.as_strided_scatter.default}
"""Ops that read the memory behind a tensor, whatever part of it the tensor itself shows."""
_BY_LAYOUT = {torch.ops.aten._linalg_det.default, torch.ops.aten._linalg_slogdet.default}
"""Ops of which some results, which only their gradients see, depend on whether the first tensor is contiguous."""
_MISSTATED = {_ATEN.unique_consecutive.default, _ATEN.unique_dim_consecutive.default}
"""Ops whose results torch itself does not know the shapes of: along a negative axis even their rank is wrong."""


@dataclass
class Imported:
    """A symbolic graph, what is known of its inputs, and what the FX graph makes of its outputs."""

    graph: Graph
    facts: list[Fact]
    returned: tuple[Returned, ...]


@collector_paused()
def import_fx(module: fx.GraphModule, name: str = "torch", visible: int | None = None) -> Imported:
    """The symbolic graph of an FX module whose nodes are aten ops with `val` metadata.

    Of what it returns, the caller sees the first `visible` (all if None).
    """
    return _Importer(module).run(name, visible)


@dataclass
class _Importer:
    module: fx.GraphModule
    ids: Iterator[int] = field(default_factory=itertools.count)
    values: dict[fx.Node, Refs] = field(default_factory=dict[fx.Node, Refs])
    inputs: list[Value] = field(default_factory=list[Value])
    facts: list[Fact] = field(default_factory=list[Fact])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    nodes: list[Node] = field(default_factory=list[Node])
    orders: dict[Value, tuple[int, ...]] = field(default_factory=dict[Value, tuple[int, ...]])
    owners: dict[int, fx.Node] = field(default_factory=dict[int, fx.Node])
    """By piece of memory, the first node that has a tensor in it."""

    def body(self, name: str) -> Graph:
        """The module as a body of a higher-order op: operands are its inputs, numbers among its results constants."""
        returned = self._read()
        outputs = [self._output(item) for item in returned]
        found = tuple(value for value in outputs if value is not None)
        return Graph(name, tuple(self.inputs), found, tuple(self.nodes), self.constants, level="symbolic")

    def _output(self, item: Any) -> Value | None:
        if isinstance(item, fx.Node):
            value = self.values[item]
            return value if isinstance(value, Value) else None
        return None if item is None else self._constant(np.asarray(item))

    def _read(self) -> Sequence[Any]:
        """Import every node; gives what the module returns."""
        returned: Any = ()
        for node in self.module.graph.nodes:
            if node.op == "output":
                found: Any = node.args[0]
                returned = found if isinstance(found, list | tuple) else (found,)  # pyright: ignore[reportUnknownVariableType]
                continue
            self.values[node] = self._value_of(node)
            meta = node.meta.get("val")
            if isinstance(meta, torch.Tensor):
                self.owners.setdefault(storage_of(meta), node)
        return returned

    def run(self, name: str, visible: int | None) -> Imported:
        """All of it."""
        returned = self._read()
        names = {n.name: v for n, v in self.values.items() if isinstance(v, Value)}
        placeholders = [n for n in self.module.graph.nodes if n.op == "placeholder"]
        found = [self.values[item] for item in returned if isinstance(item, fx.Node)]
        graph = Graph(
            name,
            tuple(self.inputs),
            tuple(value for value in found if isinstance(value, Value)),
            tuple(self.nodes),
            self.constants,
            names,
            tuple(n.name for n in placeholders),
            level="symbolic",
        )
        entries = returned_entries(returned, placeholders, visible)
        return Imported(graph, self.facts, tuple(_as_stated(entry, graph.outputs) for entry in entries))

    def _value_of(self, node: fx.Node) -> Refs:
        if node.op == "placeholder":
            return self._placeholder(node)
        if node.op == "get_attr":
            found = _attribute(self.module, str(node.target))
            if isinstance(found, fx.GraphModule):
                return None  # a body, which the op that has it imports
            with unset_fake_temporarily():  # graphs are compiled under fake tensors, a constant is a real one
                return self._constant(read_only(to_array(found)))
        if node.op != "call_function":
            raise ImportFailed(f"an FX node of kind '{node.op}'", where=node.name)
        if node.target is operator.getitem:
            source: Any = self.values[node.args[0]]  # type: ignore[index]
            return source[node.args[1]]
        return self._call(node)

    def _placeholder(self, node: fx.Node) -> Value:
        meta = node.meta["val"]
        value = self._value(meta)
        kind = value.type
        self.inputs.append(value)
        content = _scalar_content(meta)
        self.facts.append(Fact(kind) if content is None else tracked(cast(TensorType, kind), content))
        return value

    def _constant(self, array: Array) -> Value:
        value = Value(next(self.ids), TensorType(dtypes.of(array), array.shape))
        self.constants[value] = array
        return value

    def _call(self, node: fx.Node) -> Refs:
        if node.target is torch.ops.higher_order.with_effects:
            return self._ordered_call(node)
        return self._import_node(node, node.target, node.args, _meta_of(node))

    def _ordered_call(self, node: fx.Node) -> Refs:
        """An op between two tokens that only keep ops in order, which nodes are in anyhow."""
        _, target, *args = node.args
        refs = self._import_node(node, target, args, node.meta["val"][1:])
        assert isinstance(refs, tuple)
        return self._constant(np.zeros(0, np.float32)), *refs

    def _import_node(self, node: fx.Node, target: Any, arguments: Sequence[Any], meta: Any) -> Refs:
        target, arguments = self._of_memory(node, target, arguments)
        bodies = [each for each in map(self._module, pytree.tree_leaves((arguments, node.kwargs))) if each is not None]
        used: list[Value] = []
        args = tuple(self._encoded(arg, used, bodies) for arg in arguments)
        kwargs = tuple((key, self._encoded(arg, used, bodies)) for key, arg in node.kwargs.items())
        results: list[Value] = []
        refs = self._results(meta, results, sized=target not in _MISSTATED)
        attrs: dict[str, Any] = {"args": args, "kwargs": kwargs, "orders": self._orders(used, target)}
        if target in _BY_LAYOUT:
            attrs["contiguous"] = arguments[0].meta["val"].is_contiguous()
        if target in BY_MEMORY and not _is_dense(arguments[0].meta["val"]):
            attrs["reason"] = "reads memory around a view"
        if bodies:
            attrs["modules"] = tuple(bodies)
        regions = tuple(_Importer(each, self.ids).body(f"body{index}") for index, each in enumerate(bodies))
        origin = replace(origin_of(node), op=op_name(target))
        self.nodes.append(Node(op_name(target), tuple(used), tuple(results), origin, attrs, regions))
        return refs

    def _of_memory(self, node: fx.Node, target: Any, arguments: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """A view through strides as one of the tensor that has all of the memory, where the graph has that."""
        if target not in BY_MEMORY or _is_dense(arguments[0].meta["val"]):
            return target, arguments
        if _is_returned_view(node):
            return _ATEN.full.default, (arguments[1], 0)  # the view will be cut out of the argument
        view = arguments[0].meta["val"]
        base = self.owners.get(storage_of(view))
        offset = arguments[3] if len(arguments) > 3 and arguments[3] is not None else view.storage_offset()
        same = base is not None and base.meta["val"].dtype is view.dtype
        if target is _ATEN.as_strided_scatter.default or not same or isinstance(offset, torch.SymInt):
            return target, arguments
        return target, (base, *arguments[1:3], offset)

    def _module(self, arg: Any) -> fx.GraphModule | None:
        """The body that an argument names."""
        if not isinstance(arg, fx.Node) or arg.op != "get_attr":
            return None
        found = _attribute(self.module, str(arg.target))
        return found if isinstance(found, fx.GraphModule) else None

    def _orders(self, used: Sequence[Value], target: Any) -> tuple[Any, ...]:
        """For each input how its axes lie in memory when eager runs, None if it is not dense; empty if all are in
        their usual order and torch is not asked, which draws random numbers in that order."""
        orders = [self.orders.get(value) for value in used]
        usual = all(order is None or order == tuple(range(len(order))) for order in orders)
        return () if usual and rule_for(op_name(target)) is not None else tuple(orders)

    def _value(self, meta: Any, *, sized: bool = True) -> Value:
        kind = type_of(meta)
        value = Value(next(self.ids), kind if sized or not isinstance(kind, TensorType) else TensorType(kind.dtype))
        order = axis_order(meta) if isinstance(kind, TensorType) and isinstance(meta, torch.Tensor) else None
        if order is not None:
            self.orders[value] = order
        return value

    def _results(self, meta: Any, results: list[Value], *, sized: bool) -> Refs:
        if isinstance(meta, list | tuple):
            parts = cast("Sequence[Any]", meta)
            return tuple(self._results(part, results, sized=sized) for part in parts)
        if meta is None:
            return None
        value = self._value(meta, sized=sized)
        results.append(value)
        return value

    def _encoded(self, arg: Any, used: list[Value], bodies: Sequence[fx.GraphModule] = ()) -> Any:
        """An argument as an attribute: a tensor is the text «%i» for input number i, a symbolic number «#i», a body
        «@i» for region number i; a string starts with «=», torch's name for a dtype that only torch has with «~»,
        a complex number with «+», an op with «&». A mapping is a tuple of «{», its keys and its values."""
        if isinstance(arg, fx.Node):
            body = self._module(arg)
            if body is not None:
                return f"@{next(index for index, each in enumerate(bodies) if each is body)}"
            number = not isinstance(arg.meta.get("val"), torch.Tensor | list | tuple)
            return self._reference(self.values[arg], used, "#" if number else "%")
        if isinstance(arg, list | tuple):
            return tuple(self._encoded(part, used, bodies) for part in arg)  # pyright: ignore[reportUnknownVariableType]
        if isinstance(arg, Mapping):
            table = cast("Mapping[Any, Any]", arg)
            return (_MAPPING, *(self._encoded(part, used, bodies) for part in (*table, *table.values())))
        if isinstance(arg, OpOverload | HigherOrderOperator):
            return f"&{op_name(arg)}"
        if isinstance(arg, torch.dtype):
            return dtype_of(arg) if is_carried(arg) else f"~{arg}"
        if isinstance(arg, torch.device | torch.layout | torch.memory_format):
            return None
        if isinstance(arg, str):
            return f"={arg}"
        if isinstance(arg, complex):
            return f"+{arg}"
        if arg is None or isinstance(arg, bool | int | float):
            return arg
        raise ImportFailed(f"an argument of type {type(arg).__name__}", hint="this kind of argument is not supported")

    def _reference(self, refs: Refs, used: list[Value], mark: str) -> Any:
        if refs is None:
            return None
        if isinstance(refs, tuple):
            return tuple(self._reference(part, used, mark) for part in refs)
        used.append(refs)
        return f"{mark}{len(used) - 1}"


def _meta_of(node: fx.Node) -> Any:
    """What a node gives. torch does not say it of ops that it runs with a saved state of the generator."""
    if "val" in node.meta or node.target not in (run_and_save_rng_state, run_with_rng_state):
        return node.meta.get("val")
    saves = node.target is run_and_save_rng_state
    function, *arguments = node.args if saves else node.args[1:]
    given, named = pytree.tree_map_only(fx.Node, lambda each: each.meta["val"], (arguments, dict(node.kwargs)))
    with detect_fake_mode(given) or nullcontext():
        found = cast(Any, function)(*given, **named)
    return (torch.get_rng_state(), found) if saves else found


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the memory behind a tensor holds its elements alone; no array shows what else there is."""
    return axis_order(tensor) is not None and tensor.storage_offset() == 0


def _is_returned_view(node: fx.Node) -> bool:
    """Whether a node makes a view of an argument that is only returned."""
    source = node.args[0]
    view = node.target is _ATEN.as_strided.default and isinstance(source, fx.Node) and source.op == "placeholder"
    return view and all(user.op == "output" for user in node.users)


def decoded(
    template: Any,
    inputs: Sequence[Any],
    number: Callable[[Any], Any] = lambda value: value,
    bodies: Sequence[Any] = (),
) -> Any:
    """An encoded argument with its values and bodies put back in; `number` is applied to symbolic numbers."""
    if isinstance(template, tuple):
        mapping = template[:1] == (_MAPPING,)
        parts = [decoded(part, inputs, number, bodies) for part in template[mapping:]]  # pyright: ignore[reportUnknownVariableType]
        half = len(parts) // 2
        return dict(zip(parts[:half], parts[half:], strict=True)) if mapping else parts
    if not isinstance(template, str):
        return template
    if template[0] in _SPELLED:
        return _SPELLED[template[0]](template[1:])
    if template[0] == "@":
        return bodies[int(template[1:])]
    value = inputs[int(template[1:])]
    return number(value) if template[0] == "#" else value


def op_name(target: Any) -> str:
    """The symbolic name of an FX target: `aten.add.Tensor`, `aten.higher_order.cond`, or `aten.py.mul` for Python's
    operators on sizes."""
    if isinstance(target, HigherOrderOperator):
        return f"aten.higher_order.{target.name()}"
    if not isinstance(target, OpOverload):
        return f"aten.py.{getattr(target, '__name__', str(target))}"
    name = str(cast(object, target))
    return name if name.startswith("aten.") else f"aten.{name}"


def function_of(target: str) -> Any:
    """torch's function of an op of the symbolic graph; AttributeError if it has none."""
    if target.startswith("aten.py."):
        name = target.removeprefix("aten.py.")
        return getattr(operator, name, None) or getattr(torch, name)
    path = target.split(".")
    found: Any = torch.ops
    for part in path if len(path) == 3 and path[1] != "higher_order" else path[1:]:
        found = getattr(found, part)
    return found


_MAPPING = "{"
_SPELLED: dict[str, Callable[[str], Any]] = {
    "=": str,
    "+": complex,
    "~": lambda text: getattr(torch, text.removeprefix("torch.")),
    "&": function_of,
}
"""What an encoded argument that starts with each of these marks is."""


def origin_of(node: fx.Node) -> Origin:
    """Where a node came from: its module path, and the user's line in the innermost frame of the model."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    module = next(reversed(stack.values()))[0] if stack else ""
    file, line = _source_line(node.meta.get("stack_trace") or "")
    return Origin(op_name(node.target), node.name, module, file, line)


def _source_line(trace: str) -> tuple[str, int]:
    for text in reversed(trace.splitlines()):
        parts = text.strip().split(", ")
        if text.strip().startswith("File ") and len(parts) >= 2 and parts[1].startswith("line "):
            return parts[0][6:-1], int(parts[1][5:])
    return "", 0


def _scalar_content(meta: Any) -> Array | None:
    """The content of a symbolic size, as a dim."""
    if not isinstance(meta, torch.SymInt):
        return None
    content = np.empty((), dtype=object)
    content[()] = dim_of(meta)
    return content


def _as_stated(entry: Returned, outputs: Sequence[Value]) -> Returned:
    """The entry, without what torch says of the memory of a result whose shape it does not know."""
    kind = None if entry.output is None else outputs[entry.output].type
    unknown = isinstance(kind, TensorType) and kind.shape is None
    return replace(entry, order=None, strides=None, spread=False) if unknown else entry


def _attribute(module: torch.nn.Module, path: str) -> torch.Tensor:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found
