"""Strings: work of the host. A tensor of strings is an object array of `str`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, eq
from assay.ir.dtypes import Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.definitions.regex import compile_pattern
from assay.ops.registry import Compute, Sample, op
from assay.ops.samples import Rng, draw
from assay.ops.shapes import broadcasting


def strings(items: Sequence[Any], shape: Sequence[int] | None = None) -> Array:
    """An array that holds these items as they are."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array if shape is None else array.reshape(tuple(shape))


def _texts(*texts: str) -> Array:
    return strings(texts)


# --- elementwise


@op(
    "string, string -> string",
    shape=broadcasting,
    host=True,
    samples=lambda rng, dtype: [
        Sample((draw(rng, dtypes.string, (2, 3)), draw(rng, dtypes.string, (3,)))),
        Sample((draw(rng, dtypes.string, ()), draw(rng, dtypes.string, (0,)))),
    ],
)
def string_concat(x: Array, y: Array) -> Array:
    """x followed by y."""
    return np.asarray(np.add(x, y), dtype=object)


def _matched_shape(x: Fact, *, pattern: str) -> list[Shape]:
    compile_pattern(pattern)
    return [x.shape]


@op(
    "string -> bool",
    shape=_matched_shape,
    host=True,
    samples=lambda rng, dtype: [
        Sample((draw(rng, dtypes.string, (3, 4)),), {"pattern": pattern}) for pattern in ("[ab]+", "", "(?i)Z.*")
    ],
)
def regex_full_match(x: Array, *, pattern: str) -> Array:
    """Whether a pattern in RE2's syntax matches the whole of a string, in time linear in its length."""
    matches = compile_pattern(pattern).full_match
    return np.fromiter(map(matches, x.reshape(-1).tolist()), np.bool_, x.size).reshape(x.shape)


def _split_shapes(x: Fact, *, delimiter: str, limit: int) -> list[Shape]:
    return [None if x.shape is None else (*x.shape, UNKNOWN), x.shape]


@op(
    "string -> string, i64",
    shape=_split_shapes,
    host=True,
    samples=lambda rng, dtype: [
        Sample((_texts("a b c", " hello  world ", ""),), {"delimiter": "", "limit": -1}),
        Sample((_texts("1,2,3", "4,", "5").reshape(3, 1),), {"delimiter": ",", "limit": 1}),
        Sample((_texts().reshape(0, 2),), {"delimiter": ",", "limit": -1}),
    ],
)
def string_split(x: Array, *, delimiter: str = "", limit: int = -1) -> tuple[Array, Array]:
    """The parts of each string between delimiters, filled up with empty strings to equal counts along a new last axis,
    and how many parts there are. No delimiter stands for white space, runs of it counting once and those at the ends
    not at all; at most `limit` splits are made if it is not negative."""
    texts: list[str] = x.reshape(-1).tolist()
    parts = [text.split(delimiter, limit) if delimiter else text.strip().split(None, limit) for text in texts]
    counts = np.array([len(part) for part in parts], np.int64)
    width = int(counts.max(initial=0))
    filled = [text for part in parts for text in part + [""] * (width - len(part))]
    return strings(filled, (*x.shape, width)), counts.reshape(x.shape)


# --- cleaning

_CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def _normalized_shape(x: Fact, *, case: str, stopwords: Sequence[str], case_sensitive: bool) -> list[Shape]:
    if case not in _CASES:
        raise ValueError(f"'{case}' is none of {', '.join(_CASES)}")
    if x.shape is None:
        return [None]
    if len(x.shape) not in (1, 2) or (len(x.shape) == 2 and eq(x.shape[0], 1) is False):
        raise ValueError(f"strings of shape {list(x.shape)} are normalised, not of shape [C] or [1, C]")
    kept = x.shape[-1] if not stopwords and eq(x.shape[-1], 0) is False else UNKNOWN
    return [(*(1 for _ in x.shape[:-1]), kept)]


@op(
    "string -> string",
    shape=_normalized_shape,
    host=True,
    samples=lambda rng, dtype: [
        Sample((x,), {"case": case, "stopwords": ("a", "zürich"), "case_sensitive": sensitive})
        for x in (_texts("A", "b", "Zürich", "a"), _texts("a").reshape(1, 1))
        for case in _CASES
        for sensitive in (False, True)
    ],
)
def string_normalize(x: Array, *, case: str, stopwords: Sequence[str] = (), case_sensitive: bool = False) -> Array:
    """The strings of shape [C] or [1, C] that are no stop words, in another case (LOWER, UPPER, NONE); one empty string
    if none is left."""
    fold = str if case_sensitive else str.lower
    stops = {fold(word) for word in stopwords}
    change = _CASES[case]
    kept = [change(text) for text in x.reshape(-1).tolist() if fold(text) not in stops] or [""]
    return strings(kept, (1, len(kept)) if x.ndim == 2 else None)


# --- n-grams


