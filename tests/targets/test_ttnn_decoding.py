"""Decoding with a cache that stays on the card: one program for all steps; what crosses is a token and its scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.ir.graph import Graph
from assay.runtime.device_tensors import DeviceTensor
from assay.runtime.session import Session
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn.library import Library
from assay.zoo.torch.model import fill

LENGTH = 64
PROMPT: tuple[int, ...] = (11, 42, 7, 3, 93)
STEPS = 12


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"n_embd": 128, "n_head": 4, "n_layer": 2, "n_positions": LENGTH, "vocab_size": 100}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 192, "vocab_size": 100, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, max_position_embeddings=LENGTH))


MODELS = [gpt2, llama]


def stepping(make: Callable[[], Any]) -> tuple[nn.Module, Session]:
    """A model and one step of its decoding with a static cache, as Hugging Face exports it."""
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(0)
    model = make().eval().requires_grad_(False)
    fill(model, 0, "no such weight")
    model.generation_config.cache_implementation = "static"
    step = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=LENGTH)
    inputs = {"input_ids": torch.tensor([[1]]), "cache_position": torch.tensor([0])}
    with torch.no_grad():
        exported = torch.export.export(step, (), inputs, strict=True)
    return model, assay.load(exported, assay.SessionOptions(target="ttnn,cpu"))


def scores(session: Session, token: int, place: int) -> Any:
    (found,) = session.run({"input_ids": np.array([[token]]), "cache_position": np.array([place])}).values()
    return found[0, -1]


def generated(session: Session, prompt: tuple[int, ...], steps: int) -> list[int]:
    """The prompt and what follows it, the likeliest token each time."""
    tokens = list(prompt)
    *_, found = [scores(session, token, place) for place, token in enumerate(prompt)]
    for _ in range(steps):
        tokens.append(int(np.argmax(found)))
        found = scores(session, tokens[-1], len(tokens) - 1)
    return tokens


def right_tokens(model: Any, steps: int) -> list[int]:
    """What eager generates, without a cache."""
    tokens = list(PROMPT)
    for _ in range(steps):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens


@pytest.mark.parametrize("make", MODELS)
def test_tokens_are_those_of_eager(library: Library, make: Callable[[], Any]) -> None:
    model, session = stepping(make)
    assert generated(session, PROMPT, STEPS) == right_tokens(model, STEPS)
    session.reset()
    assert generated(session, PROMPT[:3], 1)[:3] == list(PROMPT[:3]), "it can begin anew"


@pytest.mark.parametrize("make", MODELS)
def test_one_program_serves_all_steps_and_the_cache_stays_on_the_card(
    library: Library, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Graph] = []
    compiled = TtnnTarget.compile

    def counted(self: TtnnTarget, segment: Graph, *rest: Any, **named: Any) -> Any:
        made.append(segment)
        return compiled(self, segment, *rest, **named)

    monkeypatch.setattr(TtnnTarget, "compile", counted)
    _, session = stepping(make)
    scores(session, PROMPT[0], 0)
    programs = len(made)
    for place in range(1, 6):
        scores(session, PROMPT[0], place)
        assert session.transfers is not None
        moved = sum(each.bytes for each in session.transfers.entries)
        assert moved < 1000, "a token, its place, a hundred scores"
    assert len(made) == programs
    contents = session.state.where_it_is()
    caches = [name for name in contents if "_cache_" in name]
    assert len(caches) == 4
    assert all(isinstance(contents[name], DeviceTensor) for name in caches)
    ops = [node.op for segment in made for node in segment.nodes]
    assert ops.count("ttnn.update_cache") == 4
    assert ops.count("sdpa") == 2
    assert ops.count("ttnn.concat_heads") == 2
    assert (ops.count("ttnn.rotary"), ops.count("ttnn.rotations")) == ((4, 1) if make is llama else (0, 0))
    assert "expand" not in ops, "keys that heads share are not repeated"


def test_who_reads_the_cache_gets_what_is_in_it(library: Library) -> None:
    _, session = stepping(gpt2)
    scores(session, PROMPT[0], 0)
    first = session.state["b_key_cache_0"].copy()
    assert first[:, :, 0].any()
    assert not first[:, :, 1:].any()
    scores(session, PROMPT[1], 1)
    second = session.state["b_key_cache_0"]
    np.testing.assert_array_equal(second[:, :, 0], first[:, :, 0])
    assert second[:, :, 1].any()
    second[:] = 0
    scores(session, PROMPT[2], 2)
    assert not session.state["b_key_cache_0"][:, :, :2].any(), "what becomes of the array counts"
