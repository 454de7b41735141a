"""Ways to damage a model, each a small function under the name of what it does."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import onnx
from onnx import TensorProto, helper

Mutation: TypeAlias = Callable[[onnx.ModelProto, random.Random], None]
RawMutation: TypeAlias = Callable[[bytes, random.Random], bytes]

ABSURD = (-(2**63), -7, -1, 0, 1, 3, 2**20, 2**31, 2**40, 2**62, 2**63 - 1)


def graphs_of(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The main graph and every body in it."""
    found: list[onnx.GraphProto] = []
    todo = [model.graph]
    while todo:
        graph = todo.pop()
        found.append(graph)
        todo.extend(attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return found


def nodes_of(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Every node, those of bodies and functions included."""
    inner = [node for graph in graphs_of(model) for node in graph.node]
    return inner + [node for function in model.functions for node in function.node]


def tensors_of(model: onnx.ModelProto) -> list[TensorProto]:
    """Every stored tensor."""
    stored = [tensor for graph in graphs_of(model) for tensor in graph.initializer]
    stored += [a.t for node in nodes_of(model) for a in node.attribute if a.HasField("t")]
    return stored + [
        part for graph in graphs_of(model) for s in graph.sparse_initializer for part in (s.values, s.indices)
    ]


def _dims_of(model: onnx.ModelProto) -> list[Any]:
    infos = [info for graph in graphs_of(model) for info in (*graph.input, *graph.output, *graph.value_info)]
    return [dim for info in infos for dim in info.type.tensor_type.shape.dim]


def _names(model: onnx.ModelProto) -> list[str]:
    return sorted({name for node in nodes_of(model) for name in (*node.input, *node.output) if name})


# --- structured mutations


def undefined_input(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node reads a value that nobody makes."""
    node = rng.choice(nodes_of(model))
    if node.input:
        node.input[rng.randrange(len(node.input))] = "nobody makes this"


def rewired_input(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node reads another value: wrong types, shapes, cycles."""
    node = rng.choice(nodes_of(model))
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))


def cycle(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node reads what it makes."""
    node = rng.choice(nodes_of(model))
    if node.input and node.output:
        node.input[0] = node.output[0]


def duplicate_name(model: onnx.ModelProto, rng: random.Random) -> None:
    """Two nodes make one value."""
    node = rng.choice(nodes_of(model))
    if node.output:
        node.output[0] = rng.choice(_names(model))


def dropped_node(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node is missing."""
    graph = rng.choice(graphs_of(model))
    if graph.node:
        del graph.node[rng.randrange(len(graph.node))]


def shuffled_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    """The nodes are in another order."""
    nodes = list(model.graph.node)
    rng.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def other_op(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node applies another op."""
    ops = [
        "Add",
        "Conv",
        "Loop",
        "If",
        "Reshape",
        "Expand",
        "Concat",
        "Gather",
        "Softmax",
        "Nonsense",
        "",
        "SequenceAt",
        "Resize",
        "LSTM",
    ]
    rng.choice(nodes_of(model)).op_type = rng.choice(ops)


def other_domain(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node is of another domain."""
    rng.choice(nodes_of(model)).domain = rng.choice(["com.microsoft", "ai.onnx.ml", "nowhere", "own"])


def other_opset(model: onnx.ModelProto, rng: random.Random) -> None:
    """The model imports another version."""
    model.opset_import[0].version = rng.choice([-1, 0, 1, 6, 7, 9, 11, 13, 999, 2**62])


def no_opset(model: onnx.ModelProto, rng: random.Random) -> None:
    """The model imports no version."""
    del model.opset_import[:]


def extra_inputs(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node takes more inputs than its op has."""
    node = rng.choice(nodes_of(model))
    node.input.extend(rng.choices(_names(model), k=rng.randrange(1, 5)))


def missing_inputs(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node lacks inputs."""
    node = rng.choice(nodes_of(model))
    del node.input[rng.randrange(len(node.input) + 1) :]


def extra_outputs(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node names more outputs than its op has."""
    rng.choice(nodes_of(model)).output.append("one too many")


def no_outputs(model: onnx.ModelProto, rng: random.Random) -> None:
    """A graph has no outputs."""
    del rng.choice(graphs_of(model)).output[:]


def _with_attribute(model: onnx.ModelProto, rng: random.Random) -> onnx.AttributeProto | None:
    attributes = [attribute for node in nodes_of(model) for attribute in node.attribute]
    return rng.choice(attributes) if attributes else None


def absurd_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    """An attribute holds extreme numbers."""
    attribute = _with_attribute(model, rng)
    if attribute is None:
        return
    attribute.i = rng.choice(ABSURD)
    attribute.f = rng.choice([float("nan"), float("inf"), -1e30, 0.0])
    attribute.ints[:] = [rng.choice(ABSURD) for _ in attribute.ints]


def retyped_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    """An attribute is of another type."""
    attribute = _with_attribute(model, rng)
    if attribute is not None:
        attribute.type = cast(Any, rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13]))


def unknown_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    """An attribute has another name."""
    attribute = _with_attribute(model, rng)
    if attribute is not None:
        attribute.name = rng.choice(["axis", "body", "nonsense", "", "to"])


def dropped_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node has lost its attributes."""
    del rng.choice(nodes_of(model)).attribute[:]


def absurd_dim(model: onnx.ModelProto, rng: random.Random) -> None:
    """A declared dim is extreme."""
    dims = _dims_of(model)
    if dims:
        rng.choice(dims).dim_value = rng.choice(ABSURD)


def renamed_dim(model: onnx.ModelProto, rng: random.Random) -> None:
    """A declared dim has an odd name."""
    dims = _dims_of(model)
    if dims:
        rng.choice(dims).dim_param = rng.choice(["", "N", "a b", "2*N", "`", "?", "n" * 5000, "0"])


def retyped_input(model: onnx.ModelProto, rng: random.Random) -> None:
    """A graph input is of another element type."""
    if model.graph.input:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.choice([0, 1, 3, 7, 8, 9, 10, 14, 16, 22, 77])


def absurd_tensor_dims(model: onnx.ModelProto, rng: random.Random) -> None:
    """A stored tensor claims an extreme shape."""
    tensors = tensors_of(model)
    if tensors:
        tensor = rng.choice(tensors)
        tensor.dims[:] = [rng.choice(ABSURD) for _ in range(rng.choice([1, 2, 3, 40, 2000]))]


def retyped_tensor(model: onnx.ModelProto, rng: random.Random) -> None:
    """A stored tensor claims another element type."""
    tensors = tensors_of(model)
    if tensors:
        rng.choice(tensors).data_type = rng.choice([0, 1, 2, 7, 8, 9, 10, 11, 14, 17, 21, 22, 24, 28, 99])


def torn_tensor(model: onnx.ModelProto, rng: random.Random) -> None:
    """A stored tensor has lost or gained bytes."""
    tensors = [t for t in tensors_of(model) if t.raw_data]
    if tensors:
        tensor = rng.choice(tensors)
        tensor.raw_data = tensor.raw_data[:-1] if rng.random() < 0.5 else tensor.raw_data + b"\1\2\3"


def absurd_content(model: onnx.ModelProto, rng: random.Random) -> None:
    """Integers that shapes and counts are made of are extreme."""
    tensors = [t for t in tensors_of(model) if t.data_type == TensorProto.INT64]
    if tensors:
        tensor = rng.choice(tensors)
        count = 1
        for dim in tensor.dims:
            count *= dim
        tensor.ClearField("raw_data")
        tensor.int64_data[:] = [rng.choice(ABSURD) for _ in range(min(count, 64))]


def external_data(model: onnx.ModelProto, rng: random.Random) -> None:
    """A stored tensor points to a file that it must not, or cannot, have."""
    tensors = tensors_of(model)
    if not tensors:
        return
    tensor = rng.choice(tensors)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    places = ["../../etc/passwd", "/etc/passwd", "missing.bin", "", ".", "a/../../x", "\0", "x" * 5000]
    entries = {"location": rng.choice(places), "offset": str(rng.choice(ABSURD)), "length": str(rng.choice(ABSURD))}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def nested_bodies(model: onnx.ModelProto, rng: random.Random) -> None:
    """Bodies within bodies, many deep."""
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["d0"], value_float=1.0)],
        "deep",
        [],
        [helper.make_empty_tensor_value_info("d0")],
    )
    for level in range(rng.choice([3, 12, 25])):
        condition = helper.make_node(
            "Constant", [], [f"c{level}"], value=helper.make_tensor("", TensorProto.BOOL, [], [1])
        )
        node = helper.make_node(
            "If", [f"c{level}"], [f"e{level}"], then_branch=graph, else_branch=graph if level < 3 else _leaf()
        )
        graph = helper.make_graph(
            [condition, node], f"deep{level}", [], [helper.make_empty_tensor_value_info(f"e{level}")]
        )
    model.graph.node.extend(graph.node)


def _leaf() -> onnx.GraphProto:
    node = helper.make_node("Constant", [], ["leaf"], value_float=1.0)
    return helper.make_graph([node], "leaf", [], [helper.make_empty_tensor_value_info("leaf")])


def recursive_function(model: onnx.ModelProto, rng: random.Random) -> None:
    """A function that calls itself, perhaps through another."""
    own, standard = helper.make_opsetid("own", 1), helper.make_opsetid("", 18)
    chain = ["A", "B", "C"][: rng.randrange(1, 4)]
    for name, callee in zip(chain, [*chain[1:], chain[0]], strict=True):
        body = [
            helper.make_node(callee, ["x"], ["t"], domain="own"),
            helper.make_node(callee, ["t"], ["y"], domain="own"),
        ]
        model.functions.append(helper.make_function("own", name, ["x"], ["y"], body, [standard, own]))
    model.opset_import.append(own)
    names = _names(model)
    model.graph.node.append(helper.make_node("A", [names[0] if names else ""], ["recursed"], domain="own"))


def endless_loop(model: onnx.ModelProto, rng: random.Random) -> None:
    """A loop that would run for ever, or nearly."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["i"], ["o"])],
        "endless",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("o", TensorProto.INT64, []),
        ],
    )
    model.graph.node.append(
        helper.make_node("Constant", [], ["true"], value=helper.make_tensor("", TensorProto.BOOL, [], [1]))
    )
    model.graph.node.append(helper.make_node("Loop", ["", "true"], ["collected"], body=body))
    model.graph.output.append(helper.make_empty_tensor_value_info("collected"))


def blown_up(model: onnx.ModelProto, rng: random.Random) -> None:
    """A chain of ops that would make an enormous tensor."""
    op, shape = rng.choice([("Expand", [2**20, 2**20]), ("Tile", [2**40, 2**20]), ("Expand", [2**62, 2**62])])
    model.graph.initializer.append(helper.make_tensor("huge", TensorProto.INT64, [2], shape))
    model.graph.initializer.append(helper.make_tensor("seed", TensorProto.FLOAT, [1, 1], [1.0]))
    model.graph.node.append(helper.make_node(op, ["seed", "huge"], ["enormous"]))
    model.graph.node.append(helper.make_node("Exp", ["enormous"], ["more"]))
    model.graph.output.append(helper.make_empty_tensor_value_info("more"))


# --- raw mutations


def bit_flips(data: bytes, rng: random.Random) -> bytes:
    """A few bits differ."""
    mutated = bytearray(data)
    for _ in range(rng.randrange(1, 3)):
        mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
    return bytes(mutated)


def truncated(data: bytes, rng: random.Random) -> bytes:
    """The file ends too early."""
    return data[: rng.randrange(len(data))]


def repeated(data: bytes, rng: random.Random) -> bytes:
    """A part of the file stands twice."""
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.randrange(1, 64))
    return data[:end] + data[start:end] + data[end:]


def noise(data: bytes, rng: random.Random) -> bytes:
    """A part of the file is random."""
    start = rng.randrange(len(data))
    junk = rng.randbytes(rng.randrange(1, 32))
    return data[:start] + junk + data[start + len(junk) :]


STRUCTURED: tuple[Mutation, ...] = (
    undefined_input,
    rewired_input,
    cycle,
    duplicate_name,
    dropped_node,
    shuffled_nodes,
    other_op,
    other_domain,
    other_opset,
    no_opset,
    extra_inputs,
    missing_inputs,
    extra_outputs,
    no_outputs,
    absurd_attribute,
    retyped_attribute,
    unknown_attribute,
    dropped_attribute,
    absurd_dim,
    renamed_dim,
    retyped_input,
    absurd_tensor_dims,
    retyped_tensor,
    torn_tensor,
    absurd_content,
    external_data,
    nested_bodies,
    recursive_function,
    endless_loop,
    blown_up,
)
RAW: tuple[RawMutation, ...] = (bit_flips, truncated, repeated, noise)


def mutant(models: list[bytes], index: int, seed: int) -> tuple[str, bytes]:
    """Mutant number `index` of a run: what was done to it, and its bytes."""
    rng = random.Random(f"{seed}/{index}")
    data = rng.choice(models)
    if index % 3 == 0:
        damage = rng.choice(RAW)
        return damage.__name__, damage(data, rng)
    model = onnx.ModelProto.FromString(data)
    chosen = rng.choice(STRUCTURED)
    chosen(model, rng)
    if rng.random() < 0.2:
        with contextlib.suppress(IndexError):  # the first mutation took away what the second would change
            rng.choice(STRUCTURED)(model, rng)
    return chosen.__name__, model.SerializeToString()
