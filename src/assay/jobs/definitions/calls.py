"""Ops that call models, turn text into tokens and back, and tell of results on the way.

What they work with — models, tokenizers, streams — are inputs of the job: links, whose types name the very thing by a
hash. So references are functions of their arguments, here as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assay.errors import BadArgument
from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import Array, f32, i64, string
from assay.ir.facts import Fact
from assay.ir.parser import parse_type
from assay.ir.types import LinkType, TensorType, Type
from assay.jobs.models import JobModel, ModelState, reordered
from assay.jobs.registry import JOB_OPS, check_link
from assay.jobs.tokenizers import Tokenizer
from assay.ops.definitions.text import strings
from assay.ops.registry import Effect, op

STATE = LinkType("state")
TEXT, NUMBER = TensorType(string, ()), TensorType(i64, ())
TOKENS = TensorType(i64, (UNKNOWN,))


def _linked(*results: Type, **links: int) -> Callable[..., list[Type]]:
    """A rule for an op with these results, whose inputs at these places are links of these kinds."""

    def rule(*facts: Fact, **attrs: Any) -> list[Type]:
        for kind, place in links.items():
            check_link(facts[place], kind, kind)
        return list(results)

    return rule


# --- models


def _declared(model: Fact, *inputs: Fact, kinds: Sequence[str]) -> list[Type]:
    check_link(model, "model", "model")
    return [parse_type(kind) for kind in kinds]


@op("any, any* -> any", into=JOB_OPS, types=_declared, host=True)
def call(model: JobModel, *inputs: Any, kinds: Sequence[str]) -> tuple[Any, ...]:
    """The outputs of a model, of these types, for inputs in its order."""
    return model.call(*inputs)


@op("any, i64 -> any", into=JOB_OPS, types=_linked(STATE, TensorType(i64, (1, UNKNOWN)), model=0), host=True)
def recall(model: JobModel, tokens: Array) -> tuple[ModelState, Array]:
    """The state of a model that covers most of a text, from earlier runs, and the tokens that it has yet to see."""
    if not tokens.size:
        raise BadArgument("there is no token to begin with", hint="give a text that is not empty")
    state = model.recall(tokens.tolist())
    return state, tokens[None, len(state.tokens) :]


@op(
    "any, any, any* -> any",
    into=JOB_OPS,
    types=_linked(TensorType(f32, (UNKNOWN, UNKNOWN)), STATE, model=0, state=1),
    host=True,
)
def step(model: JobModel, state: ModelState, *inputs: Any) -> tuple[Array, ModelState]:
    """The scores of the next token (rows, vocabulary) and the new state, given tokens (rows, n) and whatever else the
    model takes."""
    return model.step(state, *inputs)


def _two_models(encoder: Fact, decoder: Fact, *inputs: Fact) -> list[Type]:
    check_link(encoder, "model", "encoder")
    check_link(decoder, "model", "decoder")
    return [STATE]


@op("any, any, any* -> any", into=JOB_OPS, types=_two_models, host=True)
def attend(encoder: JobModel, decoder: JobModel, *inputs: Any) -> ModelState:
    """The state of a decoder before its first token, with what an encoder makes of its inputs: outputs of the one go to
    the inputs of the other that have their names, and stay where the target left them."""
    return decoder.begin_with(encoder, *inputs)


@op("any, any -> any", into=JOB_OPS, types=_linked(model=0, state=1), host=True, effect=Effect.OBSERVABLE)
def remember(model: JobModel, state: ModelState) -> tuple[()]:
    """Keep a state for texts that begin in the same way."""
    if state.tokens:
        model.cache.put(state)
    return ()


@op("any, i64 -> any", into=JOB_OPS, types=_linked(STATE, state=0), host=True)
def reorder(state: ModelState, rows: Array) -> ModelState:
    """A state whose rows are these of the given one; if that has one row, it stands for all."""
    return reordered(state, rows)


# --- text


@op("any, string -> i64", into=JOB_OPS, types=_linked(TOKENS, tokenizer=0), host=True)
def encode(tokenizer: Tokenizer, text: Array, *, special: bool = True, longest: int = 0) -> Array:
    """The tokens of a text; with those that begin and end every text, if `special`. No more than `longest` of them,
    unless that is 0."""
    return np.array(tokenizer.encode(text.item(), special, longest), np.int64)


@op("any, string -> i64", into=JOB_OPS, types=_linked(TensorType(i64, (UNKNOWN, UNKNOWN)), tokenizer=0), host=True)
def encode_all(tokenizer: Tokenizer, texts: Array, *, longest: int = 0) -> Array:
    """The tokens of texts, one row for each; shorter ones are filled up with their last token."""
    rows = [tokenizer.encode(str(text), True, longest) for text in texts.tolist()]
    if not rows or not all(rows):
        raise BadArgument("there is no text, or one without tokens")
    most = max(map(len, rows))
    return np.array([row + row[-1:] * (most - len(row)) for row in rows], np.int64)


@op("any, i64 -> string", into=JOB_OPS, types=_linked(TEXT, tokenizer=0), host=True)
def decode(tokenizer: Tokenizer, tokens: Array) -> Array:
    """The text of tokens, special ones left out."""
    return strings([tokenizer.decode(tokens.tolist())], ())


@op("any, i64, i64, i64 -> string, i64, i64", into=JOB_OPS, types=_linked(TEXT, NUMBER, NUMBER, tokenizer=0), host=True)
def piece(
    tokenizer: Tokenizer, tokens: Array, before: Array, done: Array, *, last: bool = False
) -> tuple[Array, Array, Array]:
    """The text that tokens from `done` on add, and where the next piece begins. What is no whole character yet is held
    back, unless these are the last tokens."""
    found = tokenizer.piece(tokens.tolist(), int(before), int(done), last)
    return strings([found.text], ()), np.array(found.before, np.int64), np.array(found.done, np.int64)


@op("any, string, string -> string", into=JOB_OPS, types=_linked(TEXT, tokenizer=0), host=True)
def chat(tokenizer: Tokenizer, roles: Array, contents: Array, *, reply: bool = True) -> Array:
    """The text of a conversation by the model's template: who says what, in order. With `reply`, it ends with what
    begins the model's answer."""
    if tokenizer.template is None:
        raise BadArgument("the model has no chat template", hint="use `assay generate`")
    messages = [
        {"role": role, "content": content}
        for role, content in zip(roles.tolist(), contents.tolist(), strict=True)
    ]  # fmt: skip
    return strings([tokenizer.template.render(messages, reply)], ())


# --- streams


@op("any, any* -> any", into=JOB_OPS, types=_linked(stream=0), host=True, effect=Effect.OBSERVABLE)
def emit(stream: Callable[..., None], *values: Array) -> tuple[()]:
    """Hand values to whoever listens: a piece of text, or how far the job has come."""
    stream(*(value.item() if value.ndim == 0 else value for value in values))
    return ()
