"""Small models for tests of jobs: a tokenizer trained on a few lines, and a GPT-2 of transformers as our graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType
from assay.ops.builder import Builder
from assay.ops.parts import scalar_size

LINES = [
    "The quick brown fox jumps over the lazy dog; the dog does not care.",
    "Größe, naïve Übung, straße – čeština, ελληνικά, русский язык, 日本語の文章, 한국어, 🙂🙃 👩‍👩‍👧.",
    "def add(a, b):\n    return a + b  # 12345 67.89\n\n\n\tx = [1, 2, 3]\n",
    "It's we're I'll don't 'tis, WE'RE; tabs\tand   spaces    and\r\nlines.",
]
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_tokenizer(size: int = 400) -> Any:
    """A tokenizer of bytes, as GPT-2's, with special tokens for a chat."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    names = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    special = [AddedToken(name, special=True, normalized=False) for name in names]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(LINES * 3, trainer)
    return made


TINY_LLAMA: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.4,
    "bos_token_id": 1,
    "eos_token_id": 0,
}


def save_writer(folder: Path, configuration: Callable[[int], Any]) -> None:
    """A model of transformers with random weights, its tokenizer and a chat template, saved to a folder."""
    torch.manual_seed(3)
    backend = byte_tokenizer()
    model = transformers.AutoModelForCausalLM.from_config(configuration(backend.get_vocab_size())).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape), alpha=0.3)
    model.save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def small_gpt2(vocabulary: int, seed: int = 0) -> Any:
    """A GPT-2 with random weights, large enough that its choices differ."""
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_positions=256,
        n_embd=32,
        n_layer=2,
        n_head=4,
        initializer_range=0.4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config).eval()


def gpt2_graph(model: Any) -> Graph:
    """A GPT-2 as a decoder of jobs: tokens and caches in, scores of the last position and caches out."""
    weights = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    heads, layers = model.config.n_head, model.config.n_layer
    width = model.config.n_embd // heads
    b = Builder()
    batch, step, past = symbol("batch", 1), symbol("step", 1), symbol("past")
    tokens = b.input(TensorType(dtypes.i64, (batch, step)))
    names = [f"layers.{at}.{kind}" for at in range(layers) for kind in ("key", "value")]
    states = {name: b.input(TensorType(dtypes.f32, (batch, heads, past, width))) for name in names}
    given = {name: b.constant(array) for name, array in weights.items()}
    old, new = scalar_size(b, states[names[0]], 2), scalar_size(b, tokens, 1)
    positions = b.add(b.iota(new), old)
    visible = b.bit_not(b.lt(b.unsqueeze(positions, axes=(1,)), b.iota(b.add(old, new))))
    words = b.gather(given["transformer.wte.weight"], tokens, axis=0)
    x = b.add(words, b.gather(given["transformer.wpe.weight"], positions, axis=0))
    grown: dict[str, Value] = {}

    def linear(x: Value, name: str) -> Value:
        return b.add(b.matmul(x, given[f"{name}.weight"]), given[f"{name}.bias"])

    def norm(x: Value, name: str) -> Value:
        return b.layer_norm(x, given[f"{name}.weight"], given[f"{name}.bias"], axis=-1, epsilon=1e-5)

    def split_heads(x: Value) -> Value:
        shaped = b.reshape(x, b.vector(b.size(x, 0), b.size(x, 1), heads, width))
        return b.transpose(shaped, perm=(0, 2, 1, 3))

    for at in range(layers):
        block = f"transformer.h.{at}"
        parts = b.emit(
            "split", linear(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn"), sizes=(heads * width,) * 3, axis=2
        )
        query, key, value = map(split_heads, parts)
        for kind, rows in (("key", key), ("value", value)):
            grown[f"layers.{at}.{kind}"] = b.concat(states[f"layers.{at}.{kind}"], rows, axis=2)
        found = b.sdpa(query, grown[f"layers.{at}.key"], grown[f"layers.{at}.value"], visible)
        joined = b.reshape(b.transpose(found, perm=(0, 2, 1, 3)), b.vector(b.size(x, 0), b.size(x, 1), heads * width))
        x = b.add(x, linear(joined, f"{block}.attn.c_proj"))
        inner = b.gelu_tanh(linear(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc"))
        x = b.add(x, linear(inner, f"{block}.mlp.c_proj"))
    last = b.gather(norm(x, "transformer.ln_f"), b.constant(-1, dtypes.i64), axis=1)
    logits = b.matmul(last, b.transpose(given["transformer.wte.weight"], perm=(1, 0)))
    outputs = {"logits": logits, **{name: grown[name] for name in names}}
    return b.finish(
        "decoder",
        (tokens, *states.values()),
        tuple(outputs.values()),
        names={"hidden": last},
        input_names=("tokens", *names),
        output_names=tuple(outputs),
    )


WHISPER_TOKENS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")


def save_speech_writer(folder: Path, seed: int = 0, languages: Sequence[str] = ("en", "de"), **more: Any) -> Any:
    """A Whisper of transformers with random weights and a tokenizer of a few hundred tokens, saved to a folder."""
    made = byte_tokenizer(300)
    names = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{name}|>" for name in (*languages, *WHISPER_TOKENS))]
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    made.add_tokens([AddedToken(f"<|{at * 0.02:.2f}|>", normalized=False) for at in range(1501)])
    number = {name: made.token_to_id(name) for name in names}
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "num_mel_bins": 8, "max_target_positions": 96}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    config = transformers.WhisperConfig(
        vocab_size=made.get_vocab_size(),
        decoder_start_token_id=number["<|startoftranscript|>"],
        eos_token_id=number["<|endoftext|>"],
        bos_token_id=number["<|endoftext|>"],
        pad_token_id=number["<|endoftext|>"],
        suppress_tokens=None,
        begin_suppress_tokens=None,
        init_std=0.5,
        **{**sizes, **heads, **more},
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape), alpha=0.2)
    model.save_pretrained(folder)
    made.save(str(folder / "tokenizer.json"))
    return model


def save_text_classifier(folder: Path) -> tuple[Any, Any]:
    """A BERT of transformers that tells two kinds of texts apart, with random weights; its tokenizer, and itself."""
    torch.manual_seed(2)
    backend = byte_tokenizer(300)
    config = transformers.BertConfig(
        vocab_size=backend.get_vocab_size(),
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        id2label={0: "good", 1: "bad"},
        label2id={"good": 0, "bad": 1},
        initializer_range=0.5,
    )
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    return backend, model
