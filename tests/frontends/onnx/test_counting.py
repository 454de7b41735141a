"""Loops that count: as often as onnxruntime runs them, and wholly on the native target where their number is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import onnxruntime
import pytest

from assay.errors import RunFailed
from assay.ir.graph import Graph
from assay.runtime.ort.session import InferenceSession

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
FIRST = {
    "compared": "zero = Cast <to = {kind}> (begin)  most = Cast <to = {kind}> (count)  go = Less (zero, most)",
    "turned": "zero = Cast <to = {kind}> (begin)  most = Cast <to = {kind}> (count)  go = Greater (most, zero)",
    "always": "go = Constant <value = bool {{1}}> ()",
}
NEXT = {
    "carried": "next = Add (i, one)  d = Cast <to = {kind}> (next)  e = Cast <to = {kind}> (m)  goes = Less (d, e)",
    "turned": "next = Add (one, i)  d = Cast <to = {kind}> (next)  e = Cast <to = {kind}> (m)  goes = Greater (e, d)",
    "outer": "next = Add (i, one)  d = Cast <to = {kind}> (next)  e = Cast <to = {kind}> (count)  goes = Less (d, e)",
}
COUNTED = ("carried", "turned", "outer")
OTHERS = {
    "by two": "two = Add (one, one)  next = Add (i, two)  d = Cast <to = {kind}> (next)  e = Cast <to = {kind}> (m)"
    "  goes = Less (d, e)",
    "until equal": "next = Add (i, one)  d = Cast <to = {kind}> (next)  e = Cast <to = {kind}> (m)"
    "  goes = LessOrEqual (d, e)",
    "not the next": "next = Add (i, one)  d = Cast <to = {kind}> (i)  e = Cast <to = {kind}> (m)  goes = Less (d, e)",
}
FLOAT, INT64, INT32 = 1, 7, 6


def looped(first: str, following: str, kind: int, begin: int = 0, most: int | None = None) -> bytes:
    """A loop over the rows of x that counts as exporters of TensorFlow write it."""
    limit = "" if most is None else "trip"
    trip = "" if most is None else f", int64 trip = {{{most}}}"
    text = f"""g (float[n, 3] x, float[2, 3] h) => (float[2, 3] last, float[k, 2, 3] rows, int32 ends)
        <int32 begin = {{{begin}}}, int32 one = {{1}}, int64[1] axis = {{0}}, int64[1] till = {{1}}{trip}> {{
        sizes = Shape (x)  size = Slice (sizes, axis, till)  wide = Squeeze (size, axis)
        count = Cast <to = {INT32}> (wide)
        {first.format(kind=kind)}
        ends, _m, last, rows = Loop <body = body (int64 round, bool running, int32 i, int32 m, float[2, 3] s) =>
            (bool goes, int32 next, int32 m_out, float[2, 3] t, float[2, 3] u) {{
            at = Cast <to = {INT64}> (i)  row = Gather <axis = 0> (x, at)
            t = Add (s, row)  u = Tanh (t)  m_out = Identity (m)
            {following.format(kind=kind)}
        }}> ({limit}, go, begin, count, h)
    }}"""
    return onnx.parser.parse_model(HEAD + text).SerializeToString()


def feeds(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    return {"x": rng.normal(size=(rows, 3)).astype(np.float32), "h": rng.normal(size=(2, 3)).astype(np.float32)}


def agree(session: Any, peer: Any, rows: int) -> None:
    """Both give the same for so many rows."""
    for mine, theirs in zip(session.run(None, feeds(rows)), peer.run(None, feeds(rows)), strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def loops(graph: Graph) -> list[bool]:
    """Of each loop, whether it ends by its count alone."""
    found = [node for node in graph.walk() if node.op == "loop"]
    return [node.inputs[1] is None and node.regions[0].outputs[0] in node.regions[0].constants for node in found]


@pytest.mark.parametrize("kind", [FLOAT, INT64])
@pytest.mark.parametrize("following", COUNTED)
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize(("begin", "most"), [(0, None), (1, None), (0, 2)])
def test_a_loop_that_counts_runs_as_often(first: str, following: str, kind: int, begin: int, most: int | None) -> None:
    model = looped(FIRST[first], NEXT[following], kind, begin, most)
    peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for target in ("cpu", "reference"):
        session = InferenceSession(model, providers=[target])
        assert loops(session.session.lowered) == [True]
        for rows in (5, 2, 1, 3):
            if rows <= begin and first == "always":
                continue  # the loop would read a row that is not there
            agree(session, peer, rows)
        if target == "cpu":
            places = {node.op: node.target for node in session.explain().nodes}
            assert places["loop"] == places["gather"] == "cpu"


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_loop_of_no_rounds(target: str) -> None:
    model = looped(FIRST["compared"], NEXT["carried"], FLOAT)
    last, rows, ends = InferenceSession(model, providers=[target]).run(None, feeds(0))
    np.testing.assert_array_equal(last, feeds(0)["h"])
    assert rows.shape == (0, 2, 3)
    assert ends == 0


@pytest.mark.parametrize("following", OTHERS.values(), ids=list(OTHERS))
def test_other_conditions_are_asked_in_every_round(following: str) -> None:
    model = looped(FIRST["compared"], following, INT64, most=3)
    peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    session = InferenceSession(model, providers=["cpu"])
    assert loops(session.session.lowered) == [False]
    for rows in (7, 4, 5):
        agree(session, peer, rows)


def test_a_number_that_changes_is_no_count() -> None:
    text = onnx.printer.to_text(onnx.load_from_string(looped(FIRST["compared"], NEXT["carried"], INT64)))
    swapped = text.replace("m_out = Identity (m)", "m_out = Sub (m, one)")
    assert swapped != text
    model = onnx.parser.parse_model(swapped).SerializeToString()
    peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    session = InferenceSession(model, providers=["cpu"])
    assert loops(session.session.lowered) == [False]
    for rows in (7, 4):
        agree(session, peer, rows)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_more_rounds_than_a_float_can_count_are_an_error(target: str) -> None:
    """f32 has no 2²⁴ + 1: a counter that is compared as one stands still, or skips rounds."""
    text = f"""g (int32 count) => (int32 ends) <int32 begin = {{0}}, int32 one = {{1}}> {{
        zero = Cast <to = 1> (begin)  most = Cast <to = 1> (count)  go = Less (zero, most)
        ends = Loop <body = body (int64 round, bool running, int32 i) => (bool goes, int32 next) {{
            next = Add (i, one)  d = Cast <to = {FLOAT}> (next)  e = Cast <to = {FLOAT}> (count)  goes = Less (d, e)
        }}> (, go, begin)
    }}"""
    session = InferenceSession(onnx.parser.parse_model(HEAD + text).SerializeToString(), providers=[target])
    assert session.run(None, {"count": np.array(1000, np.int32)}) == [1000]
    if target == "reference":  # it would take seconds natively, and is asked first here
        with pytest.raises(RunFailed, match="counts in f32"):
            session.run(None, {"count": np.array(2**24 + 2, np.int32)})


@pytest.mark.parametrize(("kind", "counted"), [("int32", True), ("int64", True), ("int8", False)])
@pytest.mark.parametrize("compared", [FLOAT, 11])
def test_counters_that_may_run_out_are_not_counted(kind: str, counted: bool, compared: int) -> None:
    text = f"""g (float x) => (float y) <{kind} begin = {{0}}, {kind} one = {{1}}, {kind} count = {{5}}> {{
        zero = Cast <to = {compared}> (begin)  most = Cast <to = {compared}> (count)  go = Less (zero, most)
        y, ends = Loop <body = body (int64 round, bool running, float s, {kind} i)
            => (bool goes, float t, {kind} next) {{
            next = Add (i, one)  d = Cast <to = {compared}> (next)  e = Cast <to = {compared}> (count)
            goes = Less (d, e)  t = Exp (s)
        }}> (, go, x, begin)
    }}"""
    session = InferenceSession(onnx.parser.parse_model(HEAD + text).SerializeToString(), providers=["cpu"])
    assert loops(session.session.lowered) == [counted]
    assert "require" not in {node.op for node in session.session.lowered.walk()}
    x = np.float32(-30)
    wanted = x
    for _ in range(5):
        wanted = np.exp(wanted)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5)


def test_a_loop_within_a_loop_asks_no_question_in_a_body() -> None:
    """What must be checked before a loop can be counted would keep the body around it from the native target."""
    text = f"""g (float[n] x) => (float[n] y)
        <int64 rounds = {{3}}, bool yes = {{1}}, int32 begin = {{0}}, int32 one = {{1}}> {{
        y = Loop <body = outer (int64 round, bool running, float[n] s) => (bool stays, float[n] t) {{
            stays = Identity (running)  count = Cast <to = {INT32}> (round)
            zero = Cast <to = 1> (begin)  most = Cast <to = 1> (count)  go = Less (zero, most)
            t, _ends = Loop <body = inner (int64 r, bool q, float[n] u, int32 i)
                => (bool goes, float[n] v, int32 next) {{
                next = Add (i, one)  d = Cast <to = 1> (next)  e = Cast <to = 1> (count)  goes = Less (d, e)
                v = Tanh (u)
            }}> (, go, s, begin)
        }}> (rounds, yes, x)
    }}"""
    session = InferenceSession(onnx.parser.parse_model(HEAD + text).SerializeToString(), providers=["cpu"])
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.tanh(np.tanh(np.tanh(x))), rtol=1e-5)
    assert {node.target for node in session.explain().nodes} == {"cpu"}
