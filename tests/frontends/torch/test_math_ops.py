"""Complex numbers, Fourier transforms, linear algebra and special functions through `torch.compile`, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from assay.errors import AssayError
from assay.ops import CORE
from assay.runtime.torch import backend as torch_backend

mpmath = pytest.importorskip("mpmath")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled without any opaque node."""
    return torch.compile(function, backend=torch_backend.backend, options={"strict": True})


def agree(function: Callable[..., Any], *inputs: torch.Tensor, **tolerance: Any) -> None:
    """Assert that results and gradients are eager's."""
    outcomes: list[list[torch.Tensor]] = []
    for run in (function, compiled(function)):
        given = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        result = run(*given)
        results = list(result) if isinstance(result, tuple) else [result]
        losses = [_loss(part) for part in results if part.requires_grad]
        if losses:
            sum(losses, start=torch.zeros(())).backward()
        outcomes.append([*results, *(x.grad for x in given if x.grad is not None)])
    expected, got = outcomes
    assert len(expected) == len(got)
    for wanted, found in zip(expected, got, strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True, check_stride=False, **tolerance)


def _loss(x: torch.Tensor) -> torch.Tensor:
    real = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    weights = torch.linspace(-1, 1.3, real.numel(), dtype=real.dtype).reshape(real.shape)
    return (real * weights).sum().float()


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


KINDS = (torch.float32, torch.complex128)


# --- complex numbers

COMPLEX: dict[str, Callable[[torch.Tensor], Any]] = {
    "parts": lambda z: (z.real, z.imag, torch.view_as_real(z)),
    "polar form": lambda z: (z.abs(), z.angle(), torch.polar(z.abs(), z.angle())),
    "conjugates": lambda z: (z.conj() * z, z.mH @ z),
    "sign": lambda z: torch.sgn(z),
    "arithmetic": lambda z: (z * (1 + 2j) + z / (z + 3), z.sum(), z.prod(-1), z.mean(0), z.cumsum(0)),
    "functions": lambda z: (z.exp(), z.log(), z.sqrt(), z.sin(), z.tanh(), z.asin(), z.acosh(), z.sigmoid()),
    "powers": lambda z: (z**2, z**1.5, z ** (1 + 1j)),
    "movement": lambda z: (torch.cat([z, z.T], 1), torch.where(z.real > 0, z, -z)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name: str) -> None:
    agree(COMPLEX[name], random(3, 3, dtype=torch.complex64), rtol=1e-4, atol=1e-5)


def test_complex_numbers_that_are_not_finite() -> None:
    parts = torch.tensor([[np.inf, 1.0], [np.nan, 0.0], [0.0, -0.0], [1.0, -np.inf]])
    agree(lambda x: torch.view_as_real(torch.view_as_complex(x).conj().resolve_conj()), parts)
    agree(lambda x: (torch.view_as_complex(x).abs(), torch.view_as_complex(x).isnan()), parts)


# --- Fourier transforms

TRANSFORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "fft": lambda x: torch.fft.fft(x, norm="ortho"),
    "fftn": lambda x: torch.fft.fftn(x, norm="forward"),
    "ifft": lambda x: torch.fft.ifft(x, n=7, dim=0),
    "rfft2": lambda x: torch.fft.rfft2(x.real, norm="ortho"),
    "irfft": lambda x: torch.fft.irfft(x, n=9),
    "irfftn": lambda x: torch.fft.irfftn(x, norm="ortho"),
    "hfft": lambda x: torch.fft.hfft(x),
    "shifted": lambda x: torch.fft.fftshift(torch.fft.ihfft(x.real)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_fourier_transforms(name: str) -> None:
    agree(TRANSFORMS[name], random(4, 6, dtype=torch.complex64), rtol=1e-4, atol=1e-4)


def test_a_transform_of_any_length() -> None:
    function = torch.compile(
        lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]), backend=torch_backend.backend, dynamic=True
    )
    for length in (8, 9, 30):
        x = torch.randn(2, length)
        torch.testing.assert_close(function(x), x, rtol=1e-5, atol=1e-5)


