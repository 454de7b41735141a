"""aten's running sums, products and extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value


def along(b: Builder, x: Value, dim: int, make: Callable[[Value, int], tuple[Value, ...]]) -> tuple[Value, ...]:
    """The results of an op along an axis; a tensor of rank 0 counts as one with a single element."""
    if b.rank(x):
        return make(x, dim)
    return tuple(b.reshape(result, []) for result in make(b.reshape(x, [1]), 0))


def _enter(name: str, core: str) -> None:
    @aten(f"aten.{name}.default")
    def running(b: Builder, n: Call, x: Value, dim: int, *, dtype: Any = None) -> Results:  # pyright: ignore[reportUnusedFunction]
        return along(b, tensor(b, x, n.dtype), dim, lambda value, axis: b.emit(core, value, axis=axis))


for _name, _core in {
    "cumsum": "cum_sum",
    "cumprod": "cum_prod",
    "logcumsumexp": "cum_log_sum_exp",
    "_logcumsumexp": "cum_log_sum_exp",
}.items():
    _enter(_name, _core)


def _enter_extreme(name: str, core: str) -> None:
    @aten(f"aten.{name}.default")
    def extreme(b: Builder, n: Call, x: Value, dim: int) -> Results:  # pyright: ignore[reportUnusedFunction]
        ordered = b.cast(x, dtype=dtypes.u8) if b.dtype(x) is dtypes.boolean else x
        values, places = along(b, ordered, dim, lambda value, axis: b.emit(core, value, axis=axis))
        return tensor(b, values, n.dtype), places


for _name, _core in {"cummax": "cum_max", "cummin": "cum_min"}.items():
    _enter_extreme(_name, _core)
