"""Tokens from Hugging Face's models, one after the other, with a cache that stays where the model runs.

Programs have fixed sizes: some take a prompt of up to so many tokens (a *bucket*), one takes a single token. All share
one cache, buffers (1, heads, length, width) that each program writes to in place. A model with an encoder has a program
more, which gives the keys and values that every layer of the decoder looks up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache, StaticLayer
from transformers.modeling_outputs import BaseModelOutput

from assay.errors import BadArgument
from assay.frontends.torch.exported import import_program
from assay.frontends.torch.types import to_tensor
from assay.ir.dtypes import Array
from assay.runtime.options import SessionOptions
from assay.runtime.session import Memory, Session
from assay.runtime.state import KeptState

SMALLEST_BUCKET = 32
"""Prompts of fewer tokens, other than one, are filled up to so many."""


def bucket(count: int) -> int:
    """The next power of two, from the smallest bucket on."""
    return max(SMALLEST_BUCKET, 1 << (count - 1).bit_length())


@dataclass(frozen=True)
class Heard:
    """What an encoder found, where it was found: keys and values of layer after layer, and the mask of what the encoder
    was given, if that has one."""

    keys_values: tuple[Any, ...]
    mask: Array | None = None

    def arguments(self) -> dict[str, Any]:
        """How a step is given it."""
        return {"heard": list(self.keys_values), **({} if self.mask is None else {"mask": self.mask})}


class Generator:
    """A model of Hugging Face's that generates text, one with an encoder or one without.

    The cache has room for `length` tokens, those of the prompt included. Weights are read where they are: change none
    while this is used.
    """

    def __init__(self, model: Any, length: int, options: SessionOptions | None = None) -> None:
        self._model, self._length, self._options = model.eval(), length, options
        self._encodings: dict[Any, Session] = {}
        self._steps: dict[Any, Session] = {}
        self._state: KeptState | None = None

    @property
    def sessions(self) -> list[Session]:
        """The programs that there are so far: the encoder's, then those of steps, in the order in which they came."""
        return [*self._encodings.values(), *self._steps.values()]

    @property
    def state(self) -> KeptState | None:
        """The cache; None before the first step."""
        return self._state

    def generate(
        self,
        prompt: Sequence[int],
        most: int,
        end: int | None = None,
        heard: Heard | None = None,
        choose: Callable[[Array], int] = lambda scores: int(scores.argmax()),
    ) -> list[int]:
        """The tokens that follow a prompt: `most` of them, or up to the token `end`. `choose` picks one by the scores
        of all, by default the likeliest."""
        if not prompt:
            raise BadArgument("a prompt has at least one token", hint="begin with the model's first token")
        tokens: list[int] = []
        scores = self.step(prompt, 0, heard)
        for place in range(len(prompt), len(prompt) + most):
            tokens.append(choose(scores))
            if tokens[-1] == end or len(tokens) == most:
                break
            scores = self.step(tokens[-1:], place, heard)
        return tokens

    def encode(self, inputs: Mapping[str, Array]) -> Heard:
        """What the model's encoder makes of its inputs. Tokens are filled up to a bucket, which their mask tells."""
        given = _filled(inputs)
        key = tuple((name, array.shape) for name, array in given.items())
        if key not in self._encodings:
            example = {name: to_tensor(array) for name, array in given.items()}
            self._encodings[key] = self._compiled(Encoding(self._model), {"inputs": example})
        session = self._encodings[key]
        found = session.run(session.signature.feeds(inputs=given), keep=session.output_names)
        return Heard(tuple(found.values()), given.get("attention_mask"))

    def step(self, tokens: Sequence[int], start: int, heard: Heard | None = None) -> Array:
        """The scores of what follows these tokens, the first of which has the place `start`; the cache holds them from
        now on. What a bucket has beyond them is written to the cache too, and written over before anybody reads it."""
        count = len(tokens)
        if start + count > self._length:
            raise BadArgument(f"{start + count} tokens do not fit a cache for {self._length}")
        size = 1 if count == 1 else min(bucket(count), self._length - start)
        session = self._stepping(size, heard)
        session.state = self._state = self._state or session.state
        filled = np.zeros((1, size), np.int64)
        filled[0, :count] = tokens
        more = {} if heard is None else heard.arguments()
        feeds = session.signature.feeds(tokens=filled, start=np.array(start), last=np.array([count - 1]), **more)
        (scores,) = session.run(feeds).values()
        return scores[0, 0]

    def _stepping(self, size: int, heard: Heard | None) -> Session:
        """The program that takes so many tokens."""
        more = {} if heard is None else heard.arguments()
        found = more.get("heard", [])
        key = (size, *(each.shape for each in found))
        if key not in self._steps:
            places = {"start": torch.tensor(0), "last": torch.tensor([0])}
            example = {"tokens": torch.zeros((1, size), dtype=torch.int64), **places}
            like = {name: _example(each) for name, each in more.items()}
            self._steps[key] = self._compiled(Stepping(self._model, self._length), {**example, **like})
        return self._steps[key]

    def _compiled(self, module: nn.Module, inputs: Mapping[str, Any]) -> Session:
        with torch.no_grad():
            exported = torch.export.export(module.eval(), (), dict(inputs), strict=False)
        found = import_program(exported, shared=True)
        memory = Memory(found.state, found.renewals)
        return Session(found.graph, self._options, facts=found.facts, memory=memory, signature=found.signature)


