"""What a GGUF file says of its tokenizer, as an object of `tokenizers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from assay.errors import ImportFailed

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_UNKNOWN, _CONTROL, _USER = 2, 3, 4
"""Kinds of tokens that are found in a text before it is cut into words."""

_CASELESS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS: Mapping[str, str] = {
    "llama-bpe": rf"{_CASELESS}\p{{N}}{{1,3}}{_TAIL}",
    "llama3": rf"{_CASELESS}\p{{N}}{{1,3}}{_TAIL}",
    "qwen2": rf"{_CASELESS}\p{{N}}{_TAIL}",
}
"""How texts are cut into words, by the name that files give it."""
_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
"""The same as GPT-2's, with every digit a word."""
_PLAIN = frozenset({"default", "gpt-2", "phi-2", "jina-es", "jina-de", "mpt", "olmo", "dbrx"})
"""As GPT-2 has it."""


def gguf_tokenizer(facts: Mapping[str, Any]) -> tuple[Any, Sequence[str]]:
    """The tokenizer that facts describe, each by what follows `tokenizer.` in its name, and the texts of its tokens.
    ImportFailed if it is of an unknown kind."""
    kind, tokens = facts.get("ggml.model"), facts.get("ggml.tokens")
    if kind not in _KINDS:
        raise ImportFailed(f"a tokenizer of the kind '{kind}' is not known", hint=f"known are {', '.join(_KINDS)}")
    if not isinstance(tokens, list) or not tokens:
        raise ImportFailed("the tokenizer has no tokens", where="ggml.tokens")
    texts = cast("list[str]", tokens)
    backend = _KINDS[str(kind)](facts, texts)
    _add_special(backend, facts, texts)
    return backend, texts


def _byte_pairs(facts: Mapping[str, Any], tokens: Sequence[str]) -> Any:
    """Pairs of bytes, as GPT-2 has them: merges are listed, words are found by a pattern."""
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Backend

    listed = facts.get("ggml.merges")
    if not isinstance(listed, list):
        raise ImportFailed("the tokenizer has no merges", where="ggml.merges")
    merges = [tuple(str(each).split(" ", 1)) for each in listed]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not set(map(len, merges)) <= {2}:
        raise ImportFailed("a merge is no pair", where="ggml.merges")
    backend = Backend(models.BPE({text: at for at, text in enumerate(tokens)}, merges, ignore_merges=_whole(facts)))  # pyright: ignore[reportArgumentType]
    name = str(facts.get("ggml.pre", "default"))
    if name in _SPLITS:
        cuts = [
            pre_tokenizers.Split(Regex(_SPLITS[name]), "isolated"),
            pre_tokenizers.ByteLevel(False, use_regex=False),
        ]
    elif name in _DIGITS:
        cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    elif name in _PLAIN:
        cuts = [pre_tokenizers.ByteLevel(False)]
    else:
        known = ", ".join(sorted({*_SPLITS, *_DIGITS, *_PLAIN}))
        raise ImportFailed(f"how '{name}' cuts texts into words is not known", hint=f"known are {known}")
    backend.pre_tokenizer = pre_tokenizers.Sequence(cuts)  # pyright: ignore[reportAttributeAccessIssue]
    backend.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    return backend


def _whole(facts: Mapping[str, Any]) -> bool:
    """Whether a word that is a token is taken as it is, before any merge: so it is with Llama 3."""
    return str(facts.get("ggml.pre")) in ("llama-bpe", "llama3")


