"""Control flow on the native target: loops, branches and scans beside onnxruntime, with nothing left to the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import assay
from assay.errors import LimitExceeded, RunFailed

pytestmark = pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")


class Case(NamedTuple):
    """A graph in ONNX's text form, and what it is fed, run by run."""

    text: str
    feeds: list[Mapping[str, Any]]


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
COUNTED = "b (int64 i, bool c, float[3, 4] s) => (bool d, float[3, 4] t)"
TRUE = "go = Constant <value = bool {1}> ()"

CASES = {
    "counted": Case(
        f"(float[3, 4] x, int64 n) => (float[3, 4] y) {{ {TRUE} y = Loop (n, go, x) <body = {COUNTED} {{\n"
        "d = Identity (c) u = Mul (s, s) t = Sub (u, x) }> }",
        [{"x": X, "n": np.array(n)} for n in (0, 1, 2, 5)],
    ),
    "ended by a condition": Case(
        "(float[4] x, float limit) => (float[4] y, int64 rounds) { none = Constant <value = int64 {1000}> ()\n"
        f"{TRUE} zero = Constant <value = int64 {{0}}> ()\n"
        "y, rounds = Loop (none, go, x, zero) <body = b (int64 i, bool c, float[4] s, int64 k)\n"
        "=> (bool d, float[4] t, int64 m) { t = Add (s, s) a = Abs (t) most = ReduceMax <keepdims = 0> (a)\n"
        "d = Less (most, limit) one = Constant <value = int64 {1}> () m = Add (k, one) }> }",
        [{"x": floats(1, -2, 3, 0.5), "limit": np.array(limit, np.float32)} for limit in (0, 10, 1e6)],
    ),
    "not entered": Case(
        f"(float[3, 4] x, int64 n, bool go) => (float[3, 4] y) {{ y = Loop (n, go, x) <body = {COUNTED} {{\n"
        "d = Identity (c) t = Neg (s) }> }",
        [{"x": X, "n": np.array(3), "go": np.array(go)} for go in (False, True)],
    ),
    "swaps its states": Case(
        f"(float[3] a, float[3] b, int64 n) => (float[3] p, float[3] q) {{ {TRUE} p, q = Loop (n, go, a, b) <body =\n"
        "b (int64 i, bool c, float[3] u, float[3] v) => (bool d, float[3] w, float[3] z) {\n"
        "d = Identity (c) w = Identity (v) z = Identity (u) }> }",
        [{"a": floats(1, 2, 3), "b": floats(4, 5, 6), "n": np.array(n)} for n in (0, 1, 2, 3)],
    ),
    "fibonacci": Case(
        f"(float[2] a, float[2] b, int64 n) => (float[2] p, float[2] q) {{ {TRUE} p, q = Loop (n, go, a, b) <body =\n"
        "b (int64 i, bool c, float[2] u, float[2] v) => (bool d, float[2] w, float[2] z) {\n"
        "d = Identity (c) w = Identity (v) z = Add (u, v) }> }",
        [{"a": floats(0, 1), "b": floats(1, 1), "n": np.array(n)} for n in (1, 7, 20)],
    ),
    "uses its counter": Case(
        f"(float[3, 4] x) => (float[3, 4] y) {{ {TRUE} n = Constant <value = int64 {{3}}> ()\n"
        f"y = Loop (n, go, x) <body = {COUNTED} {{ d = Identity (c) f = Cast <to = 1> (i) t = Add (s, f) }}> }}",
        [{"x": X}],
    ),
    "collects": Case(
        f"(float[3, 4] x) => (float[3, 4] y, float[5, 4] rows) {{ {TRUE} n = Constant <value = int64 {{5}}> ()\n"
        "y, rows = Loop (n, go, x) <body = b (int64 i, bool c, float[3, 4] s)\n"
        "=> (bool d, float[3, 4] t, float[4] row) { d = Constant <value = bool {1}> () t = Cos (s)\n"
        "axes = Constant <value = int64[1] {0}> () row = ReduceSum <keepdims = 0> (t, axes) }> }",
        [{"x": X}],
    ),
    "branches": Case(
        "(float[3, 4] x) => (float[3, 4] y, float z) { zero = Constant <value = float {0.0}> ()\n"
        "sum = ReduceSum <keepdims = 0> (x) up = Greater (sum, zero)\n"
        "y, z = If (up) <then_branch = t () => (float[3, 4] a, float b) { a = Exp (x) b = Identity (sum) },\n"
        "else_branch = e () => (float[3, 4] a, float b) { f = Neg (x) a = Mul (f, x) b = Neg (sum) }> }",
        [{"x": X + 1}, {"x": X - 1}],
    ),
    "a branch in a loop": Case(
        f"(float[3, 4] x, int64 n) => (float[3, 4] y) {{ {TRUE} y = Loop (n, go, x) <body = {COUNTED} {{\n"
        "d = Identity (c) two = Constant <value = int64 {2}> () r = Mod (i, two) odd = Cast <to = 9> (r)\n"
        "even = Not (odd) t = If (even) <then_branch = p () => (float[3, 4] k) { k = Add (s, x) },\n"
        "else_branch = q () => (float[3, 4] k) { k = Sin (s) }> }> }",
        [{"x": X, "n": np.array(n)} for n in (0, 1, 4, 5)],
    ),
    "a loop in a loop": Case(
        f"(float[3, 4] x, int64 n, int64 m) => (float[3, 4] y) {{ {TRUE} y = Loop (n, go, x) <body = {COUNTED} {{\n"
        "d = Identity (c) h = Constant <value = float {0.5}> () e = Constant <value = bool {1}> ()\n"
        "t = Loop (m, e, s) <body = k (int64 j, bool f, float[3, 4] u) => (bool g, float[3, 4] v) {\n"
        "g = Identity (f) w = Mul (u, h) v = Add (w, x) }> }> }",
        [{"x": X, "n": np.array(n), "m": np.array(m)} for n, m in ((2, 3), (0, 3), (3, 0), (1, 1))],
    ),
    "a loop in a branch": Case(
        "(float[3, 4] x, bool up, int64 n) => (float[3, 4] y) {\n"
        f"y = If (up) <then_branch = p () => (float[3, 4] a) {{ {TRUE} a = Loop (n, go, x) <body = {COUNTED} {{\n"
        "d = Identity (c) t = Tanh (s) }> }, else_branch = q () => (float[3, 4] a) { a = Relu (x) }> }",
        [{"x": X, "up": np.array(up), "n": np.array(n)} for up, n in ((True, 3), (False, 3), (True, 0))],
    ),
    "scan": Case(
        "(float[4] start, float[6, 4] rows) => (float[4] last, float[6, 4] sums) {\n"
        "last, sums = Scan <num_scan_inputs = 1, body = b (float[4] s, float[4] r) => (float[4] t, float[4] o) {\n"
        "t = Add (s, r) o = Mul (t, r) }> (start, rows) }",
        [{"start": floats(1, 2, 3, 4), "rows": np.arange(24, dtype=np.float32).reshape(6, 4)}],
    ),
    "a product in a loop": Case(
        f"(float[8, 16] x, float[16, 16] w, int64 n) => (float[8, 16] y) {{ {TRUE} y = Loop (n, go, x) <body =\n"
        "b (int64 i, bool c, float[8, 16] s) => (bool d, float[8, 16] t) {\n"
        "d = Identity (c) p = MatMul (s, w) t = Tanh (p) }> }",
        [
            {
                "x": np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32),
                "w": np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32) / 8,
                "n": np.array(n),
            }
            for n in (1, 6)
        ],
    ),
    "symbolic sizes": Case(
        f"(float[rows, cols] x, int64 n) => (float[rows, cols] y) {{ {TRUE} y = Loop (n, go, x) <body =\n"
        "b (int64 i, bool c, float[rows, cols] s) => (bool d, float[rows, cols] t) {\n"
        "d = Identity (c) m = ReduceMean (s) t = Sub (x, m) }> }",
        [{"x": X[:rows, :cols], "n": np.array(2)} for rows, cols in ((3, 4), (1, 2), (3, 1))],
    ),
}


