"""Small random models of Hugging Face's library, saved as it saves them, and their graphs as loops run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from assay.ir.dims import Expr, symbol_name
from assay.ir.dtypes import Array
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.runtime.session import Session, SessionOptions

VOCABULARY = 97
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED: dict[str, Any] = {**SMALL, "num_key_value_heads": 2}


def randomized(model: Any, seed: int = 0) -> Any:
    """The model with weights that are far from where training starts, so that every part of it counts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim > 1:
                weight.copy_(noise / weight[0].numel() ** 0.5)
            else:
                weight.add_(noise, alpha=0.2)
    return model.eval()


def saved(folder: Path, config: Any, kind: Any = transformers.AutoModelForCausalLM, **options: Any) -> Any:
    """A model with random weights, saved to a folder."""
    model = randomized(kind.from_config(deepcopy(config), attn_implementation="eager"))
    model.save_pretrained(folder, **options)
    return model


class Stepper:
    """A decoder's graph, called as a loop does: each call gets the states that the one before left."""

    def __init__(self, graph: Graph, target: str = "cpu", **fixed: Array) -> None:
        """`fixed` are inputs that are the same in every call."""
        self.session = Session(graph, SessionOptions(target=target))
        self.kinds = {
            name: value.type for name, value in zip(graph.input_names, graph.inputs, strict=True) if name != "tokens"
        }
        self.fixed = fixed
        self.states: dict[str, Array] = {}

    def start(self, rows: int) -> None:
        """Forget all that came before."""
        states = {name: kind for name, kind in self.kinds.items() if name not in self.fixed}
        self.states = {name: _zeros(kind, {"batch": rows, "past": 0}) for name, kind in states.items()}

    def __call__(self, tokens: Array) -> Array:
        if not self.states:
            self.start(len(tokens))
        found = self.session.run({"tokens": tokens, **self.states, **self.fixed})
        self.states = {name: found[name] for name in self.states}
        return found["logits"]


def _zeros(kind: Any, sizes: Mapping[str, int]) -> Array:
    assert isinstance(kind, TensorType)
    assert kind.shape is not None
    dims = [sizes[symbol_name(dim) or ""] if isinstance(dim, Expr) else dim for dim in kind.shape]
    return np.zeros(dims, kind.dtype.numpy)


def prompt(rows: int, length: int, seed: int = 1) -> Array:
    """Random tokens."""
    return np.random.default_rng(seed).integers(3, VOCABULARY, (rows, length))


class TheirStepper:
    """The library's model, called in the same way."""

    def __init__(self, model: Any, **fixed: Any) -> None:
        self.model, self.fixed = model, fixed
        self.past: Any = None

    def __call__(self, tokens: Array) -> Array:
        with torch.no_grad():
            found = self.model(
                **{self._name: torch.from_numpy(tokens)}, past_key_values=self.past, use_cache=True, **self.fixed
            )
        self.past = found.past_key_values
        return found.logits.numpy()

    @property
    def _name(self) -> str:
        return "decoder_input_ids" if self.model.config.is_encoder_decoder else "input_ids"


def assert_near(found: Array, expected: Array, bound: float = 1e-5) -> None:
    """The largest difference is small beside the largest value."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error <= bound, f"the largest error is {error:.2e} of the largest value"


def assert_same_steps(ours: Callable[[Array], Array], theirs: Callable[[Array], Array], tokens: Array) -> None:
    """The logits of a prompt, of a second part of it, and of steps of one token are the same."""
    for start, stop in [(0, 7), (7, 10), *((at, at + 1) for at in range(10, 16))]:
        part = np.ascontiguousarray(tokens[:, start:stop])
        assert_near(ours(part), theirs(part))


def greedy(step: Callable[[Array], Array], tokens: Array, steps: int) -> list[list[int]]:
    """The tokens that follow, each the likeliest."""
    found: list[list[int]] = []
    for _ in range(steps):
        tokens = step(tokens)[:, -1].argmax(-1)[:, None]
        found.append(tokens[:, 0].tolist())
    return found
