"""`assay transcribe`: speech as text, phrase by phrase."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.cli.chains import TargetOption, chosen, where_it_ran
from assay.cli.numbers import MOST_SEED, count_option
from assay.cli.output import DIFFERS, CommandOutput, JsonOption, reporting
from assay.errors import NotFound
from assay.needs import require
from assay.runtime.targets import is_modelled

if TYPE_CHECKING:
    from assay.jobs.sound_files import SoundBytes
    from assay.jobs.speech import Phrase, SpeechWriter, Transcription

DEFAULT_MODEL = "whisper-tiny.en"

SoundArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A WAV file (with PyAV also FLAC, OGG, MP3), the clip beckett or jfk; '-' reads stdin.",
        show_default=False,
    ),
]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="A bundle, a folder of Hugging Face's form, OpenAI's .pt, or a name."
    ),
]
Form = Literal["text", "srt", "vtt", "json"]
FormOption = Annotated[Form, typer.Option("--format", "-f", help="What is written; json: a line for each phrase.")]
FileOption = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where it goes, not stdout.")]
LanguageOption = Annotated[
    str,
    typer.Option("--language", metavar="NAME", help="The language, such as de; the sound tells if it is not given."),
]
TranslateOption = Annotated[bool, typer.Option("--translate", help="Write what is said in English.")]
BeamsOption = Annotated[int, count_option("--beams", most=64, help="Follow so many texts at once, and take the best.")]
ColdOption = Annotated[bool, typer.Option("--no-fallback", help="Keep to temperature 0, also if a text is doubtful.")]
ContextOption = Annotated[bool, typer.Option("--context", help="Tell a window what was said before it.")]
SeedOption = Annotated[int, count_option("--seed", least=0, most=MOST_SEED, help="Of what is drawn.")]
RawOption = Annotated[
    int, count_option("--raw", least=0, metavar="RATE", help="FILE is samples of 16 bits, RATE in a second, 1 channel.")
]
CompareOption = Annotated[
    str | None,
    typer.Option(
        "--compare-with",
        metavar="TARGET|eager",
        help="Hear it again elsewhere: a target such as reference, token by token, or PyTorch (eager), score by score.",
    ),
]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Hear it twice; show what the first time took, and where every op ran.")
]
SaveOption = Annotated[Path | None, typer.Option("--save-job", metavar="FILE", help="Save the job that runs.")]


def transcribe(
    sound: SoundArgument,
    model: ModelOption = DEFAULT_MODEL,
    format: FormOption = "text",
    output: FileOption = None,
    language: LanguageOption = "",
    translate: TranslateOption = False,
    beams: BeamsOption = 1,
    no_fallback: ColdOption = False,
    context: ContextOption = False,
    seed: SeedOption = 0,
    raw: RawOption = 0,
    target: TargetOption = None,
    compare_with: CompareOption = None,
    explain: ExplainOption = False,
    save_job: SaveOption = None,
    json: JsonOption = None,
) -> None:
    """Write down what is said in a sound of any length, with times."""
    from assay.cli.transcribe_checks import check_peer, compared, explained_run
    from assay.jobs.transcribe import Hearing

    with reporting(json) as report:
        chain = chosen(target)
        check_peer(compare_with)
        require("tokenizers")
        usual = Hearing(context=context, seed=seed)
        hearing = replace(usual, temperatures=(0.0,)) if no_fallback else usual
        how: dict[str, Any] = {"hearing": hearing, "language": language, "translate": translate, "beams": beams}
        source = _sound(sound, raw)
        if explain:
            writer, found, told = explained_run(report, model, chain, source, how)
        else:
            writer = opened(model, chain)
            found, told = _heard(report, writer, source, how, format, output), {}
        _show_speed(found, chain)
        job = writer.job(hearing, language, translate, beams)
        if save_job is not None:
            job.save(save_job)
        other = None if compare_with is None else compared(report, model, source, how, found, writer, compare_with)
        result = {"model": model, "target": chain, "sound": sound, **_told(found, chain), **told}
        report.result({**result, "job": job.digest, "compared": other})
        if other is not None and not other["same"]:
            raise typer.Exit(DIFFERS)


def opened(model: str, chain: str) -> SpeechWriter:
    """The model on a chain of targets."""
    from assay.jobs.speech import open_speech_writer
    from assay.runtime.options import SessionOptions

    return open_speech_writer(model, SessionOptions(target=chain))


def _sound(name: str, raw: int) -> SoundBytes:
    from assay.jobs.sound_files import SoundBytes, sound_file
    from assay.zoo.clips import CLIPS

    if name == "-":
        return SoundBytes(sys.stdin.buffer.read(), "stdin", raw)
    return sound_file(CLIPS[name]() if name in CLIPS and not Path(name).exists() else name, raw)


def _heard(
    report: CommandOutput, writer: SpeechWriter, sound: Any, how: Mapping[str, Any], form: Form, output: Path | None
) -> Transcription:
    """What is said; every phrase is written as soon as it is known."""
    from assay.jobs.subtitles import FORMS

    head, written = FORMS[form]
    count = 0
    with _writing(report, output) as write:
        write(head)

        def tell(phrase: Phrase) -> None:
            nonlocal count
            count += 1
            write(written(count, phrase))

        return writer(sound, **how, phrases=tell)


@contextmanager
def _writing(report: CommandOutput, output: Path | None) -> Generator[Any]:
    if output is None:
        yield report.piece
        return
    try:
        file = output.open("w", encoding="utf-8")
    except OSError as error:
        raise NotFound(f"'{output}' cannot be written: {error.strerror}", hint="give another file") from error
    with file:

        def write(text: str) -> None:
            file.write(text)
            file.flush()

        yield write


def _told(found: Transcription, chain: str) -> dict[str, Any]:
    modelled = is_modelled(chain)
    return {
        "text": found.text,
        "language": found.language,
        "phrases": [vars(each) for each in found.phrases],
        "seconds": {"sound": found.sound_seconds, "all": None if modelled else found.seconds},
        "modelled": modelled,
    }


def _show_speed(found: Transcription, chain: str) -> None:
    """On stderr, since what was said may go into a pipe."""
    ratio = f", {found.sound_seconds / found.seconds:.1f} times as fast as it was said" if found.sound_seconds else ""
    took = "" if is_modelled(chain) else f" in {found.seconds:.2f} s{ratio}"
    typer.echo(f"[{found.sound_seconds:.1f} s of sound{took}, on {where_it_ran(chain)}]", err=True)
