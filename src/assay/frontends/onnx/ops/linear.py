"""ONNX convolutions, matrix products and sums of products."""

from __future__ import annotations

from typing import Any

from assay.frontends.onnx.ops.common import scalar
from assay.frontends.onnx.ops.quantization import integer_product
from assay.frontends.onnx.ops.windows import (
    SAME,
    explicit_pads,
    kernel_of,
    padded_same,
    pads_of,
    split_pads,
    windows_of,
)
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ops.builder import FactMissing, check_size

# --- convolutions


def _convolve(b: Builder, n: Source, x: Value, w: Value, bias: Value | None = None) -> Value:
    windows = windows_of(n, kernel_of(b, n, w))
    try:
        pads = pads_of(b, n, x, windows)
    except FactMissing:
        x, pads = padded_same(b, n, x, windows), (0,) * (2 * len(windows.kernel))
    attrs: dict[str, Any] = {"strides": windows.strides, "dilations": windows.dilations, "pads": pads}
    return b.conv(x, w, bias, groups=n.int("group"), **attrs)


@onnx_op("Conv")
def conv(b: Builder, n: Source, x: Value, w: Value, bias: Value | None = None) -> Results:
    return _convolve(b, n, x, w, bias)


def _from_zero(b: Builder, x: Value, zero: Value | None, by_channel: bool = False) -> Value:
    """x less its zero point as i32; a vector of zero points is one an output channel (axis 0)."""
    wide = b.cast(x, dtype=dtypes.i32)
    if zero is None:
        return wide
    point = b.cast(zero, dtype=dtypes.i32)
    spread = b.reshape(point, [-1] + [1] * (b.rank(x) - 1)) if by_channel else scalar(b, point)
    return b.sub(wide, spread)


@onnx_op("ConvInteger")
def conv_integer(
    b: Builder, n: Source, x: Value, w: Value, x_zero: Value | None = None, w_zero: Value | None = None
) -> Results:
    return _convolve(b, n, _from_zero(b, x, x_zero), _from_zero(b, w, w_zero, by_channel=True))


@onnx_op("QLinearConv")
def qlinear_conv(
    b: Builder,
    n: Source,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
) -> Results:
    total = _convolve(b, n, _from_zero(b, x, x_zero), _from_zero(b, w, w_zero, by_channel=True), bias)
    factor = b.div(b.mul(scalar(b, x_scale), w_scale), scalar(b, y_scale))
    spread = b.reshape(factor, [-1] + [1] * (b.rank(x) - 2))
    target = b.dtype(y_zero)
    low, high = target.limits
    shift = b.cast(scalar(b, y_zero), dtype=dtypes.f32)
    scaled = b.round(b.mul(b.cast(total, dtype=dtypes.f32), spread))
    return b.cast(b.clip(b.add(scaled, shift), float(low), float(high)), dtype=target)


@onnx_op("ConvTranspose")
def conv_transpose(b: Builder, n: Source, x: Value, w: Value, bias: Value | None = None) -> Results:
    windows = windows_of(n, kernel_of(b, n, w))
    rank = len(windows.kernel)
    extra = list(n.ints("output_padding", None) or (0,) * rank)
    if len(extra) != rank or any(item < 0 for item in extra):
        raise ValueError(f"output_padding {extra} does not fit {rank} spatial axes")
    mode, wanted = n.str("auto_pad"), n.ints("output_shape", None)
    pads = explicit_pads(b, n, x, rank) if mode == "NOTSET" else (0,) * (2 * rank)
    if wanted or mode in SAME:
        totals = [
            (0 if wanted else -stride) + span + more
            for stride, span, more in zip(windows.strides, windows.spans, extra, strict=True)
        ]
        if wanted:
            sizes = b.static_shape(x)[2:]
            reached = [(size - 1) * stride for size, stride in zip(sizes, windows.strides, strict=True)]
            totals = [total + far - size for total, far, size in zip(totals, reached, wanted[-rank:], strict=True)]
        pads = split_pads(totals if mode in SAME else [max(total, 0) for total in totals], mode)
        extra = [more if mode in SAME else more + max(-total, 0) for more, total in zip(extra, totals, strict=True)]
    before, after = ([max(-amount, 0) for amount in half] for half in (pads[:rank], pads[rank:]))
    attrs: dict[str, Any] = {
        "strides": windows.strides,
        "dilations": windows.dilations,
        "pads": tuple(max(amount, 0) for amount in pads),
        "output_padding": tuple(more + gap for more, gap in zip(extra, after, strict=True)),
        "groups": n.int("group"),
    }
    if not any(before):
        return b.conv_transpose(x, w, bias, **attrs)
    image = b.pad(b.conv_transpose(x, w, **attrs), (0, 0, *before, *(0,) * (rank + 2)), 0)
    return image if bias is None else b.add(image, b.reshape(bias, (-1, *(1,) * rank)))


@onnx_op("DeformConv")
def deform_conv(
    b: Builder, n: Source, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None
) -> Results:
    windows = windows_of(n, kernel_of(b, n, w))
    attrs: dict[str, Any] = {"strides": windows.strides, "dilations": windows.dilations}
    groups: dict[str, Any] = {"groups": n.int("group"), "offset_groups": n.int("offset_group")}
    pads = explicit_pads(b, n, x, len(windows.kernel))
    return b.deform_conv(x, w, offset, bias, mask, pads=pads, **attrs, **groups)


@onnx_op("Col2Im")
def col2im(b: Builder, n: Source, x: Value, image_shape: Value, block_shape: Value) -> Results:
    image, windows = b.ints(image_shape, "image_shape"), windows_of(n, b.ints(block_shape, "block_shape"))
    if len(image) != len(windows.kernel):
        raise ValueError(f"image_shape {list(image)} does not fit {len(windows.kernel)} spatial axes")
    check_size(image, b.dtype(x), b.limits)
    attrs: dict[str, Any] = {"strides": windows.strides, "dilations": windows.dilations}
    return b.col2im(x, image=image, block=windows.kernel, pads=explicit_pads(b, n, x, len(image)), **attrs)


# --- products


@onnx_op("Gemm")
def gemm(b: Builder, n: Source, x: Value, y: Value, bias: Value | None = None) -> Results:
    left = b.transpose(x, perm=(1, 0)) if n.flag("transA") else x
    right = b.transpose(y, perm=(1, 0)) if n.flag("transB") else y
    product = _scaled(b, b.matmul(left, right), n.float("alpha"))
    beta = n.float("beta")
    return product if bias is None or beta == 0.0 else b.add(product, _scaled(b, bias, beta))


def _scaled(b: Builder, x: Value, factor: float) -> Value:
    """x times a number; integers truncate."""
    if factor == 1.0:
        return x
    if b.dtype(x).is_float:
        return b.mul(x, factor)
    return b.cast(b.mul(b.cast(x, dtype=dtypes.f64), factor), dtype=b.dtype(x))


@onnx_op("MatMulInteger")
def matmul_integer(
    b: Builder, n: Source, x: Value, y: Value, x_zero: Value | None = None, y_zero: Value | None = None
) -> Results:
    return integer_product(b, x, x_zero, y, y_zero)


@onnx_op("Einsum")
def einsum(b: Builder, n: Source, *xs: Value) -> Results:
    return b.einsum(*xs, equation=n.str("equation"))
