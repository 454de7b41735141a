"""GGUF files of models compute what the models do that they were written of, with weights as the file rounds them."""

from __future__ import annotations

from copy import deepcopy
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
    assert_near,
    assert_same_steps,
    prompt,
    randomized,
)
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import dequantize, quantize
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
)

from assay.errors import ImportFailed
from assay.frontends.checkpoint import load_model
from assay.ir.dtypes import Array
from assay.runtime.session import Session, SessionOptions

WIDE: dict[str, Any] = {**GROUPED, "intermediate_size": 64}
SMALL: dict[str, Any] = {name: value for name, value in WIDE.items() if name != "num_key_value_heads"}
LONG: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.25, 1.5, 2.0],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 8,
}
PART: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}
ENCODER: dict[str, Any] = {**SMALL, "max_position_embeddings": 32, "pad_token_id": 1}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
MODELS: dict[str, tuple[MODEL_ARCH, Any]] = {
    "llama": (MODEL_ARCH.LLAMA, LlamaConfig(**WIDE)),
    "llama with one table": (MODEL_ARCH.LLAMA, LlamaConfig(**WIDE, tie_word_embeddings=True, head_dim=16)),
    "gpt2": (MODEL_ARCH.GPT2, GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_head=4, n_layer=2, n_positions=64)),
    "qwen2": (MODEL_ARCH.QWEN2, Qwen2Config(**WIDE)),
    "qwen3": (MODEL_ARCH.QWEN3, Qwen3Config(**WIDE, head_dim=8)),
    "gemma": (MODEL_ARCH.GEMMA, GemmaConfig(**WIDE, head_dim=16)),
    "gemma2": (MODEL_ARCH.GEMMA2, Gemma2Config(**WIDE, head_dim=16, sliding_window=6, query_pre_attn_scalar=16)),
    "gemma2 of 46 layers": (
        MODEL_ARCH.GEMMA2,
        Gemma2Config(**{**WIDE, "num_hidden_layers": 46}, head_dim=16, sliding_window=6, query_pre_attn_scalar=8),
    ),
    "gemma3": (
        MODEL_ARCH.GEMMA3,
        Gemma3TextConfig(**{**WIDE, "num_hidden_layers": 7}, head_dim=16, sliding_window=6, query_pre_attn_scalar=16),
    ),
    "phi3": (MODEL_ARCH.PHI3, Phi3Config(**WIDE, sliding_window=6)),
    "phi3 for long texts": (
        MODEL_ARCH.PHI3,
        Phi3Config(**WIDE, original_max_position_embeddings=8, rope_parameters=LONG),
    ),
    "neox": (MODEL_ARCH.GPTNEOX, GPTNeoXConfig(**SMALL, rope_parameters=PART)),
    "neox in turn": (
        MODEL_ARCH.GPTNEOX,
        GPTNeoXConfig(**SMALL, rope_parameters=PART, use_parallel_residual=False, attention_bias=False),
    ),
}
GEMMAS = (MODEL_ARCH.GEMMA, MODEL_ARCH.GEMMA2, MODEL_ARCH.GEMMA3)


def as_converted(arch: MODEL_ARCH, name: str, weight: Array, config: Any) -> Array:
    """A weight as the converter of llama.cpp writes it: heads of Llama with the halves of each interleaved, layers of
    GPT-2 turned, norms of Gemma with the one that is added to them, NeoX's queries before its keys and values."""
    module = name.split(".")[-2]
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(module)
    if arch is MODEL_ARCH.LLAMA and heads is not None:
        return swapped(weight, getattr(config, heads), 2)
    if arch is MODEL_ARCH.GPTNEOX and module == "query_key_value":
        return swapped(weight, config.num_attention_heads, 3, axis=0)
    if arch in GEMMAS and name.endswith("norm.weight"):
        return weight + 1
    turned = arch is MODEL_ARCH.GPT2 and module in ("c_attn", "c_proj", "c_fc")
    return weight.T if turned and weight.ndim == 2 else weight


