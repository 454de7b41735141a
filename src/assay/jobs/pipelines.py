"""`assay.pipeline`: a model made ready for a task. Thin views of jobs: what runs is the job."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import BadArgument, hint_for
from assay.frontends.checkpoint import ImportedModel
from assay.ir.dtypes import Array
from assay.jobs.embed import embed_job, longest_of, pooling_of, pooling_told
from assay.jobs.generate import Sampling, generate_job
from assay.jobs.job import JobGraph
from assay.jobs.kept import decoder_of, open_kept
from assay.jobs.models import JobModel
from assay.jobs.search import search_job
from assay.jobs.tokenizers import Tokenizer, make_tokenizer
from assay.ops.definitions.text import strings
from assay.runtime.options import SessionOptions, options_from
from assay.targets.budget import Budget
from assay.zoo.checkpoints import checkpoint_path

_JOBS = 16
"""So many jobs of a model are kept."""


@dataclass(frozen=True)
class Written:
    """A text that a model wrote: its tokens, how long the prompt was, and seconds to the first token and in all."""

    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    first_seconds: float
    seconds: float

    @property
    def tokens_per_second(self) -> float | None:
        """How fast it wrote, the first token left out; None if there was no other."""
        left = self.seconds - self.first_seconds
        return (len(self.tokens) - 1) / left if len(self.tokens) > 1 and left > 0 else None


@dataclass(frozen=True)
class Beams:
    """A beam search: how many texts it follows, how much longer ones count, and whether it ends with that many."""

    width: int
    length_penalty: float = 1.0
    early_stopping: bool = False


class TextWriter:
    """Continues texts and conversations. `stop_tokens` are those that end a text, unless a call names others."""

    def __init__(self, decoder: JobModel, tokenizer: Tokenizer) -> None:
        self.decoder, self.tokenizer = decoder, tokenizer
        self.stop_tokens = tokenizer.ends
        self.job = lru_cache(_JOBS)(self._job)
        """The job for a way of sampling, and for conversations or single texts."""
        self.search_job = lru_cache(_JOBS)(self._search_job)
        """The job for a beam search and a way of sampling; BadArgument for settings that a search does not have."""

    def __call__(self, prompt: str, sampling: Sampling | None = None, **more: Any) -> Written:
        """What follows a text; for `more` see `write`."""
        return self.write({"prompt": prompt}, sampling, **more)

    def chat(self, messages: Sequence[Mapping[str, str]], sampling: Sampling | None = None, **more: Any) -> Written:
        """The answer to a conversation: tables with `role` and `content`; for `more` see `write`."""
        roles, contents = (strings([each[key] for each in messages]) for key in ("role", "content"))
        return self.write({"roles": roles, "contents": contents}, sampling, **more)

    def write(
        self,
        given: Mapping[str, Any],
        sampling: Sampling | None = None,
        *,
        stop: Sequence[str] = (),
        stop_tokens: Sequence[int] | None = None,
        pieces: Callable[[str], None] = lambda text: None,
        budget: Budget | None = None,
    ) -> Written:
        """Run the job. Pieces of the text are handed to `pieces` as they are made; the budget can stop it."""
        job = self.job(sampling or Sampling(), "prompt" not in given)
        more = {"pieces": pieces, "stop_texts": strings(list(stop))}
        return self._run(job, {**given, **more}, stop_tokens, budget)

    def search(
        self,
        prompt: str,
        beams: Beams,
        sampling: Sampling | None = None,
        *,
        stop_tokens: Sequence[int] | None = None,
        budget: Budget | None = None,
    ) -> Written:
        """The best text that a beam search finds to follow another. Of `sampling` it takes the most tokens and the
        penalty of repetition; BadArgument if more is set."""
        return self._run(self.search_job(beams, sampling or Sampling()), {"prompt": prompt}, stop_tokens, budget)

    def _run(
        self, job: JobGraph, given: Mapping[str, Any], stop_tokens: Sequence[int] | None, budget: Budget | None
    ) -> Written:
        times: list[float] = []

        def progress(count: int) -> None:
            times.append(time.perf_counter())

        feeds: dict[str, Any] = {
            "decoder": self.decoder,
            "tokenizer": self.tokenizer,
            "progress": progress,
            "stop_tokens": list(self.stop_tokens if stop_tokens is None else stop_tokens),
            **given,
        }
        started = time.perf_counter()
        found = job.run(feeds, budget=budget)
        ended = time.perf_counter()
        first = (times[0] if times else ended) - started
        return Written(
            found["text"].item(), tuple(found["tokens"].tolist()), len(found["prompt_tokens"]), first, ended - started
        )

    def _job(self, sampling: Sampling, chat: bool) -> JobGraph:
        return generate_job(self.decoder.digest, self.tokenizer.digest, sampling, chat=chat)

    def _search_job(self, beams: Beams, sampling: Sampling) -> JobGraph:
        most, penalty = sampling.most, sampling.repetition_penalty
        if sampling != Sampling(most, repetition_penalty=penalty):
            raise BadArgument("a beam search draws nothing", hint="it takes the most tokens and a repetition penalty")
        names = self.decoder.digest, self.tokenizer.digest
        return search_job(*names, **vars(beams), most=most, repetition_penalty=penalty)


def open_writer(source: str | Path | ImportedModel, options: SessionOptions | None = None) -> TextWriter:
    """The model in a folder or file, or of a name, as one that writes. BadArgument if it does something else.

    What is compiled for a GGUF file is kept in the store on disk: the next process finds it there."""
    if not isinstance(source, ImportedModel):
        path = checkpoint_path(source)
        kept = open_kept(path, options_from(options))
        if kept is not None:
            return TextWriter(*kept)
        source = _loaded(path, logits="last")
    decoder = JobModel(decoder_of(source), f"sha256:{source.digest}:decoder", options)
    return TextWriter(decoder, _tokenizer(source))


def _loaded(source: str | Path, **options: Any) -> ImportedModel:
    # Imported here, since that is all recipes, and models that were kept take none.
    from assay.frontends.checkpoint import load_model

    return load_model(source, **options)


def _tokenizer(model: ImportedModel) -> Tokenizer:
    return make_tokenizer(model.tokenizer.files, model.tokenizer.facts)


# --- vectors of texts


class TextEmbedder:
    """Turns texts into vectors of length 1."""

    def __init__(self, encoder: JobModel, tokenizer: Tokenizer, job: JobGraph) -> None:
        self.encoder, self.tokenizer, self.job = encoder, tokenizer, job

    def __call__(self, texts: Sequence[str], *, budget: Budget | None = None) -> Array:
        """One row for each text."""
        links = {"encoder": self.encoder, "tokenizer": self.tokenizer}
        if not texts:
            raise BadArgument("there is no text")
        return np.stack([self.job.run({**links, "text": text}, budget=budget)["vector"] for text in texts])


def open_embedder(
    source: str | Path | ImportedModel, options: SessionOptions | None = None, pooling: str = ""
) -> TextEmbedder:
    """The model in a folder or file, or of a name, as one that makes vectors of texts. BadArgument if it does something
    else.

    How the vectors of tokens become one, a GGUF file or a folder of sentence-transformers says; else their mean."""
    from assay.frontends.checkpoint.recipes.bert import BertConfiguration

    model = source if isinstance(source, ImportedModel) else _loaded(checkpoint_path(source))
    if not isinstance(model.configuration, BertConfiguration):
        raise BadArgument(f"a model of the family '{model.family}' does not make vectors of texts")
    folder = model.checkpoint.files[0].parent
    longest = model.configuration.positions - model.configuration.first_position
    tokenizer = _tokenizer(model)
    encoder = JobModel(model.graphs["encoder"], f"sha256:{model.digest}:encoder", options)
    kinds = [str(value.type) for value in model.graphs["encoder"].outputs]
    chosen = pooling or pooling_told(model.checkpoint.facts) or pooling_of(folder)
    job = embed_job(encoder.digest, tokenizer.digest, kinds, pooling=chosen, longest=min(longest, longest_of(folder)))
    return TextEmbedder(encoder, tokenizer, job)


_TASKS: Mapping[str, tuple[str, str]] = {
    "generate": ("pipelines", "open_writer"),
    "embed": ("pipelines", "open_embedder"),
    "transcribe": ("speech", "open_speech_writer"),
    "classify": ("classifying", "open_classifier"),
}
"""What makes a model ready for a task: the module of `assay.jobs` that has it, imported when it is asked for, and its
name there."""


def pipeline(task: str, source: str | Path, **options: Any) -> Any:
    """A model made ready for a task (`generate`, `embed`, `transcribe`, `classify`): a folder of Hugging Face's form, a
    bundle, a GGUF file, for speech a file of OpenAI's, or a name of `assay.zoo.checkpoints.CHECKPOINTS`.

    Options are those of a session, such as `target`."""
    if task not in _TASKS:
        raise BadArgument(f"there is no task '{task}'", hint=hint_for(task, _TASKS))
    module, name = _TASKS[task]
    return getattr(importlib.import_module(f"assay.jobs.{module}"), name)(source, options_from(None, **options))
