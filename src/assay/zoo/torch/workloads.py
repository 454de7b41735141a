"""Models at the sizes at which their speed is compared, each with the inputs of one call."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from assay.frontends.torch.private.ops import pytree
from assay.zoo.torch import MODELS
from assay.zoo.torch.decoding import LlamaSizes, LlamaStep, WhisperStep
from assay.zoo.torch.model import Model, fill
from assay.zoo.torch.transformers import library
from assay.zoo.whisper_model import Decoder, Encoder, KeysValues, WhisperSizes

_TINY = WhisperSizes(80, 51865, 1500, 384, 6, 4, 448, 384, 6, 4)
_SAID = 32
"""Tokens before the step of Whisper."""
_CACHED = 128
"""Tokens before the step of Llama."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A model at one size: how its module is made, and the keyword inputs of one call, which may nest tensors."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[Any, Generator], dict[str, Any]]
    unscaled: str = "no such weight"

    def build(self, seed: int = 0) -> Any:
        """The module in eval mode, with weights that depend on the seed alone."""
        module = self.make().eval().requires_grad_(False)
        fill(module, seed, self.unscaled)
        return module

    def example(self, module: Any, seed: int = 0) -> dict[str, Any]:
        """The inputs of one call; equal seeds give equal inputs."""
        return self.inputs(module, torch.Generator().manual_seed(seed))


class Plain(nn.Module):
    """A module that returns a tuple of the tensors in what another returns: no class of a library is in its results."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """As the other, flattened."""
        leaves = pytree.tree_leaves(self.inner(*args, **kwargs))
        return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))


class Digits(nn.Module):
    """The convolutional network of PyTorch's MNIST example."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10), nn.LogSoftmax(1)),
        )

    def forward(self, image: Tensor) -> Tensor:
        """The logarithm of each digit's probability."""
        return self.layers(image)


def _vision(name: str) -> Workload:
    def make() -> nn.Module:
        return getattr(importlib.import_module("torchvision.models"), name)()

    return Workload(name.replace("_", "-"), make, lambda _, seed: {"x": torch.randn(1, 3, 224, 224, generator=seed)})


def _text(name: str, found: str, length: int, **sizes: Any) -> Workload:
    def make() -> nn.Module:
        kind = getattr(library(), found)
        return kind(kind.config_class(**sizes))

    def inputs(module: Any, seed: Generator) -> dict[str, Any]:
        return {"input_ids": torch.randint(3, module.config.vocab_size, (1, length), generator=seed)}

    return Workload(name, make, inputs)


def _encoder() -> nn.Module:
    encoder = Encoder(_TINY)
    encoder.positional_embedding.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    return encoder


def _pairs(layers: int, heads: int, length: int, width: int, seed: Generator) -> list[KeysValues]:
    def one() -> Tensor:
        return torch.randn(1, heads, length, width, generator=seed)

    return [(one(), one()) for _ in range(layers)]


def _whisper_step(module: Any, seed: Generator) -> dict[str, Any]:
    layers, heads = _TINY.n_text_layer, _TINY.n_text_head
    width = _TINY.n_text_state // heads
    return {
        "token": torch.randint(_TINY.n_vocab, (1, 1), generator=seed),
        "heard": _pairs(layers, heads, _TINY.n_audio_ctx, width, seed),
        "past": _pairs(layers, heads, _SAID, width, seed),
    }


def _llama_step(module: Any, seed: Generator) -> dict[str, Any]:
    sizes = LlamaSizes()
    past = _pairs(sizes.layers, sizes.heads, _CACHED, sizes.width // sizes.heads, seed)
    return {
        "token": torch.randint(sizes.vocabulary, (1, 1), generator=seed),
        "position": torch.tensor([_CACHED]),
        "keys": [key for key, _ in past],
        "values": [value for _, value in past],
    }


def _of_model(model: Model) -> Workload:
    """A model of the zoo in the size that it is known by, called as it is known."""
    return Workload(
        model.name,
        lambda: model.build("full"),
        lambda module, seed: model.example(module, seed=seed.initial_seed(), size="full"),
        model.unscaled,
    )


_CPU = (
    _vision("resnet50"),
    _vision("mobilenet_v2"),
    _text("bert-base", "BertModel", 128),
    _text("gpt2-small", "GPT2LMHeadModel", 64, use_cache=False),
    _vision("vit_b_16"),
    Workload("whisper-tiny-encoder", _encoder, lambda _, seed: {"mel": torch.randn(1, 80, 3000, generator=seed)}),
    Workload("whisper-tiny-step", lambda: WhisperStep(Decoder(_TINY)), _whisper_step),
    Workload("mnist", Digits, lambda _, seed: {"image": torch.randn(1, 1, 28, 28, generator=seed)}),
    Workload("llama-step", lambda: LlamaStep(LlamaSizes()), _llama_step),
)

SUITES: dict[str, tuple[str, ...]] = {"cpu": tuple(each.name for each in _CPU)}
"""Names of workloads that are run together."""

WORKLOADS: dict[str, Workload] = {each.name: each for each in (*(_of_model(model) for model in MODELS.values()), *_CPU)}
"""Every workload by its name: those of the suites, and each model of the zoo."""