def swapped(weight: Array, first: int, second: int, axis: int = 1) -> Array:
    """Rows as (first, second, others), of which `axis` and the next change places."""
    split = weight.reshape(first, second, -1, *weight.shape[1:])
    return split.swapaxes(axis, axis + 1).reshape(weight.shape)


def back(arch: MODEL_ARCH, name: str, weight: Array, config: Any) -> Array:
    """The opposite, for what the file's rounding left of a weight."""
    module = name.split(".")[-2]
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(module)
    if arch is MODEL_ARCH.LLAMA and heads is not None:
        count = getattr(config, heads)
        return swapped(weight, count, weight.shape[0] // count // 2)
    if arch is MODEL_ARCH.GPTNEOX and module == "query_key_value":
        return swapped(weight, 3, config.num_attention_heads, axis=0)
    if arch in GEMMAS and name.endswith("norm.weight"):
        return weight - 1
    return as_converted(arch, name, weight, config)


def describe(writer: Any, arch: MODEL_ARCH, config: Any) -> None:
    """What the converter says of a model."""
    writer.add_context_length(getattr(config, "max_position_embeddings", 512))
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "d_ff", 4 * config.hidden_size)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(config.num_attention_heads)
    if arch in (MODEL_ARCH.GPT2, MODEL_ARCH.GPTNEOX, MODEL_ARCH.BERT):
        writer.add_layer_norm_eps(getattr(config, "layer_norm_epsilon", None) or config.layer_norm_eps)
    else:
        writer.add_layer_norm_rms_eps(getattr(config, "rms_norm_eps", None) or config.layer_norm_epsilon)
    if arch in (MODEL_ARCH.GPT2, MODEL_ARCH.BERT):
        return
    if arch is MODEL_ARCH.GPTNEOX:
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads // 4)
        writer.add_parallel_residual(config.use_parallel_residual)
        return
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if arch is MODEL_ARCH.T5:
        writer.add_key_length(config.d_kv)
        writer.add_decoder_block_count(config.num_decoder_layers)
        writer.add_relative_attn_buckets_count(config.relative_attention_num_buckets)
        return
    writer.add_head_count_kv(config.num_key_value_heads)
    rotary = config.rope_parameters
    writer.add_key_length(head)
    writer.add_rope_freq_base(rotary.get("full_attention", rotary)["rope_theta"])
    if arch not in GEMMAS:
        writer.add_rope_dimension_count(head)
    if arch in (MODEL_ARCH.GEMMA2, MODEL_ARCH.GEMMA3, MODEL_ARCH.PHI3):
        writer.add_sliding_window(config.sliding_window or 0)
    if arch is MODEL_ARCH.GEMMA2:
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if "long_factor" in rotary:
        describe_factors(writer, config)


def describe_factors(writer: Any, config: Any) -> None:
    """Factors of frequencies for long texts, as files of Phi-3 have them."""
    original = config.original_max_position_embeddings
    scale = config.max_position_embeddings / original
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_rope_scaling_attn_factors(np.sqrt(1 + np.log(scale) / np.log(original)))
    for kind in ("short", "long"):
        factors = np.array(config.rope_parameters[f"{kind}_factor"], np.float32)
        writer.add_tensor(f"rope_factors_{kind}.weight", factors)


BUFFERS = (".attn.bias", ".attn.masked_bias", "position_ids")
"""Ends of names of what is no weight."""


def is_spare(arch: MODEL_ARCH, name: str, tied: bool) -> bool:
    """Whether the converter leaves a tensor out."""
    twice = arch is MODEL_ARCH.T5 and name.endswith("embed_tokens.weight")
    return twice or (tied and name == "lm_head.weight") or name.endswith(BUFFERS) or name.startswith("pooler.")


