"""Graphs made of weights compute what Hugging Face's library computes with them: prompts, steps, and whole texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frontends.checkpoint.recipe_models import (
    GROUPED,
    SMALL,
    VOCABULARY,
    Stepper,
    TheirStepper,
    assert_near,
    assert_same_steps,
    greedy,
    prompt,
    saved,
)
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)

from assay.errors import BadArgument
from assay.frontends.checkpoint import load_model
from assay.ir import dtypes
from assay.ir.verify import verify
from assay.ops.levels import core_level

LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
YARN: dict[str, Any] = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
LONG: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.5, 2.0, 3.0],
    "long_factor": [2.0] * 4,
}
GPT2: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": 256}
TWO_BASES: dict[str, Any] = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}

DECODERS: dict[str, Any] = {
    "llama": LlamaConfig(**GROUPED),
    "llama with biases and one table": LlamaConfig(
        **GROUPED, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, head_dim=16
    ),
    "llama 3": LlamaConfig(**GROUPED, rope_parameters={**LLAMA3, "original_max_position_embeddings": 64}),
    "llama with linear scaling": LlamaConfig(
        **GROUPED, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    ),
    "mistral": MistralConfig(**GROUPED, sliding_window=5),
    "gpt2": GPT2Config(**GPT2),
    "gpt2 with its own head": GPT2Config(
        **GPT2, tie_word_embeddings=False, scale_attn_by_inverse_layer_idx=True, n_inner=40, activation_function="relu"
    ),
    "qwen2": Qwen2Config(**GROUPED, tie_word_embeddings=True),
    "qwen2 with windows": Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=4, max_window_layers=1, rope_parameters=YARN
    ),
    "qwen3": Qwen3Config(**GROUPED, head_dim=12),
    "qwen3 with biases": Qwen3Config(**GROUPED, head_dim=8, attention_bias=True, tie_word_embeddings=True),
    "gemma": GemmaConfig(**GROUPED, head_dim=8),
    "gemma2": Gemma2Config(**GROUPED, head_dim=8, sliding_window=4, query_pre_attn_scalar=16),
    "gemma2 without bounds": Gemma2Config(
        **GROUPED, head_dim=8, attn_logit_softcapping=None, final_logit_softcapping=None
    ),
    "gemma3": Gemma3TextConfig(
        **{**GROUPED, "num_hidden_layers": 7}, head_dim=8, sliding_window=4, rope_parameters=TWO_BASES
    ),
    "phi3": Phi3Config(**GROUPED, sliding_window=6, tie_word_embeddings=True),
    "phi3 of long texts": Phi3Config(**GROUPED, original_max_position_embeddings=12, rope_parameters=LONG),
    "neox": GPTNeoXConfig(**{**SMALL, "hidden_size": 64}, tie_word_embeddings=True),
    "neox in a row": GPTNeoXConfig(
        **SMALL,
        use_parallel_residual=False,
        attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e3, "partial_rotary_factor": 0.5},
    ),
}


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_compute_what_the_library_does(name: str, tmp_path: Path) -> None:
    """A prompt in two parts, steps with the cache, and the likeliest texts after it."""
    model = saved(tmp_path, DECODERS[name])
    found = load_model(tmp_path)
    graph = found.graphs["decoder"]
    verify(graph, core_level)
    assert graph.output_names == ("logits", *graph.input_names[1:])
    tokens, ours = prompt(2, 16), Stepper(graph)
    assert {row.target for row in ours.session.explain().nodes} == {"cpu"}
    assert_same_steps(ours, TheirStepper(model), tokens)
    ours.start(2)
    assert greedy(ours, tokens, 200) == greedy(TheirStepper(model), tokens, 200)


def test_the_oracle_computes_the_same(tmp_path: Path) -> None:
    model = saved(tmp_path, DECODERS["llama"])
    ours = Stepper(load_model(tmp_path).graphs["decoder"], "reference")
    assert_same_steps(ours, TheirStepper(model), prompt(2, 16))


def test_the_last_logits_alone(tmp_path: Path) -> None:
    saved(tmp_path, DECODERS["gpt2"])
    whole, last = (Stepper(load_model(tmp_path, logits=kind).graphs["decoder"]) for kind in ("all", "last"))
    for part in (prompt(2, 7), prompt(2, 1)):
        found = last(part)
        assert found.shape == (2, VOCABULARY)
        assert_near(found, whole(part)[:, -1])
    with pytest.raises(BadArgument, match="choose from all, last"):
        load_model(tmp_path, logits="first")


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_weights_of_narrow_dtypes(stored: torch.dtype, tmp_path: Path) -> None:
    """They are converted, and what is computed is that of f32; or graphs compute in their dtype."""
    saved(tmp_path, DECODERS["llama"]).to(stored).save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    tokens = prompt(2, 16)
    assert_same_steps(Stepper(load_model(tmp_path).graphs["decoder"]), TheirStepper(model), tokens)
    narrow = Stepper(load_model(tmp_path, dtype=dtypes.by_name(NARROW[stored])).graphs["decoder"])
    assert_near(narrow(tokens).astype(np.float32), TheirStepper(model)(tokens), 4 * torch.finfo(stored).eps)


NARROW = {torch.bfloat16: "bf16", torch.float16: "f16"}


def test_weights_stay_in_their_file(tmp_path: Path) -> None:
    """Constants lie in the mapped file; no weight is copied."""
    saved(tmp_path, DECODERS["llama"])
    found = load_model(tmp_path)
    constants = list(found.graphs["decoder"].constants.values())
    for stored in found.checkpoint.tensors.values():
        assert any(np.shares_memory(constant, stored.array()) for constant in constants)
    copied = [
        c for c in constants if not any(np.shares_memory(c, t.array()) for t in found.checkpoint.tensors.values())
    ]
    assert sum(each.size for each in copied) < 100


def test_shards_are_one_model(tmp_path: Path) -> None:
    model = saved(tmp_path, DECODERS["llama"], max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same_steps(Stepper(load_model(tmp_path).graphs["decoder"]), TheirStepper(model), prompt(2, 16))


def test_what_modules_give_can_be_observed(tmp_path: Path) -> None:
    model = saved(tmp_path, DECODERS["llama"])
    graph = load_model(tmp_path).graphs["decoder"]
    seen: list[torch.Tensor] = []
    model.model.layers[1].self_attn.o_proj.register_forward_hook(lambda _, __, result: seen.append(result))
    step, tokens = Stepper(graph), prompt(2, 7)
    TheirStepper(model)(tokens)
    step.start(2)
    name = "model.layers.1.self_attn"
    assert_near(step.session.observe({"tokens": tokens, **step.states}, [name])[name], seen[0].numpy())


def test_what_else_is_found(tmp_path: Path) -> None:
    """Files of the tokenizer, and a hash that changes with the weights and with the configuration."""
    saved(tmp_path, DECODERS["llama"])
    (tmp_path / "tokenizer.json").write_text("{}")
    found = load_model(tmp_path)
    assert found.family == "llama"
    assert found.tokenizer.files == {"tokenizer.json": tmp_path / "tokenizer.json"} | (
        {"generation_config.json": tmp_path / "generation_config.json"}
    )
    digests = {found.digest}
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    config.write_text(config.read_text() + "\n")
    digests.add(load_model(tmp_path).digest)
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.unlink()
    weights.write_bytes(content)
    digests.add(load_model(tmp_path).digest)
    assert len(digests) == 3
