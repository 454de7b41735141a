"""`assay generate` and `assay chat`: texts that a model writes, as it writes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.chains import TargetOption, chosen, where_it_ran
from assay.cli.numbers import MOST_FACTOR, MOST_SEED, count_option, number_option
from assay.cli.output import DIFFERS, CommandOutput, JsonOption, reporting
from assay.errors import BadArgument
from assay.needs import require
from assay.runtime.targets import is_modelled

if TYPE_CHECKING:
    from assay.jobs.generate import Sampling
    from assay.jobs.job import JobGraph
    from assay.jobs.pipelines import TextWriter, Written

ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="A folder of Hugging Face's form, a GGUF file, or smollm2-135m.", show_default=False
    ),
]
PromptArgument = Annotated[
    str, typer.Argument(metavar="PROMPT", help="The text to be continued; '-' reads it from stdin.", show_default=False)
]
MostOption = Annotated[int, count_option("--max-tokens", "-n", help="The most tokens that are made.")]
TemperatureOption = Annotated[float, number_option("--temperature", most=100.0, help="0 takes the best token always.")]
TopKOption = Annotated[int, count_option("--top-k", least=0, help="Draw among the K best tokens; 0: among all.")]
TopPOption = Annotated[
    float, number_option("--top-p", most=1.0, help="Draw among the best that have this probability.")
]
MinPOption = Annotated[
    float, number_option("--min-p", most=1.0, help="Draw among those at least this probable, beside the best one.")
]
RepetitionOption = Annotated[
    float,
    number_option("--repetition-penalty", least=1e-3, most=MOST_FACTOR, help="Divides scores of tokens there are."),
]
PresenceOption = Annotated[
    float, number_option("--presence-penalty", least=-100.0, most=100.0, help="Lowers scores of tokens that were made.")
]
FrequencyOption = Annotated[
    float,
    number_option("--frequency-penalty", least=-100.0, most=100.0, help="Lowers them for each time they were made."),
]
SeedOption = Annotated[int, count_option("--seed", least=0, most=MOST_SEED, help="Of what is drawn.")]
StopOption = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="End before this text; may be repeated.")
]
CompareOption = Annotated[
    str | None,
    typer.Option(
        "--compare-with",
        metavar="TARGET|hf",
        help="Write it again elsewhere and compare token by token: a target such as reference, or transformers (hf).",
    ),
]
BeamsOption = Annotated[
    int, count_option("--beams", most=64, help="Follow so many texts at once, and show the best at the end.")
]
SaveOption = Annotated[Path | None, typer.Option("--save-job", metavar="FILE", help="Save the job that runs.")]
SystemOption = Annotated[str, typer.Option("--system", metavar="TEXT", help="What the model is told first.")]


def generate(
    model: ModelArgument,
    prompt: PromptArgument,
    max_tokens: MostOption = 256,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    repetition_penalty: RepetitionOption = 1.0,
    presence_penalty: PresenceOption = 0.0,
    frequency_penalty: FrequencyOption = 0.0,
    seed: SeedOption = 0,
    stop: StopOption = None,
    beams: BeamsOption = 1,
    target: TargetOption = None,
    compare_with: CompareOption = None,
    save_job: SaveOption = None,
    json: JsonOption = None,
) -> None:
    """Continue a text, and show it as it is written."""
    from assay.jobs.generate import Sampling

    with reporting(json) as report:
        sampling = Sampling(
            max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, seed
        )
        chain = chosen(target)
        _check_peer(compare_with, sampling)
        require("tokenizers")
        way = _Way(sampling, tuple(stop or ()), beams)
        writer = _opened(model, chain)
        job = way.job(writer)
        if save_job is not None:
            job.save(save_job)
        text = sys.stdin.read() if prompt == "-" else prompt
        report.piece(text)
        found = way.written(writer, text, report.piece)
        report.text()
        _show_speed(report, found, chain)
        told = {"model": str(model), "target": chain, "prompt": text, **_told(found, chain)}
        compared = None if compare_with is None else _compared(report, model, text, way, found, compare_with)
        report.result({**told, "job": job.digest, "compared": compared})
        if compared is not None and not compared["same"]:
            raise typer.Exit(DIFFERS)


def chat(
    model: ModelArgument,
    system: SystemOption = "",
    max_tokens: MostOption = 512,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    repetition_penalty: RepetitionOption = 1.0,
    seed: SeedOption = 0,
    stop: StopOption = None,
    target: TargetOption = None,
    json: JsonOption = None,
) -> None:
    """Talk with a model, line by line, until the input ends."""
    from assay.jobs.generate import Sampling

    with reporting(json) as report:
        settings: dict[str, Any] = {"most": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        sampling = Sampling(**settings, min_p=min_p, repetition_penalty=repetition_penalty, seed=seed)
        chain = chosen(target)
        for package in ("tokenizers", "jinja2"):
            require(package)
        writer = _opened(model, chain)
        if writer.tokenizer.template is None:
            raise BadArgument("the model has no chat template", hint="use `assay generate`")
        messages = [{"role": "system", "content": system}] if system else []
        answers: list[dict[str, Any]] = []
        while (line := _asked(report)) is not None:
            messages.append({"role": "user", "content": line})
            found = writer.chat(messages, sampling, stop=stop or (), pieces=report.piece)
            report.text()
            _show_speed(report, found, chain)
            messages.append({"role": "assistant", "content": found.text})
            answers.append({"prompt": line, **_told(found, chain)})
        report.result({"model": str(model), "target": chain, "answers": answers})


def _asked(report: CommandOutput) -> str | None:
    """The next line that is not empty; None at the end of the input."""
    while True:
        if sys.stdin.isatty():
            report.piece("> ")
        line = sys.stdin.readline()
        if not line or line.strip():
            return line.strip() or None


@dataclass(frozen=True)
class _Way:
    """How a text is continued: token by token, or by a beam search."""

    sampling: Sampling
    stop: tuple[str, ...]
    beams: int

    def __post_init__(self) -> None:
        if self.beams > 1 and self.stop:
            raise BadArgument("a beam search ends where tokens say so, not before texts", hint="leave --stop out")

    def job(self, writer: TextWriter) -> JobGraph:
        """The job that continues it."""
        from assay.jobs.pipelines import Beams

        searches = self.beams > 1
        return writer.search_job(Beams(self.beams), self.sampling) if searches else writer.job(self.sampling, False)

    def written(self, writer: TextWriter, text: str, pieces: Callable[[str], None] = lambda text: None) -> Written:
        """What follows a text. A search knows it at the end alone."""
        from assay.jobs.pipelines import Beams

        if self.beams == 1:
            return writer(text, self.sampling, stop=self.stop, pieces=pieces)
        found = writer.search(text, Beams(self.beams), self.sampling)
        pieces(found.text)
        return found


def _opened(model: Path, chain: str) -> TextWriter:
    from assay.jobs.pipelines import open_writer
    from assay.runtime.options import SessionOptions

    return open_writer(model, SessionOptions(target=chain))


def _told(found: Written, chain: str) -> dict[str, Any]:
    modelled = is_modelled(chain)
    return {
        "text": found.text,
        "tokens": list(found.tokens),
        "prompt_tokens": found.prompt_tokens,
        "seconds": None if modelled else {"first": found.first_seconds, "all": found.seconds},
        "tokens_per_second": None if modelled else found.tokens_per_second,
        "modelled": modelled,
    }


def _show_speed(report: CommandOutput, found: Written, chain: str) -> None:
    speed = f", then {found.tokens_per_second:.1f} tokens/s" if found.tokens_per_second else ""
    timed = f"the first of {len(found.tokens)} tokens after {found.first_seconds:.2f} s{speed}"
    new = f"{len(found.tokens)} more" if is_modelled(chain) else timed
    report.text(f"[{found.prompt_tokens} tokens of the prompt, {new}, on {where_it_ran(chain)}]")


# --- another engine


def _check_peer(name: str | None, sampling: Sampling) -> None:
    """What cannot be compared is refused before anything runs."""
    if name == "hf" and (sampling.temperature or sampling.presence_penalty or sampling.frequency_penalty):
        raise BadArgument(
            "transformers draws other tokens than Assay, and has no penalty of presence",
            hint="compare with hf at temperature 0, or with a target",
        )
    if name is not None and name != "hf":
        chosen(name)


def _compared(
    report: CommandOutput,
    model: Path,
    prompt: str,
    way: _Way,
    found: Written,
    name: str,
) -> Mapping[str, Any]:
    """Whether another engine chooses the same tokens; where they part, if they do."""
    if name == "hf":
        theirs = _hugging_face(model, prompt, way, len(found.tokens))
    else:
        theirs = list(way.written(_opened(model, name), prompt).tokens)
    ours = list(found.tokens)
    same = next(
        (at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )
    equal = ours == theirs
    report.text(f"{name}: {'the same' if equal else f'{same} of'} {len(ours)} tokens{'' if equal else ', then others'}")
    return {"with": name, "same": equal, "equal_tokens": same, "tokens": theirs}


def _hugging_face(source: Path, prompt: str, way: _Way, count: int) -> list[int]:
    """The tokens that transformers makes of the same prompt: as many as there are, or all that a beam search finds
    up to the one that ends the text."""
    import torch
    import transformers

    from assay.jobs.tokenizers import open_tokenizer
    from assay.zoo.checkpoints import checkpoint_path

    model = checkpoint_path(source)
    whole = {} if model.is_dir() else {"gguf_file": model.name}
    library: Any = transformers
    try:
        theirs = library.AutoModelForCausalLM.from_pretrained(str(model if model.is_dir() else model.parent), **whole)
    except (ImportError, OSError, ValueError) as error:
        raise BadArgument(f"transformers does not read this model: {error}", hint="compare with a target") from error
    tokenizer = open_tokenizer(model)
    tokens: Any = torch.tensor([tokenizer.encode(prompt)])
    found = theirs.eval().generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=count if way.beams == 1 else way.sampling.most,
        num_beams=way.beams,
        do_sample=False,
        repetition_penalty=way.sampling.repetition_penalty,
        eos_token_id=list(tokenizer.ends) or None,
        pad_token_id=0,
    )
    made = found[0, tokens.shape[1] :].tolist()
    return made if way.beams == 1 else made[: _length(made, tokenizer.ends)]


def _length(tokens: Sequence[int], ends: Collection[int]) -> int:
    """How many tokens a text has with the one that ends it; what follows is padding."""
    return next((at + 1 for at, token in enumerate(tokens) if token in ends), len(tokens))