def write(path: Path, arch: MODEL_ARCH, model: Any, kind: GGMLQuantizationType) -> None:
    """The model in a GGUF file, matrices rounded as `kind` says; the model gets what was left of them."""
    config = model.config
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[arch])
    describe(writer, arch, config)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    layers = max(config.num_hidden_layers, getattr(config, "num_decoder_layers", 0))
    names = get_tensor_name_map(arch, layers)
    for name, weight in model.state_dict().items():
        if is_spare(arch, name, config.tie_word_embeddings):
            continue
        array = np.ascontiguousarray(as_converted(arch, name, weight.numpy(), config))
        first = getattr(config, "pad_token_id", 0) + 1 if isinstance(config, RobertaConfig) else 0
        unused = first if name.endswith("position_embeddings.weight") else 0
        used = kind if array.ndim == 2 and array.shape[1] % 32 == 0 else GGMLQuantizationType.F32
        packed = quantize(array[unused:], used)
        called = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert called is not None, name
        writer.add_tensor(called, packed, raw_dtype=used)
        kept = dequantize(packed, used).reshape(array[unused:].shape)
        left = back(arch, name, np.concatenate([array[:unused], kept]), config)
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


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize("config", [BertConfig(**ENCODER), RobertaConfig(**ENCODER)], ids=["bert", "roberta"])
def test_encoders_in_gguf_files(config: Any, kind: str, tmp_path: Path) -> None:
    """Without their poolers, which these files do not have."""
    made = {BertConfig: BertModel, RobertaConfig: RobertaModel}[type(config)]
    model = randomized(made(config, add_pooling_layer=False))
    write(tmp_path / "model.gguf", MODEL_ARCH.BERT, model, GGMLQuantizationType[kind])
    session = Session(load_model(tmp_path / "model.gguf").graphs["encoder"], SessionOptions(target="cpu"))
    tokens, mask = prompt(2, 11), np.ones((2, 11), np.int64)
    mask[1, 7:] = 0
    with torch.no_grad():
        wanted = model(torch.from_numpy(tokens), torch.from_numpy(mask)).last_hidden_state.numpy()
    found = session.run({"tokens": tokens, "mask": mask, "segments": np.zeros_like(tokens)})
    assert set(found) == {"hidden"}
    for row, length in enumerate(mask.sum(1)):
        assert_near(found["hidden"][row, :length], wanted[row, :length])


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize("options", [{}, GATED], ids=["t5", "t5 of today"])
def test_t5_in_gguf_files(options: Any, kind: str, tmp_path: Path) -> None:
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
    model = T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, **sizes, **options))
    if options:  # the library takes the head for the table until it reads one from a file
        model.lm_head.weight, model.config.tie_word_embeddings = torch.nn.Parameter(torch.empty(VOCABULARY, 32)), False
    model = randomized(model)
    write(tmp_path / "model.gguf", MODEL_ARCH.T5, model, GGMLQuantizationType[kind])
    graphs = load_model(tmp_path / "model.gguf").graphs
    source, mask = prompt(2, 9, seed=2), np.ones((2, 9), np.int64)
    mask[1, 6:] = 0
    cross = Session(graphs["encoder"], SessionOptions(target="cpu")).run({"tokens": source, "mask": mask})
    with torch.no_grad():
        read = model.get_encoder()(torch.from_numpy(source), torch.from_numpy(mask))
    theirs = TheirStepper(model, encoder_outputs=read, attention_mask=torch.from_numpy(mask))
    assert_same_steps(Stepper(graphs["decoder"], "cpu", **cross), theirs, prompt(2, 16))


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


def test_factors_that_turn_nothing_are_refused(tmp_path: Path) -> None:
    arch, config = MODELS["phi3 for long texts"]
    config = deepcopy(config)
    model = randomized(AutoModelForCausalLM.from_config(config, attn_implementation="eager"))
    model.config.rope_parameters["long_factor"] = [1.0, 2.0, 0.0, 8.0]
    write(tmp_path / "model.gguf", arch, model, GGMLQuantizationType.F32)
    with pytest.raises(ImportFailed, match=r"above zero(.|\n)*rope_factors_long"):
        load_model(tmp_path / "model.gguf")


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
