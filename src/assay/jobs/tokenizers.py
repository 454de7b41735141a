"""Tokenizers: text to tokens and back, whatever file describes them.

All are objects of Hugging Face's `tokenizers`; what a GGUF file says is turned into one (`gguf_tokenizer.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from assay.errors import FileMissing, ImportFailed, LimitExceeded
from assay.frontends.checkpoint import open_checkpoint
from assay.jobs.gguf_tokenizer import gguf_tokenizer
from assay.limits import DEFAULT, Limits
from assay.needs import explained

if TYPE_CHECKING:
    from assay.jobs.templates import ChatTemplate

_TOKENIZER, _SETTINGS, _TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
_ENDS = ("generation_config.json", "config.json")
_FILES = (_TOKENIZER, _SETTINGS, _TEMPLATE, *_ENDS)
_PREFIX = "tokenizer."
_GGUF_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


class TextPiece(NamedTuple):
    """What one more token adds to a text; `before` and `done` say where the next piece starts to be decoded."""

    text: str
    before: int
    done: int


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Text to tokens and back. `ends` are the tokens that end a text, `names` what templates call special tokens."""

    backend: Any
    ends: tuple[int, ...] = ()
    template_text: str = ""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    known_digest: str = ""
    """Its digest, if that was computed before."""

    @cached_property
    def digest(self) -> str:
        """A hash of all that decides what it does."""
        if self.known_digest:
            return self.known_digest
        told = [self.backend.to_str(), list(self.ends), self.template_text, dict(self.names)]
        return "sha256:" + hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    @property
    def version(self) -> str:
        """The version of the library that does the work."""
        import tokenizers

        return tokenizers.__version__

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return self.backend.get_vocab_size()

    @cached_property
    def template(self) -> ChatTemplate | None:
        """How a conversation becomes a text, if the model says so."""
        # Imported here, since it is about processes, and plain texts take none.
        from assay.jobs.templates import ChatTemplate

        return ChatTemplate(self.template_text, self.names) if self.template_text else None

    def encode(self, text: str, special: bool = True, longest: int = 0) -> list[int]:
        """The tokens of a text; with those that begin and end it, if `special`. Of more than `longest` tokens (0: any
        number) the first are taken, and the one that ends the text."""
        found = self.backend.encode(text, add_special_tokens=special)
        if not 0 < longest < len(found.ids):
            return found.ids
        kept = int(found.special_tokens_mask[-1])
        return found.ids[: longest - kept] + found.ids[len(found.ids) - kept :]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones. Bytes that are no text become U+FFFD."""
        return self.backend.decode(list(tokens))

    def piece(self, tokens: Sequence[int], before: int, done: int, last: bool = False) -> TextPiece:
        """The text that the tokens from `done` on add, which were decoded together with those from `before` on.

        Nothing is added while the text ends in the midst of a character, unless these are the `last` tokens.
        """
        known, text = self.decode(tokens[before:done]), self.decode(tokens[before:])
        waits = len(text) <= len(known) or text.endswith(_INCOMPLETE)
        if waits and not (last and len(text) > len(known)):
            return TextPiece("", before, done)
        return TextPiece(text[len(known) :], done, len(tokens))

    def pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        """The text as it grows, token after token; its end comes in any case."""
        seen: list[int] = []
        before = done = 0
        for token in tokens:
            seen.append(token)
            text, before, done = self.piece(seen, before, done)
            yield text
        yield self.piece(seen, before, done, last=True).text


def open_tokenizer(path: str | Path, limits: Limits = DEFAULT) -> Tokenizer:
    """The tokenizer of a folder, or of a GGUF file."""
    given = Path(path)
    if given.suffix.lower() != ".gguf":
        return make_tokenizer({each: given / each for each in _FILES if (given / each).is_file()}, {}, limits)
    facts = open_checkpoint(given, limits).facts
    return make_tokenizer({}, {name.removeprefix(_PREFIX): facts[name] for name in facts if name.startswith(_PREFIX)})


def make_tokenizer(files: Mapping[str, Path], facts: Mapping[str, Any], limits: Limits = DEFAULT) -> Tokenizer:
    """The tokenizer that facts of a GGUF file describe (each by what follows `tokenizer.` in its name), else the one in
    the files beside a model, by their names. ImportFailed if it is damaged; FileMissing if there is none."""
    told = "ggml.model" in facts
    if not told and _TOKENIZER not in files:
        raise FileMissing(f"the model has no '{_TOKENIZER}'", hint="fetch all files of the model")
    with explained(), _refusing("the model's facts" if told else str(files[_TOKENIZER])):
        return _of_facts(facts) if told else _of_files(files, limits)


@contextmanager
def _refusing(where: str) -> Generator[None]:
    """Inside, whatever is wrong with a tokenizer is ImportFailed. Its library tells of errors by plain exceptions, and
    of its own faults by one that is none (`PanicException`)."""
    try:
        yield
    except (ImportFailed, FileMissing, ModuleNotFoundError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        text = str(error).partition("\n")[0]
        raise ImportFailed(f"the tokenizer cannot be used: {type(error).__name__}: {text}", where=where) from error


def _of_files(files: Mapping[str, Path], limits: Limits) -> Tokenizer:
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_str(_text(files[_TOKENIZER], limits))
    backend.no_padding()
    backend.no_truncation()
    tables = {name: read_table(path, limits) for name, path in files.items() if name in (_SETTINGS, *_ENDS)}
    settings = tables.get(_SETTINGS, {})
    names = {name: text for name in _NAMED if (text := _token_text(settings.get(name)))}
    listed = [each for name in _ENDS for each in _numbers(tables.get(name, {}).get("eos_token_id"))]
    if "eos_token" in names:
        listed += _numbers(backend.token_to_id(names["eos_token"]))
    return Tokenizer(backend, tuple(dict.fromkeys(listed)), _template(files, settings, limits), names)


def _template(files: Mapping[str, Path], settings: Mapping[str, Any], limits: Limits) -> str:
    """The template in a file of its own, else the one in the settings; of several there, the default one."""
    if _TEMPLATE in files:
        return _text(files[_TEMPLATE], limits)
    found = settings.get("chat_template")
    if isinstance(found, list):
        listed = [cast("dict[str, Any]", each) for each in cast("list[Any]", found) if isinstance(each, dict)]
        found = next((each.get("template") for each in listed if each.get("name") == "default"), None)
    return found if isinstance(found, str) else ""


def _of_facts(facts: Mapping[str, Any]) -> Tokenizer:
    backend, tokens = gguf_tokenizer(facts)
    numbers = {name: facts.get(f"ggml.{name.replace('_token', '_token_id')}") for name in _NAMED}
    numbers["unk_token"] = facts.get("ggml.unknown_token_id")
    numbers["pad_token"] = facts.get("ggml.padding_token_id")
    names = {name: tokens[at] for name, at in numbers.items() if isinstance(at, int) and 0 <= at < len(tokens)}
    ends = [each for name in _GGUF_ENDS for each in _numbers(facts.get(f"ggml.{name}"))]
    template = facts.get("chat_template")
    return Tokenizer(backend, tuple(dict.fromkeys(ends)), template if isinstance(template, str) else "", names)


def _token_text(found: Any) -> str:
    """A token as settings name it: its text, or a table with it."""
    content = cast("dict[str, Any]", found).get("content") if isinstance(found, dict) else found
    return content if isinstance(content, str) else ""


def _numbers(found: Any) -> list[int]:
    listed = cast("list[Any]", found if isinstance(found, list) else [found])
    return [each for each in listed if type(each) is int and each >= 0]


def _text(path: Path, limits: Limits) -> str:
    if path.stat().st_size > limits.text_bytes:
        raise LimitExceeded(f"'{path.name}' has too much text", hint="raise Limits.text_bytes")
    return path.read_text(encoding="utf-8")


def read_table(path: Path, limits: Limits = DEFAULT) -> dict[str, Any]:
    """A JSON file that is a table; nothing if it is something else or not there. ImportFailed if it is no JSON."""
    try:
        found: Any = json.loads(_text(path, limits)) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise ImportFailed(f"'{path.name}' is no JSON: {error}", where=str(path)) from None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