def test_spectrograms() -> None:
    window = torch.hann_window(16)
    signal = random(2, 100)

    def both(x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(x, 16, hop_length=4, window=window, return_complex=True)
        return torch.istft(spectrum, 16, hop_length=4, window=window, length=100)

    torch.testing.assert_close(compiled(both)(signal.detach()), signal.detach(), rtol=1e-4, atol=1e-5)


# --- linear algebra


def definite(x: torch.Tensor) -> torch.Tensor:
    """A Hermitian positive definite matrix made of x."""
    return x @ x.mH + 3 * torch.eye(x.shape[-1], dtype=x.dtype)


def away(x: torch.Tensor) -> torch.Tensor:
    """A matrix that is far from singular, made of x."""
    return x + 4 * torch.eye(x.shape[-1], dtype=x.dtype)


MATRICES: dict[str, Callable[[torch.Tensor], Any]] = {
    "inv": lambda x: torch.linalg.inv(away(x)),
    "det": lambda x: (torch.linalg.det(x), torch.linalg.det(x.mT)),
    "slogdet": lambda x: torch.linalg.slogdet(away(x)),
    "solve": lambda x: torch.linalg.solve(away(x), x),
    "solve from the right": lambda x: torch.linalg.solve(away(x), x, left=False),
    "solve a vector": lambda x: torch.linalg.solve(away(x[0]), x[0, 0]),
    "triangular": lambda x: torch.linalg.solve_triangular(away(x).triu(), x, upper=True),
    "triangular from the right": lambda x: torch.linalg.solve_triangular(away(x), x, upper=False, left=False),
    "unit triangular": lambda x: torch.linalg.solve_triangular(x, x, upper=False, unitriangular=True),
    "cholesky": lambda x: (torch.linalg.cholesky(definite(x)), torch.linalg.cholesky(definite(x), upper=True)),
    "cholesky solve": lambda x: torch.cholesky_solve(x, torch.linalg.cholesky(definite(x))),
    "cholesky inverse": lambda x: torch.cholesky_inverse(torch.linalg.cholesky(definite(x))),
    "qr": lambda x: torch.linalg.qr(x),
    "lu": lambda x: torch.linalg.lu(x),
    "lu solve": lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor(away(x)), x),
    "matrix exp": lambda x: torch.linalg.matrix_exp(x / 4),
    "pinv": lambda x: torch.linalg.pinv(away(x)),
    "matrix power": lambda x: torch.linalg.matrix_power(away(x), -2),
    "householder": lambda x: torch.linalg.householder_product(x.detach(), x.detach()[..., 0] / 9),
    "norms": lambda x: (torch.linalg.norm(x), torch.linalg.vector_norm(x, 3, dim=-1), torch.linalg.vector_norm(x, 1)),
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_matrices(name: str, dtype: torch.dtype) -> None:
    agree(MATRICES[name], random(2, 3, 3, dtype=dtype), rtol=1e-3, atol=1e-4)


vectors = torch.arange(20).reshape(5, 4).sin()
"""Below the diagonal, of reflections."""
factors = 1.01 / (1 + vectors.tril(-1).square().sum(0))
"""With these they can barely be undone."""

MAGNIFYING: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "distances": (torch.cdist, (torch.linspace(7, 8, 90).reshape(30, 3), torch.linspace(7, 9, 90).reshape(30, 3))),
    "householder": (torch.linalg.householder_product, (vectors, factors)),
    "ormqr": (torch.ormqr, (vectors, factors, torch.ones(5, 2))),
}
"""Functions whose f32 gradients are far off when every step of theirs is rounded."""


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MAGNIFYING)
def test_what_magnifies_rounding_is_computed_in_f64(name: str, training: bool) -> None:
    function, inputs = MAGNIFYING[name]
    outcomes: list[list[torch.Tensor]] = []
    for run, dtype in ((function, torch.float64), (compiled(function), torch.float32)):
        given = [x.to(dtype, copy=True).requires_grad_(training) for x in inputs]
        result = run(*given)
        if training:
            (result * torch.arange(result.numel()).reshape(result.shape).cos()).sum().backward()
        outcomes.append([result, *(x.grad for x in given if x.grad is not None)])
    for exact, found in zip(*outcomes, strict=True):
        assert found.dtype is torch.float32
        assert (found - exact).abs().max() < 1e-6 * exact.abs().max()


