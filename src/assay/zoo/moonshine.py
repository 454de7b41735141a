"""Moonshine tiny (int8): speech to text with an encoder and a decoder whose `If` chooses with or without cache."""

from __future__ import annotations

import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from assay.errors import BadFeed
from assay.ir.dtypes import Array
from assay.zoo.files import asset, package_file

RATE = 16_000
_START, _END = 1, 2


class OrtSession(Protocol):
    """A session with ONNX Runtime's habits."""

    def run(self, output_names: None, input_feed: Mapping[str, Any], /) -> Any:
        """All outputs in order."""
        ...

    def get_inputs(self) -> Any:
        """The inputs, each with `name` and `shape`."""
        ...


@dataclass(frozen=True, slots=True)
class MoonshineTranscription:
    """The tokens that were chosen, the start token first, and the scores that each was chosen by."""

    tokens: tuple[int, ...]
    logits: tuple[Array, ...]

    @property
    def text(self) -> str:
        """The tokens as text."""
        import tokenizers

        path = package_file("moonshine_onnx", "assets/tokenizer.json")
        return tokenizers.Tokenizer.from_file(str(path)).decode(list(self.tokens)).strip()


class Moonshine:
    """The two models in sessions that `make` opens from a path."""

    def __init__(self, make: Callable[[str], OrtSession]) -> None:
        self.encoder = make(str(asset("moonshine/encoder_model.onnx")))
        self.decoder = make(str(asset("moonshine/decoder_model_merged.onnx")))

    def transcribe(
        self, sound: Array, most: int = 192, watch: Callable[[int], None] | None = None
    ) -> MoonshineTranscription:
        """Greedy decoding of `sound` (f32, 16 kHz, one channel) up to the end token or `most` tokens.

        `watch` is told the number of tokens after each.
        """
        hidden = self.encoder.run(None, {"input_values": sound[None, :]})[0]
        cache = self._empty_cache()
        tokens, logits = [_START], list[Array]()
        for step in range(most):
            feeds = {
                "input_ids": np.array([[tokens[-1]]], np.int64),
                "encoder_hidden_states": hidden,
                "use_cache_branch": np.array([step > 0]),
                **cache,
            }
            scores, *present = self.decoder.run(None, feeds)
            logits.append(scores[0, -1])
            tokens.append(int(scores[0, -1].argmax()))
            if watch is not None:
                watch(step + 1)
            if tokens[-1] == _END:
                break
            fresh = dict(zip(cache, present, strict=True))
            # What was computed from the encoder's output comes from the first step alone.
            cache.update((name, value) for name, value in fresh.items() if step == 0 or ".decoder." in name)
        return MoonshineTranscription(tuple(tokens), tuple(logits))

    def _empty_cache(self) -> dict[str, Array]:
        """One entry for each cached key and value, of length 0."""
        shapes = {i.name: i.shape for i in self.decoder.get_inputs() if i.name.startswith("past_key_values")}
        return {name: np.zeros((1, heads, 0, width), np.float32) for name, (_, heads, _, width) in shapes.items()}


def read_speech(path: Path) -> Array:
    """The samples of a mono 16 kHz 16-bit WAV file as f32 between −1 and 1."""
    with wave.open(str(path)) as clip:
        if (clip.getframerate(), clip.getnchannels(), clip.getsampwidth()) != (RATE, 1, 2):
            raise BadFeed(f"'{path}' is not 16-bit mono sound at {RATE} Hz")
        frames = np.frombuffer(clip.readframes(clip.getnframes()), np.int16)
    return frames.astype(np.float32) / 32768


def clip_path() -> Path:
    """The spoken clip that comes with the useful-moonshine-onnx package."""
    return package_file("moonshine_onnx", "assets/beckett.wav")
