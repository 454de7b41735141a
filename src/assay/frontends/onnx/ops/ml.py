"""ai.onnx.ml: encoders, scaling, linear models and maps. Trees and support vectors have files of their own.

What the standard says comes first; where it leaves open what scores and labels are, this follows ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from assay.frontends.onnx.ops.common import as_i64
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Value
from assay.ir.types import MapType, TensorType, UnknownType
from assay.ops.definitions.text import strings
from assay.ops.registry import FactMissing

ML = "ai.onnx.ml"


def computed_in(b: Builder, x: Value) -> DType:
    """The float that numbers of x are computed in: f64 for f64, f32 for all else."""
    return dtypes.f64 if b.dtype(x) is dtypes.f64 else dtypes.f32


def cast_to(b: Builder, x: Value, dtype: DType) -> Value:
    """x as `dtype`."""
    return x if b.dtype(x) is dtype else b.cast(x, dtype=dtype)


def matrix(b: Builder, x: Value, dtype: DType) -> Value:
    """Samples in rows: x of shape [N, F], or [F] taken as one row, as `dtype`."""
    rank = b.rank(x)
    if rank not in (1, 2):
        raise ValueError(f"samples have the shape [N, F] or [F], not rank {rank}")
    return cast_to(b, b.unsqueeze(x, axes=(0,)) if rank == 1 else x, dtype)


# --- scores and labels


def _softmax_zero(b: Builder, x: Value) -> Value:
    """A softmax that leaves zeros (up to 1e-7) as they are."""
    counts = b.lt(1e-7, b.abs(x))
    peak = b.reduce_max(x, axes=(-1,), keepdims=True)
    grown = b.where(counts, b.exp(b.sub(x, peak)), b.mul(x, b.exp(b.neg(peak))))
    return b.div(grown, b.reduce_sum(b.where(counts, grown, 0.0), axes=(-1,), keepdims=True))


def _probit(b: Builder, x: Value) -> Value:
    """√2 · erf⁻¹(2x − 1), the inverse by Winitzki's approximation, which all implementations of the standard use."""
    around = b.sub(b.mul(x, 2.0), 1.0)
    log = b.log(b.mul(b.sub(1.0, around), b.add(1.0, around)))
    half = b.add(b.mul(log, 0.5), 2 / (math.pi * 0.147))
    size = b.sqrt(b.sub(b.sqrt(b.sub(b.mul(half, half), b.div(log, 0.147))), half))
    return b.mul(math.sqrt(2), b.where(b.lt(around, 0.0), b.neg(size), size))


