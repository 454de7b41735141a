"""`com.microsoft` ops against ONNX Runtime, each on a model of one node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frontends.onnx.peer import Case, assert_agreement, ours

RNG = np.random.default_rng(5)


def f(*shape: int, low: float = -2, high: float = 2) -> Any:
    return RNG.uniform(low, high, size=shape).astype(np.float32)


def u8(*shape: int) -> Any:
    return RNG.integers(0, 256, size=shape).astype(np.uint8)


def i8(*shape: int) -> Any:
    """In half of the range: ONNX Runtime's kernels for u8 × i8 overflow beyond that on many processors."""
    return RNG.integers(-64, 64, size=shape).astype(np.int8)


def i32(*items: Any) -> Any:
    return np.array(items, np.int32)


def i64(*items: Any) -> Any:
    return np.array(items, np.int64)


def scale(value: float) -> Any:
    return np.array(value, np.float32)


def ms(op: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Case:
    options = {key: attrs.pop(key) for key in ("name", "constants", "absolute", "relative") if key in attrs}
    return Case(op, inputs, attrs, outputs=outputs, domain="com.microsoft", **options)


def fusions() -> list[Case]:
    x, square = f(2, 3, 4), f(4, 4)
    image, kernel = f(1, 3, 5, 5), f(4, 3, 3, 3)
    return [
        ms("Gelu", x),
        ms("BiasGelu", x, f(4)),
        ms("FastGelu", x, relative=1e-3),
        ms("FastGelu", x, f(4), relative=1e-3, name="bias"),
        ms("QuickGelu", x),
        ms("QuickGelu", x, alpha=0.7),
        ms("FusedMatMul", f(2, 3, 4), f(2, 4, 5), alpha=0.5),
        ms("FusedMatMul", f(2, 4, 3), f(5, 4), transA=1, transB=1),
        ms("FusedMatMul", f(3, 2, 4), f(2, 5, 4), transBatchA=1, transB=1),
        ms("TransposeMatMul", f(4, 3), f(4, 5), transA=1),
        ms("FusedGemm", f(3, 4), f(4, 5), f(5), activation="Relu", alpha=0.5, beta=2.0),
        ms("FusedGemm", f(4, 3), f(5, 4), transA=1, transB=1, activation="LeakyRelu", activation_alpha=0.2),
        ms("FusedGemm", f(3, 4), f(4, 5), activation="Tanh"),
        ms("FusedConv", image, kernel, f(4), activation="Relu", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        ms("FusedConv", image, kernel, activation="Clip", activation_params=[-0.5, 0.5], strides=[2, 2]),
        ms("FusedConv", image, kernel, activation="HardSigmoid", activation_params=[0.3, 0.6]),
        ms("FusedConv", image, kernel, f(4), f(1, 4, 3, 3), activation="LeakyRelu", activation_params=[0.1]),
        ms("FusedConv", image, kernel, activation="Sigmoid"),
        ms("SkipLayerNormalization", x, f(2, 3, 4), f(4), f(4), f(4), epsilon=1e-5),
        ms("SkipLayerNormalization", x, f(3, 4), f(4), name="broadcast skip"),
        ms("SkipSimplifiedLayerNormalization", x, f(2, 3, 4), f(4), f(4), epsilon=1e-5),
        ms("CDist", f(3, 4), f(5, 4), metric="euclidean"),
        ms("CDist", f(3, 4), f(5, 4)),
        ms("Inverse", f(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)[[2, 0, 1]]),
        ms("GridSample", f(1, 2, 4, 4), f(1, 3, 3, 2), padding_mode="border", align_corners=1),
        ms("GatherND", f(2, 3, 4), i64([0, 1], [1, 2])),
        ms("Trilu", square, np.array(1)),
        ms("Trilu", square, upper=0),
        ms("Pad", square, i64(1, 0, 0, 2), np.array([0.5], np.float32), mode="constant"),
        ms("Pad", square, i64(1, 0, 0, 2), mode="reflect"),
        ms("Range", scale(1.0), scale(4.0), scale(0.5)),
        ms("Range", i32(2), i32(7), name="default step"),
        ms("ExpandDims", square, np.array(1, np.int32), constants=(1,)),
        ms("Unique", np.array([2, 1, 1, 3, 4, 3], np.float32), outputs=3),
    ]


def embeddings() -> list[Case]:
    words, segments = RNG.integers(0, 7, size=(2, 5)).astype(np.int32), RNG.integers(0, 2, size=(2, 5)).astype(np.int32)
    tables = (f(7, 6), f(9, 6))
    mask = i32([1, 1, 1, 0, 0], [1, 1, 1, 1, 1])
    tail = (f(6), f(6))
    return [
        ms("EmbedLayerNormalization", words, segments, *tables, f(2, 6), *tail, mask, outputs=2, epsilon=1e-6),
        ms("EmbedLayerNormalization", words, None, *tables, None, *tail, outputs=3, name="no segments"),
        ms("EmbedLayerNormalization", words, None, *tables, None, *tail, None, words, outputs=2, name="positions"),
    ]


def packed_weights() -> list[Case]:
    rows: list[Case] = []
    for bits in (2, 4, 8):
        n, k, block = 6, 40, 16
        blocks, blob = -(-k // block), block * bits // 8
        x, weights, scales = f(3, k), u8(n, blocks, blob), f(n, blocks, low=0.01, high=0.1)
        zeros = u8(n, -(-blocks * bits // 8))
        attrs: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": block, "relative": 1e-3, "absolute": 1e-3}
        rows.append(ms("MatMulNBits", x, weights, scales, constants=(1, 2), **attrs))
        rows.append(ms("MatMulNBits", x, weights, scales, zeros, constants=(1, 2, 3), name=f"zeros {bits}", **attrs))
    floats = f(n, blocks, low=0, high=15)
    attrs = {**attrs, "bits": 4}
    weights = u8(n, blocks, block // 2)
    given = (f(2, 3, k), weights, scales, floats, None, f(n))
    rows.append(ms("MatMulNBits", *given, constants=(1, 2, 3), name="float zeros and bias", **attrs))
    table, positions = u8(8, 16), i64([0, 3], [7, 7])
    spans = f(8, 2, low=0.1, high=0.5)
    gather = {"bits": 4, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
    rows.append(ms("GatherBlockQuantized", table, positions, spans, constants=(0, 2), **gather))
    given = (table, positions, spans, u8(8, 1))
    rows.append(ms("GatherBlockQuantized", *given, constants=(0, 2, 3), name="zeros", **gather))
    return rows


def quantized() -> list[Case]:
    x, y, zero = u8(2, 3, 4), u8(2, 3, 4), np.array(100, np.uint8)
    image = u8(1, 3, 6, 6)
    out = (scale(0.2), np.array(120, np.uint8))
    signed = (i8(2, 3, 4), scale(0.1), np.array(-3, np.int8))
    rows = [
        ms("QLinearAdd", x, scale(0.1), zero, y, scale(0.15), zero, *out),
        ms("QLinearAdd", *signed, *signed, scale(0.3), np.array(5, np.int8), name="signed"),
        ms("QLinearAdd", x, scale(0.1), zero, u8(4), scale(0.15), zero, *out, name="broadcast"),
        ms("QLinearMul", x, scale(0.1), zero, y, scale(0.15), zero, scale(1.0), zero),
        ms("QLinearSigmoid", x, scale(0.05), zero, scale(1 / 256), np.array(0, np.uint8)),
        ms("QLinearLeakyRelu", x, scale(0.05), zero, scale(0.04), zero, alpha=0.2),
        ms("QLinearAveragePool", image, scale(0.1), zero, *out, kernel_shape=[2, 2], strides=[2, 2]),
        ms("QLinearAveragePool", image, scale(0.1), zero, *out, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        ms("QLinearAveragePool", u8(1, 6, 6, 3), scale(0.1), zero, *out, kernel_shape=[2, 2], channels_last=1),
        ms("QLinearGlobalAveragePool", image, scale(0.1), zero, scale(0.05), zero),
        ms("QLinearGlobalAveragePool", u8(1, 4, 4, 3), scale(0.1), zero, scale(0.05), zero, channels_last=1),
        ms("QLinearConcat", *out, x, scale(0.1), zero, y, scale(0.3), zero, axis=1, constants=(0, 1, 3, 4, 6, 7)),
        ms("QLinearSoftmax", x, scale(0.05), zero, scale(1 / 256), np.array(0, np.uint8), opset=13, axis=-1),
        ms("QLinearSoftmax", x, scale(0.05), zero, scale(1 / 256), np.array(0, np.uint8), opset=11, axis=1),
        ms("QLinearWhere", x > 90, x, scale(0.1), zero, y, scale(0.2), zero, *out),
        ms("QuantizeLinear", f(2, 3, low=-9, high=9), scale(0.1), zero),
        ms("QuantizeLinear", f(2, 3, low=-9, high=9), f(3, low=0.1, high=0.2), u8(3), axis=1),
    ]
    return [row._replace(absolute=1.0, relative=0.0) for row in rows]


def products() -> list[Case]:
    a, w, zero = u8(3, 4), u8(4, 5), np.array(100, np.uint8)
    wide = u8(5, 4)
    rows = [
        ms("DequantizeLinear", a, scale(0.1), zero),
        ms("DequantizeLinear", a, f(3, low=0.1, high=0.2), u8(3), axis=0),
        ms("MatMulIntegerToFloat", a, w, scale(0.1), scale(0.2), zero, zero, f(5)),
        ms("MatMulIntegerToFloat", a, i8(4, 5), scale(0.1), f(5, low=0.1, high=0.2), zero, i8(5), name="by column"),
        ms("MatMulIntegerToFloat", a, w, scale(0.1), scale(0.2), name="no zero points"),
        ms("DynamicQuantizeMatMul", f(3, 4), i8(4, 5), scale(0.02), np.array(3, np.int8), f(5)),
        ms("DynamicQuantizeMatMul", f(2, 3, 4), u8(4, 5), f(5, low=0.01, high=0.02), name="by column"),
        ms("QGemm", a, scale(0.1), zero, w, scale(0.2), zero, i32(5, -7, 2, 0, 1), alpha=0.5),
        ms("QGemm", a, scale(0.1), zero, wide, scale(0.2), zero, transB=1),
    ]
    quantized_result = ms("QGemm", a, scale(0.1), zero, w, scale(0.2), zero, None, scale(5.0), zero, name="quantized")
    image, kernel = u8(1, 5, 5, 3), u8(4, 3, 3, 3)
    conv = ms(
        "QLinearConv", image, scale(0.1), zero, kernel, scale(0.01), zero, scale(0.5), zero, channels_last=1,
        constants=(3,),
    )  # fmt: skip
    return [*rows, *(row._replace(absolute=1.0, relative=0.0) for row in (quantized_result, conv))]


def attentions() -> list[Case]:
    batch, length, hidden, heads = 2, 4, 8, 2
    x, w, bias = f(batch, length, hidden), f(hidden, 3 * hidden), f(3 * hidden)
    past = f(2, batch, heads, 3, hidden // heads)
    pair: dict[str, Any] = {"num_heads": heads}
    rows = [
        ms("Attention", x, w, bias, **pair),
        ms("Attention", x, w, bias, unidirectional=1, **pair),
        ms("Attention", x, w, bias, i32(4, 2), name="ends", **pair),
        ms("Attention", x, w, bias, i32(4, 3, 0, 1), name="ends and starts", **pair),
        ms("Attention", x, w, bias, i32([1, 1, 0, 1], [1, 0, 0, 1]), name="raw mask", **pair),
        ms("Attention", x, w, bias, RNG.integers(0, 2, (2, 4, 4)).astype(np.int32), name="3D mask", **pair),
        ms("Attention", x, w, bias, None, past, outputs=2, unidirectional=1, name="past", **pair),
        ms("Attention", x, w, bias, None, None, f(1, heads, length, length), scale=0.3, name="added", **pair),
        ms("Attention", x, f(hidden, 8 + 8 + 4), f(20), qkv_hidden_sizes=[8, 8, 4], **pair),
    ]
    zero, small = np.array(120, np.uint8), scale(0.02)
    given = (u8(batch, length, hidden), i8(hidden, 3 * hidden), bias, small, small)
    pair["constants"] = (1,)
    return [
        *rows,
        ms("QAttention", *given, i32(4, 3), zero, np.array(2, np.int8), **pair),
        ms("QAttention", *given, None, zero, np.array(0, np.int8), past, outputs=2, unidirectional=1, **pair),
    ]


def multi_head() -> list[Case]:
    batch, length, keys, hidden, heads = 2, 3, 5, 8, 2
    q, k, v = f(batch, length, hidden), f(batch, keys, hidden), f(batch, keys, hidden)
    same_k, same_v = f(batch, length, hidden), f(batch, length, hidden)
    past = [f(batch, heads, 4, hidden // heads) for _ in range(2)]
    pair = {"num_heads": heads}
    name = "MultiHeadAttention"
    return [
        ms(name, q, k, v, **pair),
        ms(name, q, k, v, f(3 * hidden), name="bias", **pair),
        ms(name, q, k, f(batch, keys, 12), f(8 + 8 + 12), name="wide values", **pair),
        ms(name, q, k, v, None, i32(5, 2), name="ends", **pair),
        ms(name, q, k, v, None, i32([1, 1, 1, 0, 0], [0, 1, 1, 1, 1]), name="mask", mask_filter_value=-500.0, **pair),
        ms(name, q, k, v, None, None, f(1, heads, length, keys), name="added", scale=0.4, **pair),
        ms(name, q, same_k, same_v, unidirectional=1, **pair),
        ms(name, q, same_k, same_v, None, None, None, *past, outputs=3, name="past", **pair),
        ms(name, q, same_k, same_v, None, None, None, *past, outputs=3, unidirectional=1, name="causal past", **pair),
        ms(name, q, f(batch, heads, keys, 4), f(batch, heads, keys, 4), name="heads apart", **pair),
        *decoder(),
    ]


def decoder() -> list[Case]:
    name, pair = "DecoderMaskedMultiHeadAttention", {"num_heads": 2, "past_present_share_buffer": 1}
    new = [f(2, 1, 8) for _ in range(3)]
    buffers = [f(2, 2, 6, 4) for _ in range(2)]
    mask = i32([1, 1, 0, 1], [0, 1, 1, 1])
    return [
        ms(name, *new, None, None, *buffers, i32(3), outputs=3, name="shared buffer", **pair),
        ms(name, *new, mask, None, *buffers, i32(3), None, None, f(24), outputs=3, name="mask and bias", **pair),
        ms(name, new[0], f(2, 2, 5, 4), f(2, 2, 5, 4), name="cross", num_heads=2),
    ]


def group_query() -> list[Case]:
    heads, groups, size = 4, 2, 16
    attrs = {"num_heads": heads, "kv_num_heads": groups}
    name = "GroupQueryAttention"

    def prompt(batch: int = 2, length: int = 3) -> list[Any]:
        return [f(batch, length, heads * size), f(batch, length, groups * size), f(batch, length, groups * size)]

    def past(batch: int = 2, length: int = 4) -> list[Any]:
        return [f(batch, groups, length, size), f(batch, groups, length, size)]

    angles = RNG.uniform(-3, 3, size=(16, size // 2))
    tables = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
    start = [None, None, i32(2, 2), i32(3)]
    decode = [*past(), i32(4, 4), i32(5)]
    return [
        ms(name, *prompt(), *start, outputs=3, name="prompt", **attrs),
        ms(name, *prompt(length=1), *decode, outputs=3, name="decode", **attrs),
        ms(name, *prompt(), *start, *tables, outputs=3, do_rotary=1, name="rotary prompt", **attrs),
        ms(name, *prompt(length=1), *decode, *tables, outputs=3, do_rotary=1, name="rotary decode", **attrs),
        ms(name, *prompt(length=1), *decode, *tables, i64([6], [2]), outputs=3, do_rotary=1, name="positions", **attrs),
        ms(name, *prompt(length=1), *decode, *tables, outputs=3, do_rotary=1, rotary_interleaved=1, **attrs),
        ms(name, *prompt(length=1), *decode, outputs=3, local_window_size=2, name="window", **attrs),
        ms(name, *prompt(), *start, outputs=3, local_window_size=2, softcap=3.0, scale=0.5, **attrs),
        ms(name, *prompt(length=1), *decode, None, None, None, f(2, 1, 1, 5), outputs=3, name="added", **attrs),
        ms(name, *prompt(length=1), *decode, None, None, None, None, f(4), outputs=3, name="sink", **attrs),
        ms(name, *prompt(), *start, outputs=3, smooth_softmax=1, **attrs),
        ms(name, f(2, 3, (heads + 2 * groups) * size), None, None, *start, outputs=3, name="packed", **attrs),
        ms(name, *prompt(1, 2), *past(1), i32(5), i32(6), outputs=3, name="second prompt", **attrs),
    ]


def rotary() -> list[Case]:
    angles = RNG.uniform(-3, 3, size=(10, 4))
    tables = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
    places = i64([0, 1, 2], [4, 5, 9])
    name = "RotaryEmbedding"
    return [
        ms(name, f(2, 3, 16), places, *tables, name="heads from the table"),
        ms(name, f(2, 3, 16), places, *tables, interleaved=1, num_heads=2),
        ms(name, f(2, 3, 16), i64(3), *tables, name="one offset"),
        ms(name, f(2, 2, 3, 8), places, *tables, name="heads apart"),
        ms(name, f(2, 3, 24), places, *tables, num_heads=2, rotary_embedding_dim=8),
    ]


CASES = [
    *fusions(),
    *embeddings(),
    *packed_weights(),
    *quantized(),
    *products(),
    *attentions(),
    *multi_head(),
    *group_query(),
    *rotary(),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_onnxruntime(case: Case) -> None:
    assert_agreement(case)


# --- what ONNX Runtime writes into the default domain


@pytest.mark.parametrize("opset", [12, 20])
def test_normalizations_of_the_default_domain(opset: int) -> None:
    x, weight = f(2, 3, 4), f(4)
    assert_agreement(Case("SimplifiedLayerNormalization", [x, weight], {"axis": -1, "epsilon": 1e-6}, opset=opset))
    assert_agreement(Case("LayerNormalization", [x, weight, f(4)], {"epsilon": 1e-6}, opset=opset))


# --- what it has no CPU kernel for


def test_fusions_without_a_cpu_kernel() -> None:
    x, bias = f(2, 3, 4), f(4)
    (added,) = ours(ms("BiasAdd", x, bias, x))
    np.testing.assert_allclose(added, x + bias + x, rtol=1e-6)
    (split,) = ours(ms("BiasSplitGelu", x, bias))
    left, right = np.split(x + bias, 2, axis=-1)
    (wanted,) = ours(ms("Gelu", right))
    np.testing.assert_allclose(split, left * wanted, rtol=1e-5)
    a, b, zero = u8(3, 4), u8(3, 4), np.array(100, np.uint8)
    (product,) = ours(ms("MulInteger", a, zero, b, zero))
    np.testing.assert_array_equal(product, (a.astype(np.int32) - 100) * (b.astype(np.int32) - 100))
    (total,) = ours(ms("ReduceSumInteger", a, axes=[1], keepdims=0))
    np.testing.assert_array_equal(total, a.sum(axis=1, dtype=np.uint32))


FINITE: list[tuple[float, dict[str, int], bool]] = [
    (1.0, {}, True),
    (np.inf, {}, False),
    (np.inf, {"isnan_only": 1}, True),
]


@pytest.mark.parametrize(("last", "attrs", "wanted"), FINITE)
def test_is_all_finite(last: float, attrs: dict[str, int], wanted: bool) -> None:
    (found,) = ours(ms("IsAllFinite", f(2, 2), np.array([1, last], np.float32), **attrs))
    assert bool(found) is wanted


def test_packed_heads() -> None:
    q, k, v = (f(2, 3, 2, 4) for _ in range(3))
    flat = [x.reshape(2, 3, 8) for x in (q, k, v)]
    wanted, *_ = ours(ms("MultiHeadAttention", *flat, num_heads=2))
    for inputs in ([np.stack([q, k, v], axis=3)], [flat[0], np.stack([k, v], axis=3)]):
        got, *_ = ours(ms("MultiHeadAttention", *inputs, num_heads=2))
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_ragged_decoding() -> None:
    """Rows of the batch may be of different length: each new token goes behind its own row's past."""
    heads, size = 2, 4
    past = [f(2, heads, 4, size) for _ in range(2)]
    new = [f(2, 1, heads * size) for _ in range(3)]
    attrs = {"num_heads": heads, "kv_num_heads": heads}
    lengths = i32(4, 2)
    _, keys, values = ours(ms("GroupQueryAttention", *new, *past, lengths, i32(5), outputs=3, **attrs))
    for row, place in ((0, 4), (1, 2)):
        for got, old, fresh in ((keys, past[0], new[1]), (values, past[1], new[2])):
            np.testing.assert_array_equal(got[row, :, :place], old[row, :, :place])
            np.testing.assert_array_equal(got[row, :, place], fresh[row].reshape(heads, size))
            np.testing.assert_array_equal(got[row, :, place + 1 : 4], old[row, :, place + 1 :])
