"""Whisper's network with the parameter names of OpenAI's checkpoints; the decoder keeps keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

KeysValues: TypeAlias = tuple[Tensor, Tensor]
"""What attention looks up: keys and values, each (batch, heads, length, width)."""


@dataclass(frozen=True, slots=True)
class WhisperSizes:
    """The sizes of a checkpoint, under the names that it has for them."""

    n_mels: int
    n_vocab: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int


class Attention(nn.Module):
    """Multi-head attention whose keys and values may come from elsewhere."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def keys_values(self, x: Tensor) -> KeysValues:
        """What others may look up in `x`, laid out as what `torch.cat` gives: one compiled step takes both."""
        return self._split(self.key(x)).contiguous(), self._split(self.value(x)).contiguous()

    def forward(self, x: Tensor, found: KeysValues, causal: bool = False) -> Tensor:
        """`x` with what it finds in `found`."""
        mixed = functional.scaled_dot_product_attention(self._split(self.query(x)), *found, is_causal=causal)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class WhisperBlock(nn.Module):
    """A layer: attention to itself, in a decoder also to what was heard, and a small network."""

    def __init__(self, width: int, heads: int, cross: bool) -> None:
        super().__init__()
        self.attn = Attention(width, heads)
        self.attn_ln = nn.LayerNorm(width)
        if cross:
            self.cross_attn = Attention(width, heads)
            self.cross_attn_ln = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.mlp_ln = nn.LayerNorm(width)

    def heard(self, x: Tensor) -> Tensor:
        """One layer of the encoder."""
        inner = self.attn_ln(x)
        x = x + self.attn(inner, self.attn.keys_values(inner))
        return x + self.mlp(self.mlp_ln(x))

    def said(self, x: Tensor, heard: KeysValues, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        """One layer of the decoder, and the keys and values up to here."""
        inner = self.attn_ln(x)
        keys, values = self.attn.keys_values(inner)
        if past is not None:
            keys, values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
        x = x + self.attn(inner, (keys, values), causal=past is None)
        x = x + self.cross_attn(self.cross_attn_ln(x), heard)
        return x + self.mlp(self.mlp_ln(x)), (keys, values)


class Encoder(nn.Module):
    """From a log-mel spectrogram (batch, mels, frames) to one vector for every two frames."""

    positional_embedding: Tensor

    def __init__(self, sizes: WhisperSizes) -> None:
        super().__init__()
        width = sizes.n_audio_state
        self.conv1 = nn.Conv1d(sizes.n_mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("positional_embedding", torch.empty(sizes.n_audio_ctx, width))
        self.blocks = nn.ModuleList(WhisperBlock(width, sizes.n_audio_head, False) for _ in range(sizes.n_audio_layer))
        self.ln_post = nn.LayerNorm(width)

    def forward(self, mel: Tensor) -> Tensor:
        """What was heard."""
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(mel)))).transpose(1, 2)
        x = x + self.positional_embedding
        for block in self.blocks:
            x = cast(WhisperBlock, block).heard(x)
        return self.ln_post(x)


class Decoder(nn.Module):
    """From tokens, and what was heard, to scores for the next token."""

    def __init__(self, sizes: WhisperSizes) -> None:
        super().__init__()
        width = sizes.n_text_state
        self.token_embedding = nn.Embedding(sizes.n_vocab, width)
        self.positional_embedding = nn.Parameter(torch.empty(sizes.n_text_ctx, width))
        self.blocks = nn.ModuleList(WhisperBlock(width, sizes.n_text_head, True) for _ in range(sizes.n_text_layer))
        self.ln = nn.LayerNorm(width)

    def forward(
        self, tokens: Tensor, heard: Sequence[KeysValues], past: Sequence[KeysValues] | None
    ) -> tuple[Tensor, list[KeysValues]]:
        """Scores (batch, length, vocabulary), and the keys and values up to here for the next call."""
        start = 0 if past is None else past[0][0].shape[2]
        x = self.token_embedding(tokens) + self.positional_embedding[start : start + tokens.shape[1]]
        present: list[KeysValues] = []
        for index, block in enumerate(self.blocks):
            x, own = cast(WhisperBlock, block).said(x, heard[index], None if past is None else past[index])
            present.append(own)
        return self.ln(x) @ self.token_embedding.weight.T, present


class Whisper(nn.Module):
    """The whole network: `listen` once, then `step` from token to token."""

    def __init__(self, sizes: WhisperSizes) -> None:
        super().__init__()
        self.encoder = Encoder(sizes)
        self.decoder = Decoder(sizes)

    def listen(self, mel: Tensor) -> list[KeysValues]:
        """What each layer of the decoder looks up in the sound."""
        heard = self.encoder(mel)
        return [cast(WhisperBlock, block).cross_attn.keys_values(heard) for block in self.decoder.blocks]

    def step(
        self, tokens: Tensor, heard: Sequence[KeysValues], past: Sequence[KeysValues] | None = None
    ) -> tuple[Tensor, list[KeysValues]]:
        """Scores for what follows each of `tokens`. After a first call, one token at a time with the `past` so far."""
        return self.decoder(tokens, heard, past)


def from_checkpoint(path: Any) -> Whisper:
    """The network in a checkpoint of OpenAI's, in f32; nothing but tensors and numbers is read from the file."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    model = Whisper(WhisperSizes(**content["dims"]))
    model.load_state_dict(content["model_state_dict"])
    return model.float().eval().requires_grad_(False)
