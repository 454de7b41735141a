"""The kernel's account of writes: what it sees, what it leaves alone, and what is kept of weights thanks to it."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from assay.runtime.torch import backend
from assay.runtime.torch.graphs import recording
from assay.runtime.torch.state import Patience
from assay.runtime.writes import Writes, writes

needs_kernel = pytest.mark.skipif(writes() is None, reason="the kernel cannot be asked for writes")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def kernel() -> Writes:
    found = writes()
    assert found is not None
    return found


def piece(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


# --- random writes of one byte, seen through what is made of weights


class Doubled(nn.Module):
    """Weights of many sizes at many places, and what is exactly as different as they are."""

    SIZES = (1, 3, 700, 4095, 5000, 30_000, 60_001)

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ParameterList(torch.randn(size) for size in self.SIZES)
        flat = torch.randn(sum(self.SIZES) + 77)
        starts = np.cumsum([7, *self.SIZES])
        self.parts = [nn.Parameter(flat[at : at + size]) for at, size in zip(starts, self.SIZES, strict=False)]
        self.whole = nn.Parameter(flat[500:90_000])  # lies over some of the others

    def weights(self) -> list[torch.Tensor]:
        return [*self.own, *self.parts, self.whole]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x + weight * 2 for weight in self.weights()]


def _ctypes(memory: memoryview, at: int, byte: int) -> None:
    ctypes.memmove(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + at, bytes([byte]), 1)


def _array(memory: memoryview, at: int, byte: int) -> None:
    np.frombuffer(memory, np.uint8)[at] = byte


def _tensor(memory: memoryview, at: int, byte: int) -> None:
    torch.frombuffer(memory, dtype=torch.uint8)[at] = byte


def _system_call(memory: memoryview, at: int, byte: int) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes([byte]))
        os.preadv(file.fileno(), [memory[at : at + 1]], 0)


def _thread(memory: memoryview, at: int, byte: int) -> None:
    thread = threading.Thread(target=memory.__setitem__, args=(at, byte))
    thread.start()
    thread.join()


WAYS = (memoryview.__setitem__, _ctypes, _array, _tensor, _system_call, _thread)


def written_somewhere(draw: random.Random, tensors: list[torch.Tensor]) -> None:
    """Another byte at a random place, as often near an end as in the middle, that makes no infinity of a number."""
    array = draw.choice(tensors).detach().numpy().view(np.uint8)
    last = len(array) - 1
    at = draw.choice([draw.randint(0, last), min(draw.randint(0, 9000), last), max(last - draw.randint(0, 9000), 0)])
    at -= at % 4 == 3
    draw.choice(WAYS)(memoryview(array), at, array[at] ^ draw.randint(1, 127 if at % 4 == 2 else 255))


@pytest.mark.parametrize("tracked", [pytest.param(True, marks=needs_kernel), False])
def test_a_write_of_any_byte_is_seen(tracked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "prepares", lambda self: True)
    model, x, draw = Doubled(), torch.zeros(1), random.Random(0)
    run = torch.compile(model, backend="assay", options={"tracking": tracked})
    again = torch.compile(lambda x: [y * 1 for y in model(x)], backend="assay", options={"tracking": tracked})
    with torch.no_grad():
        for step in range(200):
            for _ in range(draw.choice([0, 1, 1, 2])):
                written_somewhere(draw, model.weights())
            for each in draw.choice([[run], [again], [run, again]]):  # two graphs watch the same memory
                for found, wanted in zip(each(x), model(x), strict=True):
                    assert torch.equal(found, wanted), step


@needs_kernel
def test_what_is_made_of_weights_is_made_once() -> None:
    model, x = Doubled(), torch.zeros(1)
    with torch.no_grad(), recording() as graphs:
        run = torch.compile(model, backend="assay")
        run(x)
        runs = counted_runs(graphs)
        for _ in range(20):
            run(x)
        assert not runs
        model.own[-1].data[5] = 1
        run(x)
        assert len(runs) == 1


def counted_runs(graphs: list[Any]) -> list[int]:
    """A list that grows when the prelude of the one graph runs."""
    (graph,) = graphs
    runs: list[int] = []
    run = graph.prelude.run
    graph.prelude.run = lambda *given: runs.append(1) or run(*given)
    return runs


# --- memory that is not watched


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.share_memory_()


def _file(tensor: torch.Tensor) -> torch.Tensor:
    with tempfile.NamedTemporaryFile() as file:
        tensor.numpy().tofile(file.name)
        return torch.from_numpy(np.memmap(file.name, np.float32, mode="c"))


@needs_kernel
@pytest.mark.parametrize("place", [_shared, _file])
def test_nothing_is_kept_of_memory_that_others_can_write_to(place: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model, x = nn.Module(), torch.zeros(1)
    model.w = nn.Parameter(place(torch.randn(50_000)))
    assert kernel().watch([piece(model.w)]) is None
    with torch.no_grad(), recording() as graphs:
        run = torch.compile(lambda x: x + model.w * 2, backend="assay")
        run(x)
        runs = counted_runs(graphs)
        for _ in range(3):
            model.w.data[7] += 1
            assert torch.equal(run(x), model.w * 2)
        assert not runs


@needs_kernel
def test_inference_tensors_are_watched() -> None:
    with torch.inference_mode(), recording() as graphs:
        w, x = torch.randn(50_000), torch.zeros(1)
        holder = nn.Module()
        holder.register_buffer("w", w)
        run = torch.compile(lambda x: x + holder.w * 2, backend="assay")
        run(x)
        runs = counted_runs(graphs)
        run(x)
        assert not runs
        w[40_000] += 1
        assert torch.equal(run(x), w * 2)


# --- the account itself


def watched_areas() -> int:
    """How many areas of memory the kernel watches for writes."""
    flags = [line for line in Path("/proc/self/smaps").read_text().splitlines() if line.startswith("VmFlags")]
    return sum(" uw" in line for line in flags)


@needs_kernel
def test_pages_are_left_alone_when_nobody_watches_any_more() -> None:
    gc.collect()
    before = watched_areas()
    tensors = [torch.randn(50_000) for _ in range(20)]
    first = kernel().watch([piece(each) for each in tensors])
    assert watched_areas() > before
    second = kernel().watch([piece(tensors[3])])
    assert first is not None
    assert second is not None
    del first
    assert watched_areas() == before + 1
    assert not second.changed()
    tensors[3][25_000] = 0
    assert second.changed()
    del second
    assert watched_areas() == before


@needs_kernel
def test_areas_stay_bounded_while_models_come_and_go() -> None:
    x = torch.zeros(1)

    def once() -> int:
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(Doubled(), backend="assay")(x)
        gc.collect()
        return len(Path("/proc/self/maps").read_text().splitlines())

    counts = [once() for _ in range(12)]
    assert counts[-1] <= counts[3] + 12


@needs_kernel
def test_memory_that_was_freed_and_taken_again_has_changed() -> None:
    libc = ctypes.CDLL(None)
    libc.mmap.restype, size = ctypes.c_void_p, 1 << 20
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    place = libc.mmap(None, size, 3, 0x22, -1, 0)
    watch = kernel().watch([(place, place + size)])
    assert watch is not None
    assert not watch.changed()
    libc.munmap(place, size)
    assert libc.mmap(place, size, 3, 0x22 | 0x10, -1, 0) == place
    assert watch.changed()
    libc.munmap(place, size)


@needs_kernel
def test_a_watch_hears_what_was_written_before_another_began() -> None:
    memory = torch.zeros(100_000)
    first = kernel().watch([piece(memory)])
    memory[50_000] = 1
    second = kernel().watch([piece(memory[20_000:])])
    assert first is not None
    assert second is not None
    assert first.changed()
    assert not second.changed()


# --- where nothing is kept


def test_without_the_kernel_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "writes", lambda: None)
    model, x = Doubled(), torch.zeros(1)
    with torch.no_grad(), recording() as graphs:
        torch.compile(model, backend="assay")(x)
    assert [graph.prelude for graph in graphs] == [None]


def test_a_graph_for_training_keeps_nothing() -> None:
    model, x = Doubled(), torch.zeros(1)
    with recording() as graphs:
        torch.compile(model, backend="assay")(x)
    assert [(graph.phase, graph.prelude) for graph in graphs if graph.phase == "forward"] == [("forward", None)]


# --- weights that change all the time


@needs_kernel
def test_weights_that_do_not_rest_are_read_as_they_lie() -> None:
    model, x = Doubled(), torch.zeros(1)
    with torch.no_grad(), recording() as graphs:
        run = torch.compile(model, backend="assay")
        run(x)
        runs = counted_runs(graphs)
        for step in range(40):
            model.own[-1].data[step] += 1
            assert torch.equal(run(x)[len(Doubled.SIZES) - 1], model.own[-1] * 2)
        assert 2 <= len(runs) <= 4
        del runs[:]
        for _ in range(60):
            assert torch.equal(run(x)[0], model.own[0] * 2)
        assert len(runs) == 1


def test_patience_forgives_some_changes_and_then_waits_longer_and_longer() -> None:
    patience = Patience()
    answers = "".join("+" if patience.prepares() else "." for _ in range(60))
    assert answers == "+++" + "." * 16 + "+" + "." * 32 + "+" + "." * 7
    rested = Patience()
    for _ in range(100):
        assert rested.prepares()  # one change in so many calls is what it is made for
        for _ in range(Patience.EACH):
            rested.served()
