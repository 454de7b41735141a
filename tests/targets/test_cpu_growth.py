"""Caches that grow where they lie: what runs give, and who shares memory with whom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import assay
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import Array
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.ops.builder import Builder
from assay.runtime.options import SessionOptions
from assay.targets.grown import GrownTensor

HEADS, WIDTH, NAMES = 3, 8, ("key", "value")


def cached(*, read_twice: bool = False) -> Graph:
    """Attention of new rows to themselves and to those of a cache of keys and one of values."""
    b, batch = Builder(), symbol("batch", 1)
    rows = b.input(TensorType(dtypes.f32, (batch, HEADS, symbol("step", 1), WIDTH)))
    caches = [b.input(TensorType(dtypes.f32, (batch, HEADS, symbol("past"), WIDTH))) for _ in NAMES]
    key, value = (b.concat(cache, b.mul(rows, 2.0 + at), axis=2) for at, cache in enumerate(caches))
    out = b.sdpa(rows, key, value)
    outputs = [out, key, value, *([b.reduce_sum(caches[0], axes=(2,))] if read_twice else [])]
    names = ("out", *NAMES, *(["sum"] if read_twice else []))
    return b.finish("cached", [rows, *caches], outputs, input_names=("rows", *NAMES), output_names=names)


def rows(length: int, seed: int, batch: int = 2) -> Array:
    return np.random.default_rng(seed).normal(size=(batch, HEADS, length, WIDTH)).astype(np.float32)


def nothing(batch: int = 2) -> dict[str, Any]:
    return {name: rows(0, 0, batch) for name in NAMES}


def states(results: dict[str, Any]) -> dict[str, Any]:
    return {name: results[name] for name in NAMES}


@pytest.fixture
def session() -> assay.Session:
    return assay.Session(cached(), SessionOptions(target="cpu"))


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        np.testing.assert_array_equal(np.asarray(found[name]), value)


def test_steps_give_what_they_give_with_copies(session: assay.Session) -> None:
    """Over many steps: more than the first memory has room for."""
    kept, copied = nothing(), nothing()
    moves = 0
    for at, length in enumerate((5, *[1] * 300, 40, *[1] * 20)):
        given, before = rows(length, at), kept
        found = session.run({"rows": given, **kept}, keep=NAMES)
        wanted = session.run({"rows": given, **copied})
        same(found, wanted)
        kept, copied = states(found), states(wanted)
        moves += at > 0 and kept["key"].room is not before["key"].room
    assert 1 <= moves <= 3


def test_results_that_are_not_kept_are_the_callers_alone(session: assay.Session) -> None:
    found = session.run({"rows": rows(4, 0), **nothing()})
    assert all(found[name].flags.c_contiguous and found[name].flags.writeable for name in NAMES)
    one = session.run({"rows": rows(4, 0), **nothing()}, keep=("key",))
    assert not isinstance(one["key"], GrownTensor)


def test_a_kept_state_cannot_be_written_to(session: assay.Session) -> None:
    kept = session.run({"rows": rows(4, 0), **nothing()}, keep=NAMES)["key"]
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(kept)[0, 0, 0, 0] = 1


def test_a_state_may_be_continued_in_several_ways(session: assay.Session) -> None:
    """The first continuation takes the room behind it, others get memory of their own; nobody's content changes."""
    start = states(session.run({"rows": rows(3, 0), **nothing()}, keep=NAMES))
    before = {name: np.array(value) for name, value in start.items()}
    found = [session.run({"rows": rows(2, seed), **start}, keep=NAMES) for seed in (1, 2, 3)]
    for seed, each in zip((1, 2, 3), found, strict=True):
        same(each, session.run({"rows": rows(2, seed), **before}))
    same(start, before)
    assert found[0]["key"].room is start["key"].room
    assert len({id(each["key"].room) for each in found}) == 3


def test_states_of_different_runs_may_be_mixed(session: assay.Session) -> None:
    a, b = (states(session.run({"rows": rows(3, seed), **nothing()}, keep=NAMES)) for seed in (0, 1))
    a = states(session.run({"rows": rows(1, 5), **a}, keep=NAMES))
    b = states(session.run({"rows": rows(1, 6), **b}, keep=NAMES))
    mixed = {"key": a["key"], "value": np.array(b["value"])}
    found = session.run({"rows": rows(1, 7), **mixed}, keep=NAMES)
    same(found, session.run({"rows": rows(1, 7), **{name: np.array(each) for name, each in mixed.items()}}))


def test_a_grown_state_can_be_fed_to_any_run(session: assay.Session) -> None:
    kept = states(session.run({"rows": rows(3, 0), **nothing()}, keep=NAMES))
    plain = {name: np.array(value) for name, value in kept.items()}
    wanted = session.run({"rows": rows(2, 1), **plain})
    same(session.run({"rows": rows(2, 1), **kept}), wanted)
    same(
        assay.Session(cached(), SessionOptions(target="reference")).run({"rows": rows(2, 1), **kept}, keep=NAMES),
        {name: wanted[name] for name in NAMES},
    )
    events: list[Any] = []
    same(session.run({"rows": rows(2, 1), **kept}, keep=NAMES, observer=events.append), wanted)
    assert events
    assert session.times({"rows": rows(2, 1), **kept})
    other = rows(2, 1, batch=1)
    same(session.run({"rows": other, **nothing(1)}, keep=NAMES), session.run({"rows": other, **nothing(1)}))


def test_a_cache_that_others_read_does_not_grow() -> None:
    session = assay.Session(cached(read_twice=True), SessionOptions(target="cpu"))
    found = session.run({"rows": rows(2, 0), **nothing()}, keep=NAMES)
    assert not isinstance(found["key"], GrownTensor)
