"""When a text ends: at a token, or at a stretch of text that may come in pieces."""

from __future__ import annotations

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.jobs.registry import JOB_OPS
from assay.ops.registry import op


def _one(*inputs: Fact) -> list[Shape]:
    return [()]


@op("i64, i64 -> bool", into=JOB_OPS, shape=_one, host=True)
def ends(tokens: Array, stops: Array) -> Array:
    """Whether every token is one of those that end a text."""
    return np.array(np.isin(tokens, stops).all())


def _three(held: Fact, piece: Fact, stops: Fact) -> list[Shape]:
    return [(), (), ()]


@op("string, string, string -> string, string, bool", into=JOB_OPS, shape=_three, host=True)
def until(held: Array, piece: Array, stops: Array) -> tuple[Array, Array, Array]:
    """What of `held` and `piece` can be given out, what is held back, and whether the text has ended.

    It ends before the first of the stops that is in it; nothing is held then. Held back is the longest end that may
    yet become a stop."""
    text, ways = held.item() + piece.item(), [each for each in stops.tolist() if each]
    at = min((place for place in map(text.find, ways) if place >= 0), default=-1)
    if at >= 0:
        return _text(text[:at]), _text(""), np.array(True)
    kept = max((_overlap(text, each) for each in ways), default=0)
    return _text(text[: len(text) - kept]), _text(text[len(text) - kept :]), np.array(False)


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of the text with which the stop begins."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)


def _text(content: str) -> Array:
    return np.array(content, object)


@op("string, string, bool -> string", into=JOB_OPS, shape=_one, host=True)
def rest(held: Array, piece: Array, ended: Array) -> Array:
    """What is still to be given out when no more tokens come: nothing of a text that has ended."""
    return _text("" if ended else held.item() + piece.item())
