"""An aten graph as plain data: ops, inputs, outputs, shapes with symbols as text, dtypes, source lines."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import fx

from assay.frontends.torch.importer import origin_of
from assay.frontends.torch.private.ops import schema_of
from assay.frontends.torch.types import dtype_of, is_carried
from assay.runtime.torch.accounts import calls_of, plain_name, size_inputs
from assay.runtime.torch.graphs import CompiledGraph


def raw_graph(name: str, graph: CompiledGraph, call: int) -> dict[str, Any]:
    """All of an aten graph; a result out of a tuple is called NAME.INDEX."""
    symbolic = {node.origin.name: node for node in graph.imported.graph.nodes}
    nodes = graph.fx.graph.nodes
    outputs: Any = next(node.args[0] for node in nodes if node.op == "output")
    return {
        "graph": name,
        "phase": graph.phase,
        "call": call,
        "symbols": [asdict(size) for size in size_inputs(graph.fx)],
        "inputs": [_described(n.name, n.meta.get("val")) for n in nodes if n.op in ("placeholder", "get_attr")],
        "nodes": [_node(node, symbolic[node.name].op) for node in calls_of(graph.fx)],
        "outputs": [_plain(item) for item in outputs],
    }


def _node(node: fx.Node, op: str) -> dict[str, Any]:
    origin = origin_of(node)
    return {
        "op": op,
        "name": node.name,
        "inputs": [_described(_name(each), each.meta.get("val")) for each in _inputs(node)],
        "outputs": list(_outputs(node.name, node.meta.get("val"))),
        "attrs": {key: _plain(value) for key, value in _arguments(node) if not isinstance(value, fx.Node)},
        "module": plain_name(origin.module),
        "file": origin.file,
        "line": origin.line,
    }


def _inputs(node: fx.Node) -> list[fx.Node]:
    """Every node among the arguments, as often as it occurs."""
    found: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), found.append)
    return found


def _arguments(node: fx.Node) -> Iterator[tuple[str, Any]]:
    """The arguments by the names of the op's schema."""
    target: Any = node.target
    schema: Any = schema_of(target)  # Python's operators on sizes have none
    named = () if schema is None else schema.arguments
    for index, value in enumerate(node.args):
        yield (named[index].name if index < len(named) else f"argument {index}"), value
    yield from node.kwargs.items()


def _outputs(name: str, value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list | tuple):
        for index, part in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            yield from _outputs(f"{name}.{index}", part)
    elif value is not None:
        yield _described(name, value)


def _name(node: fx.Node) -> str:
    if node.target is not operator.getitem:
        return node.name
    source: Any = node.args[0]
    return f"{_name(source)}.{node.args[1]}"


def _described(name: str, value: Any) -> dict[str, Any]:
    """dtype and shape of a value; `elements` and `bytes` in the run that was traced, null where a run decides."""
    if not isinstance(value, torch.Tensor):
        return {"name": name, "kind": "number", "value": _plain(value)}
    shape: list[Any] = list(value.shape)
    sizes = [_now(size) for size in shape]
    elements = None if None in sizes else math.prod(size for size in sizes if size is not None)
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dtype_of(value.dtype).name if is_carried(value.dtype) else str(value.dtype),
        "shape": [size if isinstance(size, int) else str(size) for size in shape],
        "elements": elements,
        "bytes": None if elements is None else elements * value.dtype.itemsize,
    }


def _now(size: Any) -> int | None:
    """What a size was in the traced run; None for one that the run itself made."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None


def _plain(value: Any) -> Any:
    """An argument as JSON has it: a node is %NAME, what is no number is its text."""
    if isinstance(value, fx.Node):
        return f"%{_name(value)}"
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
