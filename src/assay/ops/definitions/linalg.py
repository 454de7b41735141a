"""Linear algebra on the matrices in the last two axes: factorizations and solvers are work of the host, in f64."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, dim_min
from assay.ir.dtypes import Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType, Type
from assay.ops.conditions import differ
from assay.ops.registry import Compute, Sample, Tolerance, op
from assay.ops.samples import Rng, draw
from assay.ops.shapes import broadcast

FIELDS: tuple[DType, ...] = (dtypes.f64, dtypes.f32, dtypes.c64, dtypes.c128)
REAL_OF = {dtypes.f64: dtypes.f64, dtypes.f32: dtypes.f32, dtypes.c64: dtypes.f32, dtypes.c128: dtypes.f64}
"""The dtype of the parts of a number."""
COMPLEX_OF = {dtypes.f64: dtypes.c128, dtypes.f32: dtypes.c64, dtypes.c64: dtypes.c64, dtypes.c128: dtypes.c128}

_HOST: dict[str, Any] = {"compute": Compute.WIDE, "tolerance": Tolerance.ACCUMULATED, "host": True, "T": FIELDS}


# --- shapes


def _matrix(x: Fact) -> tuple[tuple[Dim, ...], Dim, Dim] | None:
    """The batch dims, rows and columns; None if the rank is unknown."""
    if x.shape is None:
        return None
    if len(x.shape) < 2:
        raise ValueError(f"a tensor of shape {list(x.shape)} holds no matrices")
    return x.shape[:-2], x.shape[-2], x.shape[-1]


def _square(x: Fact) -> tuple[tuple[Dim, ...], Dim, Dim] | None:
    found = _matrix(x)
    if found is not None and differ(found[1], found[2]):
        raise ValueError(f"matrices of shape {found[1]} × {found[2]} are not square")
    return found


def _typed(dtype: DType, shape: Shape) -> TensorType:
    return TensorType(dtype, shape)


def _same_square(x: Fact) -> list[Shape]:
    _square(x)
    return [x.shape]


def _qr_shape(x: Fact, *, complete: bool) -> list[Shape]:
    found = _matrix(x)
    if found is None:
        return [None, None]
    batch, rows, columns = found
    inner = rows if complete else dim_min(rows, columns)
    return [(*batch, rows, inner), (*batch, inner, columns)]


def _svd_types(x: Fact, *, full: bool) -> list[Type]:
    kind, found = _dtype(x), _matrix(x)
    if found is None:
        return [_typed(kind, None), _typed(REAL_OF[kind], None), _typed(kind, None)]
    batch, rows, columns = found
    inner = dim_min(rows, columns)
    left, right = (rows, columns) if full else (inner, inner)
    shapes = ((*batch, rows, left), (*batch, inner), (*batch, right, columns))
    return [_typed(dtype, shape) for dtype, shape in zip((kind, REAL_OF[kind], kind), shapes, strict=True)]


def _singular_types(x: Fact) -> list[Type]:
    return _svd_types(x, full=False)[1:2]


def _dtype(x: Fact) -> DType:
    assert isinstance(x.type, TensorType)
    return x.type.dtype


def _eigen_shapes(x: Fact) -> tuple[Shape, Shape]:
    found = _square(x)
    return (None, None) if found is None else ((*found[0], found[1]), x.shape)


def _eigh_types(x: Fact, *, upper: bool) -> list[Type]:
    values, vectors = _eigen_shapes(x)
    return [_typed(REAL_OF[_dtype(x)], values), _typed(_dtype(x), vectors)]


def _eig_types(x: Fact) -> list[Type]:
    return [_typed(COMPLEX_OF[_dtype(x)], shape) for shape in _eigen_shapes(x)]


def _cholesky_shape(x: Fact, *, upper: bool) -> list[Shape]:
    found = _square(x)
    return [x.shape, None if found is None else found[0]]


def _lu_shape(x: Fact) -> list[Shape]:
    found = _matrix(x)
    if found is None:
        return [None, None, None]
    batch, rows, columns = found
    return [x.shape, (*batch, dim_min(rows, columns)), batch]


def _reflector_shape(x: Fact) -> list[Shape]:
    return _lu_shape(x)[:2]


def _solved_shape(a: Fact, *others: Fact, **attrs: Any) -> list[Shape]:
    left, right = _square(a), _matrix(others[-1])
    if left is None or right is None:
        return [None]
    if differ(left[1], right[1]):
        raise ValueError(f"a system of {left[1]} equations got a right side of {right[1]} rows")
    batch = broadcast([left[0], right[0]])
    return [None if batch is None else (*batch, right[1], right[2])]


def _reflected_shape(a: Fact, tau: Fact, c: Fact, *, adjoint: bool) -> list[Shape]:
    for matrices in (a, c):
        _matrix(matrices)
    return [c.shape]


def _permutation_shape(pivots: Fact, rows: Fact) -> list[Shape]:
    count = UNKNOWN if rows.value is None else rows.value.reshape(-1).tolist()[0]
    return [None if pivots.shape is None else (*pivots.shape[:-1], count)]


# --- samples

_SQUARES = ((3, 3), (1, 1), (2, 4, 4), (2, 1, 2, 2), (0, 3, 3), (0, 0))
_SHAPES = ((4, 3), (2, 3, 4), (3, 3), (0, 2, 3), (0, 2), (2, 0))


def _drawn(rng: Rng, dtype: DType, shape: Sequence[int]) -> Array:
    """Matrices that are far from singular."""
    spread = draw(rng, dtype, shape, -1, 1)
    return (spread + 3 * np.eye(shape[-2], shape[-1])).astype(dtype.numpy)


def _squares(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for shape in _SQUARES:
        yield Sample((_drawn(rng, dtype, shape),), {}, (0,))


def _rectangles(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for shape in _SHAPES:
        yield Sample((_drawn(rng, dtype, shape),), {}, (0,))


def _with_and_without(samples: Any, key: str) -> Any:
    """The samples once with an attribute true, once with it false."""

    def both(rng: Rng, dtype: DType) -> Iterable[Sample]:
        for sample in samples(rng, dtype):
            for flag in (False, True):
                yield Sample(sample.inputs, {**sample.attrs, key: flag}, sample.fixed)

    return both


def _hermitian(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for shape in _SQUARES:
        x = _drawn(rng, dtype, shape).astype(np.complex128 if dtype.kind == "complex" else np.float64)
        yield Sample((np.asarray(x @ _adjoint(x)).astype(dtype.numpy),), {}, (0,))


def _systems(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for left, right in (
        ((3, 3), (3, 2)),
        ((2, 3, 3), (3, 1)),
        ((3, 3), (2, 3, 2)),
        ((2, 2), (2, 0)),
        ((0, 2, 2), (2, 2)),
    ):
        yield Sample((_drawn(rng, dtype, left), draw(rng, dtype, right)), {}, (0,))


# --- helpers on arrays


def _adjoint(x: Array) -> Array:
    return np.swapaxes(x, -1, -2).conj()


def _substituted(a: Array, b: Array, upper: bool) -> Array:
    """The solution of a x = b for triangular a, row by row."""
    count = a.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])), np.result_type(a, b))
    for i in range(count - 1, -1, -1) if upper else range(count):
        known = slice(i + 1, None) if upper else slice(0, i)
        row = x[..., i, :] - (a[..., i, None, known] @ x[..., known, :])[..., 0, :]
        x[..., i, :] = row / a[..., i, i, None]
    return x


def _eliminated(x: Array) -> tuple[Array, Array, Array]:
    """Gaussian elimination with row exchanges, as LAPACK does it: the factors, the exchanges from 1, the first zero."""
    rows, columns = x.shape[-2:]
    steps = min(rows, columns)
    table = x.reshape(math.prod(x.shape[:-2]), rows, columns).copy()
    each = np.arange(len(table))
    pivots = np.empty((len(table), steps), np.int32)
    first_zero = np.zeros(len(table), np.int32)
    for j in range(steps):
        column: Any = table[:, j:, j]
        best = j + np.argmax(np.abs(column.real) + np.abs(column.imag), axis=1)
        pivots[:, j] = best + 1
        lifted = table[each, best].copy()
        table[each, best] = table[:, j]
        table[:, j] = lifted
        pivot = lifted[:, j]
        first_zero = np.where((pivot == 0) & (first_zero == 0), j + 1, first_zero)
        factors = table[:, j + 1 :, j] / np.where(pivot == 0, 1, pivot)[:, None]
        table[:, j + 1 :, j] = factors
        table[:, j + 1 :, j + 1 :] -= factors[:, :, None] * table[:, j, None, j + 1 :]
    batch = x.shape[:-2]
    return table.reshape(x.shape), pivots.reshape(*batch, steps), first_zero.reshape(batch)


def _permutation(pivots: Array, rows: int) -> Array:
    """Which row each row of the exchanged matrix was. IndexError if a row is exchanged with one that is not there."""
    exchanges = pivots if rows else pivots[..., :0]
    flat = exchanges.reshape(math.prod(pivots.shape[:-1]), exchanges.shape[-1])
    if flat.size and (flat.min() < 1 or flat.max() > rows):
        raise IndexError(f"{rows} rows are not exchanged with number {flat.min()} or {flat.max()}")
    order = np.tile(np.arange(rows), (len(flat), 1))
    each = np.arange(len(flat))
    for j in range(flat.shape[-1]):
        other = flat[:, j] - 1
        lifted = order[each, other].copy()
        order[each, other] = order[:, j]
        order[:, j] = lifted
    return order.reshape(*pivots.shape[:-1], rows)


def _cholesky_steps(x: Array) -> tuple[Array, Array]:
    """The factors of Hermitian matrices of which some may not be positive definite, and where those fail, from 1."""
    count = x.shape[-1]
    factor = np.tril(x)
    failed = np.zeros(x.shape[:-2], np.int32)
    for j in range(count):
        row = factor[..., j, :j]
        pivot = (factor[..., j, j] - np.sum(row * row.conj(), axis=-1)).real
        failed = np.where((failed == 0) & ~(pivot > 0), j + 1, failed)
        root = np.sqrt(np.where(pivot > 0, pivot, 1.0))
        below = factor[..., j + 1 :, j] - (factor[..., j + 1 :, :j] @ row.conj()[..., None])[..., 0]
        going = (failed == 0)[..., None]
        factor[..., j + 1 :, j] = np.where(going, below / root[..., None], factor[..., j + 1 :, j])
        factor[..., j, j] = np.where(going[..., 0], root, factor[..., j, j])
    return factor, failed


# --- ops


@op("T -> T, T", shape=_qr_shape, samples=_with_and_without(_rectangles, "complete"), **_HOST)
def qr(x: Array, *, complete: bool = False) -> tuple[Array, Array]:
    """x = Q R with orthonormal columns in Q, of which there are as many as rows if `complete`."""
    q, r = np.linalg.qr(x, "complete" if complete else "reduced")
    return q, r


@op("T -> T, T, T", types=_svd_types, samples=_with_and_without(_rectangles, "full"), **_HOST)
def svd(x: Array, *, full: bool = False) -> tuple[Array, Array, Array]:
    """x = U · diag(S) · Vᴴ, the singular values falling; with `full`, U and Vᴴ are square."""
    u, s, vh = np.linalg.svd(x, full_matrices=full)
    return u, s, vh


@op("T -> T", types=_singular_types, samples=_rectangles, **_HOST)
def singular_values(x: Array) -> Array:
    """The singular values, falling."""
    return np.linalg.svd(x, compute_uv=False)


@op("T -> T, T", types=_eigh_types, samples=_with_and_without(_hermitian, "upper"), **_HOST)
def eigh(x: Array, *, upper: bool = False) -> tuple[Array, Array]:
    """The rising eigenvalues and the eigenvectors of Hermitian matrices, of which one triangle is read."""
    values, vectors = np.linalg.eigh(x, "U" if upper else "L")
    return values, vectors


@op("T -> T, T", types=_eig_types, samples=_squares, **_HOST)
def eig(x: Array) -> tuple[Array, Array]:
    """The complex eigenvalues and eigenvectors of square matrices."""
    values, vectors = np.linalg.eig(x)
    return values, vectors


@op("T -> T, i32", shape=_cholesky_shape, samples=_with_and_without(_hermitian, "upper"), **_HOST)
def cholesky(x: Array, *, upper: bool = False) -> tuple[Array, Array]:
    """The triangular factor L of x = L Lᴴ (or U of x = Uᴴ U), of which one triangle is read; and 0, or the order of
    the leading minor that is not positive definite."""
    lower = _adjoint(x) if upper else x
    try:
        factor, failed = np.linalg.cholesky(lower), np.zeros(x.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        factor, failed = _cholesky_steps(lower)
    return (_adjoint(factor) if upper else factor), failed


@op("T -> T, i32, i32", shape=_lu_shape, samples=_rectangles, **_HOST)
def lu_factor(x: Array) -> tuple[Array, Array, Array]:
    """The triangular factors of x = P L U in one matrix, the row exchanges counted from 1, and 0 or the number of
    the first pivot that is zero."""
    return _eliminated(x)


@op(
    "i32, i64 -> i64",
    shape=_permutation_shape,
    host=True,
    samples=lambda rng, dtype: [
        Sample((np.array([[2, 2], [1, 3]], np.int32), np.array(3)), {}, (0, 1)),
        Sample((np.array([3, 3, 3], np.int32), np.array(3)), {}, (0, 1)),
    ],
)
def permutation_of_pivots(pivots: Array, rows: Array) -> Array:
    """The order of `rows` rows after exchanges as `lu_factor` gives them."""
    return _permutation(pivots, int(rows))


def _factored_systems(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for sample in _systems(rng, dtype):
        table, pivots, _ = _eliminated(sample.inputs[0])
        for adjoint in (False, True):
            yield Sample((table, pivots, sample.inputs[1]), {"adjoint": adjoint}, (0, 1))


@op("T, i32, T -> T", shape=_solved_shape, samples=_factored_systems, **_HOST)
def lu_solve(lu: Array, pivots: Array, b: Array, *, adjoint: bool = False) -> Array:
    """The solution of A x = b (or Aᴴ x = b) for the factors of A that `lu_factor` gives."""
    count = lu.shape[-1]
    order = _permutation(pivots, count)
    lower = np.tril(lu, -1) + np.eye(count, dtype=lu.dtype)
    batch = np.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    right = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    rows = np.broadcast_to(order[..., None], right.shape)
    if not adjoint:
        return _substituted(lu, _substituted(lower, np.take_along_axis(right, rows, -2), False), True)
    found = _substituted(_adjoint(lower), _substituted(_adjoint(lu), right, False), True)
    return np.take_along_axis(found, np.argsort(rows, axis=-2), -2)


def _triangles(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for sample in _systems(rng, dtype):
        for upper, unit in ((False, False), (True, False), (False, True), (True, True)):
            yield Sample(sample.inputs, {"upper": upper, "unit": unit}, (0,))


@op("T, T -> T", shape=_solved_shape, samples=_triangles, **_HOST)
def solve_triangular(a: Array, b: Array, *, upper: bool = False, unit: bool = False) -> Array:
    """The solution of a x = b, of which one triangle of a is read; with `unit` its diagonal counts as ones."""
    if unit:
        a = np.where(np.eye(a.shape[-1], dtype=np.bool_), 1, a)
    return _substituted(a, b, upper)


_PADE: tuple[int, ...] = (
    64764752532480000,
    32382376266240000,
    7771770303897600,
    1187353796428800,
    129060195264000,
    10559470521600,
    670442572800,
    33522128640,
    1323241920,
    40840800,
    960960,
    16380,
    182,
    1,
)


@op("T -> T", shape=_same_square, samples=_squares, **_HOST)
def matrix_exp(x: Array) -> Array:
    """The exponential of square matrices."""
    size = np.max(np.sum(np.abs(x), axis=-2), axis=-1, initial=0.0)
    halvings = np.ceil(np.log2(np.maximum(np.where(np.isfinite(size), size, 0.0), 1e-300) / 5.0)).clip(0).astype(int)
    a = x / np.exp2(halvings)[..., None, None]
    unit = np.eye(x.shape[-1], dtype=x.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a2 @ a4
    c = _PADE
    high_odd, low_odd = c[13] * a6 + c[11] * a4 + c[9] * a2, c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * unit
    high_even, low_even = c[12] * a6 + c[10] * a4 + c[8] * a2, c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * unit
    odd, even = a @ (a6 @ high_odd + low_odd), a6 @ high_even + low_even
    result = np.linalg.solve(even - odd, even + odd)
    for i in range(int(halvings.max(initial=0))):
        result = np.where((i < halvings)[..., None, None], result @ result, result)
    return result


@op("T -> T, T", shape=_reflector_shape, samples=_rectangles, **_HOST)
def reflectors(x: Array) -> tuple[Array, Array]:
    """The QR factorization as LAPACK keeps it: R above the diagonal, below it Householder's vectors, and their
    factors."""
    raw, tau = np.linalg.qr(x, "raw")
    return np.swapaxes(raw, -1, -2), tau


def _reflected_samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for shape, columns in (((4, 3), 2), ((2, 3, 3), 3), ((3, 2), 3)):
        raw, tau = np.linalg.qr(_drawn(rng, dtype, shape), "raw")
        c = draw(rng, dtype, (*shape[:-2], shape[-2], columns))
        for adjoint in (False, True):
            yield Sample((np.ascontiguousarray(np.swapaxes(raw, -1, -2)), tau, c), {"adjoint": adjoint}, (0, 1))


@op("T, T, T -> T", shape=_reflected_shape, samples=_reflected_samples, **_HOST)
def reflect(a: Array, tau: Array, c: Array, *, adjoint: bool = False) -> Array:
    """Q c (or Qᴴ c) for the factorization that `reflectors` gives."""
    result = c.copy()
    steps = range(tau.shape[-1]) if adjoint else range(tau.shape[-1] - 1, -1, -1)
    for i in steps:
        v = a[..., i:, i].copy()
        v[..., 0] = 1
        factor = tau[..., i].conj() if adjoint else tau[..., i]
        along = v.conj()[..., None, :] @ result[..., i:, :]
        result[..., i:, :] -= factor[..., None, None] * v[..., :, None] * along
    return result
