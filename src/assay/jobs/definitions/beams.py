"""Beam search: several continuations of one text at once, of which the best are kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.ir.dims import Dim
from assay.ir.dtypes import Array
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.jobs.registry import JOB_OPS
from assay.ops.registry import op

_NEVER = np.float32(-1e9)
"""The score of what must not be chosen."""
_PART = 128
"""So many scores have one peak."""


def _shapes(log_odds: Fact, running: Fact, *others: Fact, **attrs: Any) -> list[Shape]:
    if running.shape is None or len(running.shape) != 2:
        raise ValueError(f"'running' is to be beams of tokens, got {running.type}")
    width, length = running.shape
    line: tuple[Dim, ...] = (width,)
    return [(width, length + 1), line, line, (width, length + 1), line, line, (), ()]


@op(
    "f32, i64, f32, i64, f32, bool, bool, i64, bool -> i64, i64, f32, i64, f32, bool, bool, bool",
    into=JOB_OPS,
    shape=_shapes,
    host=True,
)
def beams(
    log_odds: Array,
    running: Array,
    scores: Array,
    best: Array,
    best_scores: Array,
    done: Array,
    open_: Array,
    stops: Array,
    last: Array,
    *,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
) -> tuple[Array, ...]:
    """A step of beam search, as transformers defines it. Given are: log probabilities of the next token (beams,
    vocabulary; one row serves all beams), the tokens of each beam so far with their added log probabilities, the best
    texts that have ended (filled with −1) with their scores and whether each is there, whether better ones may come,
    the tokens that end a text, and whether this is the last step.

    Results are: the beams with one more token, which beam each came from, their log probabilities, the best texts that
    have ended with their scores and whether each is there, whether better ones may come, and whether to go on."""
    width, length = len(running), running.shape[1] + 1
    totals = (np.broadcast_to(log_odds, (width, log_odds.shape[-1])) + scores[:, None]).reshape(-1)
    chosen = _largest(totals, max(2, 1 + stops.size) * width)
    origins, tokens, totals = chosen // log_odds.shape[-1], chosen % log_odds.shape[-1], totals[chosen]
    texts = np.concatenate([running[origins], tokens[:, None]], 1)
    ended = np.isin(tokens, stops) | last
    going = totals + ended * _NEVER
    kept = _largest(going, width)
    closed = ended & (np.arange(len(chosen)) < width)
    shut = (early_stopping and done.all()) or not open_
    finals = totals / np.float32(length**length_penalty) + np.float32(shut) * _NEVER + ~closed * _NEVER
    longer = np.pad(best, ((0, 0), (0, 1)), constant_values=-1)
    all_texts, all_scores = np.concatenate([longer, texts]), np.concatenate([best_scores, finals])
    top = _largest(all_scores, width)
    best_scores, done = all_scores[top], np.concatenate([done, closed])[top]
    reachable = going[kept][0] / np.float32(length**length_penalty)
    improvable = bool(open_) and bool((reachable > np.where(done, best_scores.min(), _NEVER)).any())
    go = improvable and not (early_stopping and done.all()) and not ended.all()
    results = texts[kept], origins[kept], going[kept], all_texts[top], best_scores, done
    return *results, np.array(improvable), np.array(go)


def _largest(scores: Array, count: int) -> Array:
    """The places of the largest scores, largest first; of equal ones the first, and what is no number last.

    So many parts of the line have a score that is at least the least of their peaks: others need not be looked at."""
    peaks = np.maximum.reduceat(scores, np.arange(0, len(scores), _PART))
    few = len(peaks) <= count or np.isnan(peaks).any()
    places = np.arange(len(scores)) if few else np.flatnonzero(scores >= np.partition(peaks, -count)[-count])
    return places[np.argsort(-scores[places], kind="stable")[:count]]
