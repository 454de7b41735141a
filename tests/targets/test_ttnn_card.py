"""Programs on a card that computes. There is none here: torch stands in for its arithmetic (`computing_ttnn`), and the
real library on a mock for everything but that, where reads give zeros."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from programs import compiled_on
from targets.computing_ttnn import install
from targets.test_ttnn_decoding import MODELS, PROMPT, generated, right_tokens, stepping
from targets.test_ttnn_heads import cached, fused
from torch import nn

import assay
from assay.errors import CompileFailed, RunFailed
from assay.ir import dtypes
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.base import Stopwatch
from assay.targets.ttnn import TtnnTarget, card, numbers
from assay.targets.ttnn.card import CardBuffer, CardProcess
from assay.targets.ttnn.cards import CARDS
from assay.targets.ttnn.library import Library, LibraryFailed
from assay.targets.ttnn.mock import mock_environment
from assay.targets.ttnn.pythons import Installed, installed


@pytest.fixture(scope="module")
def computing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CardProcess]:
    """A card whose arithmetic is torch's."""
    environment = install(tmp_path_factory.mktemp("packages"))
    process = CardProcess(sys.executable, environment, CARDS["n150"])
    yield process
    process.close()


@pytest.fixture
def used(library: Library, computing: CardProcess, monkeypatch: pytest.MonkeyPatch) -> CardProcess:
    """The same, as the card of this machine."""
    monkeypatch.setattr(numbers, "has_card", lambda: True)
    monkeypatch.setattr(card, "open_card", lambda: computing)
    monkeypatch.setattr("assay.targets.ttnn.open_card", lambda: computing)
    return computing


