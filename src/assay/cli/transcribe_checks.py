"""What `assay transcribe` shows beside the text: where ops ran and how long stages took, and how near other engines
come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.cli.chains import chosen
from assay.cli.demo_times import DemoProgress, first_run, show_times, timed
from assay.cli.output import CommandOutput, progress
from assay.cli.transcribe import opened
from assay.errors import BadArgument
from assay.ir.dtypes import Array
from assay.jobs.definitions.sound import RATE
from assay.jobs.transcribe import SECONDS, Hearing
from assay.needs import require

if TYPE_CHECKING:
    from assay.jobs.speech import SpeechWriter, Transcription

EAGER = "eager"
_SHOWN = 12


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
    show_times(report, found.sound_seconds, stages, second.seconds)
    sessions = {"encoder": writer.encoder.session, "decoder": writer.decoder.session}
    placed = {name: _placed(session.explain()) for name, session in sessions.items()}
    for name, rows in placed.items():
        _show_ops(report, name, rows)
    return writer, found, {"stages": stages, "second": second.seconds, "ops": placed}


def _added(*parts: Mapping[str, float]) -> dict[str, float]:
    """The seconds of stages, of several works."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def _placed(explanation: Any) -> list[dict[str, Any]]:
    """How many nodes each core op has, where they run and why; those for which there is a reason come first."""
    counts = Counter((node.op, node.target, node.reason) for node in explanation.nodes).most_common()
    rows = [{"op": op, "target": target, "reason": why, "nodes": n} for (op, target, why), n in counts]
    return sorted(rows, key=lambda row: not row["reason"])


def _show_ops(report: CommandOutput, name: str, rows: list[dict[str, Any]]) -> None:
    cells = [(row["op"], row["nodes"], row["target"], row["reason"]) for row in rows[:_SHOWN]]
    rest = sum(row["nodes"] for row in rows[_SHOWN:])
    more = [(f"… {len(rows) - _SHOWN} more ops", rest, "", "")] if rest else []
    report.text()
    report.table(
        f"{name}: {sum(row['nodes'] for row in rows)} nodes", ("op", ">nodes", "target", "reason"), cells + more
    )


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
    from assay.evidence.compare.arrays import closeness, merged, signal
    from assay.evidence.compare.models import allowed_error, noise_floor
    from assay.jobs.speech import open_speech_writer
    from assay.runtime.options import SessionOptions

    tokens, ours = _scores(writer, sound)
    chain = writer.decoder.session.options.target
    carried = _scores(open_speech_writer(model, SessionOptions(target=chain, mode="precise")), sound)[1]
    eager = _eager_scores(model, writer, sound, tokens)
    count = min(len(ours), len(eager), len(carried))
    steps = [str(at) for at in range(count)]
    mine, theirs, precise = (dict(zip(steps, each, strict=False)) for each in (ours, eager, carried))
    floors = noise_floor(mine, precise)
    near = merged([closeness(mine[s], theirs[s], absolute=allowed_error(theirs[s], floors[s])) for s in steps])
    ratios = [ratio for s in steps if (ratio := signal(mine[s], theirs[s]).snr) is not None]
    alike = sum(int(mine[s].argmax()) == int(theirs[s].argmax()) for s in steps)
    told = {
        "with": EAGER,
        "same": near.ok,
        "steps": count,
        "same_tokens": alike,
        "max_abs": near.max_abs,
        "largest": max(float(np.abs(scores).max()) for scores in eager),
        "lowest_snr": min(ratios),
        "noise_floor": max(floors.values()),
    }
    _show_eager(report, told)
    return told


def _show_eager(report: CommandOutput, found: Mapping[str, Any]) -> None:
    report.text()
    report.text("Against eager:")
    report.text(f"  the best token is the same in {found['same_tokens']} of {found['steps']} steps")
    errors = f"off by at most {found['max_abs']:.2g} ({found['max_abs'] / found['largest']:.2g} of the largest)"
    report.text(f"  scores {errors}, SNR at least {found['lowest_snr']:.1f} dB")
    verdict = "agrees: no more than rounding does" if found["same"] else "diverges: more than rounding does"
    report.text(f"  noise floor {found['noise_floor']:.2g}; verdict: {verdict}")


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
    from assay.jobs.speech import model_file
    from assay.ops.registry import evaluate
    from assay.zoo.whisper_model import from_checkpoint

    path = model_file(model)
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
