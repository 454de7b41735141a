"""aten's special functions and what else it does to one or two real numbers."""

from __future__ import annotations

from typing import Any

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value

_UNARY = {
    "digamma": "digamma",
    "erfc": "erfc",
    "erfinv": "erfinv",
    "exp2": "exp2",
    "i0": "bessel_i0",
    "lgamma": "lgamma",
    "log10": "log10",
    "log2": "log2",
    "special_airy_ai": "airy_ai",
    "special_bessel_j0": "bessel_j0",
    "special_bessel_j1": "bessel_j1",
    "special_bessel_y0": "bessel_y0",
    "special_bessel_y1": "bessel_y1",
    "special_erfcx": "erfcx",
    "special_i0e": "bessel_i0e",
    "special_i1": "bessel_i1",
    "special_i1e": "bessel_i1e",
    "special_modified_bessel_i0": "bessel_i0",
    "special_modified_bessel_i1": "bessel_i1",
    "special_modified_bessel_k0": "bessel_k0",
    "special_modified_bessel_k1": "bessel_k1",
    "special_ndtri": "ndtri",
    "special_scaled_modified_bessel_k0": "bessel_k0e",
    "special_scaled_modified_bessel_k1": "bessel_k1e",
    "special_spherical_bessel_j0": "spherical_bessel_j0",
}
_COARSE = {"airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"}
"""Functions that torch computes to about seven digits, also in f64."""


def _enter_unary(name: str, core: str) -> None:
    @aten(f"aten.{name}.default")
    def unary(b: Builder, n: Call, x: Value) -> Results:  # pyright: ignore[reportUnusedFunction]
        if core in _COARSE and n.dtype is dtypes.f64:
            raise ValueError("torch's own result in f64 has seven digits, ours would differ from it")
        return b.emit(core, tensor(b, x, n.dtype))[0]


for _name, _core in _UNARY.items():
    _enter_unary(_name, _core)

_BINARY = {
    "atan2": "atan2",
    "copysign": "copysign",
    "gcd": "gcd",
    "hypot": "hypot",
    "igamma": "igamma",
    "igammac": "igammac",
    "lcm": "lcm",
    "nextafter": "nextafter",
    "special_chebyshev_polynomial_t": "chebyshev_t",
    "special_chebyshev_polynomial_u": "chebyshev_u",
    "special_chebyshev_polynomial_v": "chebyshev_v",
    "special_chebyshev_polynomial_w": "chebyshev_w",
    "special_hermite_polynomial_h": "hermite_h",
    "special_hermite_polynomial_he": "hermite_he",
    "special_laguerre_polynomial_l": "laguerre_l",
    "special_legendre_polynomial_p": "legendre_p",
    "special_zeta": "zeta",
}
_OVERLOADS = ("default", "Tensor", "Scalar", "other_scalar", "self_scalar", "x_scalar", "n_scalar")


def _enter_binary(name: str, core: str) -> None:
    @aten(*(f"aten.{name}.{overload}" for overload in _OVERLOADS))
    def binary(b: Builder, n: Call, x: Any, y: Any) -> Results:  # pyright: ignore[reportUnusedFunction]
        return b.emit(core, tensor(b, x, n.dtype), tensor(b, y, n.dtype))[0]


for _name, _core in _BINARY.items():
    _enter_binary(_name, _core)


def _enter_shifted(kind: str) -> None:
    @aten(*(f"aten.special_shifted_chebyshev_polynomial_{kind}.{overload}" for overload in _OVERLOADS))
    def shifted(b: Builder, n: Call, x: Any, y: Any) -> Results:  # pyright: ignore[reportUnusedFunction]
        value = tensor(b, x, n.dtype)
        return b.emit(f"chebyshev_{kind}", b.sub(b.add(value, value), 1.0), tensor(b, y, n.dtype))[0]


for _name in "tuvw":
    _enter_shifted(_name)


@aten("aten.polygamma.default")
def polygamma(b: Builder, n: Call, order: int, x: Value) -> Results:
    return b.polygamma(tensor(b, x, n.dtype), order=order)


@aten("aten.frexp.Tensor")
def frexp(b: Builder, n: Call, x: Value) -> Results:
    return b.emit("frexp", x)


@aten("aten.ldexp.Tensor")
def ldexp(b: Builder, n: Call, x: Value, exponent: Value) -> Results:
    return b.mul(tensor(b, x, n.dtype), b.exp2(tensor(b, exponent, n.dtype)))


@aten("aten.signbit.default")
def signbit(b: Builder, n: Call, x: Value) -> Results:
    if b.dtype(x).is_float:
        return b.sign_bit(x)
    return b.lt(tensor(b, x, dtypes.u8) if b.dtype(x) is dtypes.boolean else x, 0)


@aten("aten.round.decimals")
def round_decimals(b: Builder, n: Call, x: Value, *, decimals: int) -> Results:
    if not b.dtype(x).is_float:
        raise ValueError("integers are rounded to decimals")
    work = dtypes.f64 if n.dtype is dtypes.f64 else dtypes.f32
    value, scale = tensor(b, x, work), b.constant(10.0 ** abs(decimals), work)
    if decimals >= 0:
        return tensor(b, b.div(b.round(b.mul(value, scale)), scale), n.dtype)
    return tensor(b, b.mul(b.round(b.div(value, scale)), scale), n.dtype)
