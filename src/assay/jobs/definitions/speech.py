"""Speech to text as Whisper does it: which token may follow, and what the tokens of a window say.

A text is tokens with times between them: every phrase begins and ends with one. `times` is the token of 0.00 s, of
which more follow, one for each 0.02 s; whatever lies below `end`, the token that ends a text, is text.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import Array, f32, f64, i64, string
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType, Type
from assay.jobs.registry import JOB_OPS, check_link
from assay.jobs.tokenizers import Tokenizer
from assay.ops.definitions.text import strings
from assay.ops.registry import op
from assay.ops.shapes import same

_STEP = 320
"""Samples between two times."""


def _ruled(scores: Fact, made: Fact, *others: Fact, **attrs: Any) -> list[Shape]:
    if scores.shape is not None and len(scores.shape) != 2:
        raise ValueError(f"scores are rows of a vocabulary, got {scores.type}")
    return same(scores)


@op("f32, i64, i64, i64 -> f32", into=JOB_OPS, shape=_ruled, host=True)
def speech_rules(
    scores: Array, made: Array, never: Array, not_first: Array, *, end: int, times: int, latest: int = 50
) -> Array:
    """Scores (rows, vocabulary) of the next token, where what must not follow the tokens that were made (rows, n; one
    row serves all) is −∞: `never` are no speech, `not_first` do not begin a text. Times come in pairs and never go
    back; the first token is one, `latest` steps at most. Where a time is more probable than any one text token, it is
    to be a time; the token before the first of them, which forbids times, is never chosen."""
    if not 0 <= end < times <= scores.shape[-1]:
        raise ValueError(f"of {scores.shape[-1]} tokens, {times} is no first time after the end {end}")
    result = scores.copy()
    result[:, never[never < scores.shape[-1]]] = -np.inf
    result[:, times - 1] = -np.inf
    if not made.shape[-1]:
        result[:, not_first] = -np.inf
        result[:, :times] = -np.inf
        result[:, times + latest + 1 :] = -np.inf
        return result
    for row, tokens in zip(result, np.broadcast_to(made, (len(result), made.shape[-1])), strict=True):
        _rule_times(row, tokens, end, times)
    return result


def _rule_times(row: Array, tokens: Array, end: int, times: int) -> None:
    after_time = tokens[-1] >= times
    in_pair = len(tokens) < 2 or tokens[-2] >= times
    if after_time:
        row[slice(times, None) if in_pair else slice(end)] = -np.inf
    earlier = tokens[tokens >= times]
    if earlier.size:
        row[times : earlier[-1] + (0 if after_time and not in_pair else 1)] = -np.inf
    highest = row[times:].max()
    if highest > -np.inf:
        together = highest + np.log(np.exp(row[times:] - highest).sum())
        if together > row[:times].max():
            row[:times] = -np.inf


def _one(*inputs: Fact, **attrs: Any) -> list[Shape]:
    return [()]


@op("string -> f32", into=JOB_OPS, shape=_one, host=True)
def compression(text: Array) -> Array:
    """How many times smaller a text is when it is packed (by zlib): what repeats itself packs well."""
    content = str(text.item()).encode()
    return np.array(len(content) / len(zlib.compress(content)), np.float32)


def _text_of_tokens(tokenizer: Fact, *inputs: Fact, **attrs: Any) -> list[Type]:
    check_link(tokenizer, "tokenizer", "tokenizer")
    return [TensorType(string, ())]


@op("any, i64 -> string", into=JOB_OPS, types=_text_of_tokens, host=True)
def spoken(tokenizer: Tokenizer, tokens: Array, *, end: int) -> Array:
    """The text of tokens, those from `end` on left out."""
    return strings([tokenizer.decode([each for each in tokens.tolist() if each < end]).strip()], ())


@op("string -> string", into=JOB_OPS, shape=_one, host=True)
def joined(texts: Array) -> Array:
    """Texts as one."""
    return strings(["".join(texts.tolist()).strip()], ())


def _tokens(*inputs: Fact, **attrs: Any) -> list[Shape]:
    return [(UNKNOWN,)]


@op("i64, i64 -> i64", into=JOB_OPS, shape=_tokens, host=True)
def continued(earlier: Array, tokens: Array, *, mark: int, most: int) -> Array:
    """Tokens behind the last `most` of earlier ones, which a mark begins; alone if there are none."""
    if not earlier.size or most < 1:
        return tokens
    return np.concatenate([[np.int64(mark)], earlier[-most:], tokens])


@op("f32, i64 -> i64", into=JOB_OPS, shape=_one, host=True)
def best_of(scores: Array, tokens: Array) -> Array:
    """Which of these tokens scores best in the first row."""
    if not tokens.size:
        raise ValueError("there is no token to choose from")
    return tokens[np.argmax(scores[0, tokens])]


def _phrases(tokenizer: Fact, *inputs: Fact, **attrs: Any) -> list[Type]:
    check_link(tokenizer, "tokenizer", "tokenizer")
    spans, texts = TensorType(f64, (UNKNOWN, 2)), TensorType(string, (UNKNOWN,))
    line, number = TensorType(i64, (UNKNOWN,)), TensorType(i64, ())
    return [spans, texts, line, line, TensorType(f32, (UNKNOWN, UNKNOWN)), number]


@op("any, i64, i64, i64, bool, f32 -> any", into=JOB_OPS, types=_phrases, host=True)
def phrases(
    tokenizer: Tokenizer,
    tokens: Array,
    start: Array,
    size: Array,
    silent: Array,
    figures: Array,
    *,
    end: int,
    times: int,
) -> tuple[Array, ...]:
    """What the tokens of a window of `size` samples from `start` on say: when each phrase begins and ends in seconds
    (n, 2), its text, all their tokens, how many each has, the figures of the window for each, and how many samples
    further the next window starts. What ends with one time goes on there; a `silent` window says nothing."""
    cuts, ahead = ([], int(size)) if silent else _cut(tokens, times, int(size))
    found = [
        (*cut, tokenizer.decode([each for each in tokens[cut[0] : cut[1]].tolist() if each < end])) for cut in cuts
    ]
    said = [each for each in found if each[4].strip() and each[3] > each[2]]
    spans = np.array([[int(start) + a, int(start) + b] for _, _, a, b, _ in said], np.float64).reshape(-1, 2) / (
        _STEP * 50
    )
    kept = [tokens[first:last] for first, last, *_ in said]
    counts = np.array([len(each) for each in kept], np.int64)
    flat = np.concatenate([*kept, np.zeros(0, np.int64)])
    rows = np.broadcast_to(figures, (len(said), figures.size)).astype(np.float32)
    return spans, strings([text for *_, text in said]), flat, counts, rows, np.array(ahead, np.int64)


def _cut(tokens: Array, times: int, size: int) -> tuple[list[tuple[int, int, int, int]], int]:
    """Phrases as their first token and the one after their last, and the samples at which they begin and end; and
    where the next window starts."""
    is_time = tokens >= times
    open_end = bool(len(tokens) > 1 and is_time[-1] and not is_time[-2])
    pairs = (np.flatnonzero(is_time[:-1] & is_time[1:]) + 1).tolist()

    def sample(at: int) -> int:
        return int(np.clip((tokens[at] - times) * _STEP, 0, size))

    if not pairs:
        stamps = np.flatnonzero(is_time)
        last = sample(int(stamps[-1])) if stamps.size else 0
        return [(0, len(tokens), 0, last or size)], size
    ends = [*pairs, len(tokens)] if open_end else pairs
    begins = [0, *ends[:-1]]
    found = [(first, last, sample(first), sample(last - 1)) for first, last in zip(begins, ends, strict=True)]
    ahead = size if open_end else sample(ends[-1] - 1)
    return found, ahead or size
