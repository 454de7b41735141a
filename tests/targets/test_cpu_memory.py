"""How the native target gets its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from suites.budget_cases import CHAIN, HUNGRY, feeds_of_chain, session_of

from assay import memory
from assay.errors import OutOfMemory


def test_memory_that_a_session_has_already_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(f"g (float[n, m] x) => (y) {{ {HUNGRY['between']} }}", "cpu")
    large, smaller, larger = (np.zeros((count, 1 << 20), np.float32) for count in (24, 20, 40))
    session.run({"x": large})
    monkeypatch.setattr(memory, "free_memory", lambda: 10 << 20)
    monkeypatch.setattr(memory, "stated", lambda *_: 0)
    for x in (large, smaller, large):
        assert session.run({"x": x})["y"].size == 1
    with pytest.raises(OutOfMemory):
        session.run({"x": larger})


def test_memory_that_the_system_refuses_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise MemoryError("Unable to allocate")

    session = session_of(CHAIN, "cpu")
    expected = session.run(feeds_of_chain())["y"]
    with monkeypatch.context() as patched:
        patched.setattr(np, "empty", refuse)
        with pytest.raises(OutOfMemory) as caught:
            session.run(feeds_of_chain())
    assert caught.value.where
    np.testing.assert_array_equal(session.run(feeds_of_chain())["y"], expected)
