"""`com.microsoft`: fusions and duplicates that ONNX Runtime writes into models. No attribute has a default here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import onnx

from assay.frontends.onnx.ops.common import as_i64, axes_operand, scalar
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op, rule_for
from assay.frontends.onnx.schema import defaults_of, version_of
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.definitions.attention import cast_to
from assay.ops.registry import as_results

microsoft_op = partial(onnx_op, domain="com.microsoft")


def standard(b: Builder, n: Source, op_type: str, opset: int, *inputs: Value | None, **attrs: Any) -> Results:
    """Lower as the standard's op `op_type` of `opset`: with the node's own attributes, those given here, and the
    standard's defaults."""
    version = version_of("", op_type, opset)
    rule = rule_for("", op_type, version)
    if rule is None:
        raise NotImplementedError(f"the standard's {op_type} has no lowering")
    full = {**_defaults(op_type, version), **n.attrs, **attrs}
    node = replace(n.node, op=f"onnx.{op_type}@{version}", attrs=full)
    return rule(b, Source(node, n.lowering), *inputs)


@cache
def _defaults(op_type: str, version: int) -> dict[str, Any]:
    values = {a.name: onnx.helper.get_attribute_value(a) for a in defaults_of("", op_type, version)}
    return {key: value.decode() if isinstance(value, bytes) else value for key, value in values.items()}


# --- activations


@microsoft_op("Gelu", "BiasGelu")
def gelu(b: Builder, n: Source, x: Value, bias: Value | None = None) -> Results:
    return b.gelu(x if bias is None else b.add(x, bias))


@microsoft_op("FastGelu")
def fast_gelu(b: Builder, n: Source, x: Value, bias: Value | None = None) -> Results:
    return b.gelu_tanh(x if bias is None else b.add(x, bias))


@microsoft_op("QuickGelu")
def quick_gelu(b: Builder, n: Source, x: Value) -> Results:
    return b.mul(x, b.sigmoid(b.mul(x, n.float("alpha", 1.702))))


@microsoft_op("BiasSplitGelu")
def bias_split_gelu(b: Builder, n: Source, x: Value, bias: Value) -> Results:
    size = b.static_shape(bias)[0] // 2
    left, right = b.emit("split", b.add(x, bias), sizes=(size, size), axis=-1)
    return b.mul(left, b.gelu(right))


@microsoft_op("BiasAdd")
def bias_add(b: Builder, n: Source, x: Value, bias: Value, skip: Value) -> Results:
    return b.add(b.add(x, bias), skip)


_FUSED = {"Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Clip", "Elu", "Softplus", "Softsign"}


def _activated(b: Builder, n: Source, x: Value, parameters: Sequence[float]) -> Value:
    """x passed through the activation that the node fuses; `parameters` are its own, in the standard's order."""
    name = n.str("activation", "")
    if not name:
        return x
    if name not in _FUSED:
        raise ValueError(f"there is no fused activation '{name}'")
    keys = {"Clip": ("min", "max")}.get(name, ("alpha", "beta"))
    given = dict(zip(keys, parameters, strict=False))
    bare = Source(replace(n.node, attrs={}), n.lowering)
    return as_results(standard(b, bare, name, 6, x, **given))[0]


def _activation_attributes(n: Source) -> list[float]:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return [n.float(name) for name in names if n.has(name)]


# --- products


@microsoft_op("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation")
def fused_matmul(b: Builder, n: Source, x: Value, y: Value) -> Results:
    left = _turned(b, x, n.flag("transBatchA", 0), n.flag("transA", 0))
    right = _turned(b, y, n.flag("transBatchB", 0), n.flag("transB", 0))
    product, alpha = b.matmul(left, right), n.float("alpha", 1.0)
    return _activated(b, n, product if alpha == 1.0 else b.mul(product, alpha), _activation_attributes(n))


def _turned(b: Builder, x: Value, batch: bool, matrix: bool) -> Value:
    """x with its first axis moved behind the other batch axes, and its matrices transposed."""
    rank = b.rank(x)
    if rank < 2:
        return x
    lead = (*range(1, rank - 1), 0) if batch else tuple(range(rank - 1))
    perm = (*lead[:-1], rank - 1, lead[-1]) if matrix else (*lead, rank - 1)
    return x if perm == tuple(range(rank)) else b.transpose(x, perm=perm)


@microsoft_op("FusedGemm")
def fused_gemm(b: Builder, n: Source, x: Value, y: Value, bias: Value | None = None) -> Results:
    product = as_results(standard(b, n, "Gemm", 13, x, y, bias))[0]
    return _activated(b, n, product, _activation_attributes(n))


@microsoft_op("GemmFastGelu")
def gemm_fast_gelu(b: Builder, n: Source, x: Value, w: Value, bias: Value | None = None) -> Results:
    return fast_gelu(b, n, b.matmul(x, w), bias)


@microsoft_op("FusedConv")
def fused_conv(
    b: Builder, n: Source, x: Value, w: Value, bias: Value | None = None, added: Value | None = None
) -> Results:
    result = as_results(standard(b, n, "Conv", 11, x, w, bias))[0]
    total = result if added is None else b.add(result, added)
    return _activated(b, n, total, n.floats("activation_params", None) or ())


