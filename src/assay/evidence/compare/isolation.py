"""One node of a model by itself, on given inputs: whether a difference is its own or one that it was handed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.evidence.engines import Engine, ModelOnTarget
from assay.ir import dtypes
from assay.ir.dtypes import is_array
from assay.ir.graph import Graph, Node, Value, named_values, used
from assay.ir.types import TensorType


class Isolated:
    """The nodes of a model, each to be run alone. `values` are the inputs, by their names in the model."""

    def __init__(self, model: Path, graph: Graph, values: Mapping[str, Any]) -> None:
        self._model, self._graph = model, graph
        named = named_values(graph)
        self._names = {value: name for name, value in named.items()}
        self._content: dict[Value, Any] = dict(graph.constants)
        self._content.update((named[name], content) for name, content in values.items() if name in named)

    def run(self, node: Node, who: Engine) -> dict[str, Any] | None:
        """The results of `node` by name; None if something that it reads is not known, or `who` cannot run it alone."""
        reads = used(node)
        if node.regions or not all(is_array(self._content.get(value)) for value in reads):
            return None
        feeds = {self._name(value): self._content[value] for value in reads if value not in self._graph.constants}
        graph = self._alone(node)
        try:
            ready = ModelOnTarget(graph, who.options) if who.options else who.load(_of_file(self._model, graph))
            return ready.run(feeds)
        except Exception:  # whoever cannot run the node alone has no opinion of it
            return None

    def _alone(self, node: Node) -> Graph:
        """A graph of the node: what it reads is an input with the shape that it has, unless it is a constant."""
        constants = {value: array for value, array in self._graph.constants.items() if value in used(node)}
        inputs = [value for value in used(node) if value not in constants]
        typed = {value: Value(value.id, _type_of(self._content[value])) for value in inputs}
        moved = tuple(None if value is None else typed.get(value, value) for value in node.inputs)
        alone = Node(node.op, moved, node.outputs, node.origin, node.attrs)
        return Graph(
            node.origin.name or node.op,
            tuple(typed.values()),
            node.outputs,
            (alone,),
            constants,
            {self._name(value): value for value in constants},
            input_names=tuple(self._name(value) for value in inputs),
            output_names=tuple(self._name(value) for value in node.outputs),
            level=self._graph.level,
        )

    def _name(self, value: Value) -> str:
        return self._names.get(value, f"value {value.id}")


def _type_of(array: Any) -> TensorType:
    return TensorType(dtypes.of(array), array.shape)


def _of_file(path: Path, graph: Graph) -> bytes:
    """The node of an ONNX file that makes the graph's first output, as a model of its own."""
    import onnx
    from onnx import helper, numpy_helper

    from assay.frontends.onnx.types import to_proto

    whole = onnx.ModelProto.FromString(path.read_bytes())
    node = next(each for each in whole.graph.node if graph.output_names[0] in each.output)
    names = dict(zip(graph.input_names, graph.inputs, strict=True))
    inputs = [helper.make_value_info(name, to_proto(value.type)) for name, value in names.items()]
    tensors = [numpy_helper.from_array(graph.constants[value], name) for name, value in graph.names.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    alone = helper.make_graph([node], "alone", inputs, outputs, tensors)
    made = helper.make_model(alone, opset_imports=whole.opset_import, functions=whole.functions)
    made.ir_version = whole.ir_version
    return made.SerializeToString()
