"""Tenstorrent's library in its worker: stand-ins for cards, refusals, aborts, hangs, and no library at all."""

from __future__ import annotations

import os
import random
import signal
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from assay.errors import NotFound
from assay.processes import WorkerLimits
from assay.targets.ttnn import mock, pythons
from assay.targets.ttnn.cards import CARDS, chosen_card
from assay.targets.ttnn.library import Checked, Library, LibraryFailed, RefusedCall, TensorSpec
from assay.targets.ttnn.pythons import installed


def step(op: str, *args: Any, results: tuple[int, ...] = (9,), frees: tuple[int, ...] = (), **kwargs: Any) -> Any:
    return {"op": op, "args": list(args), "kwargs": kwargs, "results": list(results), "frees": list(frees)}


def value(number: int) -> dict[str, int]:
    return {"value": number}


def tensor(number: int, *shape: int, dtype: str = "bfloat16", layout: str = "TILE_LAYOUT") -> TensorSpec:
    return TensorSpec(number, shape, dtype, layout)


ADD = step("add", value(1), value(1))
ABORT = step("Tensor", np.zeros((2, 2)), None)
"""Something that the library answers by ending its process."""


def pooled(number: int, side: int) -> Any:
    """A pool of 3 × 3 over an image with channels last, whose table of places stays on the card."""
    size: dict[str, Any] = {"batch_size": 1, "input_h": side, "input_w": side, "channels": 32}
    window: dict[str, Any] = {"kernel_size": [3, 3], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
    return step("max_pool2d", input_tensor=value(number), results=(100 + number,), **size, **window)


def test_what_earlier_programs_left_on_the_card_does_not_count(library: Library) -> None:
    other = Library(installed(), CARDS["n150"], small=1 << 10)
    sides = range(40, 80, 4)
    steps = [pooled(number, side) for number, side in enumerate(sides)]
    images = [tensor(at, 1, 1, side * side, 32, layout="ROW_MAJOR_LAYOUT") for at, side in enumerate(sides)]
    try:
        assert isinstance(other.check(steps, images), RefusedCall), "together they do not fit"
        for pool, image in zip(steps, images, strict=True):
            assert isinstance(other.check([pool], [image]), Checked)
    finally:
        other.close()


@pytest.mark.parametrize("name", CARDS)
def test_every_card_opens(library: Library, name: str) -> None:
    card = CARDS[name]
    other = Library(installed(), card)
    try:
        about = other.about()
        assert about.arch == card.chip.arch.upper()
        assert about.chips == len(card.chips)
        assert min(about.grid) >= 8
        assert about.dram >= 12_000_000_000
        found = other.check([ADD], [tensor(1, 64, 64)])
        assert isinstance(found, Checked)
        ((spec,),) = found.specs
        assert spec is not None
        assert spec.shape == (64, 64)
    finally:
        other.close()


def test_a_program_is_checked_and_its_memory_counted(library: Library) -> None:
    square = step("matmul", value(1), value(2), results=(3,), frees=(1, 2))
    cut = step("softmax", value(3), dim=-1, results=(4,), frees=(3,))
    wide = step("typecast", value(4), {"name": "float32"}, results=(5,))
    found = library.check([square, cut, wide], [tensor(1, 7, 4096), tensor(2, 4096, 4096)])
    assert isinstance(found, Checked)
    assert [(spec.shape, spec.dtype, spec.layout, spec.buffer) for (spec,) in found.specs if spec is not None] == [
        ((7, 4096), "BFLOAT16", "TILE", "DRAM"),
        ((7, 4096), "BFLOAT16", "TILE", "DRAM"),
        ((7, 4096), "FLOAT32", "TILE", "DRAM"),
    ]
    before, first, second, _ = (dram for dram, _ in found.memory)
    assert before >= (7 + 4096) * 4096 * 2
    assert first > before
    assert second < 2 << 20, "what nobody reads any more is freed"
    again = library.check([square], [tensor(1, 7, 4096), tensor(2, 4096, 4096)])
    assert isinstance(again, Checked)
    assert again.memory[0] == found.memory[0], "a check leaves nothing behind"


def test_a_refusal_is_data_with_what_the_library_said(library: Library) -> None:
    found = library.check([ADD, step("matmul", value(1), value(9))], [tensor(1, 64, 32)])
    assert isinstance(found, RefusedCall)
    assert found.step == 1
    assert found.reason.startswith("The width of the first tensor must be equal to the height of the second tensor.")
    assert "\n" not in found.reason
    assert isinstance(library.check([step("no_such_op")], []), RefusedCall)
    assert isinstance(library.check([ADD], [tensor(1, 64, 64)]), Checked)


def test_what_does_not_fit_is_refused(library: Library) -> None:
    found = library.check([], [tensor(1, 1 << 17, 1 << 16)])
    assert isinstance(found, RefusedCall)
    assert "memory" in found.reason.lower()
    assert found.step == -1
    assert isinstance(library.check([ADD], [tensor(1, 64, 64)]), Checked)


def test_an_abort_names_its_call_and_the_next_request_works(library: Library) -> None:
    with pytest.raises(LibraryFailed, match="Tensor") as caught:
        library.check([ADD, ABORT], [tensor(1, 64, 64)])
    assert caught.value.op == "Tensor"
    assert isinstance(library.check([ADD], [tensor(1, 64, 64)]), Checked)


def test_a_worker_that_hangs_meets_a_limit(library: Library) -> None:
    other = Library(installed(), CARDS["n150"], WorkerLimits(silence=1.0))
    try:
        other.about()
        assert other.pid is not None
        os.kill(other.pid, signal.SIGSTOP)
        with pytest.raises(LibraryFailed, match="took longer than 1 s"):
            other.check([ADD], [tensor(1, 64, 64)])
        assert isinstance(other.check([ADD], [tensor(1, 64, 64)]), Checked)
    finally:
        other.close()


def test_a_worker_that_is_killed_at_any_moment_is_started_anew_and_nothing_is_left(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    other = Library(installed(), CARDS["n150"])
    before = children()
    chance = random.Random(0)
    many = [step("add", value(1), value(1), results=(number,)) for number in range(2, 400)]
    try:
        for _ in range(8):
            other.about()
            pid = other.pid
            assert pid is not None
            killer = threading.Timer(chance.uniform(0.0, 0.05), os.kill, (pid, signal.SIGKILL))
            killer.start()
            started = time.monotonic()
            with suppress(LibraryFailed):  # it may be done before it is killed
                assert isinstance(other.check(many, [tensor(1, 64, 64)]), Checked)
            killer.join()
            assert time.monotonic() - started < 60
            assert isinstance(other.check([ADD], [tensor(1, 64, 64)]), Checked)
    finally:
        other.close()
    assert children() == before, "no process is left"
    assert not list(tmp_path.glob("assay-ttnn-*")), "nor a folder"


def test_a_worker_that_was_killed_while_it_had_nothing_to_do_is_not_missed(library: Library) -> None:
    other = Library(installed(), CARDS["n150"])
    try:
        for _ in range(5):
            other.about()
            assert other.pid is not None
            os.kill(other.pid, signal.SIGKILL)  # which takes a while
            assert isinstance(other.check([ADD], [tensor(1, 64, 64)]), Checked)
    finally:
        other.close()


def children() -> set[str]:
    """The processes that this one has started and that are still there."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for each in lists for pid in each.read_text().split()}


# --- where the library or the set-up is missing


def test_no_python_with_the_library_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "cannot be run" in installed({pythons.ENVIRONMENT: str(tmp_path / "python")}).reason
    assert pythons.ENVIRONMENT in installed({pythons.ENVIRONMENT: "/bin/false"}).reason
    monkeypatch.setattr(pythons, "_CHECKOUT", tmp_path)
    missing = installed({})
    assert missing.python == ""
    assert missing.reason == "no Python with ttnn: run `make ttnn`, or name one in ASSAY_TTNN_PYTHON"


def test_a_card_that_nobody_knows_is_an_error() -> None:
    assert chosen_card({}).name == "n150"
    assert chosen_card({"ASSAY_TTNN_CARD": "p150"}).name == "p150"
    with pytest.raises(NotFound, match="n151"):
        chosen_card({"ASSAY_TTNN_CARD": "n151"})


def test_the_set_up_is_made_once_and_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    library = tmp_path / "ttnn"
    first, again = (mock.mock_environment(library, CARDS["n150"]) for _ in range(2))
    assert first == again
    root = Path(first["TT_METAL_RUNTIME_ROOT"])
    assert (root / "tt_metal").readlink() == library / "tt_metal"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert mock.mock_environment(library, CARDS["p150"])["TT_METAL_RUNTIME_ROOT"] != str(root)
    assert len(list(root.parent.iterdir())) == 2, "nothing unfinished is left"


def test_many_kernels_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(mock, "_MOST_KERNELS", 3)
    kernels = Path(mock.mock_environment(tmp_path, CARDS["n150"])["TT_METAL_CACHE"], "build", "kernels", "add")
    for count, kept in ((3, 3), (4, 0)):
        for number in range(count):
            (kernels / str(number)).mkdir(parents=True, exist_ok=True)
        mock.mock_environment(tmp_path, CARDS["n150"])
        assert len(list(kernels.glob("*"))) == kept


def test_nobody_waits_until_kernels_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(mock, "_MOST_KERNELS", 3)
    goes_on, removed = Event(), list[Path]()

    def remove(place: Path, *, ignore_errors: bool) -> None:
        goes_on.wait(5)
        removed.append(place)

    monkeypatch.setattr(mock.shutil, "rmtree", remove)
    kernels = Path(mock.mock_environment(tmp_path, CARDS["n150"])["TT_METAL_CACHE"], "build", "kernels", "add")
    for number in range(4):
        (kernels / str(number)).mkdir(parents=True)
    mock.mock_environment(tmp_path, CARDS["n150"])
    assert removed == []
    goes_on.set()
