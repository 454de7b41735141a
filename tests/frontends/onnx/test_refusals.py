"""What a model is fed at run time may make no sense: refused where onnxruntime refuses it, the same on every target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from assay.errors import AssayError
from assay.evidence.engines import engine

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
OPSET_21 = '<ir_version: 10, opset_import: ["" : 21]>\n'
INFINITE = float("inf")
NAN = float("nan")

TOPK = "g (float[N, M] x, int64[1] k) => (float[N, K] y, int64[N, K] i) { y, i = TopK <axis = 1> (x, k) }"
ONE_HOT = "g (int64[N] x, int64 d, int64[2] v) => (int64[a, b] y) { y = OneHot (x, d, v) }"
RANGE = "g ({0} a, {0} b, {0} c) => ({0}[n] y) {{ y = Range (a, b, c) }}"
WHOLE = [(0, 5, 2), (5, 0, 1), (5, 0, -2), (0, 5, 0), (0, 0, 0)]
ODD = [
    (0, INFINITE, 1),
    (0, NAN, 1),
    (NAN, 1, 1),
    (0, 1, NAN),
    (0, -INFINITE, 1),
    (0, 5, INFINITE),
    (INFINITE,) * 2 + (1,),
]

SIZES = {
    "Reshape to a part": (
        "g (float[N] x) => (float[a, b] y) <int64[2] s = {-1, 2}> { y = Reshape (x, s) }",
        [(4,), (3,)],
    ),
    "Reshape": (
        "g (float[N, M] x) => (float[a, b] y) <int64[2] s = {2, 3}> { y = Reshape (x, s) }",
        [(3, 2), (3, 4), (1, 2)],
    ),
    "Squeeze": (
        "g (float[N, M] x) => (float[a] y) <int64[1] s = {0}> { y = Squeeze (x, s) }",
        [(1, 2), (2, 2), (0, 2)],
    ),
    "Split": (
        "g (float[N, M] x) => (float[a, b] y, float[c, d] z) <int64[2] s = {1, 2}> { y, z = Split <axis = 0> (x, s) }",
        [(3, 2), (5, 2), (2, 2)],
    ),
    "DepthToSpace": (
        "g (float[N, C, H, W] x) => (float[a, b, c, d] y) { y = DepthToSpace <blocksize = 2> (x) }",
        [(1, 4, 2, 2), (1, 6, 2, 2)],
    ),
    "Pad": ("g (float[N, M] x) => (float[a, b] y) <int64[4] p = {-1, 0, -1, 0}> { y = Pad (x, p) }", [(2, 3), (1, 3)]),
    "MatMul": ("g (float[N, M] x, float[K, L] z) => (float[a, b] y) { y = MatMul (x, z) }", [(2, 3), (2, 4)]),
    "Conv": (
        "g (float[N, C, H] x) => (float[a, b, c] y) <float[1, 2, 2] w = {1, 2, 3, 4}> { y = Conv (x, w) }",
        [(1, 2, 3), (1, 3, 3), (1, 2, 1), (0, 2, 0)],
    ),
    "ConvTranspose": (
        "g (float[N, C, H] x) => (float[a, b, c] y) <float[2, 1, 1] w = {1, 2}> "
        "{ y = ConvTranspose <pads = [1, 1]> (x, w) }",
        [(1, 2, 3), (1, 2, 1), (0, 2, 1)],
    ),
    "ConvTranspose with strides": (
        "g (float[N, C, H, W] x) => (float[a, b, c, d] y) <float[2, 1, 1, 2] w = {1, 2, 3, 4}> "
        "{ y = ConvTranspose <pads = [1, 0, 1, 0], strides = [1, 2]> (x, w) }",
        [(1, 2, 3, 3), (1, 2, 1, 3), (4, 2, 4, 7), (0, 2, 3, 3)],
    ),
    "TopK": (
        "g (float[N, M] x) => (float[a, b] y, int64[c, d] i) <int64[1] k = {2}> { y, i = TopK <axis = 0> (x, k) }",
        [(2, 3), (3, 0), (1, 3), (0, 0)],
    ),
    "ArgMax": ("g (float[N, M] x) => (int64[a, b] y) { y = ArgMax <axis = 0> (x) }", [(2, 3), (0, 3), (0, 0)]),
}
"""Models, and shapes of x that they are fed one after the other; z is of shape (3, 2)."""


OPERANDS = {
    "Conv": (
        "g (float[N, C, H] x, float[M, D, K] w, float[B] b) => (float[] y) { y = Conv (x, w, b) }",
        [((1, 2, 5), (3, 2, 2), (n,)) for n in (3, 2, 4, 1, 0)],
    ),
    "Conv with a constant weight": (
        "g (float[N, 1, H] x, float[B] b) => (float[] y) <float[3, 1, 1] w = {1, 2, 3}> { y = Conv (x, w, b) }",
        [((2, 1, 5), (n,)) for n in (3, 2, 4, 1)],
    ),
    "ConvTranspose": (
        "g (float[N, C, H] x, float[C, M, K] w, float[B] b) => (float[] y) { y = ConvTranspose (x, w, b) }",
        [((1, 2, 5), (2, 3, 2), (n,)) for n in (3, 2, 4, 1, 0)],
    ),
    "QuantizeLinear": (
        OPSET_21 + "g (float[A, B] x, float[C, D] s) => (uint8[] y) "
        "{ y = QuantizeLinear <axis = 1, block_size = 2> (x, s) }",
        [((2, 6), s) for s in ((2, 3), (2, 2), (1, 3), (3, 3), (2, 0))],
    ),
    "DequantizeLinear": (
        OPSET_21 + "g (uint8[A, B] x, float[C, D] s) => (float[] y) "
        "{ y = DequantizeLinear <axis = 1, block_size = 2> (x, s) }",
        [((2, 6), s) for s in ((2, 3), (2, 2), (1, 3), (3, 3))],
    ),
    "DequantizeLinear along an axis": (
        OPSET_21 + "g (uint8[A, B] x, float[C] s) => (float[] y) { y = DequantizeLinear <axis = 1> (x, s) }",
        [((2, 3), (n,)) for n in (3, 2, 4, 0)],
    ),
    "ScatterND": (
        "g (float[A, B] x, int64[C, 1] i, float[D, E] u) => (float[] y) { y = ScatterND (x, i, u) }",
        [((4, 3), (2, 1), u) for u in ((2, 3), (1, 3), (2, 1), (3, 3), (2, 2), (2, 4))],
    ),
    "ScatterElements": (
        "g (float[A, B] x, int64[C, D] i, float[E, F] u) => (float[] y) { y = ScatterElements (x, i, u) }",
        [((4, 3), (2, 3), u) for u in ((2, 3), (1, 3), (2, 1), (3, 3), (2, 4))],
    ),
    "LSTM": (
        "g (float[L, N, 3] x, float[1, 8, 3] w, float[1, 8, 2] r, float[1, B] b) => (float[] y) "
        "{ y = LSTM <hidden_size = 2> (x, w, r, b) }",
        [((2, 1, 3), (1, 8, 3), (1, 8, 2), (1, n)) for n in (16, 8, 15, 17, 1)],
    ),
    "RoiAlign": (
        "g (float[N, C, H, W] x, float[R, 4] r, int64[I] i) => (float[] y) { y = RoiAlign (x, r, i) }",
        [((1, 1, 3, 3), (2, 4), (n,)) for n in (2, 1, 3, 0)],
    ),
    "GridSample": (
        "g (float[A, B, C, D] x, float[E, F, G, H] p) => (float[] y) { y = GridSample (x, p) }",
        [((n, 1, 3, 3), (m, 2, 2, 2)) for n, m in ((2, 2), (2, 1), (1, 2), (2, 3))],
    ),
    "GRU with lengths": (
        "g (float[L, N, 3] x, float[1, 6, 3] w, float[1, 6, 2] r, int32[B] n, float[1, C, 2] h) => (float[] y) "
        "{ y = GRU <hidden_size = 2> (x, w, r, , n, h) }",
        [((2, 2, 3), (1, 6, 3), (1, 6, 2), (n,), (1, m, 2)) for n, m in ((2, 2), (1, 2), (3, 2), (2, 1), (2, 3))],
    ),
}
"""Models, and shapes of all that they are fed one after the other: the first ones fit, the others do not."""


def feeds_of(values: Mapping[str, Any], dtype: type) -> dict[str, Any]:
    return {name: np.array(value, dtype) for name, value in values.items()}


CASES = {
    **{
        f"TopK {k}": (TOPK, {"x": np.arange(8.0, dtype=np.float32).reshape(2, 4), "k": np.array([k])})
        for k in (0, 4, 5, -1)
    },
    **{
        f"OneHot {depth}": (ONE_HOT, {"x": np.array([0, 2, -1]), "d": np.array(depth), "v": np.array([0, 1])})
        for depth in (3, 1, 0, -1)
    },
    **{
        f"Range {kind} {case}": (RANGE.format(kind), feeds_of(dict(zip("abc", case, strict=True)), dtype))
        for kind, dtype in (("int64", np.int64), ("int32", np.int32), ("float", np.float32), ("double", np.float64))
        for case in (*WHOLE, *(ODD if dtype in (np.float32, np.float64) else ()))
    },
}


def results(name: str, text: str, feeds: list[dict[str, Any]]) -> list[Any]:
    """What one session makes of each feed; None where it refuses it."""
    model = onnx.parser.parse_model(text if text.startswith("<") else HEADER + text).SerializeToString()
    if name != "onnxruntime":
        ready = engine(name).load(model)
        return [refused(lambda each=each: list(ready.run(each).values()), AssayError) for each in feeds]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [refused(lambda each=each: session.run(None, each), Exception) for each in feeds]


def refused(run: Any, kind: type[Exception]) -> Any:
    try:
        return run()
    except kind:
        return None


def check(target: str, text: str, feeds: list[dict[str, Any]]) -> None:
    for mine, theirs in zip(results(target, text, feeds), results("onnxruntime", text, feeds), strict=True):
        assert (mine is None) == (theirs is None), (mine, theirs)
        for first, second in zip(mine or (), theirs or (), strict=True):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("case", CASES)
def test_numbers_that_make_no_sense(case: str, target_name: str) -> None:
    text, feeds = CASES[case]
    check(target_name, text, [feeds])


@pytest.mark.parametrize("case", SIZES)
def test_sizes_that_make_no_sense(case: str, target_name: str) -> None:
    text, shapes = SIZES[case]
    others = {"z": np.arange(6, dtype=np.float32).reshape(3, 2)} if " z)" in text.split("=>", maxsplit=1)[0] else {}
    feeds = [{"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape), **others} for shape in shapes]
    check(target_name, text, feeds)


@pytest.mark.parametrize("case", OPERANDS)
def test_operands_of_sizes_that_do_not_fit(case: str, target_name: str) -> None:
    text, shapes = OPERANDS[case]
    inputs = onnx.parser.parse_model(text if text.startswith("<") else HEADER + text).graph.input
    kinds = [onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type) for each in inputs]
    names = [each.name for each in inputs]

    def fed(shape: tuple[int, ...], dtype: Any) -> Any:
        return (np.linspace(0.5, 1, int(np.prod(shape))) if dtype == np.float32 else np.zeros(shape)).reshape(shape)

    feeds = [
        {name: fed(shape, kind).astype(kind) for name, shape, kind in zip(names, each, kinds, strict=True)}
        for each in shapes
    ]
    made, theirs = results(target_name, text, feeds), results("onnxruntime", text, feeds)
    assert [each is None for each in made] == [each is None for each in theirs] == [False] + [True] * len(shapes[1:])
    np.testing.assert_allclose(made[0][0], theirs[0][0], rtol=1e-5)


OPEN = {
    "fixed": "g (float[{}] x) => (float[a, b] y) <int64[2] s = {{0, -1}}> {{ y = Reshape (x, s) }}",
    "fed": "g (float[{}] x, int64[2] s) => (float[a, b] y) {{ y = Reshape (x, s) }}",
    "computed": """g (float[{}] x) => (float[a, b] y) <int64[1] zero = {{0}}, int64[1] open = {{-1}}> {{
        sizes = Shape (x) n = Gather (sizes, zero) s = Concat <axis = 0> (n, open) y = Reshape (x, s) }}""",
}


@pytest.mark.parametrize("known", [True, False], ids=["numbers", "names"])
@pytest.mark.parametrize("way", OPEN)
def test_an_open_size_beside_copied_ones_is_what_they_leave(way: str, known: bool, target_name: str) -> None:
    """Also of an empty batch, where others refuse."""
    for shape in ((2, 4, 3), (0, 4, 3), (2, 0, 3)):
        text = OPEN[way].format(", ".join(map(str, shape)) if known else "A, B, C")
        feeds = {"x": np.zeros(shape, np.float32), **({"s": np.array([0, -1])} if way == "fed" else {})}
        ((made,),) = results(target_name, text, [feeds])
        assert made.shape == (shape[0], shape[1] * shape[2])


@pytest.mark.parametrize("sizes", [(-1, -1), (0, 0, 0, 0), (0, 5, -1), (-2, 3), (0, -1), (1, 0, -1), (-1, 0)])
def test_shapes_that_are_fed(sizes: tuple[int, ...], target_name: str) -> None:
    text = f"g (float[A, B] x, int64[{len(sizes)}] s) => (float[] y) {{ y = Reshape (x, s) }}"
    check(target_name, text, [{"x": np.zeros(shape, np.float32), "s": np.array(sizes)} for shape in ((1, 1), (2, 3))])


INFERRED = {
    "Reshape": "g (float[3] x, int64[1] s) => (float[a] y) { y = Reshape (x, s) }",
    "Reshape that copies nothing": "g (float[3] x, int64[1] s) => (float[a] y) { y = Reshape <allowzero = 1> (x, s) }",
    "Reshape of a Reshape": (
        "g (float[3] x, int64[1] s) => (float[a] y) <int64[1] m = {-1}> { z = Reshape (x, s) y = Reshape (z, m) }"
    ),
    "Expand": "g (float[3] x, int64[1] s) => (float[a] y) { y = Expand (x, s) }",
}
"""Shapes that follow from what is known of the inputs, whatever is fed, in runs that make sense."""


@pytest.mark.parametrize("case", INFERRED)
def test_sizes_that_could_be_nothing_else_are_looked_at_all_the_same(case: str, target_name: str) -> None:
    x = np.arange(3, dtype=np.float32)
    check(target_name, OPSET_21 + INFERRED[case], [{"x": x, "s": np.array([size])} for size in (3, -1, 1, 0, 2, 5)])


@pytest.mark.parametrize("sizes", [(2, 3), (-1, 2), (2, 2), (0, 1)])
def test_a_reshape_that_another_one_undoes_may_not_fit(sizes: tuple[int, int], target_name: str) -> None:
    shapes = "int64[2] s) => (float[a] y) <int64[1] m = {-1}>"
    text = f"g (float[6] x, {shapes} {{ z = Reshape (x, s) y = Reshape (z, m) }}"
    check(target_name, HEADER + text, [{"x": np.arange(6, dtype=np.float32), "s": np.array(sizes)}])


def test_images_that_are_sampled_have_elements(target_name: str) -> None:
    text = "g (float[A, B, C, D] x, float[E, F, G, H] p) => (float[] y) { y = GridSample (x, p) }"
    shapes = [((0, 1, 2, 2), (0, 1, 1, 2)), ((0, 1, 0, 1), (0, 1, 1, 2)), ((1, 0, 0, 1), (1, 1, 1, 2))]
    check(target_name, text, [{"x": np.zeros(x, np.float32), "p": np.zeros(p, np.float32)} for x, p in shapes])


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_empty_images_are_spread_out(kernel: int, target_name: str) -> None:
    """By the formula of the standard: onnxruntime refuses what is left of no pixels."""
    given = f"float[N, 1, H] x, float[1, 1, {kernel}] w"
    text = f"g ({given}) => (float[] y) {{ y = ConvTranspose <strides = [3], output_padding = [2]> (x, w) }}"
    feeds = [{"x": np.ones((2, 1, size), np.float32), "w": np.ones((1, 1, kernel), np.float32)} for size in (0, 1, 3)]
    empty, *others = results(target_name, text, feeds)
    left = kernel - 1
    assert np.array_equal(empty[0], np.zeros((2, 1, left), np.float32))
    for mine, theirs in zip(others, results("onnxruntime", text, feeds[1:]), strict=True):
        np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-6)


def test_one_hot_wants_an_axis(target_name: str) -> None:
    text = "g (int64[] x, int64 d, int64[2] v) => (int64[] y) { y = OneHot (x, d, v) }"
    check(target_name, text, [{"x": np.array(x), "d": np.array(3), "v": np.array([0, 1])} for x in (1, [1])])


def test_functions_over_inputs_of_unknown_rank(target_name: str) -> None:
    """Values of a function's body and those around it are told apart."""
    text = "g (float[] x, int64[] t) => (float[] y) { y = SoftmaxCrossEntropyLoss <ignore_index = 0> (x, t) }"
    x = np.arange(12, dtype=np.float32)
    feeds = [{"x": x.reshape(4, 3), "t": np.array([1, 2, 0, 1])}, {"x": x.reshape(2, 3, 2), "t": np.ones((2, 2), int)}]
    for mine, theirs in zip(results(target_name, text, feeds), results("onnxruntime", text, feeds), strict=True):
        np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-5)


@pytest.mark.parametrize("op", ["GatherElements (x, i)", "ScatterElements (x, i, z)"])
def test_ranks_that_only_a_run_tells_and_do_not_fit(op: str, target_name: str) -> None:
    text = f"g (float[] x, int64[] i, float[] z) => (float[] y) {{ y = {op} }}"
    shapes = [((3, 1), (3, 1)), ((3, 1, 1), (3, 1)), ((3, 0, 1), (0, 1)), ((3,), (3, 1))]
    feeds = [{"x": np.ones(x, np.float32), "i": np.zeros(i, np.int64), "z": np.zeros(i, np.float32)} for x, i in shapes]
    check(target_name, text, feeds)


def test_triangles_want_two_axes(target_name: str) -> None:
    text = "g (float[] x) => (float[] y) { y = Trilu (x) }"
    check(target_name, text, [{"x": np.ones(shape, np.float32)} for shape in ((2, 3), (3,), (), (2, 2, 2))])
