"""Runs with limits of time and memory, and runs that need more than there is: typed errors, and the session goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from suites.budget_cases import CHAIN, HUNGRY, feeds_of_chain, session_of

import assay
from assay import Budget, memory
from assay.errors import BadFeed, LimitExceeded, OutOfMemory, RunFailed, RunStopped
from assay.limits import Limits
from assay.runtime.session import SessionOptions
from assay.units import parsed_size, size

KIB = 1 << 10


LOOP = """g (int64 trip, bool go, float[4] x) => (y, rows) {
    y, rows = Loop(trip, go, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t, float[4] row) {
        d = Identity(c)
        t = Add(s, s)
        row = Mul(t, t)
    }>
}"""

IDLE = """g (int64 trip, bool go, float[4] x) => (y) {
    y, z = Loop(trip, go, x, x) <
        body = b (int64 i, bool c, float[4] s, float[4] t) => (bool c, float[4] t, float[4] s) { }
    >
}"""
"""A loop of no work but that two states change places."""

EMPTY = """g (int64 trip, bool go, float[4] x) => (y) {
    y = Loop(trip, go, x) <body = b (int64 i, bool c, float[4] s) => (bool c, float[4] s) { }>
}"""

ENDLESS = np.array(1 << 62)
X = np.ones(4, np.float32)


# --- time


def test_a_run_whose_time_is_over_stops_at_a_node_that_it_names(target_name: str) -> None:
    session = session_of(CHAIN, target_name)
    expected = session.run(feeds_of_chain())["y"]
    with pytest.raises(RunStopped, match="longer than its 1e-09 seconds") as caught:
        session.run(feeds_of_chain(), budget=Budget(seconds=1e-9))
    assert "onnx.Exp 'a'" in caught.value.where
    assert caught.value.hint
    assert isinstance(caught.value, RunFailed)
    for budget in (None, Budget(), Budget(seconds=600), Budget(seconds=float("inf"))):
        np.testing.assert_array_equal(session.run(feeds_of_chain(), budget=budget)["y"], expected)


def test_a_loop_that_changes_nothing_is_not_run(target_name: str) -> None:
    feeds = {"trip": ENDLESS, "go": np.array(True), "x": X}
    np.testing.assert_array_equal(session_of(EMPTY, target_name).run(feeds, budget=Budget(seconds=600))["y"], X)


@pytest.mark.parametrize("text", [LOOP, IDLE])
def test_a_loop_without_an_end_is_stopped(text: str, target_name: str) -> None:
    session = session_of(text, target_name)
    feeds = {"trip": ENDLESS, "go": np.array(True), "x": X}
    started = time.monotonic()
    with pytest.raises(RunStopped) as caught:
        session.run(feeds, budget=Budget(seconds=0.2))
    assert time.monotonic() - started < 20
    assert "onnx." in caught.value.where
    result = session.run({**feeds, "trip": np.array(2)}, budget=Budget(seconds=600))
    np.testing.assert_array_equal(result["y"], X * (4 if text == LOOP else 1))


STEPS = "".join(f"v{i + 1} = MatMul(v{i}, v{i})\n" for i in range(200))
LONG: dict[str, tuple[str, dict[str, Any]]] = {
    "a loop": (IDLE, {"trip": ENDLESS, "go": np.array(True), "x": X}),
    "a chain": (f"g (float[n, n] v0) => (float[n, n] v200) {{ {STEPS} }}", {"v0": np.zeros((1200, 1200), np.float32)}),
}


@pytest.mark.parametrize("what", LONG)
def test_a_run_is_cancelled_from_another_thread(what: str, target_name: str) -> None:
    text, feeds = LONG[what]
    session = session_of(text, target_name)
    budget, caught = Budget(), list[BaseException]()

    def run() -> None:
        try:
            session.run(feeds, budget=budget)
        except BaseException as error:
            caught.append(error)

    runner = threading.Thread(target=run)
    runner.start()
    time.sleep(0.2)
    assert runner.is_alive()
    budget.cancel()
    runner.join(60)
    (error,) = caught
    assert isinstance(error, RunStopped)
    assert "was cancelled" in str(error)
    assert "onnx." in error.where


def test_a_cancelled_budget_stops_every_run_until_it_is_reset(target_name: str) -> None:
    session, budget = session_of(CHAIN, target_name), Budget()
    budget.cancel()
    for _ in range(2):
        assert budget.cancelled
        with pytest.raises(RunStopped, match="cancelled"):
            session.run(feeds_of_chain(), budget=budget)
    budget.reset()
    assert session.run(feeds_of_chain(), budget=budget)["y"].shape == (8, 16)


def test_the_time_of_each_run_counts_from_its_start(target_name: str) -> None:
    session, budget = session_of(CHAIN, target_name), Budget(seconds=30)
    first = budget.begin()
    assert session.run(feeds_of_chain(), budget=budget)
    assert budget.begin()._deadline > first._deadline


def test_bad_limits_are_refused() -> None:
    for seconds in (0, -1, float("nan")):
        with pytest.raises(BadFeed, match="seconds"):
            Budget(seconds=seconds)
    for most in (0, -5):
        with pytest.raises(BadFeed, match="bytes"):
            Budget(memory=most)


# --- memory that a run was given


def least_memory(run: Callable[[int], Any]) -> int:
    """The least number of bytes with which a run succeeds."""
    low, high = 1, 1 << 30
    while low < high:
        middle = (low + high) // 2
        try:
            run(middle)
        except OutOfMemory:
            low = middle + 1
        else:
            high = middle
    return low


def test_the_memory_that_counts_is_that_of_results(host_target_name: str) -> None:
    session = session_of(CHAIN, host_target_name)
    feeds = feeds_of_chain(32, 64)
    expected = session.run(feeds)["y"]
    least = least_memory(lambda most: session.run(feeds, budget=Budget(memory=most)))
    wide = 32 * 64 * 4  # bytes of x, a, t and y; b and c are half of it
    assert 2 * wide <= least <= 5 * wide
    np.testing.assert_array_equal(session.run(feeds, budget=Budget(memory=least))["y"], expected)
    with pytest.raises(OutOfMemory, match="it was given") as caught:
        session.run(feeds, budget=Budget(memory=least - 1))
    assert "onnx." in caught.value.where
    np.testing.assert_array_equal(session.run(feeds)["y"], expected)


def test_what_a_loop_collects_counts(target_name: str) -> None:
    session = session_of(LOOP, target_name)
    feeds = {"trip": ENDLESS, "go": np.array(True), "x": X * 0}
    with pytest.raises(OutOfMemory) as caught:
        session.run(feeds, budget=Budget(memory=64 * KIB, seconds=600))
    assert "onnx." in caught.value.where
    least = least_memory(lambda most: session.run({**feeds, "trip": np.array(100)}, budget=Budget(memory=most)))
    assert 100 * X.nbytes <= least <= 3 * 100 * X.nbytes


GROWING = """g (int64 trip, bool go, float[k] x) => (y) {
    y = Loop(trip, go, x) <body = b (int64 i, bool c, float[m] s) => (bool d, float[p] t) {
        d = Identity(c)
        t = Concat<axis = 0>(s, s)
    }>
}"""


def test_what_a_loop_carries_counts(target_name: str) -> None:
    session = session_of(GROWING, target_name)
    feeds = {"trip": np.array(60), "go": np.array(True), "x": X}
    with pytest.raises(OutOfMemory):
        session.run(feeds, budget=Budget(memory=64 * KIB))
    assert session.run({**feeds, "trip": np.array(3)}, budget=Budget(memory=64 * KIB))["y"].shape == (32,)


def test_results_of_segments_count_until_nobody_needs_them(host_target_name: str) -> None:
    """Strings keep a node on the oracle, so that there are three segments on other targets."""
    text = """g (float[n, m] x) => (float[n, m] y) {
        a = Exp(x)
        s = Cast<to = 8>(a)
        f = Cast<to = 1>(s)
        y = Add(f, a)
    }"""
    session = session_of(text, host_target_name)
    feeds = feeds_of_chain(16, 16)
    least = least_memory(lambda most: session.run(feeds, budget=Budget(memory=most)))
    assert least >= 3 * 16 * 16 * 4  # a, f and y are alive at the end


def test_a_stopped_run_leaves_the_state_as_it_was(target_name: str) -> None:
    torch = pytest.importorskip("torch")

    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.calls.add_(x)
            return self.calls.exp().sum()

    program = torch.export.export(Counter(), (torch.ones(3),))
    session = assay.load(program, SessionOptions(target=target_name))
    x = np.ones(3, np.float32)
    session.run({"x": x})
    for budget in (Budget(seconds=1e-9), Budget(memory=1)):
        with pytest.raises((RunStopped, OutOfMemory)):
            session.run({"x": x}, budget=budget)
        assert session.state["b_calls"].tolist() == [1, 1, 1]
    session.run({"x": x}, budget=Budget(seconds=600))
    assert session.state["b_calls"].tolist() == [2, 2, 2]


# --- memory that there is


def of_shape(count: int, *more: Any) -> bytes:
    sizes = onnx.numpy_helper.from_array(np.array([count], np.int64), "s")
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c"], "culprit"), *more]
    output = nodes[-1].output[0]
    graph = helper.make_graph(nodes, "g", [], [helper.make_empty_tensor_value_info(output)], [sizes])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return proto.SerializeToString()


def test_what_is_larger_than_the_memory_that_is_left_is_not_asked_for(
    target_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 GiB are within the usual limits. Nothing of that is touched here: a result of that size has to be made."""
    monkeypatch.setattr(memory, "free_memory", lambda: 1 << 30)
    monkeypatch.setattr(memory, "stated", lambda *_: 0)
    model = of_shape(15 * (1 << 28), helper.make_node("Exp", ["c"], ["y"], "culprit"))
    session = assay.InferenceSession(model, target=target_name)
    with pytest.raises(OutOfMemory, match=r"needs .* GiB .*, 1\.0 GiB are left") as caught:
        session.run(None, {})
    assert "culprit" in caught.value.where


