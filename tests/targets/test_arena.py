"""The arena's layout: as the machine of the native target makes it, and such that nothing is overwritten."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from assay.ir.dims import Dim, evaluate, symbol
from assay.ir.dtypes import u8
from assay.limits import DEFAULT
from assay.targets.cpu.tape import encode
from assay.targets.cpu.toolchain import shared_toolchain
from assay.targets.shared.arena import LINE, Layout, Piece, arena_storages, lay_out
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.sizes import Sizes
from assay.targets.shared.tape import Step, Tape, liveness
from assay.targets.shared.views import Storage, View


def random_tape(rng: np.random.Generator) -> Tape:
    """Calls that touch buffers of some multiples of a symbol, each between two random steps."""
    n, tape = symbol("n"), Tape(Sizes(["n"]))
    sizes: list[Dim] = [n * int(rng.integers(0, 9)) + int(rng.integers(0, 200)) for _ in range(rng.integers(1, 40))]
    views = [View(Storage(size), u8, (size,), (1,)) for size in sizes]
    steps = int(rng.integers(1, 30))
    spans = [sorted(rng.integers(0, steps, 2).tolist()) for _ in views]
    for at in range(steps):
        touched = [view for view, span in zip(views, spans, strict=True) if at in span]
        tape.steps.append(Step(Kernel(""), touched, [], [], 1, 1, 1, 1, 1, 0))
    return tape


def pieces_of(tape: Tape, n: int) -> list[Piece]:
    """The buffers of the arena in the order in which the machine has them."""
    lives = liveness(tape)
    return [Piece(evaluate(buffer.bytes, {"n": n}) or 0, *lives[buffer]) for buffer in arena_storages(lives)]


class Frame(ctypes.Structure):
    """How `frame` of c/machine.c begins."""

    _fields_ = (("size", ctypes.POINTER(ctypes.c_int64)), ("place", ctypes.POINTER(ctypes.c_int64)))


def machine_layout(machine: Any, tape: Tape, n: int, count: int) -> Layout:
    """Where the machine lays the `count` buffers behind that of the errors."""
    encoded = encode(tape, Storage(0, given=True), {Kernel(""): 0}, DEFAULT.tensor_bytes)
    machine.frame_new.restype = ctypes.c_void_p
    machine.frame_peak.restype = ctypes.c_int64
    frame = ctypes.c_void_p(machine.frame_new(ctypes.byref(encoded.header)))
    symbols = (ctypes.c_int64 * 1)(n)
    assert machine.frame_fit(ctypes.byref(encoded.header), frame, symbols, None, 0, None) == 0
    places = ctypes.cast(frame, ctypes.POINTER(Frame)).contents.place
    found = Layout(tuple(places[1 + index] for index in range(count)), machine.frame_peak(frame))
    machine.frame_free(frame)
    return found


@pytest.mark.parametrize("seed", range(50))
def test_the_layout_is_the_one_of_the_machine(seed: int) -> None:
    chain = shared_toolchain()
    assert chain is not None
    (machine,) = chain.load([Kernel('#include "machine.c"\n', entry="frame_run")])
    rng = np.random.default_rng(seed)
    tape = random_tape(rng)
    for n in (0, 1, 1000):
        pieces = pieces_of(tape, n)
        assert lay_out(pieces) == machine_layout(machine, tape, n, len(pieces))


@pytest.mark.parametrize("line", [1, LINE, 256])
def test_pieces_that_live_at_the_same_time_lie_apart(line: int) -> None:
    rng = np.random.default_rng(line)
    for _ in range(50):
        pieces = pieces_of(random_tape(rng), 7)
        shuffled = [pieces[index] for index in rng.permutation(len(pieces))]
        layout = lay_out(shuffled, line)
        for (a, start), (b, other) in itertools.combinations(zip(shuffled, layout.places, strict=True), 2):
            together = a.first <= b.last and b.first <= a.last
            assert not together or start + a.bytes <= other or other + b.bytes <= start
        assert all(place % line == 0 for place in layout.places)


def test_what_is_dead_leaves_its_place() -> None:
    assert lay_out([Piece(100, 0, 1), Piece(64, 1, 2), Piece(10, 2, 3), Piece(200, 2, 2)]) == Layout(
        (0, 128, 0, 192), 448
    )
    assert lay_out([]) == Layout((), 0)
