"""Ops that draw from torch's generator: torch itself runs them, so that the numbers are eager's under the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten, leave_to_torch
from assay.ir.graph import Value
from assay.ops.registry import Effect

DRAWS = "draws from torch's generator"

_OVERLOADS = {
    "_sample_dirichlet": ("default",),
    "_standard_gamma": ("default",),
    "bernoulli": ("default", "p", "Tensor"),
    "binomial": ("default",),
    "cauchy": ("default",),
    "exponential": ("default",),
    "geometric": ("default",),
    "log_normal": ("default",),
    "multinomial": ("default",),
    "normal": ("Tensor_Tensor", "Tensor_float", "float_Tensor", "float_float"),
    "normal_functional": ("default",),
    "poisson": ("default",),
    "rand": ("default", "generator"),
    "rand_like": ("default", "generator"),
    "randint": ("default", "generator", "low", "low_generator"),
    "randint_like": ("default", "Tensor", "low_dtype", "generator", "Tensor_generator", "low_generator_dtype"),
    "randn": ("default", "generator"),
    "randn_like": ("default", "generator"),
    "random": ("default", "from", "to"),
    "randperm": ("default", "generator"),
    "rrelu_with_noise": ("default",),
    "rrelu_with_noise_functional": ("default",),
    "uniform": ("default",),
}

leave_to_torch(DRAWS, *(f"aten.{name}.{overload}" for name, all_ in _OVERLOADS.items() for overload in all_))


@aten("aten.native_dropout.default")
def native_dropout(b: Builder, n: Call, x: Value, p: float, train: bool | None = None) -> Results:
    """torch draws the mask; the products are as its kernel makes them."""
    if train is False:
        return x, b.expand(b.constant(True), b.shape_of(x))
    if p == 1:  # as eager's dropout has it, nothing is drawn where nothing is kept
        return b.mul(x, 0.0), b.expand(b.constant(False), b.shape_of(x))
    kept = 1.0 - float(p)
    mask = _drawn_mask(b, x, kept, n.orders[0] if n.orders else None)
    return b.mul(b.mul(x, tensor(b, mask, n.dtype)), 1.0 / kept), mask


def _drawn_mask(b: Builder, x: Value, kept: float, order: Sequence[int] | None) -> Value:
    """Where elements stay, drawn one after the other in the order in which x lies in memory."""
    axes = tuple(range(b.rank(x))) if order is None else tuple(order)
    turned = b.transpose(b.expand(b.constant(False), b.shape_of(x)), perm=axes)
    drawn: dict[str, Any] = {"target": "aten.bernoulli.p", "args": ("%0", kept), "kwargs": ()}
    mask = b.emit("opaque", turned, **drawn, kinds=(str(turned.type),), reason=DRAWS, effect=Effect.OBSERVABLE.value)[0]
    return b.transpose(mask, perm=tuple(sorted(axes, key=axes.__getitem__)))
