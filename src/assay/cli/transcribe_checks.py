"""What `assay transcribe` shows beside the text: where ops ran and how long stages took, and how near other engines
come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.cli.chains import chosen
from assay.cli.demo_times import DemoProgress, first_run, show_times, timed
from assay.cli.op_tables import placed_ops, show_ops
from assay.cli.output import CommandOutput, progress
from assay.cli.scores import likeness, show_likeness
from assay.cli.transcribe import opened
from assay.errors import BadArgument
from assay.ir.dtypes import Array
from assay.jobs.definitions.sound import RATE
from assay.jobs.transcribe import SECONDS, Hearing
from assay.needs import require

if TYPE_CHECKING:
    from assay.jobs.speech import SpeechWriter, Transcription

EAGER = "eager"


# --- the first time and the second


def explained_run(
    report: CommandOutput, model: str, chain: str, sound: Any, how: Mapping[str, Any]
) -> tuple[SpeechWriter, Transcription, dict[str, Any]]:
    """The model, what it hears the second time, and what there is to tell: stages of the first time, and ops."""
    with progress("loading") as bar:
        watch = DemoProgress(bar)
        read = timed(lambda: opened(model, chain), watch, "import")
        writer = read.found
        first = timed(lambda: writer(sound, **how), watch, "run")
        second = timed(lambda: writer(sound, **how), watch, "run")
    stages = {"import": read.outside, **_added(read.stages, first_run(first, second))}
    found = second.found
    report.text(f"{model} on the target '{chain}':")
    report.text()
    for each in found.phrases:
        report.text(f"  {each.start:6.2f} – {each.end:6.2f}  {each.text}")
    report.text()
    times = show_times(report, chain, found.sound_seconds, stages, second.seconds)
    sessions = {"encoder": writer.encoder.session, "decoder": writer.decoder.session}
    placed = {name: placed_ops(session.explain()) for name, session in sessions.items()}
    for name, rows in placed.items():
        show_ops(report, name, rows)
    return writer, found, {"times": times, "ops": placed}


def _added(*parts: Mapping[str, float]) -> dict[str, float]:
    """The seconds of stages, of several works."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


# --- other engines


def check_peer(name: str | None) -> None:
    """What cannot be compared is refused before anything runs."""
    if name == EAGER:
        require("torch")
    elif name is not None:
        chosen(name)


def compared(
    report: CommandOutput,
    model: str,
    sound: Any,
    how: Mapping[str, Any],
    found: Transcription,
    writer: SpeechWriter,
    name: str,
) -> dict[str, Any]:
    """Whether another engine hears the same."""
    if name == EAGER:
        return _with_eager(report, model, sound, writer)
    theirs = opened(model, name)(sound, **how)
    pairs = zip(found.tokens, theirs.tokens, strict=False)
    shorter = min(len(found.tokens), len(theirs.tokens))
    same = next((at for at, (a, b) in enumerate(pairs) if a != b), shorter)
    equal = found.tokens == theirs.tokens
    count = len(found.tokens)
    report.text(f"{name}: {'the same' if equal else f'{same} of'} {count} tokens{'' if equal else ', then others'}")
    return {"with": name, "same": equal, "equal_tokens": same, "tokens": theirs.tokens, "text": theirs.text}


def _with_eager(report: CommandOutput, model: str, sound: Any, writer: SpeechWriter) -> dict[str, Any]:
    """How near eager PyTorch's scores are, given the same tokens, judged by what rounding alone does: the distance
    between the oracle's two modes."""
    from assay.jobs.speech import open_speech_writer
    from assay.runtime.options import SessionOptions

    tokens, ours = _scores(writer, sound)
    chain = writer.decoder.session.options.target
    carried = _scores(open_speech_writer(model, SessionOptions(target=chain, mode="precise")), sound)[1]
    eager = _eager_scores(model, writer, sound, tokens)
    found = likeness(ours, eager, carried)
    show_likeness(report, EAGER, found)
    return {"with": EAGER, "same": found["agrees"], **found}


def _scores(writer: SpeechWriter, sound: Any) -> tuple[list[int], list[Array]]:
    """The tokens of the first attempt at a sound of one window, and the scores that each was chosen by."""
    scores: list[Array] = []

    def note(path: str, value: Array) -> None:
        scores.append(value[0].copy())

    found = writer(sound, Hearing(temperatures=(0.0,)), watched={"first_logits": note, "logits": note})
    if not found.phrases or found.sound_seconds > SECONDS:
        raise BadArgument("eager hears one window of speech", hint=f"give a sound of at most {SECONDS} s")
    return list(found.tokens), scores


def _eager_scores(model: str, writer: SpeechWriter, sound: Any, tokens: list[int]) -> list[Array]:
    """The scores of PyTorch's own network behind each of the tokens."""
    import torch

    from assay.jobs.definitions.sound import log_mel, resample
    from assay.ops.registry import evaluate
    from assay.zoo.checkpoints import checkpoint_path
    from assay.zoo.whisper_model import from_checkpoint

    path = checkpoint_path(model)
    if path.suffix != ".pt" or writer.model.tokens.languages:
        raise BadArgument("eager reads OpenAI's files of English models alone", hint="compare with a target")
    samples, rate = sound.read()
    (even,) = evaluate(resample, [samples, np.array(rate)], {"to": RATE}, [np.float32])
    (features,) = evaluate(log_mel, [even], {"mels": writer.model.mels, "seconds": SECONDS}, [np.float32])
    network: Any = from_checkpoint(path)
    with torch.inference_mode():
        heard = network.listen(torch.from_numpy(features))  # pyright: ignore[reportUnknownMemberType]
        scores, _ = network.step(torch.tensor([[writer.model.tokens.start, *tokens]]), heard)
    return list(scores[0].numpy())
