"""The binary form of graphs: it reads back exactly, and bytes that are no graph are refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from assay.evidence.fuzz.graph_cases import random_case
from assay.ir import dtypes
from assay.ir.binary import SharedParts, decode, encode, shared_parts
from assay.ir.dims import symbol
from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.printer import print_graph
from assay.ir.types import MapType, OptionalType, SequenceType, TensorType, UnknownType
from assay.ir.verify import verify
from assay.passes import STANDARD, apply


def same(mine: Graph, theirs: Graph) -> None:
    """The text form shows all there is but the layout of constants."""
    assert print_graph(mine) == print_graph(theirs)
    for one, other in zip(mine.constants.values(), theirs.constants.values(), strict=True):
        assert one.flags.f_contiguous == other.flags.f_contiguous


def round_trip(graph: Graph, known: SharedParts | None = None) -> Graph:
    back = decode(encode(graph, known), known)
    same(back, graph)
    return back


def one_constant(array: Array) -> Graph:
    value = Value(0, TensorType(dtypes.of(array), array.shape))
    return Graph("g", (), (value,), (), {value: array})


def sample() -> Graph:
    """Something of everything: kinds of types, attributes and origins, regions that see out and isolated ones."""
    n = symbol("n", 1, 512)
    x = Value(0, TensorType(dtypes.f32, (n, 3 * n // 2)))
    go = Value(1, TensorType(dtypes.boolean, ()))
    odd = Value(7, MapType(dtypes.string, OptionalType(SequenceType(UnknownType()))))
    weight = Value(2, TensorType(dtypes.f32, (2,)))
    made, chosen = Value(40, TensorType(dtypes.f32, None)), Value(5, TensorType(dtypes.f32, (2,)))
    attrs: dict[str, Any] = {
        "numbers": (1, 1.0, -0.0, True, None, float("inf"), 10**30),
        "words": ("text", "é\ud800\n", b"\0\xff", dtypes.bf16, ((),)),
        "array": np.arange(3, dtype=np.int8),
    }
    inner = Value(2, UnknownType())
    regions = (
        Graph("then", (), (weight,), ()),
        Graph("else", (inner,), (inner,), (), names={"inside": inner}, level="other"),
    )
    touched = Origin("onnx.Conv@11", "conv", "layer", "f.py", 12).touched_by("fold")
    merged = Origin("onnx.If@16", merged=(Origin("onnx.Not@1", "n", merged=(Origin("a"),)), touched))
    nodes = (
        Node("conv", (x, None), (made,), touched, attrs),
        Node("print", (odd,), (), Origin("onnx.Print")),
        Node("if", (go,), (chosen,), merged, {}, regions),
    )
    constants = {weight: np.array([1.0, -np.inf], np.float32)}
    names = {"out": chosen, "w": weight}
    return Graph("main", (x, go, odd), (chosen, made), nodes, constants, names, ("x", "go", "odd"), ("out", "made"))


def test_the_sample_reads_back() -> None:
    verify(round_trip(sample()))
    verify(round_trip(sample(), shared_parts(sample())))


ARRAYS: list[Array] = [
    np.array(0.1, np.float32),
    np.array([np.nan, -0.0, np.inf, 5e-324]),
    np.array([0x7FC00001], np.uint32).view(np.float32),
    np.array([True, False]),
    np.zeros((0, 3), np.complex64),
    np.array([1.5], dtypes.bf16.numpy),
    np.array([-8, 7], dtypes.i4.numpy),
    np.array(["é", "a\n", "\ud83d"], object),
    np.array("word", object),
    np.arange(6, dtype=np.int32).reshape(2, 3).T,
    np.broadcast_to(np.float32(1), (3, 4)),
    np.arange(10)[::-2],
]


@pytest.mark.parametrize("array", ARRAYS, ids=[f"{array.dtype}{array.shape}" for array in ARRAYS])
def test_constants_read_back_bit_for_bit(array: Array) -> None:
    (back,) = decode(encode(one_constant(array))).constants.values()
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tolist() == array.tolist() if array.dtype == object else back.tobytes() == array.tobytes()
    assert not back.flags.writeable


@pytest.mark.parametrize("seed", range(150))
def test_random_graphs_read_back(seed: int) -> None:
    graph = random_case(np.random.default_rng(seed)).graph
    round_trip(graph)
    round_trip(apply(graph, STANDARD), shared_parts(graph))


def test_what_is_known_is_the_readers_own() -> None:
    ours, theirs = sample(), sample()
    theirs = Graph(
        theirs.name,
        theirs.inputs,
        theirs.outputs,
        tuple(Node(n.op, n.inputs, n.outputs, Origin(f"moved {n.op}"), n.attrs, n.regions) for n in theirs.nodes),
        {value: array + 1 for value, array in theirs.constants.items()},
        {f"their {name}": value for name, value in theirs.names.items()},
        ("a", "b", "c"),
        ("their out", "d"),
    )
    data = encode(ours, shared_parts(ours))
    assert data == encode(theirs, shared_parts(theirs))  # the bare structure
    same(decode(data, shared_parts(theirs)), theirs)
    assert next(iter(decode(data, shared_parts(theirs)).constants.values())) is next(iter(theirs.constants.values()))


def test_a_touched_origin_refers_to_the_known_one() -> None:
    here, there = Origin("add", "n", file="here.py", line=3), Origin("add", "m", file="there.py", line=9)
    node = Node("add", (), (), here.touched_by("simplify"))
    data = encode(Graph("g", (), (), (node,)), SharedParts(origins=(here,)))
    assert decode(data, SharedParts(origins=(there,))).nodes[0].origin == there.touched_by("simplify")


@pytest.mark.parametrize("value", [np.float64(1), np.int64(1), [1], {}, 1j, object()])
def test_an_attribute_of_another_kind_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="attribute cannot be"):
        encode(Graph("g", (), (), (Node("op", (), (), Origin("o"), {"key": value}),)))


SAMPLE = encode(sample())


def test_bytes_that_are_cut_off_anywhere_are_refused() -> None:
    for length in range(len(SAMPLE)):
        with pytest.raises(ValueError, match="no graph"):
            decode(SAMPLE[:length])


@settings(max_examples=400, deadline=None)
@given(at=st.integers(0, len(SAMPLE)), drop=st.integers(0, 4), put=st.binary(max_size=3))
def test_damaged_bytes_never_raise_anything_but_value_error(at: int, drop: int, put: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode(SAMPLE[:at] + put + SAMPLE[at + drop :])


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_a_document_of_other_things_never_raises_anything_but_value_error(data: st.DataObject) -> None:
    size = int.from_bytes(SAMPLE[:8], "little")
    document = json.loads(SAMPLE[8 : 8 + size])
    place: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(st.sampled_from([None, -1, 10**6, 0.5, "x", [], {}, [[1]], {"dtype": "f32"}, True]))
    text = json.dumps(document).encode()
    with contextlib.suppress(ValueError):
        decode(len(text).to_bytes(8, "little") + text + SAMPLE[8 + size :])