def _filled(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of an encoder with tokens filled up to a bucket; others are as they are."""
    given = dict(inputs)
    if "input_ids" in given:
        tokens = given["input_ids"]
        given.setdefault("attention_mask", np.ones_like(tokens))
        more = ((0, 0), (0, bucket(tokens.shape[1]) - tokens.shape[1]))
        given |= {name: np.pad(given[name], more) for name in ("input_ids", "attention_mask")}
    return given


def _example(given: Any) -> Any:
    """Tensors like those that are given, without their content."""
    if isinstance(given, list):
        return [_example(each) for each in given]  # pyright: ignore[reportUnknownVariableType]
    return to_tensor(cast(Any, np.zeros(given.shape, given.dtype)))


# --- what is exported


class Encoding(nn.Module):
    """The encoder, and the keys and values that each layer of the decoder makes of what it gives."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Keys and values of layer after layer. The decoder takes a token for it, whose scores nobody wants."""
        hidden = self.model.get_encoder()(**inputs).last_hidden_state
        found = _first_token(self.model, hidden).cross_attention_cache
        return [each for layer in found.layers for each in (layer.keys, layer.values)]


class Stepping(nn.Module):
    """The model with a cache of keys and values as its buffers."""

    def __init__(self, model: Any, length: int) -> None:
        super().__init__()
        self.model, self.length = model, length
        found = _cached_by(model)
        self.layers = len(found)
        for at, layer in enumerate(found):
            for name, like in (("keys", layer.keys), ("values", layer.values)):
                empty = torch.zeros((1, like.shape[1], length, like.shape[3]), dtype=like.dtype)
                self.register_buffer(f"{name}_{at}", empty, persistent=False)

    def forward(
        self, tokens: Tensor, start: Tensor, last: Tensor, heard: Sequence[Tensor] = (), mask: Tensor | None = None
    ) -> Tensor:
        """The scores (1, 1, vocabulary) of what follows the token at `last`; the first one's place is `start`."""
        cache = Cache(layers=[self._layer(at, start) for at in range(self.layers)])
        if not heard:
            return self.model(input_ids=tokens, past_key_values=cache, use_cache=True).logits.index_select(1, last)
        pairs = zip(heard[::2], heard[1::2], strict=True)
        hidden = torch.zeros((1, heard[0].shape[2], 1), dtype=heard[0].dtype)  # none looks at what it holds
        found = self.model(
            decoder_input_ids=tokens,
            encoder_outputs=BaseModelOutput(last_hidden_state=cast(Any, hidden)),
            attention_mask=mask,
            past_key_values=EncoderDecoderCache(cache, Cache(layers=[_found(*pair) for pair in pairs])),
            use_cache=True,
        )
        return found.logits.index_select(1, last)

    def _layer(self, at: int, start: Tensor) -> StaticLayer:
        """A layer's part of the cache, into which so many tokens have been written."""
        keys, values = getattr(self, f"keys_{at}"), getattr(self, f"values_{at}")
        layer = StaticLayer(self.length)
        layer.keys, layer.values, layer.cumulative_length = keys, values, start.clone()
        layer.dtype, layer.device, layer.is_initialized = keys.dtype, keys.device, True
        return layer


def _found(keys: Tensor, values: Tensor) -> DynamicLayer:
    layer = DynamicLayer()
    layer.keys, layer.values = keys, values
    layer.dtype, layer.device, layer.is_initialized = keys.dtype, keys.device, True
    return layer


def _first_token(model: Any, hidden: Tensor) -> Any:
    """The cache of a decoder that was given one token and what an encoder found."""
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    token = torch.zeros((1, 1), dtype=torch.int64)
    given = BaseModelOutput(last_hidden_state=cast(Any, hidden))
    model(decoder_input_ids=token, encoder_outputs=given, past_key_values=cache, use_cache=True)
    return cache


def _cached_by(model: Any) -> Sequence[Any]:
    """What the layers of a decoder keep of one token, which tells their heads."""
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            hidden = torch.zeros((1, 1, model.config.hidden_size), dtype=model.dtype)
            return _first_token(model, hidden).self_attention_cache.layers
        cache = DynamicCache()
        model(input_ids=torch.zeros((1, 1), dtype=torch.int64), past_key_values=cache, use_cache=True)
        return cache.layers
