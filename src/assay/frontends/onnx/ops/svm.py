"""ai.onnx.ml: support vector machines, computed in f64: kernels by matrix products, then one sum a pair of classes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from assay.frontends.onnx.ops.common import as_i64
from assay.frontends.onnx.ops.ml import ML, cast_to, chosen, labels_of, matrix, transformed, two_scores
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ir.graph import Value


def _table(n: Source, name: str, rows: int) -> Array:
    """A list of floats as f64 in so many rows."""
    items = np.array(n.floats(name, ()), np.float64)
    if rows < 1 or items.size % rows:
        raise ValueError(f"'{name}' holds {items.size} numbers, which are no {rows} rows")
    return items.reshape(rows, -1)


# --- kernels


def _dot(b: Builder, x: Value, vectors: Array) -> Value:
    return b.matmul(x, b.constant(np.ascontiguousarray(vectors.T)))


def _scaled(b: Builder, x: Value, vectors: Array, params: Array) -> Value:
    return b.add(b.mul(_dot(b, x, vectors), float(params[0])), float(params[1]))


def _distance(b: Builder, x: Value, vectors: Array) -> Value:
    """|x − v|² = |x|² − 2 x·v + |v|², which f64 leaves room for."""
    own = b.reduce_sum(b.square(x), axes=(1,), keepdims=True)
    theirs = b.constant(np.sum(np.square(vectors), axis=1))
    return b.max(b.add(b.sub(own, b.mul(_dot(b, x, vectors), 2.0)), theirs), 0.0)


_KERNELS: dict[str, Callable[[Builder, Value, Array, Array], Value]] = {
    "LINEAR": lambda b, x, vectors, params: _dot(b, x, vectors),
    "POLY": lambda b, x, vectors, params: b.pow(_scaled(b, x, vectors, params), float(params[2])),
    "RBF": lambda b, x, vectors, params: b.exp(b.mul(_distance(b, x, vectors), -float(params[0]))),
    "SIGMOID": lambda b, x, vectors, params: b.tanh(_scaled(b, x, vectors, params)),
}


def _kernel(b: Builder, n: Source, x: Value, vectors: Array) -> Value:
    """The kernel of each sample with each vector, [N, vectors]."""
    name = n.str("kernel_type")
    if name not in _KERNELS:
        raise ValueError(f"the kernel_type '{name}' is none of {', '.join(_KERNELS)}")
    params = np.zeros(3)
    given = n.floats("kernel_params", ())
    params[: len(given)] = given[:3]
    return _KERNELS[name](b, matrix(b, x, dtypes.f64), vectors, params)


# --- the two ops


@onnx_op("SVMRegressor", domain=ML)
def svm_regressor(b: Builder, n: Source, x: Value) -> Results:
    count, rho = n.int("n_supports"), float(n.floats("rho")[0])
    coefficients = _table(n, "coefficients", 1)
    if count > 0:
        score = _dot(b, _kernel(b, n, x, _table(n, "support_vectors", count)), coefficients)
    else:
        score = _dot(b, matrix(b, x, dtypes.f64), coefficients)
    score = b.add(score, rho)
    if n.flag("one_class"):
        score = b.where(b.lt(0.0, score), 1.0, b.constant(-1.0, dtypes.f64))
    return cast_to(b, transformed(b, score, n.str("post_transform")), dtypes.f32)


@onnx_op("SVMClassifier", domain=ML)
def svm_classifier(b: Builder, n: Source, x: Value) -> Results:
    labels, transform = labels_of(n, "classlabels_ints"), n.str("post_transform")
    counts = n.ints("vectors_per_class", ())
    if not sum(counts):
        return _liblinear(b, n, x, labels, transform)
    if len(counts) != len(labels):
        raise ValueError(f"{len(labels)} classes have vectors_per_class for {len(counts)}")
    scores = _pair_scores(b, n, x, counts)
    label = chosen(b, labels, b.arg_max(_votes(b, scores, len(labels)), axis=1))
    if n.floats("prob_a", ()):
        scores = _probabilities(b, n, scores, len(labels))
    elif len(labels) == 2:
        return label, cast_to(b, two_scores(b, scores, transform, False), dtypes.f32)
    return label, cast_to(b, transformed(b, scores, transform), dtypes.f32)


def _liblinear(b: Builder, n: Source, x: Value, labels: Array, transform: str) -> Results:
    """Without support vectors: one row of coefficients a class."""
    coefficients = _table(n, "coefficients", len(labels))
    scores = b.add(_dot(b, matrix(b, x, dtypes.f64), coefficients), float(n.floats("rho")[0]))
    best = b.arg_max(scores, axis=1)
    if len(labels) == 2 and not n.floats("prob_a", ()):
        top = b.reduce_max(scores, axes=(1,))
        positive = not np.any(coefficients < 0)
        best = b.where(b.le(0.5, top) if positive else b.lt(0.0, top), 1, best)
    return chosen(b, labels, best), cast_to(b, transformed(b, scores, transform), dtypes.f32)


def _pairs(classes: int) -> tuple[Array, Array]:
    """The pairs of classes in the order in which scores, rho and probabilities are listed."""
    return np.triu_indices(classes, 1)


def _pair_scores(b: Builder, n: Source, x: Value, counts: tuple[int, ...]) -> Value:
    """A score for each pair of classes, positive if the first is the likelier: [N, pairs]."""
    vectors = _table(n, "support_vectors", sum(counts))
    coefficients = _table(n, "coefficients", max(len(counts) - 1, 1))
    if coefficients.shape[1] != len(vectors):
        raise ValueError(f"{len(vectors)} support vectors have {coefficients.shape[1]} coefficients")
    owner = np.repeat(np.arange(len(counts)), counts)
    first, second = _pairs(len(counts))
    weights = np.zeros((len(first), len(vectors)))
    for row, (i, j) in enumerate(zip(first, second, strict=True)):
        weights[row, owner == i] = coefficients[j - 1, owner == i]
        weights[row, owner == j] = coefficients[i, owner == j]
    rho = n.floats("rho")
    if len(rho) < len(first):
        raise ValueError(f"{len(first)} pairs of classes have {len(rho)} values of rho")
    return b.add(_dot(b, _kernel(b, n, x, vectors), weights), b.constant(rho[: len(first)], dtypes.f64))


def _votes(b: Builder, scores: Value, classes: int) -> Value:
    """How many pairs each class wins: [N, classes]."""
    first, second = _pairs(classes)
    numbers = np.arange(classes)
    wins = as_i64(b, b.lt(0.0, scores))
    won, lost = (np.equal(side[:, None], numbers).astype(np.int64) for side in (first, second))
    return b.add(b.matmul(wins, b.constant(won)), b.matmul(b.sub(1, wins), b.constant(lost)))


def _probabilities(b: Builder, n: Source, scores: Value, classes: int) -> Value:
    """Probabilities of the classes, from those of pairs that a sigmoid gives: [N, classes]."""
    first, second = _pairs(classes)
    prob_a, prob_b = n.floats("prob_a"), n.floats("prob_b")
    if min(len(prob_a), len(prob_b)) < len(first):
        raise ValueError(f"{len(first)} pairs of classes have {len(prob_a)} and {len(prob_b)} values of prob_a, prob_b")
    slope, shift = (b.constant(values[: len(first)], dtypes.f64) for values in (prob_a, prob_b))
    likely = b.clip(b.sigmoid(b.neg(b.add(b.mul(scores, slope), shift))), 1e-7, 1 - 1e-7)
    place = np.zeros((classes, classes), np.int64)
    place[first, second] = np.arange(len(first))
    place[second, first] = np.arange(len(first)) + len(first)
    both = b.concat(likely, b.sub(1.0, likely), axis=1)
    square = b.reshape(b.gather(both, place.reshape(-1), axis=1), [-1, classes, classes])
    return b.couple_pairs(square)
