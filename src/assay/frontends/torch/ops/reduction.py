"""aten reductions, products and normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.ops.elementwise import truth
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value


def _axes(b: Builder, x: Value, dims: Any) -> tuple[int, ...] | None:
    """Axes as aten names them: none or an empty list are all."""
    given = [dims] if isinstance(dims, int) else dims
    return tuple(given) if given and b.rank(x) else None


def _enter(name: str, core: str) -> None:
    @aten(f"aten.{name}.default", f"aten.{name}.dim_IntList", f"aten.{name}.dim", f"aten.{name}.dim_int")
    def reduction(  # pyright: ignore[reportUnusedFunction]
        b: Builder, n: Call, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Results:
        return b.emit(core, tensor(b, x, n.dtype), axes=_axes(b, x, dims), keepdims=keepdim)[0]


for _name, _core in {
    "sum": "reduce_sum",
    "prod": "reduce_prod",
    "mean": "reduce_mean",
    "amax": "reduce_max",
    "amin": "reduce_min",
}.items():
    _enter(_name, _core)


@aten("aten.max.default", "aten.min.default")
def extreme(b: Builder, n: Call, x: Value) -> Results:
    return b.reduce_max(x) if ".max." in n.node.op else b.reduce_min(x)


@aten("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(b: Builder, n: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Results:
    return tensor(b, b.reduce_max(truth(b, x), axes=_axes(b, x, dims), keepdims=keepdim), n.dtype)


@aten("aten.argmax.default", "aten.argmin.default")
def arg(b: Builder, n: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Results:
    core = "arg_max" if "argmax" in n.node.op else "arg_min"
    if dim is None or b.rank(x) == 0:
        flat = b.emit(core, b.reshape(x, [-1]), axis=0, keepdims=False)[0]
        return b.reshape(flat, [1] * b.rank(x)) if keepdim else flat
    return b.emit(core, x, axis=dim, keepdims=keepdim)[0]


@aten("aten.mm.default", "aten.bmm.default")
def mm(b: Builder, n: Call, x: Value, y: Value) -> Results:
    return b.matmul(x, y)


@aten("aten.addmm.default")
def addmm(b: Builder, n: Call, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Results:
    product = b.matmul(x, y)
    scaled = product if alpha == 1 else b.mul(product, tensor(b, alpha, n.dtype))
    if beta == 0:
        return scaled
    return b.add(scaled, bias if beta == 1 else b.mul(bias, tensor(b, beta, n.dtype)))


@aten("aten._softmax.default", "aten._log_softmax.default")
def softmax(b: Builder, n: Call, x: Value, dim: int, half_to_float: bool) -> Results:
    value = tensor(b, x, n.dtype)
    if b.rank(x) == 0:
        return b.squeeze(softmax_along(b, n, b.unsqueeze(value, axes=(0,)), 0), axes=(0,))
    return softmax_along(b, n, value, dim)


def softmax_along(b: Builder, n: Call, x: Value, axis: int) -> Value:
    """Softmax or its logarithm, by the node's name."""
    return b.log_softmax(x, axis=axis) if "_log_softmax" in n.node.op else b.softmax(x, axis=axis)


@aten("aten.native_layer_norm.default")
def layer_norm(
    b: Builder, n: Call, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> Results:
    axes = tuple(range(b.rank(x) - len(shape), b.rank(x)))
    wide = x if b.dtype(x) in (dtypes.f32, dtypes.f64) else b.cast(x, dtype=dtypes.f32)
    mean = b.reduce_mean(wide, axes=axes, keepdims=True)
    centred = b.sub(wide, mean)
    scale = b.rsqrt(b.add(b.reduce_mean(b.square(centred), axes=axes, keepdims=True), eps))
    result = b.mul(centred, scale)
    for parameter, combine in ((weight, b.mul), (bias, b.add)):
        if parameter is not None:
            result = combine(result, tensor(b, parameter, b.dtype(wide)))
    kinds = [getattr(kind, "dtype", n.dtype) for kind in n.types]
    return tensor(b, result, kinds[0]), tensor(b, mean, kinds[1]), tensor(b, scale, kinds[2])


@aten("aten.convolution.default")
def convolution(
    b: Builder,
    n: Call,
    x: Value,
    w: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Results:
    attrs = {"strides": tuple(stride), "pads": (*padding, *padding), "dilations": tuple(dilation), "groups": groups}
    if transposed:
        return b.conv_transpose(x, w, bias, output_padding=tuple(output_padding), **attrs)
    return b.conv(x, w, bias, **attrs)
