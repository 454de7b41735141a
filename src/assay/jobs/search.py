"""The job of writing on by beam search: several continuations at once, of which the best one is the result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.ir.dtypes import i64
from assay.ir.graph import Value
from assay.jobs.building import JobBuilder
from assay.jobs.definitions.calls import TEXT, TOKENS
from assay.jobs.job import JobGraph


def search_job(
    model: str,
    tokenizer: str,
    width: int,
    *,
    most: int = 256,
    repetition_penalty: float = 1.0,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
) -> JobGraph:
    """The job for a model and a tokenizer, by their hashes, with so many beams.

    It takes `prompt`, a text, and the tokens that end a text; it gives `text`, `tokens`, their `score` and
    `prompt_tokens`. The number of tokens goes to the stream `progress`. With `early_stopping` it ends as soon as that
    many texts have ended."""
    settings = {"most": np.array(most, np.int64), "repetition_penalty": np.array(repetition_penalty, np.float32)}
    b = JobBuilder("search", settings)
    decoder, reader = b.link("decoder", "model", model), b.link("tokenizer", "tokenizer", tokenizer)
    b.link("progress", "stream")
    prompt = b.named("prompt_tokens", b.op("encode", reader, b.taken("prompt", TEXT))[0])
    b.taken("stop_tokens", TOKENS)
    state, pending = b.op("recall", decoder, prompt)
    nothing, never = np.zeros((width, 0), np.int64), np.full(width, -1e9, np.float32)
    first = np.where(np.arange(width) == 0, np.float32(0), never)
    beams = [nothing, first, nothing, never, np.zeros(width, np.bool_), np.array(True)]
    rows = b.add(b.constant(np.zeros((width, 1), np.int64)), b.unsqueeze(prompt, axes=(0,)))
    attrs = {"length_penalty": length_penalty, "early_stopping": early_stopping}

    each = b.constant(np.zeros((width, 1), np.float32))

    def step(inside: JobBuilder, count: Value, carried: Sequence[Value]) -> list[Value]:
        return _round(inside, rows, each, count, carried, attrs)

    ends = b.repeated(b.values["most"], [pending, state, *(b.constant(each) for each in beams)], step)
    best, scores = ends[4], ends[5]
    line = b.gather(best, b.constant(0, i64), axis=0)
    length = b.reduce_sum(b.cast(b.ge(line, 0), dtype=i64), axes=(0,), keepdims=True)
    tokens = b.slice(line, [0], length, [1], axes=(0,))
    text = b.op("decode", reader, tokens)[0]
    score = b.gather(scores, b.constant(0, i64), axis=0)
    return b.job({"text": text, "tokens": tokens, "score": score, "prompt_tokens": prompt})


def _round(
    b: JobBuilder, prompt: Value, each: Value, count: Value, carried: Sequence[Value], attrs: dict[str, float | bool]
) -> list[Value]:
    """One token more for each beam: whether to go on, then what is carried. In the first round the model has one row,
    which serves all beams; `each` are zeros, one for each beam."""
    pending, state, running, *others = carried
    logits, state = b.op("step", b.values["decoder"], state, pending)
    log_odds = b.op("all_log_odds", b.add(b.named("logits", logits), each))[0]
    seen = b.concat(prompt, running, axis=1)
    log_odds = b.op("repetition_penalty", log_odds, seen, b.values["repetition_penalty"])[0]
    last = b.ge(b.add(count, 1), b.values["most"])
    found = b.op("beams", log_odds, running, *others, b.values["stop_tokens"], last, **attrs)
    running, origins, *others, go = found
    b.op("emit", b.values["progress"], b.add(count, 1))
    state = b.op("reorder", state, b.named("origins", origins))[0]
    newest = b.unsqueeze(b.gather(b.named("running", running), b.constant(-1, i64), axis=1), axes=(1,))
    return [go, newest, state, running, *others]
