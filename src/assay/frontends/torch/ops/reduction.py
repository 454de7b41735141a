"""aten reductions and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.frontends.torch.ops.common import check_bias, tensor, wide_dtype, with_elements
from assay.frontends.torch.ops.elementwise import truth
from assay.frontends.torch.ops.scan import along
from assay.frontends.torch.registry import Builder, Call, Results, aten, rule_for
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.ops.definitions.reduction import count_parts
from assay.ops.shapes import axes_of


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
    with_elements(b, x)
    return b.reduce_max(x) if ".max." in n.node.op else b.reduce_min(x)


@aten("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(b: Builder, n: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Results:
    return tensor(b, b.reduce_max(truth(b, x), axes=_axes(b, x, dims), keepdims=keepdim), n.dtype)


@aten("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(b: Builder, n: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Results:
    return tensor(b, b.reduce_min(truth(b, x), axes=_axes(b, x, dims), keepdims=keepdim), n.dtype)


def _ordered(b: Builder, x: Value) -> Value:
    return b.cast(x, dtype=dtypes.u8) if b.dtype(x) is dtypes.boolean else x


@aten("aten.argmax.default", "aten.argmin.default")
def arg(b: Builder, n: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Results:
    core = "arg_max" if "argmax" in n.node.op else "arg_min"
    value = _ordered(b, x)
    if dim is None or b.rank(x) == 0:
        flat = b.emit(core, b.reshape(value, [-1]), axis=0, keepdims=False)[0]
        return b.reshape(flat, [1] * b.rank(x)) if keepdim else flat
    return b.emit(core, value, axis=dim, keepdims=keepdim)[0]


@aten("aten.max.dim", "aten.min.dim")
def extreme_along(b: Builder, n: Call, x: Value, dim: int, keepdim: bool = False) -> Results:
    """The first extreme element and where it lies; a NaN is one."""
    core = "arg_max" if ".max." in n.node.op else "arg_min"

    def pick(value: Value, axis: int) -> tuple[Value, ...]:
        place = b.emit(core, _ordered(b, value), axis=axis, keepdims=True)[0]
        found = b.gather_elements(value, place, axis=axis), place
        return found if keepdim or b.rank(x) == 0 else tuple(b.squeeze(part, axes=(axis,)) for part in found)

    return along(b, x, dim, pick)


@aten("aten.aminmax.default")
def aminmax(b: Builder, n: Call, x: Value, *, dim: int | None = None, keepdim: bool = False) -> Results:
    attrs: dict[str, Any] = {"axes": _axes(b, x, dim), "keepdims": keepdim}
    return b.reduce_min(x, **attrs), b.reduce_max(x, **attrs)


def _variance(b: Builder, x: Value, dims: Any, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    """The variance and the mean, in f32 at least; with no degree of freedom left it is infinite or NaN."""
    if b.dtype(x).kind == "complex":
        raise TypeError("the variance of complex numbers")
    value = tensor(b, x, dtypes.f64 if b.dtype(x) is dtypes.f64 else dtypes.f32)
    axes = _axes(b, x, dims)
    mean = b.reduce_mean(value, axes=axes, keepdims=True)
    total = b.reduce_sum(b.square(b.sub(value, mean)), axes=axes, keepdims=keepdim)
    less = b.constant(1 if correction is None else correction, b.dtype(value))
    freedom = b.max(b.sub(count_parts(b, value, axes), less), 0.0)
    return b.div(total, freedom), mean if keepdim else b.reduce_mean(value, axes=axes)


@aten("aten.var.correction", "aten.std.correction")
def var(b: Builder, n: Call, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Results:
    found, _ = _variance(b, x, dim, correction, keepdim)
    return tensor(b, b.sqrt(found) if ".std." in n.node.op else found, n.dtype)


@aten("aten.var_mean.correction", "aten.std_mean.correction")
def var_mean(
    b: Builder, n: Call, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Results:
    found, mean = _variance(b, x, dim, correction, keepdim)
    spread = b.sqrt(found) if ".std_mean." in n.node.op else found
    kinds = [kind.dtype for kind in n.types if isinstance(kind, TensorType)]
    return tensor(b, spread, kinds[0]), tensor(b, mean, kinds[1])


@aten("aten.prims.var.default")
def prims_var(b: Builder, n: Call, x: Value, dims: Any = None, correction: Any = 1, **layout: Any) -> Results:
    return tensor(b, _variance(b, x, dims, correction, False)[0], n.dtype)


@aten("aten.hash_tensor.default")
def hash_tensor(b: Builder, n: Call, x: Value, dims: Any = None, *, keepdim: bool = False, mode: int = 0) -> Results:
    """The exclusive or of all elements as 64-bit words: a bit is set where an odd number of words has it."""
    words = b.bitcast(tensor(b, x, dtypes.f64), dtype=dtypes.u64) if b.dtype(x).is_float else tensor(b, x, dtypes.u64)
    places = b.constant(np.arange(64), dtypes.u64)
    bits = b.bit_and(b.shift_right(b.unsqueeze(words, axes=(b.rank(x),)), places), 1)
    axes = axes_of(_axes(b, x, dims), b.rank(x))
    odd = b.bit_and(b.reduce_sum(bits, axes=axes, keepdims=keepdim), 1)
    return b.reduce_sum(b.shift_left(odd, places), axes=(b.rank(odd) - 1,))


@aten("aten.dist.default")
def dist(b: Builder, n: Call, x: Value, y: Value, p: Any = 2) -> Results:
    norm = rule_for("aten.linalg_vector_norm.default")
    assert norm is not None
    return norm(b, n, b.sub(tensor(b, x, n.dtype), tensor(b, y, n.dtype)), p)


@aten("aten.mm.default", "aten.bmm.default")
def mm(b: Builder, n: Call, x: Value, y: Value) -> Results:
    return b.matmul(x, y)


@aten("aten.addmm.default")
def addmm(b: Builder, n: Call, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Results:
    """As torch's kernel, this rounds once, at the end."""
    wide = wide_dtype(n.dtype)
    product = b.matmul(tensor(b, x, wide), tensor(b, y, wide))
    check_bias(b, bias, product)
    scaled = product if alpha == 1 else b.mul(product, tensor(b, alpha, wide))
    if beta == 0:
        return tensor(b, scaled, n.dtype)
    added = tensor(b, bias, wide)
    return tensor(b, b.add(scaled, added if beta == 1 else b.mul(added, tensor(b, beta, wide))), n.dtype)