# --- normalizations


@onnx_op("SimplifiedLayerNormalization")
@microsoft_op("SimplifiedLayerNormalization")
def simplified_layer_normalization(b: Builder, n: Source, x: Value, scale: Value) -> Results:
    axis, epsilon = n.int("axis", -1), n.float("epsilon", 1e-5)
    result = cast_to(b, b.rms_norm(x, cast_to(b, scale, b.dtype(x)), axis=axis, epsilon=epsilon), b.dtype(scale))
    if n.results < 2:
        return result
    axes = tuple(range(axis % b.rank(x), b.rank(x)))
    wide = cast_to(b, x, dtypes.f32)
    return result, b.rsqrt(b.add(b.reduce_mean(b.square(wide), axes=axes, keepdims=True), epsilon))


@microsoft_op("SkipLayerNormalization")
def skip_layer_normalization(
    b: Builder, n: Source, x: Value, skip: Value, scale: Value, shift: Value | None = None, bias: Value | None = None
) -> Results:
    total, epsilon = _skipped(b, x, skip, bias), n.float("epsilon", 1e-12)
    result = b.layer_norm(total, scale, shift, axis=-1, epsilon=epsilon)
    if n.results < 2:
        return result
    mean = b.reduce_mean(total, axes=(-1,), keepdims=True)
    variance = b.reduce_mean(b.square(b.sub(total, mean)), axes=(-1,), keepdims=True)
    return result, mean, b.rsqrt(b.add(variance, epsilon)), total


@microsoft_op("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    b: Builder, n: Source, x: Value, skip: Value, scale: Value, bias: Value | None = None
) -> Results:
    total, epsilon = _skipped(b, x, skip, bias), n.float("epsilon", 1e-12)
    result = b.rms_norm(total, scale, axis=-1, epsilon=epsilon)
    if n.results < 2:
        return result
    power = b.reduce_mean(b.square(total), axes=(-1,), keepdims=True)
    mean = b.reduce_mean(total, axes=(-1,), keepdims=True)
    return result, mean, b.rsqrt(b.add(power, epsilon)), total


def _skipped(b: Builder, x: Value, skip: Value, bias: Value | None) -> Value:
    total = b.add(x, skip)
    return total if bias is None else b.add(total, bias)


@microsoft_op("EmbedLayerNormalization")
def embed_layer_normalization(
    b: Builder,
    n: Source,
    words: Value,
    segments: Value | None,
    word_table: Value,
    position_table: Value,
    segment_table: Value | None,
    scale: Value,
    shift: Value,
    mask: Value | None = None,
    positions: Value | None = None,
) -> Results:
    places = b.iota(scalar(b, b.vector(b.size(words, 1)))) if positions is None else as_i64(b, positions)
    total = b.add(b.gather(word_table, as_i64(b, words), axis=0), b.gather(position_table, places, axis=0))
    if segments is not None and segment_table is not None:
        total = b.add(total, b.gather(segment_table, as_i64(b, segments), axis=0))
    result = b.layer_norm(total, scale, shift, axis=-1, epsilon=n.float("epsilon", 1e-12))
    if n.results < 2:
        return result
    counted = b.mul(words, 0) if mask is None else b.cast(b.eq(mask, 1), dtype=b.dtype(mask))
    return result, b.cast(b.reduce_sum(counted, axes=(1,)), dtype=dtypes.i32), total


# --- duplicates of what the standard has by now

_DUPLICATES = {"GatherND": 12, "GridSample": 16, "Pad": 11, "Trilu": 14}


def _enter_duplicate(name: str, opset: int) -> None:
    @microsoft_op(name)
    def duplicate(b: Builder, n: Source, *inputs: Value | None) -> Results:  # pyright: ignore[reportUnusedFunction]
        return standard(b, n, name, opset, *inputs)


for _name, _opset in _DUPLICATES.items():
    _enter_duplicate(_name, _opset)


@microsoft_op("Range")
def range_(b: Builder, n: Source, start: Value, limit: Value, step: Value | None = None) -> Results:
    delta = b.constant(1, b.dtype(start)) if step is None else scalar(b, step)
    return standard(b, n, "Range", 11, scalar(b, start), scalar(b, limit), delta)


@microsoft_op("Unique")
def unique(b: Builder, n: Source, x: Value) -> Results:
    values, _, positions, counts = as_results(standard(b, n, "Unique", 11, x, sorted=0))
    return values, positions, counts


@microsoft_op("ExpandDims")
def expand_dims(b: Builder, n: Source, x: Value, axis: Value) -> Results:
    place = b.ints(axis, "axis")[0]
    return b.unsqueeze(x, axes=(place if place >= 0 else place + b.rank(x) + 1,))


@microsoft_op("TorchEmbedding")
def torch_embedding(b: Builder, n: Source, table: Value, positions: Value, *training: Value | None) -> Results:
    return b.gather(table, positions, axis=0)


