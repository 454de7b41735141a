"""How functions of complex numbers are built out of exponentials, logarithms and roots, in c128."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from assay.ir import dtypes

if TYPE_CHECKING:
    from assay.ops.builder import Builder

Parts = Callable[[Any, Any], Any]


def _asinh(b: Builder, z: Any) -> Any:
    """An odd function: on the right half the sum under the logarithm does not cancel."""
    left = b.lt(b.cast(z, dtype=dtypes.f64), 0.0)
    right = b.where(left, b.neg(z), z)
    found = b.log(b.add(right, b.sqrt(b.add(b.mul(z, z), 1.0))))
    return b.where(left, b.neg(found), found)


def _asin(b: Builder, z: Any) -> Any:
    return b.mul(_asinh(b, b.mul(z, 1j)), -1j)


def _acosh(b: Builder, z: Any) -> Any:
    return b.log(b.add(z, b.mul(b.sqrt(b.add(z, 1.0)), b.sqrt(b.sub(z, 1.0)))))


def _sigmoid(b: Builder, z: Any) -> Any:
    return b.div(1.0, b.add(b.exp(b.neg(z)), 1.0))


_ON_C128: dict[str, Parts] = {
    "reciprocal": lambda b, z: b.div(1.0, z),
    "rsqrt": lambda b, z: b.div(1.0, b.sqrt(z)),
    "square": lambda b, z: b.mul(z, z),
    "tan": lambda b, z: b.div(b.sin(z), b.cos(z)),
    "asin": _asin,
    "acos": lambda b, z: b.sub(math.pi / 2, _asin(b, z)),
    "sinh": lambda b, z: b.mul(0.5, b.sub(b.exp(z), b.exp(b.neg(z)))),
    "cosh": lambda b, z: b.mul(0.5, b.add(b.exp(z), b.exp(b.neg(z)))),
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": lambda b, z: b.mul(0.5, b.sub(b.log1p(z), b.log1p(b.neg(z)))),
    "sigmoid": _sigmoid,
    "silu": lambda b, z: b.mul(z, _sigmoid(b, z)),
}


def of_any_kind(name: str, real: Parts) -> Parts:
    """The decomposition of a function: `real`, and on complex numbers the one in the table."""
    on_complex = _ON_C128[name]

    def parts(b: Builder, x: Any) -> Any:
        dtype = b.dtype(x)
        if dtype.kind != "complex":
            return real(b, x)
        return b.cast(on_complex(b, b.cast(x, dtype=dtypes.c128)), dtype=dtype)

    return parts


ON_COMPLEX = frozenset(_ON_C128)
"""The composites that are also defined on complex numbers."""