def _sentence_pieces(facts: Mapping[str, Any], tokens: Sequence[str]) -> Any:
    """Pieces with scores, as Llama has them: of two neighbours that make a piece, those are merged first whose piece
    scores best. What is no piece is spelled in bytes."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers

    scores = np.asarray(facts.get("ggml.scores", ()), np.float64)
    if scores.shape != (len(tokens),):
        raise ImportFailed(f"there are {scores.size} scores for {len(tokens)} tokens", where="ggml.scores")
    vocabulary = {text: at for at, text in enumerate(tokens)}
    unknown = facts.get("ggml.unknown_token_id", 0)
    if type(unknown) is not int or not 0 <= unknown < len(tokens):
        raise ImportFailed(f"the unknown token is {unknown}", where="ggml.unknown_token_id")
    model = models.BPE(
        vocabulary, _merges(vocabulary, scores), unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True
    )
    backend = Backend(model)
    before = [normalizers.Prepend(_SPACE)] if facts.get("ggml.add_space_prefix", True) else []
    backend.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", _SPACE)])  # pyright: ignore[reportAttributeAccessIssue]
    after = [decoders.Strip(" ", 1, 0)] if before else []
    backend.decoder = decoders.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *after]
    )
    return backend


def _merges(vocabulary: Mapping[str, int], scores: np.ndarray[Any, Any]) -> list[tuple[str, str]]:
    """All pairs of pieces that make a piece, those of the best first; of one piece, in the order of their parts."""
    found: list[tuple[float, int, int, str, str]] = []
    for text, at in vocabulary.items():
        for cut in range(1, len(text)):
            left, right = vocabulary.get(text[:cut]), vocabulary.get(text[cut:])
            if left is not None and right is not None:
                found.append((-scores[at], left, right, text[:cut], text[cut:]))
    return [(left, right) for *_, left, right in sorted(found)]


def _word_pieces(facts: Mapping[str, Any], tokens: Sequence[str]) -> Any:
    """Pieces of words in small letters, as BERT has them. In the file those that begin a word are marked, in the
    library those that go on with one. Files do not tell of models that keep capitals."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    kinds = np.asarray(facts.get("ggml.token_type", ()), np.int64)
    if kinds.shape != (len(tokens),):
        raise ImportFailed(f"there are {kinds.size} kinds of {len(tokens)} tokens", where="ggml.token_type")
    named = [text if kind == _CONTROL else _as_piece(text) for text, kind in zip(tokens, kinds.tolist(), strict=True)]
    unknown = facts.get("ggml.unknown_token_id", 0)
    if type(unknown) is not int or not 0 <= unknown < len(tokens):
        raise ImportFailed(f"the unknown token is {unknown}", where="ggml.unknown_token_id")
    backend = Backend(models.WordPiece({text: at for at, text in enumerate(named)}, unk_token=named[unknown]))  # pyright: ignore[reportCallIssue]
    backend.normalizer = normalizers.BertNormalizer()  # pyright: ignore[reportAttributeAccessIssue]
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # pyright: ignore[reportAttributeAccessIssue]
    backend.decoder = decoders.WordPiece()  # pyright: ignore[reportAttributeAccessIssue]
    return backend


def _as_piece(text: str) -> str:
    return text[1:] if text.startswith(_SPACE) else f"##{text}"


_KINDS: Mapping[str, Callable[[Mapping[str, Any], Sequence[str]], Any]] = {
    "gpt2": _byte_pairs,
    "llama": _sentence_pieces,
    "bert": _word_pieces,
}
_ENDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {"bert": (("cls", "bos"), ("seperator", "eos"))}
"""By kind, what the tokens that a text begins and ends with are called; `bos` and `eos` if nothing else is said."""


def _add_special(backend: Any, facts: Mapping[str, Any], tokens: Sequence[str]) -> None:
    """Tokens that are found as they are, and those that a text begins and ends with."""
    from tokenizers import AddedToken, processors

    kinds = np.asarray(facts.get("ggml.token_type", ()), np.int64)
    for at in np.flatnonzero(np.isin(kinds[: len(tokens)], (_UNKNOWN, _CONTROL, _USER))).tolist():
        special = kinds[at] != _USER
        added = [AddedToken(tokens[at], normalized=False, special=bool(special))]
        if special:
            backend.add_special_tokens(added)
        else:
            backend.add_tokens(added)
    kind = str(facts.get("ggml.model"))
    begins, ends = _ENDS.get(kind, (("bos",), ("eos",)))
    first = _added(facts, begins, tokens, kind in ("llama", "bert"))
    last = _added(facts, ends, tokens, kind == "bert")
    if first or last:
        parts = [*first, "$A", *last]
        special = [(text, backend.token_to_id(text)) for text in {*first, *last}]
        backend.post_processor = processors.TemplateProcessing(single=parts, special_tokens=special)


def _added(facts: Mapping[str, Any], names: Sequence[str], tokens: Sequence[str], usual: bool) -> list[str]:
    """The token that begins or ends every text, if there is one: the first of some names that the file has."""
    at = next((found for name in names if (found := facts.get(f"ggml.{name}_token_id")) is not None), None)
    wanted = facts.get(f"ggml.add_{names[-1]}_token", usual)
    return [tokens[at]] if wanted and type(at) is int and 0 <= at < len(tokens) else []
