"""Text token by token: a program for each bucket of prompts, one for all steps, and the cache on the card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from assay.errors import BadArgument
from assay.ir.dtypes import Array
from assay.ir.graph import Graph
from assay.runtime.device_tensors import DeviceTensor
from assay.runtime.options import SessionOptions
from assay.runtime.torch.generation import Generator, Heard, bucket
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn.library import Library
from assay.zoo.torch.model import fill

LENGTH = 64
PROMPT: tuple[int, ...] = (11, 42, 7, 3, 93)
STEPS = 8
SIZES: Mapping[str, Any] = {"vocab_size": 100, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(**SIZES, n_embd=128, n_head=4, n_layer=2, n_positions=LENGTH))


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    sizes: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 192, "max_position_embeddings": LENGTH}
    return LlamaForCausalLM(LlamaConfig(**SIZES, **heads, **sizes))


def t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    layers: dict[str, Any] = {"num_heads": 4, "num_layers": 1, "num_decoder_layers": 2}
    return T5ForConditionalGeneration(T5Config(**SIZES, **layers, d_model=128, d_kv=32, d_ff=192))


def whisper() -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sides = ("encoder", "decoder")
    layers: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 128, "num_mel_bins": 16}
    layers |= {f"{side}_attention_heads": 4 for side in sides} | {f"{side}_ffn_dim": 192 for side in sides}
    layers |= {"max_source_positions": 50, "max_target_positions": LENGTH}
    return WhisperForConditionalGeneration(WhisperConfig(**SIZES, **layers, decoder_start_token_id=3))


HEARD: Mapping[Callable[[], Any], Mapping[str, Array]] = {
    t5: {"input_ids": np.array([[5, 17, 33, 9, 60, 2, 81]])},
    whisper: {"input_features": np.random.default_rng(0).standard_normal((1, 16, 100)).astype(np.float32)},
}
MODELS = [gpt2, llama, t5, whisper]


def made(make: Callable[[], Any], target: str) -> tuple[Any, Generator, Heard | None]:
    """A model, what generates with it, and what its encoder found, if it has one."""
    torch.manual_seed(0)
    model = make().eval().requires_grad_(False)
    fill(model, 0, "no such weight")
    generator = Generator(model, LENGTH, SessionOptions(target=target))
    return model, generator, generator.encode(HEARD[make]) if make in HEARD else None


def right_scores(model: Any, tokens: Sequence[int], make: Callable[[], Any]) -> Array:
    """What eager says of the token after each, without a cache."""
    if make not in HEARD:
        return model(torch.tensor([list(tokens)])).logits[0].numpy()
    given = {name: torch.from_numpy(each) for name, each in HEARD[make].items()}
    return model(decoder_input_ids=torch.tensor([list(tokens)]), **given).logits[0].numpy()


@pytest.mark.parametrize("make", MODELS)
def test_tokens_are_those_of_eager(make: Callable[[], Any]) -> None:
    model, generator, heard = made(make, "cpu")
    tokens = generator.generate(PROMPT, STEPS, heard=heard)
    right = right_scores(model, [*PROMPT, *tokens], make).argmax(-1)
    assert tokens == right[len(PROMPT) - 1 : -1].tolist()
    again = generator.generate([*PROMPT, *tokens[:3]], 3, heard=heard)
    assert again == tokens[3:6], "a prompt goes on where another one stopped"
    assert generator.generate(PROMPT, STEPS, end=tokens[2], heard=heard) == tokens[: tokens.index(tokens[2]) + 1]


@pytest.mark.parametrize("make", MODELS)
def test_one_program_takes_prompts_and_one_all_steps_with_the_cache_on_the_card(
    library: Library, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    segments: list[Graph] = []
    compiled = TtnnTarget.compile

    def counted(self: TtnnTarget, segment: Graph, *rest: Any, **named: Any) -> Any:
        segments.append(segment)
        return compiled(self, segment, *rest, **named)

    monkeypatch.setattr(TtnnTarget, "compile", counted)
    model, generator, heard = made(make, "ttnn,cpu")
    before = len(segments)
    seen: list[Array] = []

    def chosen(scores: Array) -> int:
        seen.append(scores)
        return int(scores.argmax())

    tokens = generator.generate(PROMPT, STEPS, heard=heard, choose=chosen)
    generator.generate(PROMPT[:3], 2, heard=heard)
    prompts, steps = segments[before:]
    assert all(row.target == "ttnn" for session in generator.sessions for row in session.explain().nodes)
    wanted = right_scores(model, [*PROMPT, *tokens], make)[len(PROMPT) - 1 : -1]
    for found, right in zip(seen, wanted, strict=True):
        assert np.corrcoef(found, right)[0, 1] > 0.995
    ops = [node.op for node in steps.nodes]
    assert ops.count("ttnn.update_cache") == 4
    assert ops.count("sdpa") == [node.op for node in prompts.nodes].count("sdpa") == (2 if heard is None else 4)
    assert generator.state is not None
    assert all(isinstance(each, DeviceTensor) for each in generator.state.where_it_is().values())
    moved = generator.sessions[-1].transfers
    assert moved is not None
    assert sum(each.bytes for each in moved.entries) < 1000, "a token, its place, a hundred scores; a mask"


def test_what_is_beyond_the_cache_is_refused(library: Library) -> None:
    _, generator, _ = made(gpt2, "cpu")
    with pytest.raises(BadArgument, match="65 tokens do not fit a cache for 64"):
        generator.step([1], LENGTH)
    with pytest.raises(BadArgument, match="at least one token"):
        generator.generate([], 1)
    assert [bucket(count) for count in (2, 32, 33, 300)] == [32, 32, 64, 512]
