"""Damaged files of weights and jobs are refused by typed errors, and nothing in them is run."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.errors import ImportFailed, LimitExceeded
from assay.evidence.mutate import file_kinds
from assay.evidence.mutate.file_kinds import FILE_KINDS, MARK, FileKind
from assay.evidence.mutate.mutations import RAW
from assay.evidence.mutate.run import MEMORY, MutantOutcome, attempt_file, checked, run_mutations

KINDS = pytest.mark.parametrize("kind", FILE_KINDS.values(), ids=lambda kind: kind.name)


@KINDS
def test_the_files_that_are_damaged_are_sound(kind: FileKind) -> None:
    for index, data in enumerate(kind.samples()):
        assert attempt_file(index, "none", kind.name, data, "reference").verdict == "ran"


@KINDS
def test_mutants_run_or_are_refused(kind: FileKind) -> None:
    report = run_mutations(150, seed=7, target="reference", file_kind=kind.name)
    assert report.failures == []
    assert report.total == 150
    assert {damage for damage, _ in report.counts} == {each.__name__ for each in (*RAW, *kind.damages)}


def memory_taken() -> None:
    raise LimitExceeded("there is not enough memory to load this") from MemoryError()


def untyped() -> None:
    raise KeyError("oops")


def code_run() -> None:
    Path(MARK).touch()
    raise ImportFailed("this is refused, too late")


@pytest.mark.parametrize("wrong", [memory_taken, untyped, code_run])
def test_a_failure_is_seen(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    broken = replace(FILE_KINDS["torch"], use=lambda path, target, limits: wrong())
    monkeypatch.setattr("assay.evidence.mutate.run.FILE_KINDS", {"torch": broken})
    assert attempt_file(0, "any", "torch", b"", "reference").verdict == "failed"
    assert not Path(MARK).exists()


def busy() -> MutantOutcome:
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    return MutantOutcome(3, "any", "ran")


def greedy() -> MutantOutcome:
    np.ones(MEMORY + (64 << 20), np.uint8)
    return MutantOutcome(3, "any", "refused", "ImportFailed")


@pytest.mark.parametrize(
    ("wrong", "seconds", "said"), [(busy, 0.1, "of the processor"), (greedy, 60, "its file has 100 bytes")]
)
def test_what_takes_too_much_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, wrong: Any, seconds: float, said: str
) -> None:
    monkeypatch.setattr("assay.evidence.mutate.run.CPU_SECONDS", seconds)
    found = checked(wrong, 100)
    assert (found.index, found.verdict) == (3, "failed")
    assert said in found.detail
    assert checked(lambda: MutantOutcome(4, "any", "ran"), 100).verdict == "ran"


def test_hostile_pickles_would_leave_their_mark() -> None:
    """What `called_code` makes calls code if it is read by a reader that trusts it."""
    import pickle
    import random

    made = file_kinds.called_code(b"\x80\x02}(X\x01\x00\x00\x00aK\x01u.", random.Random(3))
    assert any(word in made for word in (b"system", b"exec", b"eval"))
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        Refusing(made).load()


class Refusing:
    """Python's own reader, which tells of what it is asked for."""

    def __init__(self, data: bytes) -> None:
        import io
        import pickle

        class Unpickler(pickle.Unpickler):
            def find_class(self, module: str, name: str) -> Any:
                raise pickle.UnpicklingError(f"refused: {module}.{name}")

        self.load = Unpickler(io.BytesIO(data)).load
