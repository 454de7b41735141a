"""The library ttnn as this process sees it: requests to a worker, and typed answers."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assay.errors import RunFailed
from assay.ir.dtypes import Array
from assay.processes import Worker, WorkerDied, WorkerFailed, WorkerLimits
from assay.targets.ttnn.cards import Card, chosen_card
from assay.targets.ttnn.mock import mock_environment
from assay.targets.ttnn.pythons import Installed, installed

_SERVICE = f"{Path(__file__).with_name('service.py')}:serve"
_DRIVER = Path("/dev/tenstorrent")
SMALL = 32 << 10
"""Bytes of each core's memory for small things: convolutions and pools want some."""
PATIENCE = WorkerLimits(start=300.0, silence=300.0)


class LibraryFailed(RunFailed):
    """The library ended its process, or hung, in a call; `op` is the call, `step` its place in a program, if it has
    one. The next request starts another process."""

    usual_hint = "the next request starts another process; `where` is the call that did it"
    op = ""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """The library did not take a call: `step` is its place in the program (−1: before the first, at the input in the
    place `given`), `reason` what the library said."""

    reason: str
    step: int
    given: int = -1


@dataclass(frozen=True, slots=True)
class About:
    """The library and the card: its version, the chips, the cores of one, and the bytes of memory of one."""

    version: str
    arch: str
    chips: int
    grid: tuple[int, int]
    dram: int
    l1: int


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor on the card: where it lies is its buffer type and its memory layout."""

    shape: tuple[int, ...]
    dtype: str
    layout: str
    buffer: str
    memory: str

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)} {self.layout}"


@dataclass(frozen=True, slots=True)
class Checked:
    """A program that the library took: the specs of what each step gave, and the bytes taken in the card's DRAM and in
    its L1 before the first step and after each."""

    specs: tuple[tuple[Spec | None, ...], ...]
    memory: tuple[tuple[int, int], ...]


class Library:
    """The library in a process of its own, with a stand-in for a card. Threads may share it.

    Every request may raise LibraryFailed.
    """

    def __init__(self, found: Installed, mock: Card, limits: WorkerLimits = PATIENCE, small: int = SMALL) -> None:
        self.mock = mock
        environment = mock_environment(found.folder, mock)
        self._notes = tempfile.TemporaryDirectory(prefix="assay-ttnn-", ignore_cleanup_errors=True)
        arguments = list(mock.mesh), small, self._notes.name
        self._worker = Worker(_SERVICE, *arguments, python=found.python, environment=environment, limits=limits)

    def about(self) -> About:
        """What the library says of itself."""
        reply = self._ask("about")
        return About(reply["version"], reply["arch"], reply["chips"], tuple(reply["grid"]), reply["dram"], reply["l1"])

    def converted(self, array: Array, dtype: str) -> Array:
        """A float32 array as the library's host code rounds it to one of its dtypes."""
        reply = self._ask("convert", array=array, dtype=dtype)
        if isinstance(reply, dict):
            raise LibraryFailed(f"the library cannot convert {array.shape} to {dtype}: {reply['refused']}")
        return reply

    def check(
        self, steps: Sequence[Any], inputs: Sequence[tuple[int, Sequence[int], str, str]]
    ) -> Checked | RefusedCall:
        """Have every step of a program checked, on inputs (number, shape, dtype, layout) that hold nothing."""
        reply = self._ask("check", steps=list(steps), inputs=[list(each) for each in inputs])
        if "refused" in reply:
            return RefusedCall(reply["refused"], reply["step"], reply["given"])
        specs = tuple(tuple(None if spec is None else _spec(spec) for spec in step) for step in reply["specs"])
        return Checked(specs, tuple((dram, l1) for dram, l1 in reply["memory"]))

    def close(self) -> None:
        """End the process."""
        self._worker.close()
        self._notes.cleanup()

    @property
    def pid(self) -> int | None:
        """The number of the worker's process, if it runs."""
        return self._worker.pid

    def _ask(self, do: str, **request: Any) -> Any:
        """The reply to a request. If the worker dies before it has begun with it, as one does that was killed just
        before, another is asked."""
        try:
            return self._asked(do, request)
        except _NotBegun:
            return self._asked(do, request, last=True)

    def _asked(self, do: str, request: dict[str, Any], last: bool = False) -> Any:
        told: list[Any] = []
        try:
            return self._worker.ask({"do": do, **request}, on_message=told.append, what=do)
        except WorkerFailed as error:
            if isinstance(error, WorkerDied) and error.ending.how == "signal" and not told and not last:
                raise _NotBegun from error
            op, step = told[-1] if told else (do, None)
            failed = LibraryFailed(f"the library ttnn failed in {op}: {error.message}", where=op)
            failed.op, failed.step = op, step
            raise failed from error


class _NotBegun(Exception):
    """The worker died before it told of anything."""


def _spec(fields: Sequence[Any]) -> Spec:
    shape, dtype, layout, buffer, memory = fields
    return Spec(tuple(shape), dtype, layout, buffer, memory)


def has_card() -> bool:
    """Whether the driver of the cards shows one."""
    return _DRIVER.is_dir() and any(_DRIVER.iterdir())


def open_library() -> Library | str:
    """The library of this process with a stand-in for a card; else the reason why there is none."""
    found = installed()
    return found.reason or _opened(found, chosen_card())


@cache
def _opened(found: Installed, mock: Card) -> Library:
    return Library(found, mock)
