"""Weights on a Tenstorrent card: one tensor for all programs that read a weight, there while one of them is."""

from __future__ import annotations

import gc
import os
import signal
from typing import Any

import numpy as np
import pytest
import torch

from assay.errors import CompileFailed
from assay.ir.dtypes import Array, f32
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.options import SessionOptions
from assay.runtime.session import Session
from assay.runtime.torch.generation import Generator
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn.device_model import ModelledExecutable
from assay.targets.ttnn.formats import ENVIRONMENT as FORMAT
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.numbers import ENVIRONMENT as NUMBERS
from assay.targets.ttnn.residency import Residents

WIDTH = 1024
WEIGHTS = 2 * WIDTH * WIDTH


@pytest.fixture
def target(library: Library) -> TtnnTarget:
    gc.collect()
    return TtnnTarget("exact", DEFAULT)


def product(rows: int, weights: Array) -> Graph:
    b = Builder()
    x = b.input(TensorType(f32, (rows, len(weights))))
    return b.finish(f"rows{rows}", [x], [b.matmul(x, weights)])


def square(seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(WIDTH, WIDTH)).astype(np.float32)


def compiled(target: TtnnTarget, graph: Graph) -> ModelledExecutable:
    found = target.compile(graph, {})
    assert isinstance(found, ModelledExecutable)
    return found


def test_programs_share_a_weight_and_the_last_one_lets_it_go(target: TtnnTarget, library: Library) -> None:
    others = len(library.residents.live())
    weights = square()
    prompt = compiled(target, product(64, weights))
    alone = prompt.taken.checked
    assert alone.memory[0][0] >= WEIGHTS
    step = compiled(target, product(1, weights))
    assert len(library.residents.live()) == others + 1
    assert step.taken.checked.others == alone.others, "the weight is none of another program's"
    assert step.resident[next(iter(step.resident))] is prompt.resident[next(iter(prompt.resident))]
    far = compiled(target, product(1, square(1)))
    assert far.taken.checked.others == pytest.approx(alone.others + WEIGHTS, rel=0.01)
    del prompt
    assert len(library.residents.live()) == others + 2
    del step, far
    gc.collect()
    assert len(library.residents.live()) == others
    again = compiled(target, product(64, square(2))).taken.checked
    assert again.others == alone.others
    assert again.memory[0] == alone.memory[0]


def test_a_weight_in_two_forms_is_two_tensors(
    target: TtnnTarget, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, others = square(), len(library.residents.live())
    kept = [compiled(target, product(4, weights))]
    monkeypatch.setenv(FORMAT, "bfloat8_b")
    kept += [compiled(target, product(rows, weights)) for rows in (4, 8)]
    assert len(library.residents.live()) == others + 2
    wide, narrow, same = (each.taken.checked.memory[0][0] for each in kept)
    assert narrow < 0.6 * wide
    assert narrow == pytest.approx(same, rel=0.05)


def test_a_weight_is_there_again_after_the_worker_died(target: TtnnTarget, library: Library) -> None:
    weights = square()
    kept = compiled(target, product(8, weights))
    library.about()
    assert library.pid is not None
    os.kill(library.pid, signal.SIGKILL)
    found = compiled(target, product(8, square(1)))
    assert found.taken.checked.others >= kept.taken.checked.others + WEIGHTS


def test_what_does_not_fit_beside_other_programs_is_said(target: TtnnTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that nobody has written take no memory here."""
    monkeypatch.setenv(NUMBERS, "none")
    wide = [np.zeros((1 << 15, 1 << 17), np.float32) for _ in range(2)]
    graphs = [product(32, each) for each in wide]
    first = target.compile(graphs[0], {})
    with pytest.raises(CompileFailed, match=r"take 8,\d\d\d MiB of its 12,\d\d\d MiB, beside 8,\d\d\d MiB of other"):
        target.compile(graphs[1], {})
    assert target.compile(product(64, wide[0]), {}) is not None, "the same weights fit"
    del first
    graphs.append(graphs[1])
    assert target.compile(graphs[-1], {}) is not None, "there is room now"


def test_programs_of_a_generator_share_the_models_weights(library: Library) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    sizes: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 192, "max_position_embeddings": 64}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=1000, **heads, **sizes)).eval().requires_grad_(False)
    generator = Generator(model, 64, SessionOptions(target="ttnn,cpu"))
    generator.step([5, 6, 7], 0)
    prompt = moved(generator.sessions[0])
    generator.step([8], 3)
    assert prompt > 4 * sum(each.numel() for each in model.parameters()) * 0.9
    assert moved(generator.sessions[1]) < prompt / 20, "tables of the program's own"


def moved(session: Session) -> int:
    assert session.resident is not None
    return session.resident.bytes


def test_what_lies_elsewhere_is_another_weight() -> None:
    residents, one = Residents(), np.zeros((4, 4), np.float32)
    form = ((4, 4), "bfloat16", "TILE_LAYOUT")
    kept = residents.tensor(one, *form)
    assert residents.tensor(one[:], *form) is kept
    assert residents.tensor(one.T, *form) is not kept
    assert residents.tensor(one.copy(), *form) is not kept
    assert residents.tensor(one, (4, 4), "bfloat8_b", "TILE_LAYOUT") is not kept
    assert residents.live() == [kept]
