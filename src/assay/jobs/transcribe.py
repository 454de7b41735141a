"""The job of writing down what is said: window after window of sound, each decoded until its text is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import Array, DType, boolean, f32, f64, i64
from assay.ir.graph import Value
from assay.ir.types import LinkType
from assay.jobs.building import JobBuilder
from assay.jobs.definitions.sound import RATE
from assay.jobs.job import JobGraph
from assay.jobs.speech_tokens import SpeechTokens
from assay.ops.definitions.text import strings
from assay.ops.parts import scalar_size

SECONDS = 30
"""How long a window is."""
FIGURES = ("log_odds", "compression", "silence", "temperature")
"""What is told of each phrase: figures of the window that it is from."""
_RESET = 0.5
"""A text that was drawn at a higher temperature does not lead into the next window."""


@dataclass(frozen=True)
class Hearing:
    """How speech is heard: the settings of a job, by their names.

    A window is decoded again at the next temperature if its text repeats itself (it packs better than `compression`) or
    is doubtful (`log_odds` is the least mean logarithm of a token's probability). One that is doubtful and, by the
    model, `silence` with more than this probability, says nothing."""

    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    most: int = 224
    """The most tokens of a window."""
    compression: float = 2.4
    log_odds: float = -1.0
    silence: float = 0.6
    context: bool = False
    """Whether a window is told what was said before it, which small models tend to repeat."""
    seed: int = 0

    def arrays(self) -> dict[str, Array]:
        """The settings as a job has them."""
        kinds = {float: f32.numpy, int: i64.numpy, tuple: f32.numpy, bool: boolean.numpy}
        return {name: np.array(value, kinds[type(value)]) for name, value in vars(self).items()}


@dataclass(frozen=True)
class SpeechModel:
    """What a job must know of a model: hashes of its parts, its tokens and sizes."""

    encoder: str
    decoder: str
    tokenizer: str
    tokens: SpeechTokens
    mels: int
    positions: int
    dtype: DType = dtypes.f32


def transcribe_job(
    model: SpeechModel, hearing: Hearing | None = None, *, language: str = "", translate: bool = False, beams: int = 1
) -> JobGraph:
    """The job for a model. `language` is one of its languages; if it is empty, the first window tells.

    It takes `sound`, and gives `text`, and of every phrase `spans` (seconds), `texts`, `counts` of `tokens` and
    `figures`. Phrases go to the stream `phrases` as they are found, seconds that are done to `progress`."""
    tokens = model.tokens
    spoken = tokens.languages.get(language, -1)
    task = tokens.translate if translate else tokens.transcribe
    heard = hearing or Hearing()
    fitting = replace(heard, most=min(heard.most, model.positions // 2))
    settings = {**fitting.arrays(), "language": np.array(spoken, np.int64)}
    settings |= {name: np.array(getattr(tokens, name), np.int64) for name in ("never", "not_first")}
    settings["steering"] = np.array([task] if tokens.languages else [], np.int64)
    b = JobBuilder("transcribe", settings)
    for name, kind, content in (
        ("encoder", "model", model.encoder),
        ("decoder", "model", model.decoder),
        ("tokenizer", "tokenizer", model.tokenizer),
        ("phrases", "stream", ""),
        ("progress", "stream", ""),
    ):
        b.link(name, kind, content)
    samples, rate = b.op("read_sound", b.taken("sound", LinkType("audio")))
    sound = b.named("samples", b.op("resample", samples, rate, to=RATE)[0])
    length = _count(b, sound)
    nothing = (
        np.zeros((0, 2), f64.numpy), strings([]), np.zeros(0, np.int64),
        np.zeros(0, np.int64), np.zeros((0, len(FIGURES)), np.float32),
    )  # fmt: skip
    first = [b.constant(0, i64), b.constant(np.zeros(0, np.int64)), b.add(b.values["language"], 0)]

    def window(inside: JobBuilder, count: Value, carried: Sequence[Value]) -> list[Value]:
        return _Window(inside, model, beams).heard(sound, length, carried)

    carried = [*first, *(b.constant(each) for each in nothing)]
    ends = b.repeated(b.add(length, 1), carried, window, b.gt(length, 0))
    spans, texts, made, counts, figures = ends[3:]
    text = b.op("joined", texts)[0]
    outputs = {"text": text, "spans": spans, "texts": texts, "tokens": made, "counts": counts, "figures": figures}
    return b.job({**outputs, "language": ends[2], "length": length})


class _Window:
    """How a window is heard, built inside the loop over windows."""

    def __init__(self, b: JobBuilder, model: SpeechModel, beams: int) -> None:
        self._b, self._model, self._beams = b, model, beams
        self._rules = {"end": model.tokens.end, "times": model.tokens.times}

    def heard(self, sound: Value, length: Value, carried: Sequence[Value]) -> list[Value]:
        """One window: whether to go on, then where the next one starts, what leads into it, the language, and all that
        was found so far."""
        b, tokens = self._b, self._model.tokens
        start, earlier, language, *found = carried
        size = b.min(b.sub(length, start), SECONDS * RATE)
        part = b.slice(sound, _line(b, start), _line(b, b.add(start, size)), [1], axes=(0,))
        features = b.cast(b.op("log_mel", part, mels=self._model.mels, seconds=SECONDS)[0], dtype=self._model.dtype)
        state = b.op("attend", b.values["encoder"], b.values["decoder"], b.named("features", features))[0]
        most = self._model.positions // 2 - (3 if tokens.languages else 1)
        begin = np.array([tokens.start], np.int64)
        prompt = b.op("continued", earlier, b.constant(begin), mark=tokens.earlier, most=most)[0]
        logits, state = b.op("step", b.values["decoder"], state, _row(b, prompt))
        quiet = b.exp(b.op("log_odds", logits, b.constant(np.array([tokens.silence], np.int64)))[0])
        silence = b.named("silence_found", b.squeeze(quiet, axes=(0,)))
        if tokens.languages:
            listed = b.constant(np.array(sorted(tokens.languages.values()), np.int64))
            detected = b.op("best_of", logits, listed)[0]
            language = b.where(b.lt(language, 0), detected, language)
            steer = b.concat(_line(b, language), b.values["steering"], axis=0)
            logits, state = b.op("step", b.values["decoder"], state, _row(b, steer))
        logits = b.named("first_logits", logits)
        made, mean, ratio, temperature = self._decoded(logits, state, silence)
        for name, value in (("made", made), ("log_odds_found", mean), ("temperature_found", temperature)):
            b.named(name, value)
        silent = self._silent(silence, mean)
        figures = b.concat(*(_line(b, each) for each in (mean, ratio, silence, temperature)), axis=0)
        new = b.op("phrases", b.values["tokenizer"], made, start, size, silent, figures, **self._rules)
        ahead = b.add(start, new[-1])
        b.op("emit", b.values["phrases"], *new[:-1])
        b.op("emit", b.values["progress"], ahead)
        leads = b.bit_and(b.values["context"], b.bit_not(b.gt(temperature, _RESET)))
        context = b.concat(earlier, new[2], axis=0)
        kept = b.mul(_count(b, context), b.cast(leads, dtype=i64))
        earlier = b.slice(context, [0], _line(b, kept), [1], axes=(0,))
        found = [b.concat(a, c, axis=0) for a, c in zip(found, new[:-1], strict=True)]
        return [b.lt(ahead, length), ahead, earlier, language, *found]

    def _decoded(self, logits: Value, state: Value, silence: Value) -> list[Value]:
        """The tokens of a window, how probable they are, how well their text packs, and the temperature: that of the
        first attempt whose text will do, else of the last."""
        b = self._b
        temperatures = b.values["temperatures"]
        coldest = b.gather(temperatures, b.constant(0, i64), axis=0)
        searched = self._beams > 1
        found = self._searched(b, logits, state) if searched else self._drawn(b, logits, state, coldest, "logits")
        first = [*found, self._packed(b, found[0]), coldest]

        def again(inside: JobBuilder, count: Value, carried: Sequence[Value]) -> list[Value]:
            warmer = inside.gather(temperatures, inside.add(count, 1), axis=0)
            made, mean = self._drawn(inside, logits, state, warmer, "later_logits")
            ratio = self._packed(inside, made)
            return [self._fails(inside, mean, ratio, silence), made, mean, ratio, warmer]

        left = b.sub(_count(b, temperatures), 1)
        return list(b.repeated(left, first, again, self._fails(b, first[1], first[2], silence)))

    def _fails(self, b: JobBuilder, mean: Value, ratio: Value, silence: Value) -> Value:
        """Whether a text is to be made again: it repeats itself or is doubtful, unless there is nothing to be heard."""
        doubtful = b.lt(mean, b.values["log_odds"])
        quiet = b.bit_and(doubtful, b.gt(silence, b.values["silence"]))
        return b.bit_and(b.bit_or(doubtful, b.gt(ratio, b.values["compression"])), b.bit_not(quiet))

    def _silent(self, silence: Value, mean: Value) -> Value:
        b = self._b
        return b.bit_and(b.gt(silence, b.values["silence"]), b.bit_not(b.gt(mean, b.values["log_odds"])))

    def _packed(self, b: JobBuilder, made: Value) -> Value:
        text = b.op("spoken", b.values["tokenizer"], made, end=self._model.tokens.end)[0]
        return b.op("compression", text)[0]

    # --- a token after the other

    def _drawn(self, b: JobBuilder, logits: Value, state: Value, temperature: Value, name: str) -> list[Value]:
        """The tokens of a text that is drawn at a temperature, the one that ends it left out, and the mean logarithm of
        their probabilities. Scores can be watched by the name."""
        nothing, zero = b.constant(np.zeros(0, np.int64)), b.constant(0, i64)
        ended, *first = self._token(b, logits, nothing, b.constant(0.0, f32), temperature, zero)

        def step(inside: JobBuilder, count: Value, carried: Sequence[Value]) -> list[Value]:
            made, total, before, _ = carried
            newest = inside.slice(made, [-1], [np.iinfo(np.int64).max], [1], axes=(0,))
            scores, after = inside.op("step", b.values["decoder"], before, _row(inside, newest))
            position = inside.add(count, 1)
            stop, made, total = self._token(inside, inside.named(name, scores), made, total, temperature, position)
            return [inside.bit_not(stop), made, total, after, stop]

        left = b.sub(b.values["most"], 1)
        made, total, _, ended = b.repeated(left, [*first, state, ended], step, b.bit_not(ended))
        whole = b.sub(_count(b, made), b.cast(ended, dtype=i64))
        spoken = b.slice(made, [0], _line(b, whole), [1], axes=(0,))
        return [spoken, b.div(total, b.cast(b.add(whole, 1), dtype=f32))]

    def _token(
        self, b: JobBuilder, logits: Value, made: Value, total: Value, temperature: Value, position: Value
    ) -> list[Value]:
        """Whether the next token ends the text, the tokens with it, and their log probabilities summed."""
        scores = self._ruled(b, logits, _row(b, made))
        token = b.op("draw", b.op("temper", scores, temperature)[0], b.values["seed"], position)[0]
        total = b.add(total, b.squeeze(b.op("log_odds", scores, token)[0], axes=(0,)))
        end = b.constant(np.array([self._model.tokens.end], np.int64))
        return [b.op("ends", token, end)[0], b.concat(made, token, axis=0), total]

    def _ruled(self, b: JobBuilder, logits: Value, made: Value) -> Value:
        return b.op("speech_rules", logits, made, b.values["never"], b.values["not_first"], **self._rules)[0]

    # --- several texts at once

    def _searched(self, b: JobBuilder, logits: Value, state: Value) -> list[Value]:
        """The same of the best text that beam search finds."""
        width, tokens = self._beams, self._model.tokens
        nothing, never = np.zeros((width, 0), np.int64), np.full(width, -1e9, np.float32)
        start = np.where(np.arange(width) == 0, np.float32(0), never)
        beams = [nothing, start, nothing, never, np.zeros(width, np.bool_), np.array(True)]
        ends = b.constant(np.array([tokens.end], np.int64))

        def longer(b: JobBuilder, logits: Value, state: Value, carried: Sequence[Value], last: Value) -> list[Value]:
            odds = b.op("all_log_odds", self._ruled(b, logits, carried[0]))[0]
            running, origins, *others, go = b.op("beams", odds, *carried, ends, last)
            return [go, b.op("reorder", state, origins)[0], running, *others]

        go, *first = longer(b, logits, state, [b.constant(each) for each in beams], b.constant(False, boolean))

        def step(inside: JobBuilder, count: Value, carried: Sequence[Value]) -> list[Value]:
            before, *others = carried
            newest = inside.slice(others[0], [-1], [np.iinfo(np.int64).max], [1], axes=(1,))
            scores, after = inside.op("step", b.values["decoder"], before, newest)
            last = inside.ge(inside.add(count, 2), b.values["most"])
            return longer(inside, inside.named("logits", scores), after, others, last)

        found = b.repeated(b.sub(b.values["most"], 1), first, step, go)
        best, scores = (b.gather(found[at], b.constant(0, i64), axis=0) for at in (3, 4))
        spoken = b.bit_and(b.ge(best, 0), b.bit_not(b.eq(best, tokens.end)))
        whole = b.reduce_sum(b.cast(spoken, dtype=i64), axes=(0,), keepdims=True)
        return [b.slice(best, [0], whole, [1], axes=(0,)), scores]


def _count(b: JobBuilder, value: Value) -> Value:
    """The size of the first axis."""
    return scalar_size(b, value, 0)


def _line(b: JobBuilder, value: Value) -> Value:
    return b.unsqueeze(value, axes=(0,))


_row = _line
