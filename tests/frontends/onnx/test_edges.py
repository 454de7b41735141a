"""Where ordinary models end: slices from before an axis, windows without room, loops of no rounds, nothing at all.

Every case is run on the targets with its sizes known and unknown, beside ONNX Runtime or the standard's evaluator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from frontends.onnx.peer import Case, expected, feeds_of, model_of
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from assay.errors import AssayError
from assay.evidence.engines import engine

TARGETS = pytest.mark.parametrize("target", ["reference", "cpu"])


def f(*shape: int) -> Any:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def i64(*items: int) -> Any:
    return np.array(items, np.int64)


def answers(case: Case, target: str) -> list[list[Any]]:
    """What a target gives, with sizes known and unknown."""
    models = (model_of(case, sizes_known=known).SerializeToString() for known in (True, False))
    return [list(engine(target).load(model).run(feeds_of(case)).values()) for model in models]


def evaluated(case: Case) -> list[Any]:
    """What the standard's evaluator gives."""
    return list(ReferenceEvaluator(model_of(case)).run(None, feeds_of(case)))


def agree(case: Case, target: str, wanted: Sequence[Any]) -> None:
    for got in answers(case, target):
        for mine, theirs in zip(got, wanted, strict=True):
            assert np.asarray(mine).shape == np.asarray(theirs).shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)


# --- as ONNX Runtime has it

SLICES = [
    Case("Slice", [f(4), i64(start), i64(end), i64(0), i64(step)], name=f"{start}:{end}:{step}", constants=constants)
    for constants in ((1, 2, 3, 4), (2, 3), ())
    for start, end, step in [
        *(
            (-10, -10, -1),
            (-10, -10, -3),
            (-5, -9, -1),
            (-4, -9, -1),
            (-1, -9, -2),
            (-10, 3, 1),
            (9, -9, -1),
            (-9, 2, -1),
        ),
        *((-(2**63), -(2**63), -1), (-(2**63), 2, 1)),
    ]
]
TRANSPOSED = [
    Case(
        "ConvTranspose", [f(2, 2, size), f(2, 1, 3), f(1)], {"strides": [stride], "dilations": [dilation], "pads": pads}
    )
    for size in (0, 1, 4)
    for stride in (1, 3)
    for dilation in (1, 2)
    for pads in ([0, 0], [1, 0])
    if (size - 1) * stride + 2 * dilation + 1 >= sum(pads) + (size == 0)
]
HARDMAXES = [Case("Hardmax", [f(*shape)], {"axis": 1}) for shape in ((2, 0), (0, 2), (2, 0, 3), (0, 0), (2, 3))]


@TARGETS
@pytest.mark.parametrize("case", [*SLICES, *HARDMAXES, *TRANSPOSED], ids=str)
def test_as_onnxruntime_has_it(case: Case, target: str) -> None:
    agree(case, target, expected(case))


# --- as the standard's evaluator has it

WINDOWS = [
    Case(op, [f(1, 1, size)], attrs | {"kernel_shape": [kernel]})
    for op in ("AveragePool", "LpPool")
    for size, kernel, attrs in [
        (2, 3, {"strides": [1]}),
        (2, 3, {"strides": [2]}),
        (0, 2, {"strides": [2]}),
        (0, 1, {"strides": [2]}),
        (0, 3, {"strides": [2], "auto_pad": "SAME_UPPER"}),
        (0, 3, {"strides": [1], "pads": [1, 1]}),
        (1, 3, {"strides": [3], "pads": [1, 0]}),
        (5, 3, {"strides": [2], "auto_pad": "SAME_LOWER"}),
    ]
]


@TARGETS
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows_without_room_give_nothing(case: Case, target: str) -> None:
    agree(case, target, evaluated(case))


# --- what everybody refuses

