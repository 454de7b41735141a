"""Einstein summation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir.dims import UNKNOWN, Dim, eq
from assay.ir.dtypes import NUMERIC, Array, DType, f32
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.conditions import differ
from assay.ops.definitions.linear import merged
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import broadcast_dim

if TYPE_CHECKING:
    from assay.ops.builder import Builder

ELLIPSIS = "..."
Term = tuple[str, ...]


def parse(equation: str, ranks: Sequence[int | None]) -> tuple[list[Term], Term] | None:
    """The labels of each operand's axes and of the result's, the axes of an ellipsis labelled from the last one
    (…3, …2, …1). None where a rank is needed and unknown; ValueError where the equation does not fit."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    written = [_tokens(term) for term in left.split(",")]
    if len(written) != len(ranks):
        raise ValueError(f"'{equation}' has {len(written)} terms for {len(ranks)} operands")
    if any(ELLIPSIS in term and rank is None for term, rank in zip(written, ranks, strict=True)):
        return None
    terms = [_spread(term, rank, equation) for term, rank in zip(written, ranks, strict=True)]
    hidden = max((tuple(label for label in term if len(label) > 1) for term in terms), key=len)
    counts = Counter(label for term in terms for label in term)
    once = sorted(label for label, count in counts.items() if count == 1 and len(label) == 1)
    asked = _tokens(right) if arrow else (ELLIPSIS, *once)
    output = tuple(label for token in asked for label in (hidden if token == ELLIPSIS else (token,)))
    if any(label not in counts for label in output) or len(set(output)) < len(output):
        raise ValueError(f"'{equation}' asks for a result with unknown or repeated labels")
    return terms, output


def _tokens(term: str) -> Term:
    before, dots, after = term.partition(ELLIPSIS)
    letters = before + after
    if not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise ValueError(f"'{term}' is no term of an Einstein summation")
    return (*before, *([ELLIPSIS] if dots else []), *after)


def _spread(term: Term, rank: int | None, equation: str) -> Term:
    """A term with one label an axis."""
    named = len(term) - (ELLIPSIS in term)
    free = 0 if rank is None else rank - named
    if free < 0 or (free and ELLIPSIS not in term):
        raise ValueError(f"the term '{''.join(term)}' of '{equation}' does not fit an operand of rank {rank}")
    hidden = [f"{ELLIPSIS}{i}" for i in range(free, 0, -1)]
    return tuple(label for token in term for label in (hidden if token == ELLIPSIS else [token]))


def _einsum_shape(*xs: Fact, equation: str) -> list[Shape]:
    parsed = parse(equation, [None if x.shape is None else len(x.shape) for x in xs])
    if parsed is None:
        return [None]
    terms, output = parsed
    sizes: dict[str, Dim] = {}
    for x, term in zip(xs, terms, strict=True):
        for label, dim in _own_sizes(term, x.shape or (UNKNOWN,) * len(term)).items():
            sizes[label] = broadcast_dim(sizes[label], dim) if label in sizes else dim
    return [tuple(sizes[label] for label in output)]


def _own_sizes(term: Term, shape: Sequence[Dim]) -> dict[str, Dim]:
    """The sizes of an operand's labels; ValueError for a diagonal of what is not square."""
    sizes: dict[str, Dim] = {}
    for label, dim in zip(term, shape, strict=True):
        if differ(sizes.setdefault(label, dim), dim):
            raise ValueError(f"the label '{label}' stands for axes of sizes {sizes[label]} and {dim} of one operand")
    return sizes


def _einsum_parts(b: Builder, *xs: Any, equation: str) -> Any:
    parsed = parse(equation, [b.rank(x) for x in xs])
    assert parsed is not None
    terms, output = parsed
    value, labels = _diagonal(b, xs[0], terms[0])
    for i, x in enumerate(xs[1:], start=1):
        wanted = {*output, *(label for term in terms[i + 1 :] for label in term)}
        value, labels = _product(b, (value, labels), _diagonal(b, x, terms[i]), wanted)
    value, labels = _summed(b, value, labels, set(output))
    return b.transpose(value, perm=tuple(labels.index(label) for label in output))


def _diagonal(b: Builder, x: Any, labels: Term) -> tuple[Any, Term]:
    """x with every label on one axis."""
    double = next((label for i, label in enumerate(labels) if label in labels[:i]), None)
    if double is None:
        return x, labels
    first = labels.index(double)
    second = labels.index(double, first + 1)
    rest = [i for i in range(len(labels)) if i not in (first, second)]
    size = b.size(x, first)
    square = b.transpose(x, perm=(first, second, *rest))
    flat = b.reshape(square, b.vector(merged(b, [size, size]), *(b.size(x, i) for i in rest)))
    line = b.iota(size if isinstance(size, int) else b.reshape(size, []))
    step = size + 1 if isinstance(size, int) else b.add(size, 1)
    return _diagonal(b, b.gather(flat, b.mul(line, step), axis=0), (double, *(labels[i] for i in rest)))


