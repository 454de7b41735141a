"""GGUF files of models compute what the models do that they were written of, with weights as the file rounds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frontends.checkpoint.recipe_models import (
    GROUPED,
    VOCABULARY,
    Stepper,
    TheirStepper,
    assert_same_steps,
    prompt,
    randomized,
)
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import dequantize, quantize
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

from assay.frontends.checkpoint import load_model
from assay.ir.dtypes import Array

WIDE: dict[str, Any] = {**GROUPED, "intermediate_size": 64}
MODELS: dict[str, tuple[MODEL_ARCH, Any]] = {
    "llama": (MODEL_ARCH.LLAMA, LlamaConfig(**WIDE)),
    "llama with one table": (MODEL_ARCH.LLAMA, LlamaConfig(**WIDE, tie_word_embeddings=True, head_dim=16)),
    "gpt2": (MODEL_ARCH.GPT2, GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_head=4, n_layer=2, n_positions=64)),
    "qwen2": (MODEL_ARCH.QWEN2, Qwen2Config(**WIDE)),
    "qwen3": (MODEL_ARCH.QWEN3, Qwen3Config(**WIDE, head_dim=8)),
}


def as_converted(arch: MODEL_ARCH, name: str, weight: Array, config: Any) -> Array:
    """A weight as the converter of llama.cpp writes it: heads of Llama with the halves of each interleaved, layers of
    GPT-2 turned."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if arch is MODEL_ARCH.LLAMA and heads is not None:
        count = getattr(config, heads)
        split = weight.reshape(count, 2, weight.shape[0] // count // 2, *weight.shape[1:])
        return split.swapaxes(1, 2).reshape(weight.shape)
    turned = arch is MODEL_ARCH.GPT2 and name.split(".")[-2] in ("c_attn", "c_proj", "c_fc")
    return weight.T if turned and weight.ndim == 2 else weight


def back(arch: MODEL_ARCH, name: str, weight: Array, config: Any) -> Array:
    """The opposite, for what the file's rounding left of a weight."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if arch is MODEL_ARCH.LLAMA and heads is not None:
        count = getattr(config, heads)
        split = weight.reshape(count, weight.shape[0] // count // 2, 2, *weight.shape[1:])
        return split.swapaxes(1, 2).reshape(weight.shape)
    return as_converted(arch, name, weight, config)


def write(path: Path, arch: MODEL_ARCH, model: Any, kind: GGMLQuantizationType) -> None:
    """The model in a GGUF file, matrices rounded as `kind` says; the model gets what was left of them."""
    config = model.config
    writer = GGUFWriter(path, {MODEL_ARCH.LLAMA: "llama"}.get(arch, arch.name.lower()))
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", 4 * config.hidden_size))
    writer.add_head_count(config.num_attention_heads)
    if arch is MODEL_ARCH.GPT2:
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        writer.add_rope_dimension_count(head)
        writer.add_key_length(head)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    tied = config.tie_word_embeddings
    for name, weight in model.state_dict().items():
        if (tied and name == "lm_head.weight") or name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        array = np.ascontiguousarray(as_converted(arch, name, weight.numpy(), config))
        used = kind if array.ndim == 2 else GGMLQuantizationType.F32
        packed = quantize(array, used)
        called = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert called is not None, name
        writer.add_tensor(called, packed, raw_dtype=used)
        left = back(arch, name, dequantize(packed, used).reshape(array.shape), config)
        with torch.no_grad():
            weight.copy_(torch.from_numpy(np.ascontiguousarray(left)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize("name", MODELS)
def test_models_in_gguf_files(name: str, kind: str, tmp_path: Path) -> None:
    arch, config = MODELS[name]
    model = randomized(AutoModelForCausalLM.from_config(config, attn_implementation="eager"))
    write(tmp_path / "model.gguf", arch, model, GGMLQuantizationType[kind])
    found = load_model(tmp_path / "model.gguf")
    assert found.tokenizer.facts == {"ggml.model": "gpt2"}
    assert_same_steps(Stepper(found.graphs["decoder"], "cpu"), TheirStepper(model), prompt(2, 16))


def test_blocks_stay_packed_in_the_file(tmp_path: Path) -> None:
    arch, config = MODELS["llama"]
    model = randomized(AutoModelForCausalLM.from_config(config, attn_implementation="eager"))
    write(tmp_path / "model.gguf", arch, model, GGMLQuantizationType.Q8_0)
    graph = load_model(tmp_path / "model.gguf").graphs["decoder"]
    packed = [array for array in graph.constants.values() if array.dtype == np.uint8]
    matrices = [weight for weight in model.state_dict().values() if weight.ndim == 2]
    assert sum(array.nbytes for array in packed) == sum(weight.numel() // 32 * 34 for weight in matrices)
    assert not any(array.flags.owndata or array.flags.writeable for array in packed)
    assert [node.op for node in graph.nodes].count("block_dequantize") == len(packed) == len(matrices)


def test_factors_of_frequencies_are_a_tensor(tmp_path: Path) -> None:
    """As the files of Llama 3.1 have them."""
    scaling = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = LlamaConfig(**WIDE, rope_parameters={**scaling, "original_max_position_embeddings": 64})
    model = randomized(AutoModelForCausalLM.from_config(config, attn_implementation="eager"))
    plain = 1.0 / (1e4 ** (np.arange(0, 8, 2, dtype=np.float32) / 8))
    factors = plain / model.model.rotary_emb.inv_freq.numpy()
    assert factors.max() > 1.5

    class WithFactors(GGUFWriter):
        def write_header_to_file(self, *arguments: Any) -> None:
            self.add_tensor("rope_freqs.weight", factors.astype(np.float32))
            super().write_header_to_file(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(write.__globals__, "GGUFWriter", WithFactors)
        write(tmp_path / "model.gguf", MODEL_ARCH.LLAMA, model, GGMLQuantizationType.F32)
    graph = load_model(tmp_path / "model.gguf").graphs["decoder"]
    assert_same_steps(Stepper(graph, "cpu"), TheirStepper(model), prompt(2, 16))
