"""The choice of the next token. Every op takes scores (…, vocabulary) and gives scores; what is ruled out gets −∞.

Each has a neutral setting that leaves scores as they are, so one chain of them serves all ways of sampling: penalties,
temperature, then what is kept, then the draw. With temperature 0 the chain picks the best token (greedy).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.ir.dtypes import Array, f32, f64
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.jobs.registry import JOB_OPS
from assay.ops.registry import op
from assay.ops.shapes import same

SCORES = (f32, f64)


@op("T, i64, f32 -> T", into=JOB_OPS, T=SCORES, shape=same, host=True)
def repetition_penalty(scores: Array, tokens: Array, penalty: Array) -> Array:
    """Scores of the tokens (…, n) that there are already are divided by the penalty where they are positive, else
    multiplied by it; 1 changes nothing."""
    if penalty == 1 or not tokens.size:
        return scores
    found = np.take_along_axis(scores, tokens, -1)
    result = scores.copy()
    np.put_along_axis(result, tokens, np.where(found < 0, found * penalty, found / penalty), -1)
    return result


@op("T, i64, f32, f32 -> T", into=JOB_OPS, T=SCORES, shape=same, host=True)
def presence_penalty(scores: Array, tokens: Array, presence: Array, frequency: Array) -> Array:
    """Scores of the tokens (…, n) that there are already, less `presence`, and less `frequency` for each time that they
    occur; 0 and 0 change nothing."""
    if not (presence or frequency) or not tokens.size:
        return scores
    rows = tokens.reshape(-1, tokens.shape[-1])
    counts = np.stack([np.bincount(row, minlength=scores.shape[-1]) for row in rows]).reshape(scores.shape)
    return scores - presence * (counts > 0) - frequency * counts


@op("T, f32 -> T", into=JOB_OPS, T=SCORES, shape=same, host=True)
def temper(scores: Array, temperature: Array) -> Array:
    """Scores divided by the temperature; 1 changes nothing, at 0 the first of the best tokens is all that is left."""
    if temperature > 0:
        return scores / temperature
    best = np.argmax(scores, -1, keepdims=True)
    result = np.full_like(scores, -np.inf)
    np.put_along_axis(result, best, np.take_along_axis(scores, best, -1), -1)
    return result


@op("T, i64 -> T", into=JOB_OPS, T=SCORES, shape=same, host=True)
def top_k(scores: Array, k: Array) -> Array:
    """Keeps the k best tokens, and those that score the same as the last of them; 0 keeps all."""
    count = int(k)
    if not 0 < count < scores.shape[-1]:
        return scores
    least = np.partition(scores, -count, -1)[..., -count, None]
    return np.where(scores < least, -np.inf, scores)


@op("T, f32 -> T", into=JOB_OPS, T=SCORES, shape=same, host=True)
def top_p(scores: Array, p: Array) -> Array:
    """Keeps the fewest tokens, best first, whose probabilities add up to p or more; at least one, and 1 keeps all."""
    if p >= 1:
        return scores
    result = scores.copy()
    for row in result.reshape(-1, result.shape[-1]):
        kept = _kept(row)
        order = kept[np.argsort(row[kept], kind="stable")]
        dropped = np.cumsum(_probabilities(row[order])) <= 1 - p.astype(np.float64)
        row[order[:-1][dropped[:-1]]] = -np.inf
    return result


@op("T, f32 -> T", into=JOB_OPS, T=SCORES, shape=same, host=True)
def min_p(scores: Array, p: Array) -> Array:
    """Keeps tokens at least p times as probable as the best one; 0 keeps all."""
    if p <= 0:
        return scores
    result = scores.copy()
    for row in result.reshape(-1, result.shape[-1]):
        kept = _kept(row)
        odds = _probabilities(row[kept])
        row[kept[(odds < p * odds.max()) & (odds < odds.max())]] = -np.inf
    return result


def _row(scores: Fact, *others: Fact, **attrs: Any) -> list[Shape]:
    return [None if scores.shape is None else scores.shape[:-1]]


@op("T, i64, i64 -> i64", into=JOB_OPS, T=SCORES, shape=_row, host=True)
def draw(scores: Array, seed: Array, position: Array) -> Array:
    """One token of each row, by the probabilities that softmax makes of scores. What is drawn depends on the seed, the
    position and the scores alone: the position counts draws, and no draw depends on those before it."""
    rows = scores.reshape(-1, scores.shape[-1])
    kept = [_kept(row) for row in rows]
    alone = all(len(each) == 1 for each in kept)  # whatever is drawn, it is this one
    points = [0.0] * len(rows) if alone else _points(int(seed), int(position), len(rows))
    drawn = [_drawn(*each) for each in zip(rows, kept, points, strict=True)]
    return np.array(drawn, np.int64).reshape(scores.shape[:-1])


def _points(seed: int, position: int, count: int) -> list[float]:
    """Numbers between 0 and 1, one for each row."""
    stream = np.random.Generator(np.random.Philox(key=seed & (2**64 - 1), counter=position))
    return stream.random(count).tolist()


def _drawn(row: Array, kept: Array, point: float) -> int:
    """The token at a point between 0 and 1 of the line on which each token that is kept has the length of its
    probability."""
    line = np.cumsum(_probabilities(row[kept]))
    return int(kept[np.searchsorted(line, point * line[-1], side="right")])


def _kept(row: Array) -> Array:
    """The tokens that are not ruled out; ValueError if there is none."""
    found = np.flatnonzero(row > -np.inf)
    if not found.size:
        raise ValueError("no token is left: all scores are −∞ or no numbers")
    return found


def _probabilities(scores: Array) -> Array:
    """What softmax makes of scores, in f64."""
    found = np.exp(scores.astype(np.float64) - scores.max())
    return found / found.sum()


# --- how probable tokens are


def _rows(scores: Fact, tokens: Fact) -> list[Shape]:
    return [tokens.shape]


@op("f32, i64 -> f32", into=JOB_OPS, shape=_rows, host=True)
def log_odds(scores: Array, tokens: Array) -> Array:
    """The logarithm of the probability that softmax gives one token of each row."""
    return np.take_along_axis(scores, tokens[:, None], -1)[:, 0] - _whole(scores)[:, 0]


@op("f32 -> f32", into=JOB_OPS, shape=same, host=True)
def all_log_odds(scores: Array) -> Array:
    """The logarithms of the probabilities that softmax gives the tokens of each row."""
    return scores - _whole(scores)


def _whole(scores: Array) -> Array:
    """What is to be taken from scores for their exponentials to add up to 1."""
    highest = scores.max(-1, keepdims=True)
    return highest + np.log(np.exp(scores - highest).sum(-1, keepdims=True))
