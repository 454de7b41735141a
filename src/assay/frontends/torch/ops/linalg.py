"""aten's linear algebra: factorizations, solvers, norms and products that are more than one matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.frontends.torch.ops.common import check_bias, tensor, wide_dtype
from assay.frontends.torch.ops.complex import conj, is_complex, size
from assay.frontends.torch.registry import Builder, Call, Results, aten, leave_to_torch
from assay.ir import dtypes
from assay.ir.dims import eq
from assay.ir.dtypes import DType
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.ops.parts import scalar_size

# --- helpers


def _turned(b: Builder, x: Value) -> Value:
    """Matrices with rows and columns exchanged."""
    rank = b.rank(x)
    return b.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def _adjoint(b: Builder, x: Value) -> Value:
    return conj(b, _turned(b, x))


def _unit(b: Builder, rows: Value, columns: Value) -> Value:
    """True on the diagonal of a matrix of these sizes."""
    return b.eq(b.unsqueeze(b.iota(rows), axes=(1,)), b.iota(columns))


def _unit_of(b: Builder, x: Value) -> Value:
    return _unit(b, scalar_size(b, x, -2), scalar_size(b, x, -1))


def _identities(b: Builder, x: Value) -> Value:
    """Unit matrices of the shape and dtype of x."""
    return b.expand(b.cast(_unit_of(b, x), dtype=b.dtype(x)), b.shape_of(x))


def _nothing(b: Builder, n: Call, index: int) -> Value:
    """The empty tensor that stands for a result which was not asked for."""
    kind = n.types[index]
    assert isinstance(kind, TensorType)
    return b.constant(np.zeros(0, kind.dtype.numpy), kind.dtype)


_FAILURES = {
    "linalg.cholesky": "the matrix is not positive definite",
    "cholesky": "the matrix is not positive definite",
    "linalg.inv": "the matrix is singular and has no inverse",
    "linalg.eigh": "the eigenvalues did not converge",
}


def _check(b: Builder, name: str, info: Value) -> None:
    """Make sure that a factorization has worked: `info` is zero then."""
    what = _FAILURES.get(name.removeprefix("torch.").removesuffix("_ex"), "the matrix is singular")
    b.require(b.eq(info, 0), message=f"{name}: {what}")


@aten("aten._linalg_check_errors.default")
def check_errors(b: Builder, n: Call, info: Value, name: str, *, is_matrix: bool) -> Results:
    _check(b, name, info)
    return ()


# --- factorizations


@aten("aten.linalg_qr.default")
def qr(b: Builder, n: Call, x: Value, mode: str = "reduced") -> Results:
    q, r = b.emit("qr", x, complete=mode == "complete")
    return (_nothing(b, n, 0), r) if mode == "r" else (q, r)


_SIGNS = "the signs of such vectors are a matter of the LAPACK that is called, and eager calls torch's"


def _by_torch(b: Builder, n: Call, x: Value) -> tuple[Value, ...]:
    """The results as torch computes them; where only the values are read, nothing of this stays."""
    kinds = tuple(str(kind) for kind in n.types)
    return b.emit("opaque", x, target=n.node.op, **n.node.attrs, kinds=kinds, reason=_SIGNS)


@aten("aten._linalg_svd.default")
def svd(b: Builder, n: Call, x: Value, full: bool = False, vectors: bool = True, *, driver: Any = None) -> Results:
    if not vectors:
        return _nothing(b, n, 0), b.singular_values(x), _nothing(b, n, 2)
    left, _, right = _by_torch(b, n, x)
    return left, b.singular_values(x), right


@aten("aten._linalg_eigh.default")
def eigh(b: Builder, n: Call, x: Value, triangle: str = "L", vectors: bool = True) -> Results:
    values = b.eigh(x, upper=triangle.upper() == "U")
    return values, _by_torch(b, n, x)[1] if vectors else _nothing(b, n, 1)


leave_to_torch(_SIGNS, "aten.linalg_eig.default")


@aten("aten._linalg_eigvals.default", "aten.linalg_eigvals.default")
def eigvals(b: Builder, n: Call, x: Value) -> Results:
    return b.eig(x)


@aten("aten.linalg_cholesky_ex.default")
def cholesky_ex(b: Builder, n: Call, x: Value, *, upper: bool = False, check_errors: bool = False) -> Results:
    factor, info = b.emit("cholesky", x, upper=upper)
    if check_errors:
        _check(b, "linalg.cholesky_ex", info)
    return factor, info


@aten("aten.cholesky.default")
def cholesky(b: Builder, n: Call, x: Value, upper: bool = False) -> Results:
    factor, info = b.emit("cholesky", x, upper=upper)
    _check(b, "cholesky", info)
    return factor


@aten("aten.linalg_lu_factor_ex.default")
def lu_factor_ex(b: Builder, n: Call, x: Value, *, pivot: bool = True, check_errors: bool = False) -> Results:
    _need_pivots(pivot)
    table, pivots, info = b.emit("lu_factor", x)
    if check_errors:
        _check(b, "linalg.lu_factor_ex", info)
    return table, pivots, info


def _need_pivots(pivot: bool) -> None:
    if not pivot:
        raise ValueError("a factorization without row exchanges")


@aten("aten.linalg_lu.default")
def lu(b: Builder, n: Call, x: Value, *, pivot: bool = True) -> Results:
    _need_pivots(pivot)
    table, pivots, _ = b.emit("lu_factor", x)
    return _permuted(b, table, pivots), *_triangles(b, table)


@aten("aten.lu_unpack.default")
def lu_unpack(b: Builder, n: Call, table: Value, pivots: Value, data: bool = True, exchanges: bool = True) -> Results:
    permutation = _permuted(b, table, pivots) if exchanges else _nothing(b, n, 0)
    lower, upper = _triangles(b, table) if data else (_nothing(b, n, 1), _nothing(b, n, 2))
    return permutation, lower, upper


def _permuted(b: Builder, table: Value, pivots: Value) -> Value:
    """The permutation matrix P of A = P L U."""
    rows = scalar_size(b, table, -2)
    order = b.permutation_of_pivots(pivots, rows)
    places = b.unsqueeze(b.iota(rows), axes=(1,))
    return b.cast(b.eq(places, b.unsqueeze(order, axes=(-2,))), dtype=b.dtype(table))


def _triangles(b: Builder, table: Value) -> tuple[Value, Value]:
    """The unit lower and the upper triangle."""
    inner = b.reshape(b.min(scalar_size(b, table, -2), scalar_size(b, table, -1)), [1])
    left = b.slice(table, [0], inner, [1], axes=(-1,))
    top = b.slice(table, [0], inner, [1], axes=(-2,))
    rows, columns = (scalar_size(b, left, axis) for axis in (-2, -1))
    below = b.lt(b.iota(columns), b.unsqueeze(b.iota(rows), axes=(1,)))
    one, zero = b.constant(1, b.dtype(table)), b.constant(0, b.dtype(table))
    lower = b.where(_unit(b, rows, columns), one, b.where(below, left, zero))
    rows, columns = (scalar_size(b, top, axis) for axis in (-2, -1))
    return lower, b.where(b.lt(b.iota(columns), b.unsqueeze(b.iota(rows), axes=(1,))), zero, top)


@aten("aten.geqrf.default")
def geqrf(b: Builder, n: Call, x: Value) -> Results:
    return b.emit("reflectors", x)


@aten("aten.linalg_householder_product.default")
def householder_product(b: Builder, n: Call, x: Value, tau: Value) -> Results:
    return b.reflect(x, tau, _identities(b, x))


@aten("aten.ormqr.default")
def ormqr(b: Builder, n: Call, x: Value, tau: Value, c: Value, left: bool = True, transpose: bool = False) -> Results:
    rows, columns, given = b.dims(c)[-2 if left else -1], b.dims(x)[-1], b.dims(tau)[-1]
    if not (isinstance(rows, int) and isinstance(columns, int) and given == min(rows, columns)):
        raise ValueError("torch looks whether there are as many reflections as columns")
    if left:
        return b.reflect(x, tau, c, adjoint=transpose)
    return _adjoint(b, b.reflect(x, tau, _adjoint(b, c), adjoint=not transpose))


# --- solvers


@aten("aten.linalg_lu_solve.default")
def lu_solve(
    b: Builder, n: Call, table: Value, pivots: Value, right: Value, *, left: bool = True, adjoint: bool = False
) -> Results:
    if left:
        return b.lu_solve(table, pivots, right, adjoint=adjoint)
    return _adjoint(b, b.lu_solve(table, pivots, _adjoint(b, right), adjoint=not adjoint))


@aten("aten._linalg_solve_ex.default")
def solve_ex(b: Builder, n: Call, x: Value, right: Value, *, left: bool = True, check_errors: bool = False) -> Results:
    vector = _is_vector(b, x, right)
    columns = b.unsqueeze(right, axes=(b.rank(right),)) if vector else right
    table, pivots, info = b.emit("lu_factor", x)
    if check_errors:
        _check(b, "linalg.solve_ex", info)
    if left:
        found = b.lu_solve(table, pivots, columns)
    else:
        found = _adjoint(b, b.lu_solve(table, pivots, _adjoint(b, columns), adjoint=True))
    return (b.squeeze(found, axes=(b.rank(found) - 1,)) if vector else found), table, pivots, info


def _is_vector(b: Builder, x: Value, right: Value) -> bool:
    """Whether the right side holds vectors, as torch decides it."""
    if b.rank(right) == 1:
        return True
    pairs = zip(b.dims(right), b.dims(x)[:-1], strict=False)
    return b.rank(right) == b.rank(x) - 1 and all(eq(mine, theirs) is True for mine, theirs in pairs)


@aten("aten.linalg_inv_ex.default")
def inv_ex(b: Builder, n: Call, x: Value, *, check_errors: bool = False) -> Results:
    table, pivots, info = b.emit("lu_factor", x)
    if check_errors:
        _check(b, "linalg.inv_ex", info)
    return b.lu_solve(table, pivots, _identities(b, x)), info


@aten("aten.linalg_solve_triangular.default")
def solve_triangular(
    b: Builder, n: Call, x: Value, right: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Results:
    if left:
        return b.solve_triangular(x, right, upper=upper, unit=unitriangular)
    return _turned(b, b.solve_triangular(_turned(b, x), _turned(b, right), upper=not upper, unit=unitriangular))


@aten("aten.triangular_solve.default")
def triangular_solve(
    b: Builder,
    n: Call,
    right: Value,
    x: Value,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Results:
    matrix = _turned(b, x) if transpose else x
    found = b.solve_triangular(matrix, right, upper=upper != transpose, unit=unitriangular)
    batch = b.slice(b.shape_of(found), [0], [-2], [1], axes=(0,))
    own = b.slice(b.shape_of(x), [-2], [2**62], [1], axes=(0,))
    return found, b.expand(x, b.concat(batch, own, axis=0))


@aten("aten.cholesky_solve.default", "aten._cholesky_solve_helper.default")
def cholesky_solve(b: Builder, n: Call, right: Value, factor: Value, upper: bool = False) -> Results:
    first, second = (_adjoint(b, factor), factor) if upper else (factor, _adjoint(b, factor))
    return b.solve_triangular(second, b.solve_triangular(first, right), upper=True)


@aten("aten.cholesky_inverse.default")
def cholesky_inverse(b: Builder, n: Call, factor: Value, upper: bool = False) -> Results:
    return cholesky_solve(b, n, _identities(b, factor), factor, upper)


# --- determinants, functions of matrices


def _diagonal(b: Builder, x: Value) -> Value:
    return b.reduce_sum(b.where(_unit_of(b, x), x, b.constant(0, b.dtype(x))), axes=(-1,))


def _parity(b: Builder, pivots: Value, dtype: DType) -> Value:
    """−1 for an odd number of row exchanges, else 1."""
    own = b.add(b.iota(scalar_size(b, pivots, -1)), 1)
    moved = b.ne(b.cast(pivots, dtype=dtypes.i64), own)
    return b.reduce_prod(b.where(moved, b.constant(-1, dtype), b.constant(1, dtype)), axes=(-1,))


def _factored(b: Builder, n: Call, x: Value) -> tuple[Value, Value]:
    """The factors of x, or of x with rows and columns exchanged where torch does that (the gradient counts on it)."""
    turned = n.node.attrs["contiguous"] and not is_complex(b, x)
    table, pivots, _ = b.emit("lu_factor", _turned(b, x) if turned else x)
    return table, pivots


@aten("aten._linalg_det.default")
def det(b: Builder, n: Call, x: Value) -> Results:
    table, pivots = _factored(b, n, x)
    result = b.mul(b.reduce_prod(_diagonal(b, table), axes=(-1,)), _parity(b, pivots, n.dtype))
    return result, table, pivots


@aten("aten._linalg_slogdet.default")
def slogdet(b: Builder, n: Call, x: Value) -> Results:
    table, pivots = _factored(b, n, x)
    factors = _diagonal(b, table)
    sizes = size(b, factors)
    if is_complex(b, x):
        safe = b.where(b.eq(sizes, 0.0), 1.0, sizes)
        signs = b.div(factors, b.cast(safe, dtype=n.dtype))
    else:
        signs = b.sign(factors)
    sign = b.mul(b.reduce_prod(signs, axes=(-1,)), _parity(b, pivots, n.dtype))
    return sign, b.reduce_sum(b.log(sizes), axes=(-1,)), table, pivots


@aten("aten.linalg_matrix_exp.default", "aten.matrix_exp.default")
def matrix_exp(b: Builder, n: Call, x: Value) -> Results:
    return b.matrix_exp(x)


@aten("aten.linalg_pinv.atol_rtol_tensor")
def pinv(b: Builder, n: Call, x: Value, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Results:
    if hermitian:
        values, left = b.emit("eigh", x)
        right = _adjoint(b, left)
    else:
        left, values, right = b.emit("svd", x)
    sizes = b.abs(values)
    kind = b.dtype(sizes)
    largest = b.reduce_max(sizes, axes=(-1,), keepdims=True)
    cutoff = b.mul(_tolerance(b, rtol, kind, _usual_rtol(b, x, kind) if atol is None else 0.0), largest)
    cutoff = b.max(cutoff, _tolerance(b, atol, kind, 0.0))
    inverse = b.where(b.lt(cutoff, sizes), b.div(1.0, values), b.constant(0, kind))
    scaled = b.mul(_adjoint(b, right), b.cast(b.unsqueeze(inverse, axes=(-2,)), dtype=n.dtype))
    return b.matmul(scaled, _adjoint(b, left))


def _usual_rtol(b: Builder, x: Value, kind: DType) -> Value:
    larger = b.max(scalar_size(b, x, -2), scalar_size(b, x, -1))
    return b.mul(b.cast(larger, dtype=kind), float(np.finfo(kind.numpy).eps))


def _tolerance(b: Builder, given: Any, kind: DType, usual: Any) -> Value:
    """A tolerance for each matrix, in a shape that fits their singular values."""
    value = tensor(b, usual if given is None else given, kind)
    return value if given is None else b.unsqueeze(value, axes=(b.rank(value),))


# --- norms and products


@aten("aten.linalg_vector_norm.default")
def vector_norm(
    b: Builder, n: Call, x: Value, order: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Results:
    axes = tuple([dim] if isinstance(dim, int) else dim) if dim and b.rank(x) else None
    sizes = tensor(b, size(b, x), wide_dtype(n.dtype))
    return tensor(b, _norm(b, sizes, float(order), {"axes": axes, "keepdims": keepdim}), n.dtype)


def _norm(b: Builder, sizes: Value, order: float, kept: dict[str, Any]) -> Value:
    """The norm of what `sizes` are the absolute values of."""
    if order == 0:
        return b.reduce_sum(b.cast(b.ne(sizes, 0.0), dtype=b.dtype(sizes)), **kept)
    if order in (float("inf"), float("-inf")):
        return b.reduce_max(sizes, **kept) if order > 0 else b.reduce_min(sizes, **kept)
    if order == 1:
        return b.reduce_sum(sizes, **kept)
    if order == 2:
        return b.sqrt(b.reduce_sum(b.mul(sizes, sizes), **kept))
    return b.pow(b.reduce_sum(b.pow(sizes, order), **kept), 1 / order)


def _plus(b: Builder, n: Call, bias: Value, product: Value, beta: Any, alpha: Any) -> Value:
    """β · bias + α · product, a bias of which nothing is taken being ignored whatever it holds."""
    work = b.dtype(product)
    check_bias(b, bias, product)
    scaled = product if alpha == 1 else b.mul(product, tensor(b, alpha, work))
    if beta == 0:
        return tensor(b, scaled, n.dtype)
    return tensor(b, b.add(scaled, b.mul(tensor(b, bias, work), tensor(b, beta, work))), n.dtype)


@aten("aten.addmv.default")
def addmv(b: Builder, n: Call, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Results:
    work = wide_dtype(n.dtype)
    return _plus(b, n, bias, b.matmul(tensor(b, x, work), tensor(b, y, work)), beta, alpha)


@aten("aten.addbmm.default")
def addbmm(b: Builder, n: Call, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Results:
    work = wide_dtype(n.dtype)
    products = b.matmul(tensor(b, x, work), tensor(b, y, work))
    count = b.size(x, 0)
    if work is n.dtype or not isinstance(count, int) or count == 0:
        return _plus(b, n, bias, b.reduce_sum(products, axes=(0,)), beta, alpha)
    total = bias
    for i in range(count):  # torch rounds after every product of the batch
        total = _plus(b, n, total, b.gather(products, i, axis=0), beta if i == 0 else 1, alpha)
    return total
