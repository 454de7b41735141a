"""The transformers library: how its models are made from a configuration, and what they are called with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from assay.zoo.torch.model import Input, Model, Shape, ones

MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
"""The tokens of small variants that stand for no text."""


def library() -> Any:
    """The transformers library."""
    return importlib.import_module("transformers")


def model(name: str, family: str, constructor: str, **more: Any) -> Model:
    """A model of the library; `make` says how, where its class takes no configuration of plain settings."""
    make = more.pop("make", builder_of(constructor))
    return Model(name=name, library="transformers", family=family, constructor=constructor, make=make, **more)


def builder_of(constructor: str, **parts: str) -> Callable[[Mapping[str, Any]], Any]:
    """From settings to a model of a class. `parts` are settings that are configurations themselves, by their class."""

    def make(settings: Mapping[str, Any]) -> Any:
        found = library()
        inner = {key: getattr(found, kind)(**settings.get(key, {})) for key, kind in parts.items()}
        kind = getattr(found, constructor)
        with _without_initial_weights(found.PreTrainedModel):
            return kind(kind.config_class(**{**settings, **inner}))

    return make


@contextmanager
def _without_initial_weights(base: Any) -> Generator[None]:
    """Inside, models that are made do not draw the initial weights, which are written over anyway."""
    usual = base.initialize_weights
    base.initialize_weights = lambda self: None  # pyright: ignore[reportUnknownLambdaType]
    try:
        yield
    finally:
        base.initialize_weights = usual


def tokens(module: Any, shape: Shape, generator: torch.Generator) -> Tensor:
    """Tokens without the lowest three, which mark padding, starts and ends."""
    most = module.config.get_text_config(decoder=True).vocab_size
    return torch.randint(3, most, shape, generator=generator)


def text(length: int) -> dict[str, Input]:
    """Tokens and a mask, of this length in the full call."""
    return {
        "input_ids": Input(tokens, (1, length), lambda length: (2, length)),
        "attention_mask": Input(ones, (1, length), lambda length: (2, length)),
    }


def text_to_text(length: int, said: int) -> dict[str, Input]:
    """Tokens that are read, and those that are said already."""
    return {
        "input_ids": Input(tokens, (1, length), lambda length: (2, length)),
        "decoder_input_ids": Input(tokens, (1, said), lambda length: (2, length // 2)),
    }
