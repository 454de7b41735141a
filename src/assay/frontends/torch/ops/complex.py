"""aten on complex numbers and their parts."""

from __future__ import annotations

import math

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.ops.elementwise import sign
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir.graph import Value


def is_complex(b: Builder, x: Value) -> bool:
    """Whether a tensor holds complex numbers."""
    return b.dtype(x).kind == "complex"


def parts(b: Builder, x: Value) -> tuple[Value, Value]:
    """The real and the imaginary part of a complex tensor."""
    pairs = b.split_complex(x)
    return b.gather(pairs, 0, axis=-1), b.gather(pairs, 1, axis=-1)


def joined(b: Builder, real: Value, imaginary: Value) -> Value:
    """Complex numbers of these parts, which broadcast."""
    shape = b.shape_of(b.add(real, imaginary))
    columns = [b.unsqueeze(b.expand(part, shape), axes=(-1,)) for part in (real, imaginary)]
    return b.join_complex(b.concat(*columns, axis=-1))


def size(b: Builder, x: Value) -> Value:
    """|x| of numbers of any kind."""
    return b.hypot(*parts(b, x)) if is_complex(b, x) else b.abs(x)


def conj(b: Builder, x: Value) -> Value:
    """The conjugate; real numbers are their own."""
    return b.conj(x) if is_complex(b, x) else x


@aten("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(b: Builder, n: Call, x: Value) -> Results:
    return b.split_complex(x)


@aten("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(b: Builder, n: Call, x: Value) -> Results:
    return b.join_complex(x)


@aten("aten.complex.default")
def complex_(b: Builder, n: Call, real: Value, imaginary: Value) -> Results:
    return joined(b, real, imaginary)


@aten("aten.polar.default")
def polar(b: Builder, n: Call, length: Value, angle: Value) -> Results:
    return joined(b, b.mul(length, b.cos(angle)), b.mul(length, b.sin(angle)))


@aten("aten.real.default", "aten.imag.default")
def part(b: Builder, n: Call, x: Value) -> Results:
    if not is_complex(b, x):
        return x
    return parts(b, x)[".imag." in n.node.op]


@aten(
    "aten._conj.default",
    "aten._conj_physical.default",
    "aten._conj_copy.default",
    "aten.conj_physical.default",
    "aten.resolve_conj.default",
    "aten.resolve_neg.default",
)
def conjugate(b: Builder, n: Call, x: Value | complex) -> Results:
    value = tensor(b, x, n.dtype)
    return value if ".resolve_" in n.node.op else conj(b, value)


@aten("aten._neg_view.default", "aten._neg_view_copy.default")
def neg_view(b: Builder, n: Call, x: Value) -> Results:
    return b.neg(x)


@aten("aten.angle.default")
def angle(b: Builder, n: Call, x: Value) -> Results:
    if is_complex(b, x):
        real, imaginary = parts(b, x)
        return b.atan2(imaginary, real)
    value = tensor(b, x, n.dtype)
    below = b.where(b.lt(value, 0.0), b.constant(math.pi, n.dtype), 0.0)
    return b.where(b.is_nan(value), value, below)


@aten("aten.sgn.default")
def sgn(b: Builder, n: Call, x: Value) -> Results:
    if not is_complex(b, x):
        return sign(b, n, x)
    length = size(b, x)
    zero = b.eq(length, 0.0)
    scale = joined(b, b.where(zero, 1.0, length), b.constant(0.0, b.dtype(length)))
    return b.where(zero, b.constant(0, n.dtype), b.div(x, scale))


@aten("aten.abs.default")
def abs_(b: Builder, n: Call, x: Value) -> Results:
    return size(b, x)


@aten("aten.isnan.default", "aten.isinf.default")
def is_special(b: Builder, n: Call, x: Value) -> Results:
    if is_complex(b, x):
        real, imaginary = (is_special(b, n, part) for part in parts(b, x))
        return b.bit_or(real, imaginary)
    if not b.dtype(x).is_float:
        return b.expand(b.constant(False), b.shape_of(x))
    return b.is_nan(x) if ".isnan." in n.node.op else b.is_inf(x)