def model_of(case: Case) -> bytes:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g {case.text}'
    return onnx.parser.parse_model(text).SerializeToString()


@pytest.mark.parametrize("name", CASES)
def test_control_flow_runs_natively_and_as_onnxruntime_runs_it(name: str) -> None:
    model = model_of(CASES[name])
    ours, theirs = assay.InferenceSession(model, target="cpu"), onnxruntime.InferenceSession(model)
    for feeds in CASES[name].feeds:
        found, wanted = ours.run(None, dict(feeds)), theirs.run(None, dict(feeds))
        for ours_, theirs_ in zip(found, wanted, strict=True):
            assert ours_.shape == theirs_.shape
            np.testing.assert_allclose(ours_, theirs_, rtol=1e-5, atol=1e-6)
    left = [(row.op, row.reason) for row in ours.explain().nodes if row.target != "cpu"]
    assert left == []


@pytest.mark.parametrize("name", CASES)
def test_what_happens_in_bodies_can_be_observed(name: str) -> None:
    """The last round of each value, as the oracle has it."""
    model = model_of(CASES[name])
    ours, oracle = (assay.InferenceSession(model, target=target).session for target in ("cpu", "reference"))
    for feeds in CASES[name].feeds:
        found, wanted = ours.observe(feeds), oracle.observe(feeds)
        assert list(found) == list(wanted)
        for each, value in wanted.items():
            np.testing.assert_allclose(found[each], value, rtol=1e-5, atol=1e-6, err_msg=each)


@pytest.mark.parametrize("name", CASES)
def test_runs_with_control_flow_can_be_timed(name: str) -> None:
    session = assay.InferenceSession(model_of(CASES[name]), target="cpu").session
    feeds = CASES[name].feeds[-1]
    ops = [time.op for time in session.profile(feeds)]
    assert {"loop", "branch"} & set(ops)
    assert all(time.seconds >= 0 for time in session.profile(feeds))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_loop_that_runs_too_often_is_an_error(target: str) -> None:
    case = CASES["counted"]
    options = assay.SessionOptions(target=target, limits=assay.Limits(loop_iterations=10))
    session = assay.InferenceSession(model_of(case), options)
    assert session.run(None, {"x": X, "n": np.array(10)})
    with pytest.raises((RunFailed, LimitExceeded), match="loop_iterations"):
        session.run(None, {"x": X, "n": np.array(11)})


def test_steps_of_a_loop_are_ready_for_the_next_run() -> None:
    """A session is run many times, from several places, with other counts each time."""
    session = assay.InferenceSession(model_of(CASES["fibonacci"]), target="cpu")
    for n in (5, 0, 9, 2, 9):
        p, q = session.run(None, {"a": floats(0, 1), "b": floats(1, 1), "n": np.array(n)})
        wanted = (floats(0, 1), floats(1, 1))
        for _ in range(n):
            wanted = wanted[1], wanted[0] + wanted[1]
        np.testing.assert_array_equal(p, wanted[0])
        np.testing.assert_array_equal(q, wanted[1])
