"""`assay.pipeline("transcribe", …)`: a model that writes down what is said. A thin view of the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import BadArgument, hint_for
from assay.frontends.checkpoint import ImportedModel, load_model
from assay.frontends.checkpoint.recipes.whisper import WhisperConfiguration
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ir.types import TensorType
from assay.jobs.definitions.sound import RATE
from assay.jobs.job import JobGraph, Watch
from assay.jobs.models import JobModel
from assay.jobs.sound_files import Sound, SoundSamples, sound_file
from assay.jobs.speech_tokens import openai_tokenizer, speech_tokens
from assay.jobs.tokenizers import Tokenizer, make_tokenizer
from assay.jobs.transcribe import FIGURES, Hearing, SpeechModel, transcribe_job
from assay.runtime.options import SessionOptions
from assay.targets.budget import Budget
from assay.zoo.checkpoints import checkpoint_path

_JOBS = 8
"""So many jobs of a model are kept."""


@dataclass(frozen=True)
class Phrase:
    """What is said from `start` to `end`, in seconds, and the figures of its window: the mean logarithm of a token's
    probability, how well the text packs, how probable silence is, and the temperature."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    log_odds: float
    compression: float
    silence: float
    temperature: float


@dataclass(frozen=True)
class Transcription:
    """What is said in a sound: its text and phrases, the language, how long the sound is and how long it took."""

    text: str
    phrases: tuple[Phrase, ...]
    language: str
    sound_seconds: float
    seconds: float

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of all phrases."""
        return tuple(token for phrase in self.phrases for token in phrase.tokens)


class SpeechWriter:
    """Writes down what is said."""

    def __init__(self, encoder: JobModel, decoder: JobModel, tokenizer: Tokenizer, model: SpeechModel) -> None:
        self.encoder, self.decoder, self.tokenizer, self.model = encoder, decoder, tokenizer, model
        self.job = lru_cache(_JOBS)(self._job)
        """The job for a way of hearing, a language (empty: the sound tells), and a number of beams."""

    def __call__(
        self,
        sound: str | Path | Array | Sound,
        hearing: Hearing | None = None,
        *,
        language: str = "",
        translate: bool = False,
        beams: int = 1,
        phrases: Callable[[Phrase], None] = lambda phrase: None,
        progress: Callable[[float], None] = lambda seconds: None,
        budget: Budget | None = None,
        watched: Mapping[str, Watch] | None = None,
    ) -> Transcription:
        """What is said in a file, or in samples at 16 kHz. Phrases are handed to `phrases` as they are found, and the
        seconds that are done to `progress`; the budget can stop it."""

        def found_more(*parts: Array) -> None:
            for each in _phrases(*parts):
                phrases(each)

        def done(samples: int) -> None:
            progress(samples / RATE)

        given: dict[str, Any] = {
            "encoder": self.encoder,
            "decoder": self.decoder,
            "tokenizer": self.tokenizer,
            "sound": _opened(sound),
            "phrases": found_more,
            "progress": done,
        }
        job = self.job(hearing or Hearing(), language, translate, beams)
        started = time.perf_counter()
        found = job.run(given, budget=budget, watched=watched)
        seconds = time.perf_counter() - started
        told = tuple(_phrases(*(found[name] for name in ("spans", "texts", "tokens", "counts", "figures"))))
        return Transcription(
            found["text"].item(), told, self._language(int(found["language"])), int(found["length"]) / RATE, seconds
        )

    def _language(self, token: int) -> str:
        return next((name for name, at in self.model.tokens.languages.items() if at == token), "en")

    def _job(self, hearing: Hearing, language: str, translate: bool, beams: int) -> JobGraph:
        known = self.model.tokens.languages
        if language not in (known or {"en": 0}) and language:
            hint = hint_for(language, known) if known else "the model knows English alone"
            raise BadArgument(f"the model does not know the language '{language}'", hint=hint)
        if translate and not known:
            raise BadArgument("the model does not translate", hint="it knows English alone")
        if not 1 <= beams <= 64 or not hearing.temperatures:
            raise BadArgument("there are 1 to 64 beams, and at least one temperature")
        return transcribe_job(self.model, hearing, language=language, translate=translate, beams=beams)


def _phrases(spans: Array, texts: Array, tokens: Array, counts: Array, figures: Array) -> Iterator[Phrase]:
    parts = np.split(tokens, np.cumsum(counts)[:-1]) if len(counts) else []
    for (start, end), text, part, told in zip(spans.tolist(), texts.tolist(), parts, figures.tolist(), strict=True):
        yield Phrase(start, end, text.strip(), tuple(part.tolist()), **dict(zip(FIGURES, told, strict=True)))


def _opened(sound: str | Path | Array | Sound) -> Sound:
    if isinstance(sound, np.ndarray):
        return SoundSamples(sound, RATE)
    return sound_file(sound) if isinstance(sound, str | Path) else sound


def open_speech_writer(
    source: str | Path | ImportedModel, options: SessionOptions | None = None, dtype: DType = dtypes.f32
) -> SpeechWriter:
    """The model in a folder or file, or the one of that name, as one that writes down what is said. BadArgument if it
    does something else."""
    if not isinstance(source, ImportedModel):
        source = load_model(checkpoint_path(source), logits="last", dtype=dtype)
    model, known = source, source.configuration
    if not isinstance(known, WhisperConfiguration):
        raise BadArgument(f"a model of the family '{model.family}' does not hear speech", hint="Whisper does")
    tokenizer = _tokenizer(model, known.vocabulary)
    encoder, decoder = (
        JobModel(model.graphs[name], f"sha256:{model.digest}:{name}", options) for name in ("encoder", "decoder")
    )
    features = model.graphs["encoder"].inputs[0].type
    assert isinstance(features, TensorType)
    tokens = speech_tokens(tokenizer, known.vocabulary)
    told = SpeechModel(
        encoder.digest, decoder.digest, tokenizer.digest, tokens, known.mels, known.positions, features.dtype
    )
    return SpeechWriter(encoder, decoder, tokenizer, told)


def _tokenizer(model: ImportedModel, vocabulary: int) -> Tokenizer:
    if "tokenizer.json" in model.tokenizer.files:
        return make_tokenizer(model.tokenizer.files, model.tokenizer.facts)
    return openai_tokenizer(vocabulary)
