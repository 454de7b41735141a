"""The job of turning a text into a vector, such that texts that mean the same lie near each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.errors import BadArgument, hint_for
from assay.ir.dtypes import i64
from assay.ir.graph import Value
from assay.jobs.building import JobBuilder
from assay.jobs.definitions.calls import TEXT
from assay.jobs.job import JobGraph
from assay.jobs.tokenizers import read_table

POOLINGS = ("mean", "first")
"""What of the tokens' vectors becomes the text's: their mean, or that of the first."""


def embed_job(model: str, tokenizer: str, kinds: Sequence[str], *, pooling: str = "mean", longest: int = 0) -> JobGraph:
    """The job for an encoder and a tokenizer, by their hashes; `kinds` are the types of what the encoder gives, vectors
    of tokens (1, tokens, width) first. It takes `text`, of which `longest` tokens count (0: all), and gives `vector`,
    of length 1, and `tokens`."""
    if pooling not in POOLINGS:
        raise BadArgument(f"there is no pooling '{pooling}'", hint=hint_for(pooling, POOLINGS))
    b = JobBuilder("embed", {})
    encoder, reader = b.link("encoder", "model", model), b.link("tokenizer", "tokenizer", tokenizer)
    tokens = b.op("encode", reader, b.taken("text", TEXT), longest=longest)[0]
    row = b.unsqueeze(b.named("tokens", tokens), axes=(0,))
    nothing = b.mul(row, 0)
    hidden = b.op("call", encoder, row, b.add(nothing, 1), nothing, kinds=tuple(kinds))[0]
    vector = b.named("pooled", _pooled(b, b.gather(hidden, b.constant(0, i64), axis=0), pooling))
    length = b.sqrt(b.reduce_sum(b.mul(vector, vector), axes=(0,), keepdims=True))
    return b.job({"vector": b.div(vector, b.max(length, 1e-12)), "tokens": tokens})


def _pooled(b: JobBuilder, vectors: Value, pooling: str) -> Value:
    if pooling == "first":
        return b.gather(vectors, b.constant(0, i64), axis=0)
    return b.reduce_mean(vectors, axes=(0,), keepdims=False)


# --- what sentence-transformers writes beside a model


def pooling_of(folder: Path) -> str:
    """How vectors of tokens become one: as the folder says, else their mean. BadArgument if it says another way."""
    told = read_table(folder / "1_Pooling" / "config.json")
    chosen = [name.removeprefix("pooling_mode_") for name, value in told.items() if value is True and "mode_" in name]
    ways = {"mean_tokens": "mean", "cls_token": "first"}
    if any(way not in ways for way in chosen) or len(chosen) > 1:
        raise BadArgument(f"the model pools by {', '.join(chosen)}", hint="known are one of mean_tokens and cls_token")
    return ways[chosen[0]] if chosen else "mean"


def pooling_told(facts: Mapping[str, Any]) -> str:
    """The same by the facts of a GGUF file; empty if they say nothing of it."""
    told = facts.get("bert.pooling_type")
    ways = {1: "mean", 2: "first"}
    if told and told not in ways:
        raise BadArgument(f"the model pools in the way {told}", hint="known are 1, the mean, and 2, the first token")
    return ways[told] if told else ""


def longest_of(folder: Path) -> int:
    """The most tokens of a text that count, as the folder says."""
    told = read_table(folder / "sentence_bert_config.json").get("max_seq_length")
    return told if type(told) is int and told > 1 else 1 << 30