BIG = 40 << 20
"""Elements of which several tensors are beyond a limit that is set here, and none beyond a machine's memory."""


@pytest.mark.parametrize("kind", HUNGRY)
def test_sizes_that_a_run_tells_are_compared_with_what_is_left(
    kind: str, target_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hungry(HUNGRY[kind], target_name, monkeypatch)


def test_the_oracle_sums_up_in_f64_and_makes_its_inputs_such(monkeypatch: pytest.MonkeyPatch) -> None:
    hungry("y = ReduceSum(x)", "reference", monkeypatch)


def hungry(body: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a body that needs more than is left, between two runs that need little."""
    session = session_of(f"g (float[n, m] x) => (y) {{ {body} }}", target)
    small, large = np.zeros((3, 4), np.float32), np.lib.stride_tricks.as_strided(X, (4, BIG // 4), (0, 0))
    expected = session.run({"x": small})["y"]
    told = list[int]()
    monkeypatch.setattr(memory, "free_memory", lambda: told.append(1) or 100 << 20)
    monkeypatch.setattr(memory, "stated", lambda *_: 0)
    with pytest.raises(OutOfMemory) as caught:
        session.run({"x": large})
    assert caught.value.where
    assert told
    told.clear()
    np.testing.assert_array_equal(session.run({"x": small})["y"], expected)
    assert not told, "small runs do not look"


def test_a_loop_that_collects_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = {"trip": ENDLESS, "go": np.array(True), "x": X * 0}
    tight = session_of(LOOP, "reference", Limits(tensor_bytes=10_000))
    with pytest.raises(LimitExceeded, match="a loop collected"):
        tight.run(feeds)
    monkeypatch.setattr(memory, "free_memory", lambda: 0)
    monkeypatch.setattr(memory, "LARGE", 1000)
    monkeypatch.setattr("assay.targets.reference.interpreter.LARGE", 1000)
    monkeypatch.setattr(memory, "stated", lambda *_: 0)
    with pytest.raises(OutOfMemory, match="what a loop collects"):
        session_of(LOOP, "reference").run(feeds)


# --- words


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("4096", 4096), ("1GiB", 1 << 30), ("1.5 MiB", 3 << 19), ("500MB", 500_000_000), ("2k", 2000), ("8b", 8)],
)
def test_sizes_are_read(text: str, bytes_: int) -> None:
    assert parsed_size(text) == bytes_


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "1 TB x", "one"])
def test_what_is_no_size_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="no number of bytes"):
        parsed_size(text)


@pytest.mark.parametrize("count", [0, 5, 1023, 1 << 10, 3 << 20, 7 << 30])
def test_sizes_that_are_shown_can_be_read(count: int) -> None:
    assert abs(parsed_size(size(count)) - count) <= count * 0.05