def _located(known: Array, wanted: Array) -> Array:
    """Where each wanted item lies in the sorted `known` ones, −1 if it does not."""
    if known.size == 0:
        return np.full(wanted.shape, -1, np.int64)
    place = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    return np.where(np.asarray(known[place] == wanted, np.bool_), place, -1)


def _gram_ids(pool: Array, windows: Array, size: int) -> tuple[Array, Array]:
    """Numbers for the pool's n-grams (rows of token numbers below `size`), and those of the windows, −1 if unknown."""
    ids, found = np.zeros(len(pool), np.int64), np.zeros(windows.shape[:-1], np.int64)
    for j in range(pool.shape[1]):
        known, ids = np.unique(ids * size + pool[:, j], return_inverse=True)
        token = windows[..., j]
        found = _located(known, np.where((found < 0) | (token < 0), -1, found * size + token))
    return ids.reshape(-1), found


def _ngram_shape(x: Fact, *, columns: Sequence[int], mode: str, **attrs: Any) -> list[Shape]:
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"'{mode}' is none of TF, IDF, TFIDF")
    size = max(columns, default=-1) + 1
    if x.shape is None:
        return [None]
    if len(x.shape) > 2:
        raise ValueError(f"n-grams are counted in tensors of rank 1 or 2, not {len(x.shape)}")
    return [(*x.shape[:-1], size)]


def _ngram_samples(rng: Rng, dtype: DType) -> Any:
    pool = {dtypes.string: ("a", "b", "a", "b", "b", "b")}.get(dtype, (2, 3, 2, 3, 3, 3))
    common = {"pool": pool, "starts": (0, 2), "columns": (0, 2, 1, 3), "lengths": (1, 2), "skips": 1}
    for mode, weights in (("TF", ()), ("IDF", (0.5, 2.0, 3.0, 1.0)), ("TFIDF", (0.5, 2.0, 3.0, 1.0)), ("IDF", ())):
        yield Sample((draw(rng, dtype, (2, 6), 2, 4),), {**common, "mode": mode, "weights": weights})
    plain = {**common, "mode": "TF", "weights": ()}
    yield Sample((draw(rng, dtype, (5,), 2, 4),), {**plain, "lengths": (2, 2), "skips": 0})
    yield Sample((draw(rng, dtype, (0,)),), plain)


@op(
    "T -> f32",
    T=(dtypes.string, dtypes.i64, dtypes.i32),
    shape=_ngram_shape,
    compute=Compute.NATIVE,
    host=True,
    samples=_ngram_samples,
)
def ngram_counts(
    x: Array,
    *,
    pool: Sequence[str] | Sequence[int],
    starts: Sequence[int],
    columns: Sequence[int],
    lengths: Sequence[int],
    skips: int,
    mode: str,
    weights: Sequence[float] = (),
) -> Array:
    """How often each n-gram of `pool` occurs in the rows of x, at 0 … `skips` tokens between its own.

    The pool holds all 1-grams, then all 2-grams and so on, from `starts`; n-gram number i is counted in column
    `columns[i]` and has weight `weights[i]`; only those with a length within `lengths` (two numbers) count. `mode` is
    TF (counts), IDF (the weight where it occurs) or TFIDF (counts times weights).
    """
    tokens = strings(pool) if dtypes.of(x) is dtypes.string else np.array(pool, np.int64)
    vocabulary = np.unique(tokens) if tokens.size else tokens
    rows = np.atleast_2d(_located(vocabulary, x))
    counts = np.zeros((rows.shape[0], max(columns, default=-1) + 1))
    number = 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        grams = _located(vocabulary, tokens[start : start + (end - start) // n * n]).reshape(-1, n)
        own_columns = np.array(columns[number : number + len(grams)], np.int64)
        number += len(grams)
        if lengths[0] <= n <= lengths[1] and len(grams):
            for skip in range(skips + 1 if n > 1 else 1):
                _count(counts, rows, grams, own_columns, skip + 1, vocabulary.size)
    return _weighted(counts, mode, columns, weights).reshape(*x.shape[:-1], counts.shape[1])


def _count(counts: Array, rows: Array, grams: Array, columns: Array, stride: int, size: int) -> None:
    span = (grams.shape[1] - 1) * stride + 1
    if rows.shape[1] < span:
        return
    windows = np.lib.stride_tricks.sliding_window_view(rows, span, 1)[..., ::stride]
    ids, found = _gram_ids(grams, windows, size)
    column_of = np.zeros(int(ids.max()) + 1, np.int64)
    column_of[ids] = columns
    row, place = np.nonzero(found >= 0)
    np.add.at(counts, (row, column_of[found[row, place]]), 1)


def _weighted(counts: Array, mode: str, columns: Sequence[int], weights: Sequence[float]) -> Array:
    base = np.minimum(counts, 1) if mode == "IDF" else counts
    if mode == "TF" or not weights:
        return base
    if len(weights) != len(columns):
        raise ValueError(f"{len(columns)} n-grams have {len(weights)} weights")
    by_column = np.zeros(counts.shape[1])
    by_column[np.array(columns)] = weights
    return base * by_column