class Mixed(nn.Module):
    """Weights, integers, images and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 64)
        self.layer = nn.TransformerEncoderLayer(64, 2, 96, dropout=0.0, batch_first=True)
        self.image = nn.Conv2d(3, 64, 3, padding=1)

    def forward(self, ids: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        found = self.layer(self.words(ids)) + self.image(image).relu().mean((2, 3))[:, None]
        return found, found.argmax(-1), found > 0.5


def mixed() -> tuple[Any, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    inputs = torch.randint(0, 50, (2, 8)), torch.randn(2, 3, 12, 12)
    return Mixed().eval().requires_grad_(False), inputs


def on_card(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    return assay.load(torch.export.export(model, inputs), assay.SessionOptions(target="ttnn,cpu"))


def test_a_model_gives_what_the_card_computes(used: CardProcess) -> None:
    model, inputs = mixed()
    session = on_card(model, inputs)
    feeds = dict(zip(session.input_names, (each.numpy() for each in inputs), strict=True))
    found, places, large = session.run(feeds).values()
    right, *_ = model(*inputs)
    assert {node.target for node in session.explain().nodes} == {"ttnn"}
    assert found.dtype == np.float32
    assert np.corrcoef(found.reshape(-1), right.reshape(-1))[0, 1] > 0.9999
    assert 0 < np.abs(found - right.numpy()).max() < 0.1, "bfloat16 rounds"
    assert (places.dtype, places.shape, large.dtype) == (np.int64, (2, 8), np.bool_)
    assert (places == found.argmax(-1)).mean() > 0.8
    np.testing.assert_array_equal(large, found > 0.5)


@pytest.mark.parametrize("make", MODELS)
def test_steps_write_to_a_cache_on_the_card(used: CardProcess, make: Callable[[], Any]) -> None:
    model, session = stepping(make)
    assert generated(session, PROMPT, 6) == right_tokens(model, 6)


def test_a_buffer_that_somebody_holds_is_not_written_to(used: CardProcess) -> None:
    graph = fused(cached(Builder()))
    program = TtnnTarget("exact", DEFAULT).compile(graph, {})
    cache, rows = np.zeros((2, 3, 64, 32), np.float32), np.ones((1, 2, 3, 32), np.float32)
    held = [used.put(each) for each in (cache, rows, np.array([5]))]
    for _ in range(2):
        (found,), _ = program.submit(held)
        assert used.get(found).sum() == rows.size
        assert not used.get(held[0]).any()


def layer() -> Graph:
    b = Builder()
    x, w = b.input(TensorType(dtypes.f32, (4, 64))), b.constant(np.ones((64, 32), np.float32) / 64)
    return b.finish("g", [x], [b.tanh(b.matmul(x, b.mul(w, 2.0)))])


def test_every_value_can_be_observed_and_timed(used: CardProcess) -> None:
    program = compiled_on(TtnnTarget("exact", DEFAULT), layer())
    seen: dict[str, Any] = {}
    (found,) = program.run([np.ones((4, 64), np.float32)], lambda event: seen.update({event.node.op: event.results[0]}))
    np.testing.assert_allclose(found, np.tanh(2.0), rtol=1e-2)
    np.testing.assert_allclose(seen["tanh"], found)
    watch = Stopwatch()
    program.run([np.ones((4, 64), np.float32)], watch)
    assert any("tanh" in {node.op for node in nodes} for nodes in watch.seconds)
    assert all(seconds > 0 for seconds in watch.seconds.values())


def test_the_card_is_told_of_in_the_probe_and_the_traits(used: CardProcess) -> None:
    target = TtnnTarget("exact", DEFAULT)
    assert target.probe().details["numbers"] == "device"
    assert not target.traits.modelled


def test_a_card_that_is_not_there_is_said(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(numbers.ENVIRONMENT, "card")
    monkeypatch.setattr(card, "has_card", lambda: False)
    probe = TtnnTarget("exact", DEFAULT).probe()
    assert not probe.present
    assert "the driver shows no card" in probe.reason


def test_a_card_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment = install(tmp_path)
    monkeypatch.setattr(card, "_QUIET", environment)
    with pytest.raises(CompileFailed, match="programs are for an p150"):
        card._opened.__wrapped__(Installed(sys.executable), CARDS["p150"])


# --- tensors


def test_tensors_are_forgotten_with_their_buffers(computing: CardProcess) -> None:
    one, other = computing.put(np.ones(3, np.float32)), computing.put(np.arange(4))
    number = one.number
    del one
    gc.collect()
    np.testing.assert_array_equal(computing.get(other), np.arange(4))
    with pytest.raises(RunFailed, match="not on the card any more"):
        computing.get(CardBuffer(number, (3,), np.float32, other.form))


def test_integers_beyond_the_card_s_are_refused(computing: CardProcess) -> None:
    with pytest.raises(RunFailed, match="32 bits"):
        computing.put(np.array([1 << 40]))


def test_a_process_that_dies_is_a_typed_error_and_the_next_model_runs(used: CardProcess) -> None:
    model, inputs = mixed()
    session = on_card(model, inputs)
    feeds = dict(zip(session.input_names, (each.numpy() for each in inputs), strict=True))
    session.run(feeds)
    assert used.pid is not None
    os.kill(used.pid, signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises((RunFailed, LibraryFailed)):
        session.run(feeds)
    again = on_card(model, inputs)
    assert np.asarray(again.run(feeds)[session.output_names[0]]).any()


# --- the real library, on a mock


@pytest.fixture
def real(library: Library, monkeypatch: pytest.MonkeyPatch) -> Iterator[CardProcess]:
    """The library with a mock in place of the card of this machine: all is real but the numbers."""
    found = installed()
    process = CardProcess(found.python, mock_environment(found.folder, CARDS["n150"]), CARDS["n150"])
    monkeypatch.setenv(numbers.ENVIRONMENT, "card")
    monkeypatch.setattr(card, "open_card", lambda: process)
    monkeypatch.setattr("assay.targets.ttnn.open_card", lambda: process)
    yield process
    process.close()


def test_the_library_takes_what_a_card_is_given(real: CardProcess) -> None:
    model, inputs = mixed()
    session = on_card(model, inputs)
    feeds = dict(zip(session.input_names, (each.numpy() for each in inputs), strict=True))
    for _ in range(2):
        found, places, large = session.run(feeds).values()
        assert (found.shape, places.shape, large.dtype) == ((2, 8, 64), (2, 8), np.bool_)
    about = real.about()
    assert (about.arch.lower(), about.chips) == ("wormhole_b0", 1)


def test_the_library_copies_a_cache_before_it_writes(real: CardProcess) -> None:
    _, session = stepping(MODELS[1])
    assert len(generated(session, PROMPT[:2], 1)) == 3