_TRANSFORMS: dict[str, Callable[[Builder, Value], Value]] = {
    "NONE": lambda b, x: x,
    "LOGISTIC": lambda b, x: b.sigmoid(x),
    "SOFTMAX": lambda b, x: b.softmax(x, axis=-1),
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def transformed(b: Builder, scores: Value, name: str) -> Value:
    """Scores [N, E] after the `post_transform` of that name."""
    if name not in _TRANSFORMS:
        raise ValueError(f"the post_transform '{name}' is none of {', '.join(_TRANSFORMS)}")
    return _TRANSFORMS[name](b, scores)


def two_scores(b: Builder, score: Value, transform: str, complement: bool) -> Value:
    """Scores [N, 2] of two classes from the one [N, 1] of the second class: (1 − s, s) where s is a probability that is
    not transformed further, else (−s, s)."""
    as_probability = complement and transform in ("NONE", "PROBIT")
    other = b.sub(1.0, score) if as_probability else b.neg(score)
    return transformed(b, b.concat(other, score, axis=1), transform)


def labels_of(n: Source, ints: str) -> Array:
    """The labels of classes, strings or integers; `ints` is the name of the attribute for the latter."""
    words = n.strings("classlabels_strings", ())
    return strings(words) if words else np.array(n.ints(ints, ()), np.int64)


def chosen(b: Builder, labels: Array, index: Value) -> Value:
    """The labels at these positions."""
    return b.gather(b.constant(labels), index, axis=0)


# --- linear models


def _products(b: Builder, n: Source, x: Value, rows: int) -> Value:
    """x · coefficientsᵀ + intercepts, for coefficients in so many rows."""
    dtype = computed_in(b, x)
    samples = matrix(b, x, dtype)
    weights = np.array(n.floats("coefficients"), dtype.numpy).reshape(rows, -1)
    scores = b.matmul(samples, b.constant(np.ascontiguousarray(weights.T)))
    intercepts = n.floats("intercepts", ())
    if not intercepts:
        return scores
    if len(intercepts) != rows:
        raise ValueError(f"there are {len(intercepts)} intercepts for {rows} rows of coefficients")
    return b.add(scores, b.constant(intercepts, dtype))


@onnx_op("LinearRegressor", domain=ML)
def linear_regressor(b: Builder, n: Source, x: Value) -> Results:
    scores = _products(b, n, x, n.int("targets"))
    return cast_to(b, transformed(b, scores, n.str("post_transform")), dtypes.f32)


@onnx_op("LinearClassifier", domain=ML)
def linear_classifier(b: Builder, n: Source, x: Value) -> Results:
    labels, transform = labels_of(n, "classlabels_ints"), n.str("post_transform")
    features = b.dims(x)[-1]
    given = len(n.floats("intercepts", ())) or len(labels)
    scores = _products(b, n, x, len(n.floats("coefficients")) // features if isinstance(features, int) else given)
    if b.dims(scores)[1] != 1:
        best = b.arg_max(scores, axis=1)
        return chosen(b, labels, best), cast_to(b, transformed(b, scores, transform), dtypes.f32)
    second = as_i64(b, b.lt(0.0, b.reshape(scores, [-1])))
    if len(labels) == 2:
        return chosen(b, labels, second), cast_to(b, two_scores(b, scores, transform, True), dtypes.f32)
    plain = strings(["0", "1"]) if labels.dtype == object else np.array([0, 1], np.int64)
    return chosen(b, plain, second), cast_to(b, transformed(b, scores, transform), dtypes.f32)


# --- scaling


@onnx_op("Scaler", domain=ML)
def scaler(b: Builder, n: Source, x: Value) -> Results:
    dtype = computed_in(b, x)
    offset, scale = b.constant(n.floats("offset", (0.0,)), dtype), b.constant(n.floats("scale", (1.0,)), dtype)
    return cast_to(b, b.mul(b.sub(cast_to(b, x, dtype), offset), scale), dtypes.f32)


_NORMS: dict[str, Callable[[Builder, Value], Value]] = {
    "MAX": lambda b, x: b.reduce_max(x, axes=(-1,), keepdims=True),
    "L1": lambda b, x: b.reduce_sum(b.abs(x), axes=(-1,), keepdims=True),
    "L2": lambda b, x: b.sqrt(b.reduce_sum(b.square(x), axes=(-1,), keepdims=True)),
}


@onnx_op("Normalizer", domain=ML)
def normalizer(b: Builder, n: Source, x: Value) -> Results:
    name = n.str("norm")
    if name not in _NORMS:
        raise ValueError(f"the norm '{name}' is none of {', '.join(_NORMS)}")
    wide = cast_to(b, x, computed_in(b, x))
    norm = _NORMS[name](b, wide)
    return cast_to(b, b.where(b.eq(norm, 0.0), wide, b.div(wide, norm)), dtypes.f32)


@onnx_op("Binarizer", domain=ML)
def binarizer(b: Builder, n: Source, x: Value) -> Results:
    threshold, dtype = n.float("threshold"), b.dtype(x)
    if dtype.is_float:
        return b.cast(b.lt(threshold, x), dtype=dtype)
    low, high = dtype.limits
    if math.isnan(threshold) or threshold >= high:
        return b.mul(x, 0)
    if threshold < low:
        return b.cast(b.eq(x, x), dtype=dtype)
    return b.cast(b.lt(math.floor(threshold), x), dtype=dtype)


@onnx_op("Imputer", domain=ML)
def imputer(b: Builder, n: Source, x: Value) -> Results:
    dtype = b.dtype(x)
    if dtype.is_float:
        values, replaced = n.floats("imputed_value_floats", ()), n.float("replaced_value_float")
    else:
        values, replaced = n.ints("imputed_value_int64s", ()), n.int("replaced_value_int64")
    if not values:
        raise ValueError(f"there are no values of dtype {dtype} to put in")
    missing = b.is_nan(x) if math.isnan(replaced) else b.eq(x, b.constant(replaced, dtype))
    return b.where(missing, b.constant(values, dtype), x)


@onnx_op("FeatureVectorizer", domain=ML)
def feature_vectorizer(b: Builder, n: Source, *xs: Value) -> Results:
    sizes = n.ints("inputdimensions", None)
    columns = [_flat_rows(b, x) for x in xs]
    if sizes is not None and len(sizes) != len(xs):
        raise ValueError(f"{len(xs)} inputs have {len(sizes)} inputdimensions")
    if sizes is not None:
        columns = [_resized(b, x, size) for x, size in zip(columns, sizes, strict=True)]
    return b.concat(*columns, axis=1)


def _flat_rows(b: Builder, x: Value) -> Value:
    """x as f32 of shape [N, …], one row a sample."""
    wide = cast_to(b, x, dtypes.f32)
    return b.unsqueeze(wide, axes=(0,)) if b.rank(x) == 1 else b.reshape(wide, b.vector(b.size(x, 0), -1))


def _resized(b: Builder, x: Value, size: int) -> Value:
    """The first `size` columns of x, zeros after them if there are fewer."""
    kept = b.slice(x, [0], [size], [1], axes=(1,))
    width = b.size(kept, 1)
    if width == size:
        return kept
    return b.pad(kept, b.vector(0, 0, 0, size - width if isinstance(width, int) else b.sub(size, width)), 0.0)


# --- encoders

_LISTS = (("strings", dtypes.string), ("int64s", dtypes.i64), ("floats", dtypes.f32))
_DEFAULTS = {"strings": "default_string", "int64s": "default_int64", "floats": "default_float"}


def _listed(n: Source, prefix: str) -> tuple[str, Array]:
    """The one list `prefix_*` that is given: which, and its content."""
    for suffix, dtype in _LISTS:
        if n.has(f"{prefix}_{suffix}"):
            items = n.attrs[f"{prefix}_{suffix}"]
            return suffix, strings(items) if dtype is dtypes.string else np.array(items, dtype.numpy)
    return "tensor", n.array(f"{prefix}_tensor").reshape(-1)


def _default(n: Source, suffix: str, values: Array) -> Array:
    if suffix in _DEFAULTS:
        return np.array(n.attrs[_DEFAULTS[suffix]], values.dtype)
    if n.has("default_tensor"):
        return n.array("default_tensor").reshape(()).astype(values.dtype)
    return np.array({"O": "_Unused", "f": -0.0}.get(values.dtype.kind, -1), values.dtype)


def _encoded(b: Builder, x: Value, keys: Array, values: Array, default: Array) -> Value:
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys have {len(values)} values")
    return b.lookup(x, b.constant(keys), b.constant(values), b.constant(default))


@onnx_op("LabelEncoder", "CategoryMapper", domain=ML)
def category_mapper(b: Builder, n: Source, x: Value) -> Results:
    """Also the first version of LabelEncoder, whose integers are the positions of the strings."""
    words = n.strings("classes_strings", None) or n.strings("cats_strings", ())
    numbers = n.ints("cats_int64s", None) or tuple(range(len(words)))
    keys, values = strings(words), np.array(numbers, np.int64)
    if b.dtype(x) is dtypes.string:
        return _encoded(b, x, keys, values, np.array(n.int("default_int64"), np.int64))
    return _encoded(b, x, values, keys, np.array(n.str("default_string"), object))


@onnx_op("LabelEncoder", since=2, domain=ML)
def label_encoder(b: Builder, n: Source, x: Value) -> Results:
    _, keys = _listed(n, "keys")
    suffix, values = _listed(n, "values")
    return _encoded(b, x, keys, values, _default(n, suffix, values))


@onnx_op("OneHotEncoder", domain=ML)
def one_hot_encoder(b: Builder, n: Source, x: Value) -> Results:
    if b.dtype(x) is dtypes.string:
        asked, categories = x, strings(n.strings("cats_strings"))
    else:
        asked, categories = cast_to(b, x, dtypes.i64), np.array(n.ints("cats_int64s"), np.int64)
    hits = b.eq(b.unsqueeze(asked, axes=(-1,)), b.constant(categories))
    hot = b.cast(hits, dtype=dtypes.f32)
    if n.flag("zeros"):
        return hot
    return b.checked(hot, b.reduce_max(hits, axes=(-1,)), message="a value is none of the categories")


@onnx_op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(b: Builder, n: Source, x: Value, positions: Value) -> Results:
    taken = b.gather(x, b.reshape(positions, [-1]), axis=-1)
    return b.unsqueeze(taken, axes=(0,)) if b.rank(x) == 1 else taken


# --- maps


def _keys(n: Source, *names: str) -> Sequence[str] | Sequence[int]:
    for name in names:
        if n.attrs.get(name):
            return n.attrs[name]
    raise ValueError(f"one of {' and '.join(names)} must be given")


@onnx_op("ZipMap", domain=ML)
def zip_map(b: Builder, n: Source, x: Value) -> Results:
    return b.zip_map(x, keys=_keys(n, "classlabels_strings", "classlabels_int64s"))


@onnx_op("DictVectorizer", domain=ML)
def dict_vectorizer(b: Builder, n: Source, x: Value) -> Results:
    if isinstance(x.type, UnknownType):
        raise FactMissing("the type of a map")
    if not isinstance(x.type, MapType) or not isinstance(x.type.value, TensorType):
        raise TypeError(f"expected a map, got {x.type}")
    return b.map_to_row(x, keys=_keys(n, "string_vocabulary", "int64_vocabulary"), dtype=x.type.value.dtype)


_CAST_TO = {"TO_FLOAT": dtypes.f32, "TO_INT64": dtypes.i64, "TO_STRING": dtypes.string}


@onnx_op("CastMap", domain=ML)
def cast_map(b: Builder, n: Source, x: Value) -> Results:
    size = n.int("max_map") if n.str("map_form") == "SPARSE" else None
    return b.map_in_order(x, size=size, dtype=_CAST_TO[n.str("cast_to")])