REFUSED = [
    *(
        Case("TopK", [f(*shape).astype(dtype), i64(k)], {"axis": 0}, outputs=2, constants=constants)
        for shape, k in (((0,), 1), ((2,), 3), ((2,), -1), ((0, 2), 1))
        for dtype in (np.float32, np.int64)
        for constants in ((), (1,))
    ),
    *(
        Case("Gather", [f(*shape), i64(*places)], {"axis": axis}, constants=constants)
        for shape, axis, places in (((0, 0), 0, (0,)), ((0, 3), 1, (0, 5)), ((3, 0), 0, (-4,)))
        for constants in ((), (1,))
    ),
    *(
        Case("ScatterND", [f(*shape), np.array(places, np.int64), f(len(places), *shape[len(places[0]) :])])
        for shape, places in (((0, 0), [[0]]), ((3, 0), [[1], [3]]), ((2, 3, 0), [[0, 1], [0, -4]]))
    ),
    *(
        Case("Split", [f(*shape), i64(*sizes)], {"axis": -1}, outputs=2, opset=18, constants=constants)
        for shape, sizes in (((3, 1), (1, 1)), ((3, 4), (1, 1)), ((0, 3), (3, 1)))
        for constants in ((), (1,))
    ),
    *(Case("GatherElements", [f(*shape), np.zeros((0, 1), np.int64)]) for shape in ((3, 0, 1), (3,), (0,))),
    *(
        Case("ScatterElements", [f(*shape), np.zeros(places, np.int64), f(*updates)])
        for shape, places, updates in (((3, 0, 1), (0, 1), (0, 1)), ((3,), (0, 1), (0, 1)), ((3, 1), (0, 1), (0,)))
    ),
    Case("Conv", [f(1, 1, 2), f(1, 1, 4)]),
    Case("Conv", [f(1, 1, 2), f(1, 1, 3)]),
    Case("Conv", [f(1, 1, 0), f(1, 1, 3)], {"auto_pad": "SAME_UPPER", "strides": [2]}),
    Case("LpPool", [f(1, 1, 2)], {"kernel_shape": [4]}),
]


@TARGETS
@pytest.mark.parametrize("sizes_known", [True, False])
@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_onnxruntime_refuses_is_refused(case: Case, sizes_known: bool, target: str) -> None:
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        expected(case)
    with pytest.raises(AssayError):
        engine(target).load(model_of(case, sizes_known=sizes_known).SerializeToString()).run(feeds_of(case))


# --- loops


def looped(declared: Sequence[int | None] | None) -> bytes:
    """A loop that doubles what it carries and collects it, whose body and input say so much of their sizes."""
    carried = [helper.make_tensor_value_info(name, TensorProto.FLOAT, declared) for name in ("a", "b", "c")]
    number, flag = TensorProto.INT64, TensorProto.BOOL
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("Add", ["a", "a"], ["b"]),
            helper.make_node("Concat", ["b", "outer"], ["c"], axis=0),
        ],
        "body",
        [helper.make_tensor_value_info("i", number, []), helper.make_tensor_value_info("go", flag, []), carried[0]],
        [helper.make_tensor_value_info("goes", flag, []), *carried[1:2], onnx.ValueInfoProto(name="c")],
    )
    inputs = [
        helper.make_tensor_value_info("trip", number, []),
        helper.make_tensor_value_info("first", flag, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, declared),
        helper.make_tensor_value_info("outer", TensorProto.FLOAT, None if declared is None else (None, 3)),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "rows")]
    node = helper.make_node("Loop", ["trip", "first", "x"], ["y", "rows"], body=body)
    graph = helper.make_graph([node], "looped", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


@TARGETS
@pytest.mark.parametrize("declared", [(2, 3), (None, 3), (None, None), None])
@pytest.mark.parametrize(("trip", "first"), [(0, True), (3, False), (2, True)])
def test_what_a_loop_of_no_rounds_would_have_collected(
    trip: int, first: bool, declared: Sequence[int | None] | None, target: str
) -> None:
    """Has the axes of what its rounds collect, whatever was declared."""
    feeds = {"trip": np.array(trip), "first": np.array(first), "x": f(2, 3), "outer": f(4, 3)}
    y, rows = engine(target).load(looped(declared)).run(feeds).values()
    count = trip if first else 0
    np.testing.assert_array_equal(y, f(2, 3) * 2**count)
    assert rows.shape == (count, 6, 3)


@TARGETS
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_what_no_rounds_would_have_collected_of_a_state_that_nothing_is_said_of(
    shape: tuple[int, ...], target: str
) -> None:
    scanned = "state, rows = Scan <num_scan_inputs = 1, body = b (float[] s, float[] r) => (float[] t, float[] u)"
    text = f"""g (float[] x, float[] z, int64 trip) => (float[] state, float[] collected)
        <bool go = {{1}}, float half = {{0.5}}> {{
            {scanned} {{ t = Add (s, r)  u = Mul (s, r) }}> (x, z)
            last, collected = Loop <body = b (int64 i, bool c, float[] a) => (bool d, float[] e, float[] k) {{
                d = Identity (c)  e = Mul (a, half)  k = Abs (e)
            }}> (trip, go, state)
        }}"""
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 20]>\n' + text).SerializeToString()
    for trip in (0, 2):
        feeds = {"x": np.ones(shape, np.float32), "z": np.ones((4, *shape), np.float32), "trip": np.array(trip)}
        assert engine(target).load(model).run(feeds)["collected"].shape == (trip, *shape)