@microsoft_op("CDist")
def cdist(b: Builder, n: Source, x: Value, y: Value) -> Results:
    metric = n.str("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise ValueError(f"the distance '{metric}' is not supported")
    apart = b.sub(b.unsqueeze(x, axes=(1,)), b.unsqueeze(y, axes=(0,)))
    squares = b.reduce_sum(b.square(apart), axes=(2,))
    return b.sqrt(squares) if metric == "euclidean" else squares


@microsoft_op("Inverse")
def inverse(b: Builder, n: Source, x: Value) -> Results:
    return b.inverse(x)


@microsoft_op("IsAllFinite")
def is_all_finite(b: Builder, n: Source, *xs: Value) -> Results:
    tests = [name for name, only in (("is_nan", "isinf_only"), ("is_inf", "isnan_only")) if not n.flag(only, 0)]
    found = [b.reduce_max(b.emit(test, x)[0]) for x in xs for test in tests]
    return b.bit_not(b.reduce_max(b.concat(*(b.unsqueeze(value, axes=(0,)) for value in found), axis=0)))


@microsoft_op("ReduceSumInteger")
def reduce_sum_integer(b: Builder, n: Source, x: Value) -> Results:
    wide = dtypes.i32 if b.dtype(x).kind == "int" else dtypes.u32
    return b.reduce_sum(b.cast(x, dtype=wide), axes=axes_operand(b, n, None) or None, keepdims=n.flag("keepdims", 1))


# --- weights of a few bits


@microsoft_op("MatMulNBits")
def matmul_nbits(
    b: Builder,
    n: Source,
    x: Value,
    packed: Value,
    scales: Value,
    zeros: Value | None = None,
    groups: Value | None = None,
    bias: Value | None = None,
) -> Results:
    if groups is not None or n.int("weight_prepacked", 0):
        raise ValueError("MatMulNBits with g_idx or prepacked weights is not supported")
    rows, columns, bits, block = n.int("N"), n.int("K"), n.int("bits", 4), n.int("block_size")
    if min(rows, columns, block) < 1:
        raise ValueError(f"weights of {rows} × {columns} in blocks of {block} are not possible")
    blocks = -(-columns // block)
    weights = b.reshape(_unpacked(b, packed, bits), (rows, blocks * block))
    scale = b.reshape(scales, (rows, blocks))
    if zeros is not None and b.dtype(zeros).is_float:
        spread = b.div(b.iota(blocks * block), block)
        offset = b.gather(b.reshape(zeros, (rows, blocks)), spread, axis=1)
        dense = b.mul(b.sub(b.cast(weights, dtype=b.dtype(zeros)), offset), b.gather(scale, spread, axis=1))
    else:
        point = b.expand(b.constant(1 << (bits - 1), dtypes.u8), (rows, blocks))
        if zeros is not None:
            point = b.slice(_unpacked(b, b.reshape(zeros, (rows, -1)), bits), [0], [blocks], [1], axes=(1,))
        dense = b.dequantize_linear(weights, scale, point, dtype=b.dtype(x), axis=1, block=block)
    trimmed = b.slice(dense, [0], [columns], [1], axes=(1,))
    product = b.matmul(x, b.transpose(trimmed, perm=(1, 0)))
    return product if bias is None else b.add(product, bias)


def _unpacked(b: Builder, packed: Value, bits: int) -> Value:
    """The numbers of a few bits that lie in bytes, the lowest bits first, along the last axis."""
    if bits == 8:
        return packed
    if bits not in (2, 4):
        raise ValueError(f"weights of {bits} bits are not supported")
    rank, count = b.rank(packed), 8 // bits
    shifts = b.constant(np.arange(count) * bits, dtypes.u8)
    parts = b.bit_and(b.shift_right(b.unsqueeze(packed, axes=(rank,)), shifts), (1 << bits) - 1)
    sizes = [b.size(packed, axis) for axis in range(rank - 1)]
    return b.reshape(parts, b.vector(*sizes, -1))


@microsoft_op("GatherBlockQuantized")
def gather_block_quantized(
    b: Builder, n: Source, data: Value, positions: Value, scales: Value, zeros: Value | None = None
) -> Results:
    bits, rank = n.int("bits", 4), b.rank(data)
    across, along = n.int("gather_axis", 0) % rank, n.int("quantize_axis", 1) % rank
    places = as_i64(b, positions)
    rows, scale = b.gather(data, places, axis=across), b.gather(scales, places, axis=across)
    zero = None if zeros is None else b.gather(zeros, places, axis=across)
    if b.dtype(data) is dtypes.u8:
        rows = _unpacked(b, rows, bits)
        half = b.expand(b.constant(1 << (bits - 1), dtypes.u8), b.shape_of(scale))
        zero = (
            half
            if zero is None
            else b.slice(_unpacked(b, zero, bits), [0], b.vector(b.size(scale, -1)), [1], axes=(b.rank(zero) - 1,))
        )
    axis = along + b.rank(places) - 1 if across < along else along
    return b.dequantize_linear(rows, scale, zero, dtype=b.dtype(scale), axis=axis, block=n.int("block_size", 128))