def _summed(b: Builder, x: Any, labels: Term, wanted: set[str]) -> tuple[Any, Term]:
    """x summed over the labels that nobody wants."""
    gone = tuple(i for i, label in enumerate(labels) if label not in wanted)
    return (b.reduce_sum(x, axes=gone) if gone else x), tuple(label for label in labels if label in wanted)


def _product(b: Builder, left: tuple[Any, Term], right: tuple[Any, Term], wanted: set[str]) -> tuple[Any, Term]:
    """Two operands as one, summed over the labels that both have and nobody wants."""
    x, xs = _summed(b, *left, wanted.union(right[1]))
    y, ys = _summed(b, *right, wanted.union(left[1]))
    x, y = _matched(b, x, xs, (y, ys), wanted), _matched(b, y, ys, (x, xs), wanted)
    batch = tuple(label for label in xs if label in ys and label in wanted)
    inner = tuple(label for label in xs if label in ys and label not in wanted)
    rows, columns = (tuple(label for label in own if label not in (*batch, *inner)) for own in (xs, ys))
    result = (*batch, *rows, *columns)
    if not inner:
        return b.mul(_aligned(b, x, xs, result), _aligned(b, y, ys, result)), result
    x, y = _aligned(b, x, xs, (*batch, *rows, *inner)), _aligned(b, y, ys, (*batch, *inner, *columns))
    row_sizes = [b.size(x, len(batch) + i) for i in range(len(rows))]
    column_sizes = [b.size(y, len(batch) + len(inner) + i) for i in range(len(columns))]
    depth = merged(b, [b.size(x, len(batch) + len(rows) + i) for i in range(len(inner))])
    lead_x, lead_y = ([b.size(v, i) for i in range(len(batch))] for v in (x, y))
    matrices = (
        b.reshape(x, b.vector(*lead_x, merged(b, row_sizes), depth)),
        b.reshape(y, b.vector(*lead_y, depth, merged(b, column_sizes))),
    )
    product = b.matmul(*matrices)
    lead = [b.size(product, i) for i in range(len(batch))]
    sizes = [*lead, *row_sizes, *column_sizes]
    return b.reshape(product, b.vector(*sizes) if sizes else []), result


def _matched(b: Builder, x: Any, labels: Term, other: tuple[Any, Term], wanted: set[str]) -> Any:
    """x with axes that are summed together with the other operand's as large as those."""
    sizes: list[Any] = [1] * len(labels)
    for i, label in enumerate(labels):
        if label in wanted or label not in other[1]:
            continue
        partner = other[1].index(label)
        if eq(b.dims(x)[i], b.dims(other[0])[partner]) is not True:
            own, its = b.size(x, i), b.vector(b.size(other[0], partner))
            sizes[i] = its if own == 1 else b.where(b.eq(b.vector(own), 1), its, own)
    return x if all(size == 1 for size in sizes) else b.expand(x, b.vector(*sizes))


def _aligned(b: Builder, x: Any, labels: Term, order: Term) -> Any:
    """x with its axes in this order of labels, an axis of size one for each that it does not have."""
    held = [label for label in order if label in labels]
    moved = b.transpose(x, perm=tuple(labels.index(label) for label in held))
    missing = tuple(i for i, label in enumerate(order) if label not in labels)
    return b.unsqueeze(moved, axes=missing) if missing else moved


_SAMPLES: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("bij , bjk -> bki", [(2, 2, 3), (2, 3, 4)]),
    ("ij->ji", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ii->i", [(3, 3)]),
    ("iji", [(3, 2, 3)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("i,i", [(4,), (4,)]),
    ("i,Aj", [(2,), (3, 4)]),
    ("ij,ij->ij", [(2, 3), (2, 3)]),
    ("a...c,...cb", [(2, 3, 4), (3, 4, 2)]),
    ("...ij,...jk", [(2, 1, 2, 3), (4, 3, 2)]),
    ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 4)]),
    ("ij,kj->ik", [(2, 1), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 3)]),
]


def _einsum_samples(rng: Rng, dtype: DType) -> Any:
    for equation, shapes in _SAMPLES if dtype is f32 else _SAMPLES[::5]:
        yield *(draw(rng, dtype, shape, -2, 2) for shape in shapes), {"equation": equation}


@op(
    "T* -> T",
    T=NUMERIC,
    shape=_einsum_shape,
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_einsum_parts,
    samples=listed(_einsum_samples),
)
def einsum(*xs: Array, equation: str) -> Array:
    """The sum of products that `equation` states, such as "bij,bjk->bik"; repeated labels of an operand take its
    diagonal, an ellipsis stands for axes that broadcast, and without an arrow labels that occur once remain, sorted."""
    parsed = parse(equation, [x.ndim for x in xs])
    assert parsed is not None
    terms, output = parsed
    numbers: dict[str, int] = {}
    for term in terms:
        for label in term:
            numbers.setdefault(label, len(numbers))
    operands = [item for x, term in zip(xs, terms, strict=True) for item in (x, [numbers[label] for label in term])]
    result: Any = np.einsum(*operands, [numbers[label] for label in output], optimize=len(xs) > 1)
    return np.asarray(result)
