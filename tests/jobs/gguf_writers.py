"""A small Llama in a GGUF file, with weights made up and a tokenizer of bytes: nothing but NumPy takes part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

PROMPT = "the other hat"
_MERGES = ("t h", "th e", "Ġ the", "a t", "e r")
_FORM = GGMLQuantizationType.Q8_0


def alphabet() -> list[str]:
    """How tokenizers of bytes write each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def tokens() -> list[str]:
    """The texts of the tokens."""
    return [*alphabet(), *(pair.replace(" ", "") for pair in _MERGES), "<|end|>"]


def write_gguf(path: Path, seed: int = 0, *, width: int = 128, inner: int = 192, layers: int = 2) -> None:
    """A Llama whose matrices are packed in blocks. Files of the same sizes have as many bytes, whatever the seed."""
    random = np.random.default_rng(seed)
    writer: Any = GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(width // 4)
    texts = tokens()
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "smollm")
    writer.add_array("tokenizer.ggml.tokens", texts)
    writer.add_array("tokenizer.ggml.merges", list(_MERGES))
    writer.add_array("tokenizer.ggml.token_type", [*[1] * (len(texts) - 1), 3])
    writer.add_uint32("tokenizer.ggml.eos_token_id", len(texts) - 1)

    def matrix(name: str, rows: int, columns: int) -> None:
        content = random.standard_normal((rows, columns), np.float32) * 0.4
        writer.add_tensor(f"{name}.weight", quantize(content, _FORM), raw_dtype=_FORM)

    def vector(name: str) -> None:
        writer.add_tensor(f"{name}.weight", random.uniform(0.5, 1.5, width).astype(np.float32))

    matrix("token_embd", len(texts), width)
    vector("output_norm")
    for at in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            vector(f"blk.{at}.{name}")
        for name, rows, columns in (
            ("attn_q", width, width),
            ("attn_k", width // 2, width),
            ("attn_v", width // 2, width),
            ("attn_output", width, width),
            ("ffn_gate", inner, width),
            ("ffn_up", inner, width),
            ("ffn_down", width, inner),
        ):
            matrix(f"blk.{at}.{name}", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
