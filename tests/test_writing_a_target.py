"""docs/writing-a-target.md: the target that it builds works as it stands there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from abacus_package import code, install
from pages import ROOT

from assay.errors import RunStopped
from assay.ir.dtypes import f32
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime import targets
from assay.runtime.session import Session, SessionOptions
from assay.targets.budget import Budget

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the target is installed, for processes of their own; in this one it is registered already."""
    folder = tmp_path_factory.mktemp("abacus")
    install(folder)
    return folder


def assay(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package), str(ROOT / "src")])
    command = [sys.executable, "-m", "assay.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})


def test_it_is_short() -> None:
    assert len(code("python").splitlines()) < 185


def test_it_is_found_by_its_entry_point(package: Path) -> None:
    found = assay(package, "targets")
    assert found.returncode == 0, found.stderr
    assert "abacus" in found.stdout


def test_the_official_suite_passes_by_fallback(package: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    outcome = assay(
        package, "conformance", "--target", "abacus", "--json", str(records), "--docs", str(tmp_path / "page.md")
    )
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    summary = lines[-1]
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    assert summary["surprises"] == 0
    node = summary["engines"]["abacus"]["passed"]["node"]
    assert node["of"] >= 1800
    assert node["of"] - 6 <= node["passed"]  # Bernoulli draws random numbers: now and then those of the standard
    assert 0 < summary["engines"]["abacus"]["native"]["node"]["passed"] < node["of"]


# --- transfers, counted by hand


def whole() -> Graph:
    """relu(x · 2 + 1): one segment; numbers are constants, which are no transfers of a run."""
    b = Builder()
    x = b.input(TensorType(f32, (2, 3)))
    return b.finish("g", [x], [b.relu(b.add(b.mul(x, 2.0), 1.0))], input_names=("x",), output_names=("y",))


def split() -> Graph:
    """exp in between: there and back twice."""
    b = Builder()
    x = b.input(TensorType(f32, (2, 3)))
    y = b.mul(b.exp(b.add(x, x)), 2.0)
    return b.finish("g", [x], [y], input_names=("x",), output_names=("y",))


def kept() -> Graph:
    """What the second segment needs of the first is still there: it is not moved again."""
    b = Builder()
    x, w = b.input(TensorType(f32, (2, 3))), b.input(TensorType(f32, (3, 4)))
    first = b.matmul(x, w)
    y = b.mul(first, b.exp(first))
    return b.finish("g", [x, w], [y], input_names=("x", "w"), output_names=("y",))


def weighted() -> Graph:
    """relu(x · w) · w' with constants of 48 and 64 bytes, exp in between: both are moved before the first run."""
    b = Builder()
    x = b.input(TensorType(f32, (2, 3)))
    first = b.matmul(x, b.constant(np.ones((3, 4), np.float32)))
    y = b.matmul(b.exp(first), b.constant(np.ones((4, 4), np.float32)))
    return b.finish("g", [x], [y], input_names=("x",), output_names=("y",))


UP, DOWN = ("host", "abacus"), ("abacus", "host")
COUNTED: list[tuple[Callable[[], Graph], list[tuple[tuple[str, str], int]], list[int]]] = [
    (whole, [(UP, 24), (DOWN, 24)], [4, 4]),
    (split, [(UP, 24), (DOWN, 24), (UP, 24), (DOWN, 24)], [4]),
    (kept, [(UP, 24), (UP, 48), (DOWN, 32), (UP, 32), (DOWN, 32)], []),
    (weighted, [(UP, 24), (DOWN, 32), (UP, 32), (DOWN, 32)], [48, 64]),
]


@pytest.mark.parametrize(("make", "expected", "resident"), COUNTED)
def test_transfers_are_counted_rightly(
    make: Callable[[], Graph], expected: list[tuple[tuple[str, str], int]], resident: list[int]
) -> None:
    graph = make()
    feeds: dict[str, Any] = {"x": X, "w": np.ones((3, 4), np.float32)}
    feeds = {name: feeds[name] for name in graph.input_names}
    session = Session(graph, SessionOptions(target="abacus"))
    assert session.resident is not None
    assert [((each.source, each.destination), each.bytes) for each in session.resident.entries] == [
        (UP, count) for count in resident
    ]
    session.run(feeds)
    found = session.run(feeds)
    assert session.resident.bytes == sum(resident)  # once, not with each run
    moved = session.transfers
    assert moved is not None
    assert [((each.source, each.destination), each.bytes) for each in moved.entries] == expected
    assert moved.bytes == sum(count for _, count in expected)
    assert all(each.seconds > 0 for each in moved.entries)
    right = Session(graph, SessionOptions(target="reference")).run(feeds)
    np.testing.assert_allclose(found["y"], right["y"], rtol=1e-6)


def test_a_chain_ends_at_the_oracle_and_keeps_every_reason() -> None:
    b = Builder()
    x = b.input(TensorType(f32, (2, 3)))
    graph = b.finish("g", [x], [b.nonzero(b.exp(b.mul(x, x)))], input_names=("x",), output_names=("y",))
    session = Session(graph, SessionOptions(target="abacus,cpu"))
    placed = {each.node.op: each for each in session._latest.plan.placements}
    assert {op: each.target for op, each in placed.items()} == {"mul": "abacus", "exp": "cpu", "nonzero": "reference"}
    assert [each.target for each in placed["nonzero"].refusals] == ["abacus", "cpu"]
    assert placed["nonzero"].reason.startswith("abacus: the abacus does not know the op; cpu: ")
    assert [each.target for each in placed["exp"].refusals] == ["abacus"]
    np.testing.assert_array_equal(session.run({"x": X})["y"], np.nonzero(np.exp(X * X)))


def test_weights_are_moved_once() -> None:
    graph = kept()
    chain = targets.make_chain("abacus", "exact", DEFAULT)
    from assay.runtime.pipeline import compiled
    from assay.runtime.settings import Settings

    program = compiled(graph, Settings(chain)).program
    weight = np.full((3, 4), 2.0, np.float32)
    bound = program.bind({graph.inputs[1]: weight})
    expected = (X @ weight) * np.exp(X @ weight)
    weight[:] = 0  # it lies on the abacus by now
    run = bound.submit([X])
    np.testing.assert_allclose(run.outputs()[0], expected, rtol=1e-6)
    assert run.transfers is not None
    assert [each.bytes for each in run.transfers.entries] == [24, 32, 32, 32]
    assert bound.resident is not None
    assert [each.bytes for each in bound.resident.entries] == [48]
    assert program.resident is not None
    assert not program.resident.entries
    again = bound.bind({})  # nothing more is moved
    assert again.resident is not None
    assert [each.bytes for each in again.resident.entries] == [48]


def test_what_works_in_host_memory_moves_nothing() -> None:
    session = Session(whole(), SessionOptions(target="cpu"))
    session.run({"x": X})
    assert (session.transfers, session.resident) == (None, None)


# --- runs that go on while the host does something else


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Whoever waits for the abacus waits for this as well."""
    opened = threading.Event()
    yield opened
    opened.set()


def blocked(graph: Graph, gate: threading.Event) -> Session:
    """A session whose abacus begins no job before the gate is open."""
    session = Session(graph, SessionOptions(target="abacus"))
    cast(Any, session.target)._queue.submit(gate.wait)
    return session


def moves(run: Any) -> list[str]:
    return [each.destination for each in run.transfers.entries]


def test_a_run_is_submitted_and_waited_for(gate: threading.Event) -> None:
    run = blocked(whole(), gate).submit({"x": X})
    assert moves(run) == ["abacus"]
    gate.set()
    np.testing.assert_array_equal(run.outputs()["y"], np.maximum(X * 2 + 1, 0))
    assert moves(run) == ["abacus", "host"]
    assert run.outputs() is run.outputs()
    assert run.peak_bytes is None  # the abacus does not tell


def test_segments_are_submitted_up_to_the_first_that_the_host_must_wait_for(gate: threading.Event) -> None:
    run = blocked(split(), gate).submit({"x": X})
    assert moves(run) == ["abacus"]  # exp needs what the abacus has not computed yet
    gate.set()
    np.testing.assert_allclose(run.outputs()["y"], np.exp(X + X) * 2, rtol=1e-6)
    assert moves(run) == ["abacus", "host", "abacus", "host"]


def test_what_the_host_can_do_it_does_meanwhile(gate: threading.Event) -> None:
    b = Builder()
    x = b.input(TensorType(f32, (2, 3)))
    y = b.matmul(b.mul(x, x), b.transpose(b.exp(x), perm=(1, 0)))
    graph = b.finish("g", [x], [y], input_names=("x",), output_names=("y",))
    session = blocked(graph, gate)
    assert [segment.target.name for segment in session._latest.plan.segments] == ["abacus", "reference", "abacus"]
    run = session.submit({"x": X})
    assert moves(run) == ["abacus", "abacus"]  # both segments of the abacus are in its queue
    gate.set()
    np.testing.assert_allclose(run.outputs()["y"], (X * X) @ np.exp(X).T, rtol=1e-5)


def test_what_goes_wrong_is_said_when_outputs_are_asked_for(gate: threading.Event) -> None:
    budget = Budget()
    run = blocked(whole(), gate).submit({"x": X}, budget=budget)
    budget.cancel()
    gate.set()
    for _ in range(2):
        with pytest.raises(RunStopped, match="cancelled"):
            run.outputs()


def test_overlapping_runs_have_transfers_of_their_own(gate: threading.Event) -> None:
    session = blocked(kept(), gate)
    given = [{"x": X + at, "w": np.ones((3, 4), np.float32)} for at in range(3)]
    runs = [session.submit(feeds) for feeds in given]
    gate.set()
    for feeds, run in zip(given, runs, strict=True):
        first = feeds["x"] @ feeds["w"]
        np.testing.assert_allclose(run.outputs()["y"], first * np.exp(first), rtol=1e-5)
        assert run.transfers is not None
        assert [each.bytes for each in run.transfers.entries] == [24, 48, 32, 32, 32]
