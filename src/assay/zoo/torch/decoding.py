"""One step of decoding: a token, and the keys and values of those before it as inputs, grown by one as outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.zoo.whisper_model import Decoder, KeysValues


@dataclass(frozen=True, slots=True)
class LlamaSizes:
    """The sizes of a network in the manner of Llama."""

    layers: int = 8
    width: int = 512
    heads: int = 8
    hidden: int = 1408
    vocabulary: int = 32000
    most: int = 512
    """The largest number of tokens."""


class LlamaLayer(nn.Module):
    """Attention with rotated queries and keys, then a gated network; each behind a norm and beside a shortcut."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, sizes.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.hidden, width, bias=False)

    def forward(self, x: Tensor, past: KeysValues, cosine: Tensor, sine: Tensor) -> tuple[Tensor, KeysValues]:
        """The next `x`, and the keys and values up to here."""
        inner = self.attention_norm(x)
        query, key, value = (self._split(part(inner)) for part in (self.query, self.key, self.value))
        keys = torch.cat([past[0], rotated(key, cosine, sine)], 2)
        values = torch.cat([past[1], value], 2)
        mixed = functional.scaled_dot_product_attention(rotated(query, cosine, sine), keys, values)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        inner = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner)), (keys, values)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Each pair of elements (half a head apart) turned by its angle."""
    low, high = x.chunk(2, -1)
    return x * cosine + torch.cat([-high, low], -1) * sine


class LlamaStep(nn.Module):
    """A decoder in the manner of Llama, one token at a time."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.layers = nn.ModuleList(LlamaLayer(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, 1e-5)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        half = sizes.width // sizes.heads // 2
        angles = torch.outer(torch.arange(sizes.most), 10000.0 ** -(torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(
        self, token: Tensor, position: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Scores for the token after this one, and each layer's keys and values up to here."""
        x = self.embedding(token)
        cosine, sine = self.cosine[position], self.sine[position]
        present: list[KeysValues] = []
        for layer, past in zip(self.layers, zip(keys, values, strict=True), strict=True):
            x, own = cast(LlamaLayer, layer)(x, past, cosine, sine)
            present.append(own)
        return self.head(self.norm(x)), [key for key, _ in present], [value for _, value in present]


class WhisperStep(nn.Module):
    """Whisper's decoder, one token at a time."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, token: Tensor, heard: Sequence[KeysValues], past: Sequence[KeysValues]
    ) -> tuple[Tensor, list[KeysValues]]:
        """Scores for the token after this one, and each layer's keys and values up to here."""
        return self.decoder(token, heard, past)
