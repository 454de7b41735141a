"""Graphs with loops, branches and scans, as ONNX has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx.parser

from assay.frontends.onnx import load
from assay.ir.graph import Graph
from assay.ops.lowering import lower


class Case(NamedTuple):
    """A graph in ONNX's text form, and what it is fed, run by run."""

    text: str
    feeds: list[Mapping[str, Any]]

    @property
    def model(self) -> bytes:
        """The graph as a model."""
        text = f'<ir_version: 8, opset_import: ["" : 17]> g {self.text}'
        return onnx.parser.parse_model(text).SerializeToString()

    def lowered(self) -> Graph:
        """The model in core ops."""
        return lower(load(onnx.load_model_from_string(self.model)))


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
COUNTED = "b (int64 i, bool c, float[3, 4] s) => (bool d, float[3, 4] t)"
TRUE = "go = Constant <value = bool {1}> ()"

CASES: dict[str, Case] = {
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

GROWING: dict[str, Case] = {
    "carries more from round to round": Case(
        f"(float[k] x, int64 n) => (float[j] y) {{ {TRUE} y = Loop (n, go, x) <body =\n"
        "b (int64 i, bool c, float[m] s) => (bool d, float[p] t) { d = Identity (c) t = Concat <axis = 0> (s, s) }> }",
        [{"x": floats(1, 2), "n": np.array(n)} for n in (0, 1, 3)],
    ),
    "collects what a run sizes": Case(
        f"(float[3, 4] x, int64 n) => (float[3, 4] y, float[a, b] rows) {{ {TRUE} y, rows = Loop (n, go, x) <body =\n"
        "b (int64 i, bool c, float[3, 4] s) => (bool d, float[3, 4] t, float[b] row) {\n"
        "d = Identity (c) t = Neg (s) m = Constant <value = int64[1] {-1}> () row = Reshape (t, m) }> }",
        [{"x": X, "n": np.array(n)} for n in (1, 3)],
    ),
    "branches of two sizes": Case(
        "(float[3, 4] x, bool up) => (float[a, b] y) { y = If (up) <then_branch = p () => (float[3, 4] k) {\n"
        "k = Exp (x) }, else_branch = q () => (float[6, 4] k) { k = Concat <axis = 0> (x, x) }> }",
        [{"x": X, "up": np.array(up)} for up in (True, False)],
    ),
}
"""Sizes that change on the way."""
