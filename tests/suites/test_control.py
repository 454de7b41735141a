"""Control flow on every target: loops, branches and scans beside onnxruntime."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnxruntime
import pytest
from programs import tolerance
from suites.control_cases import CASES, GROWING, X, floats

import assay
from assay.errors import LimitExceeded, RunFailed
from assay.targets.base import Target

pytestmark = pytest.mark.filterwarnings("error:.*runs on the target:RuntimeWarning")

ALL = {**CASES, **GROWING}


@pytest.mark.parametrize("name", ALL)
def test_control_flow_runs_as_onnxruntime_runs_it(name: str, target: Target) -> None:
    model = ALL[name].model
    ours, theirs = assay.InferenceSession(model, target=target.name), onnxruntime.InferenceSession(model)
    for feeds in ALL[name].feeds:
        found: Any = ours.run(None, dict(feeds))
        wanted: Any = theirs.run(None, dict(feeds))
        for ours_, theirs_ in zip(found, wanted, strict=True):
            assert ours_.shape == theirs_.shape
            np.testing.assert_allclose(ours_, theirs_, **tolerance(target, 1e-5))


@pytest.mark.parametrize("name", CASES)
def test_what_happens_in_bodies_can_be_observed(name: str, target: Target) -> None:
    """The last round of each value, as the oracle has it."""
    model = CASES[name].model
    ours, oracle = (assay.InferenceSession(model, target=each).session for each in (target.name, "reference"))
    for feeds in CASES[name].feeds:
        found, wanted = ours.observe(feeds), oracle.observe(feeds)
        assert list(found) == list(wanted)
        for each, value in wanted.items():
            np.testing.assert_allclose(found[each], value, **tolerance(target, 1e-5), err_msg=each)


@pytest.mark.parametrize("name", CASES)
def test_runs_with_control_flow_can_be_timed(name: str, target_name: str) -> None:
    session = assay.InferenceSession(CASES[name].model, target=target_name).session
    feeds = CASES[name].feeds[-1]
    ops = [each.op for each in session.profile(feeds)]
    assert {"loop", "branch"} & set(ops)
    assert all(each.seconds >= 0 for each in session.profile(feeds))


@pytest.mark.parametrize("name", CASES)
def test_times_are_those_of_runs_that_nobody_observes(name: str, target_name: str) -> None:
    session = assay.InferenceSession(CASES[name].model, target=target_name).session
    feeds = CASES[name].feeds[-1]
    before, found, after = session.run(feeds), session.times(feeds), session.run(feeds)
    assert all(call.ops and call.seconds >= 0 for call in found)
    for each, value in after.items():
        np.testing.assert_array_equal(value, before[each])


def test_times_count_the_rounds_of_a_loop_once(target_name: str) -> None:
    """In what its body calls, and not once more in the loop."""
    session = assay.InferenceSession(CASES["counted"].model, target=target_name).session
    feeds = {"x": X, "n": np.array(1000)}
    session.times(feeds)
    started = time.perf_counter()
    found = session.times(feeds)
    assert 0 < sum(call.seconds for call in found) <= time.perf_counter() - started
    assert len(found) < 20


def test_a_loop_that_runs_too_often_is_an_error(target_name: str) -> None:
    case = CASES["counted"]
    options = assay.SessionOptions(target=target_name, limits=assay.Limits(loop_iterations=10))
    session = assay.InferenceSession(case.model, options)
    assert session.run(None, {"x": X, "n": np.array(10)})
    with pytest.raises((RunFailed, LimitExceeded), match="loop_iterations"):
        session.run(None, {"x": X, "n": np.array(11)})


def test_steps_of_a_loop_are_ready_for_the_next_run(target_name: str) -> None:
    """A session is run many times, from several places, with other counts each time."""
    session = assay.InferenceSession(CASES["fibonacci"].model, target=target_name)
    for n in (5, 0, 9, 2, 9):
        p, q = session.run(None, {"a": floats(0, 1), "b": floats(1, 1), "n": np.array(n)})
        wanted = (floats(0, 1), floats(1, 1))
        for _ in range(n):
            wanted = wanted[1], wanted[0] + wanted[1]
        np.testing.assert_array_equal(p, wanted[0])
        np.testing.assert_array_equal(q, wanted[1])