@pytest.mark.parametrize("shape", [(0, 3, 3), (0, 0), (2, 0, 0)])
def test_nothing_is_a_matrix_too(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    agree(lambda x: (torch.linalg.inv(x), torch.linalg.det(x), *torch.linalg.qr(x), *torch.linalg.lu(x)), x)


VECTORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "svd": torch.linalg.svd,
    "eigh": lambda x: torch.linalg.eigh(definite(x)),
    "eig": torch.linalg.eig,
}
VALUES: dict[str, Callable[[torch.Tensor], Any]] = {
    "svdvals": torch.linalg.svdvals,
    "eigvalsh": lambda x: torch.linalg.eigvalsh(definite(x)),
}


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("name", VALUES)
def test_values_alone_need_no_torch(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(2, 4, 4, dtype=dtype)
    torch.testing.assert_close(compiled(VALUES[name])(x), VALUES[name](x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("name", VECTORS)
def test_vectors_have_the_signs_of_eagers(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(2, 4, 4, dtype=dtype)
    mine, theirs = torch.compile(VECTORS[name], backend="assay")(x), VECTORS[name](x)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


FAILING: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "inv": (lambda x: torch.linalg.inv(x), "linalg.inv: the matrix is singular"),
    "solve": (lambda x: torch.linalg.solve(x, x), "linalg.solve: the matrix is singular"),
    "cholesky": (lambda x: torch.linalg.cholesky(x), "not positive definite"),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_in_eager_fails_in_words(name: str) -> None:
    function, words = FAILING[name]
    run = compiled(function)
    run(torch.eye(3))
    with pytest.raises(AssayError, match=words):
        run(torch.zeros(3, 3))
    run(torch.eye(3))


# --- special functions

POINTS = np.concatenate([np.linspace(0.05, 30, 60), np.geomspace(1e-5, 5, 20)])
EXACT: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "airy_ai": (mpmath.airyai, True),
    "bessel_i0": (lambda x: mpmath.besseli(0, x), True),
    "bessel_i1": (lambda x: mpmath.besseli(1, x), True),
    "bessel_j0": (mpmath.j0, True),
    "bessel_j1": (mpmath.j1, True),
    "bessel_k0": (lambda x: mpmath.besselk(0, x), False),
    "bessel_k1": (lambda x: mpmath.besselk(1, x), False),
    "bessel_y0": (lambda x: mpmath.bessely(0, x), False),
    "bessel_y1": (lambda x: mpmath.bessely(1, x), False),
    "digamma": (mpmath.digamma, True),
    "erfc": (mpmath.erfc, True),
    "lgamma": (lambda x: mpmath.log(abs(mpmath.gamma(x))), True),
}


@pytest.mark.parametrize("name", EXACT)
def test_special_functions_are_right_to_ten_digits(name: str) -> None:
    function, negative_too = EXACT[name]
    points = np.concatenate([POINTS, -POINTS + 1e-3]) if negative_too else POINTS
    expected = np.array([float(function(mpmath.mpf(float(x)))) for x in points])
    np.testing.assert_allclose(CORE[name].reference(points), expected, rtol=1e-10, atol=1e-11)


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "gamma": lambda x: (torch.lgamma(x), torch.digamma(x), torch.polygamma(2, x.abs() + 0.1)),
    "errors": lambda x: (
        torch.erfc(x),
        torch.special.erfcx(x),
        torch.erfinv(x.tanh()),
        torch.special.ndtri(x.sigmoid()),
    ),
    "bessel": lambda x: (torch.i0(x), torch.special.i1(x), torch.special.i0e(x), torch.special.i1e(x)),
    "logarithms": lambda x: (x.abs().log2(), x.abs().log10(), x.exp2(), torch.logaddexp(x, x.flip(0))),
    "pairs": lambda x: (torch.atan2(x, x.flip(0)), torch.hypot(x, x.flip(0)), torch.copysign(x, x.flip(0))),
    "rounding": lambda x: (torch.round(x, decimals=2), torch.round(x * 300, decimals=-2)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    agree(FUNCTIONS[name], random(20), rtol=1e-4, atol=1e-5)


SPECIALS = torch.tensor([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 1e-30])
ON_SPECIALS: dict[str, Callable[[torch.Tensor], Any]] = {
    "gamma": lambda x: (torch.lgamma(x), torch.digamma(x)),
    "errors": lambda x: (torch.erfc(x), torch.special.erfcx(x), torch.erfinv(x), torch.special.ndtri(x)),
    "incomplete gamma": lambda x: torch.igamma(torch.tensor(2.0), x.abs()),
    "angles": lambda x: (torch.atan2(x[:, None], x), torch.hypot(x[:, None], x)),
    "signs": lambda x: (torch.signbit(x), torch.copysign(x[:, None], x), torch.nextafter(x[:, None], x)),
    "exponents": lambda x: torch.frexp(torch.where(x.isfinite(), x, 3.0)),
}


@pytest.mark.parametrize("name", ON_SPECIALS)
def test_functions_where_they_are_not_smooth(name: str) -> None:
    agree(ON_SPECIALS[name], SPECIALS)


def test_functions_of_integers() -> None:
    x, y = torch.arange(-8, 12), torch.arange(12, -8, -1)
    agree(lambda x, y: (torch.gcd(x, y), torch.lcm(x, y), torch.signbit(x), torch.ldexp(x.float(), y)), x, y)


POLYNOMIALS = ("chebyshev_polynomial_t", "chebyshev_polynomial_u", "hermite_polynomial_h", "legendre_polynomial_p")


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str) -> None:
    function = getattr(torch.special, name)
    x, degree = torch.linspace(-1.5, 1.5, 40), torch.arange(-2, 10).repeat(4)[:40]
    agree(lambda x, n: function(x, n), x, degree, rtol=1e-4, atol=1e-4)
