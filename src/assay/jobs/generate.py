"""The job of writing on: a text is continued token by token, until something ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import Array, boolean, f32, i64, string
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.jobs.building import JobBuilder
from assay.jobs.definitions.calls import TEXT, TOKENS
from assay.jobs.job import JobGraph
from assay.ops.definitions.text import strings

_LINES = TensorType(string, (UNKNOWN,))


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the settings of a job, by their names. Without temperature it is the best one.

    The penalty of repetition is for all tokens that there are, the other two for those that were made."""

    most: int = 256
    """The most tokens that are made."""
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0

    def arrays(self) -> dict[str, Array]:
        """The settings as a job has them."""
        kinds = {float: f32.numpy, int: i64.numpy}
        return {name: np.array(value, kinds[type(value)]) for name, value in vars(self).items()}


def generate_job(model: str, tokenizer: str, sampling: Sampling | None = None, *, chat: bool = False) -> JobGraph:
    """The job for a model and a tokenizer, by their hashes.

    It takes `prompt`, a text, or with `chat` the `roles` and `contents` of a conversation, and the tokens and texts
    that end its answer. It gives `text`, `tokens` and `prompt_tokens`. Pieces of the text go to the stream `pieces` as
    they are made, the number of tokens to `progress`."""
    b = JobBuilder("chat" if chat else "generate", (sampling or Sampling()).arrays())
    decoder, reader = b.link("decoder", "model", model), b.link("tokenizer", "tokenizer", tokenizer)
    pieces = b.link("pieces", "stream")
    b.link("progress", "stream")
    prompt = _conversation(b, reader) if chat else b.op("encode", reader, b.taken("prompt", TEXT))[0]
    b.taken("stop_tokens", TOKENS)
    b.taken("stop_texts", _LINES)
    state, pending = b.op("recall", decoder, b.named("prompt_tokens", prompt))
    length, zero, empty = b.shape_of(prompt), b.constant(0, i64), b.constant(strings([""], ()))
    first = [prompt, pending, state, length, zero, zero, empty, empty, b.constant(False, boolean)]
    ends = b.repeated(b.values["most"], first, lambda inside, count, given: _round(inside, length, count, given))
    tokens, _, state, shown, before, done, held, text, ended = ends
    b.op("remember", decoder, state)
    last, _, _ = b.op("piece", reader, _between(b, tokens, length, shown), before, done, last=True)
    rest = b.op("rest", held, last, ended)[0]
    b.op("emit", pieces, rest)
    made = _between(b, tokens, length, b.shape_of(tokens))
    return b.job({"text": b.string_concat(text, rest), "tokens": made, "prompt_tokens": prompt})


def _conversation(b: JobBuilder, reader: Value) -> Value:
    roles, contents = b.taken("roles", _LINES), b.taken("contents", _LINES)
    text = b.named("conversation", b.op("chat", reader, roles, contents)[0])
    return b.op("encode", reader, text, special=False)[0]


def _round(b: JobBuilder, length: Value, count: Value, carried: Sequence[Value]) -> list[Value]:
    """One token more: whether to go on, then what is carried. `pending` are the tokens that the model has not seen: the
    prompt in the first round, then the token of the round before. `shown` is where tokens that are text end."""
    tokens, pending, state, _, before, done, held, text, _ = carried
    logits, state = b.op("step", b.values["decoder"], state, pending)
    token = _chosen(b, b.named("logits", logits), tokens, length, count)
    tokens = b.concat(tokens, token, axis=0)
    stopped = b.op("ends", token, b.values["stop_tokens"])[0]
    shown = b.sub(b.shape_of(tokens), b.cast(stopped, dtype=i64))
    made = _between(b, tokens, length, shown)
    piece, before, done = b.op("piece", b.values["tokenizer"], made, before, done)
    out, held, ended = b.op("until", held, piece, b.values["stop_texts"])
    b.op("emit", b.values["pieces"], b.named("piece", out))
    b.op("emit", b.values["progress"], b.add(count, 1))
    go, text = b.bit_not(b.bit_or(stopped, ended)), b.string_concat(text, out)
    return [go, tokens, b.unsqueeze(token, axes=(0,)), state, shown, before, done, held, text, ended]


def _chosen(b: JobBuilder, logits: Value, tokens: Value, length: Value, count: Value) -> Value:
    """The next token: penalties, temperature, what is kept, and the draw."""
    own = b.unsqueeze(_between(b, tokens, length, b.shape_of(tokens)), axes=(0,))
    given = b.values
    scores = b.op("repetition_penalty", logits, b.unsqueeze(tokens, axes=(0,)), given["repetition_penalty"])[0]
    scores = b.op("presence_penalty", scores, own, given["presence_penalty"], given["frequency_penalty"])[0]
    scores = b.op("temper", scores, given["temperature"])[0]
    for name in ("top_k", "top_p", "min_p"):
        scores = b.op(name, scores, given[name])[0]
    return b.named("token", b.op("draw", b.named("scores", scores), given["seed"], count)[0])


def _between(b: JobBuilder, tokens: Value, start: Value, end: Value) -> Value:
    return b.slice(tokens, start, end, [1], axes=(0,))
