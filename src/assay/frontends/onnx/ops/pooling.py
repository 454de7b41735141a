"""ONNX pooling."""

from __future__ import annotations

from typing import Any

from assay.frontends.onnx.ops.common import as_i64, product_of_sizes, scalar
from assay.frontends.onnx.ops.windows import explicit_pads, pads_of, windows_of
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.graph import Value


def _windows(b: Builder, n: Source, x: Value) -> dict[str, Any]:
    """The attributes that every core pooling op has. Rounding up changes nothing where padding is automatic."""
    windows = windows_of(n, n.ints("kernel_shape"))
    return {
        "kernel": windows.kernel,
        "strides": windows.strides,
        "dilations": windows.dilations,
        "pads": pads_of(b, n, x, windows),
        "ceil": n.flag("ceil_mode", 0) and n.str("auto_pad") == "NOTSET",
    }


@onnx_op("AveragePool")
def average_pool(b: Builder, n: Source, x: Value) -> Results:
    return b.average_pool(x, include_pad=n.flag("count_include_pad", 0), **_windows(b, n, x))


@onnx_op("LpPool")
def lp_pool(b: Builder, n: Source, x: Value) -> Results:
    return b.lp_pool(x, p=_order(n), **_windows(b, n, x))


def _order(n: Source) -> float:
    """The p of an Lp norm, which was a float once."""
    p = float(n.get("p", (int, float), 2))
    if not p >= 1:
        raise ValueError(f"p is {p}, it must be 1 or more")
    return p


@onnx_op("MaxPool")
def max_pool(b: Builder, n: Source, x: Value) -> Results:
    windows = _windows(b, n, x)
    if n.results < 2:
        return b.max_pool(x, **windows)
    largest, places = b.emit("max_pool_positions", x, **windows)
    if n.flag("storage_order"):
        places = _column_major(b, x, places)
    rank = b.rank(x)
    planes = b.iota(scalar(b, b.vector(product_of_sizes(b, x, (0, 1)))))
    starts = b.mul(planes, scalar(b, b.vector(product_of_sizes(b, x, range(2, rank)))))
    return largest, b.add(places, b.reshape(starts, b.vector(b.size(x, 0), b.size(x, 1), *(1,) * (rank - 2))))


def _column_major(b: Builder, x: Value, places: Value) -> Value:
    """Row-major positions among the spatial axes of x as column-major ones."""
    result, rest = b.constant(0, dtypes.i64), places
    for axis in reversed(range(2, b.rank(x))):
        size = scalar(b, b.vector(b.size(x, axis)))
        result = b.add(b.mul(result, size), b.mod(rest, size))
        rest = b.div(rest, size)
    return result


@onnx_op("GlobalAveragePool")
def global_average_pool(b: Builder, n: Source, x: Value) -> Results:
    return b.reduce_mean(x, axes=tuple(range(2, b.rank(x))), keepdims=True)


@onnx_op("GlobalMaxPool")
def global_max_pool(b: Builder, n: Source, x: Value) -> Results:
    return b.reduce_max(x, axes=tuple(range(2, b.rank(x))), keepdims=True)


@onnx_op("GlobalLpPool")
def global_lp_pool(b: Builder, n: Source, x: Value) -> Results:
    p = _order(n)
    total = b.reduce_sum(b.pow(b.abs(x), p), axes=tuple(range(2, b.rank(x))), keepdims=True)
    return b.pow(total, 1 / p)


@onnx_op("MaxUnpool")
def max_unpool(b: Builder, n: Source, x: Value, places: Value, output_shape: Value | None = None) -> Results:
    windows = windows_of(n, n.ints("kernel_shape"))
    rank = len(windows.kernel)
    pads = explicit_pads(b, n, x, rank)
    sizes: list[int | Value] = [b.size(x, 0), b.size(x, 1)]
    for i, (kernel, stride) in enumerate(zip(windows.kernel, windows.strides, strict=True)):
        size, reach = b.size(x, 2 + i), kernel - stride - pads[i] - pads[i + rank]
        sizes.append(size * stride + reach if isinstance(size, int) else b.add(b.mul(size, stride), reach))
    shape = b.vector(*sizes)
    empty = b.expand(b.constant(0, b.dtype(x)), b.reduce_prod(shape, keepdims=True))
    filled = b.scatter_nd(empty, b.unsqueeze(b.reshape(as_i64(b, places), [-1]), axes=(1,)), b.reshape(x, [-1]))
    result = b.reshape(filled, shape)
    if output_shape is None:
        return result
    return b.pad(result, b.concat(b.constant([0] * (rank + 2), dtypes.i64), b.sub(output_shape, shape), axis=0), 0)


@onnx_op("MaxRoiPool")
def max_roi_pool(b: Builder, n: Source, x: Value, rois: Value) -> Results:
    """Each region's bins begin and end at whole pixels and may overlap; an empty bin gives zero."""
    rows, columns = n.ints("pooled_shape")
    wide = b.cast(rois, dtype=dtypes.f64)
    batch, left, top, right, bottom = (b.gather(wide, i, axis=1) for i in range(5))
    images = b.gather(x, b.cast(batch, dtype=dtypes.i64), axis=0)
    scale = n.float("spatial_scale")
    across = _bins(b, left, right, scale, columns, b.size(x, 3))
    down = _bins(b, top, bottom, scale, rows, b.size(x, 2))
    lowest = b.constant(-float("inf"), b.dtype(x))
    bands = b.where(b.unsqueeze(across, axes=(1, 2)), b.unsqueeze(images, axes=(3,)), lowest)
    lines = b.transpose(b.reduce_max(bands, axes=(4,)), perm=(0, 1, 3, 2))
    cells = b.where(b.unsqueeze(down, axes=(1, 3)), b.unsqueeze(lines, axes=(2,)), lowest)
    largest = b.reduce_max(cells, axes=(4,))
    return b.where(b.eq(largest, lowest), 0, largest)


def _bins(b: Builder, low: Value, high: Value, scale: float, count: int, size: int | Value) -> Value:
    """Which of `size` pixels belong to which of `count` bins of each region: (regions, bins, pixels)."""
    first, last = (b.floor(b.add(b.mul(edge, scale), 0.5)) for edge in (low, high))
    step = b.div(b.max(b.add(b.sub(last, first), 1.0), 1.0), float(count))
    bins = b.cast(b.iota(count), dtype=dtypes.f64)
    begin, end = b.unsqueeze(first, axes=(1,)), b.unsqueeze(step, axes=(1,))
    starts = b.add(begin, b.floor(b.mul(end, bins)))
    ends = b.add(begin, b.ceil(b.mul(end, b.add(bins, 1.0))))
    pixels = b.cast(b.iota(scalar(b, b.vector(size))), dtype=dtypes.f64)
    return b.bit_and(b.le(b.unsqueeze(starts, axes=(2,)), pixels), b.lt(pixels, b.unsqueeze(ends, axes=(2,))))
