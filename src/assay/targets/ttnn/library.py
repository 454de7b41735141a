"""The library ttnn as this process sees it: requests to a worker, and typed answers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from assay.errors import RunFailed
from assay.ir.dtypes import Array
from assay.processes import Worker, WorkerDied, WorkerFailed, WorkerLimits
from assay.targets.ttnn.cards import Card, chosen_card
from assay.targets.ttnn.mock import mock_environment
from assay.targets.ttnn.pythons import Installed, installed
from assay.targets.ttnn.residency import Resident, Residents

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
    place `given`), `reason` what the library said. `others` are the bytes that stay on the card for other programs."""

    reason: str
    step: int
    given: int = -1
    others: int = 0


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
    """A program that the library took: the specs of what each step gave, and the bytes that it took in the card's DRAM
    and in its L1 before the first step and after each. `others` are the bytes of DRAM beside that, which stay there for
    other programs."""

    specs: tuple[tuple[Spec | None, ...], ...]
    memory: tuple[tuple[int, int], ...]
    others: int = 0


class TensorSpec(NamedTuple):
    """A tensor that a program is given, as one chip has it: its number there, and the tensor that stays on the card for
    it, if one does. If chips share one that is larger, `axis` is that along which they do."""

    number: int
    shape: Sequence[int]
    dtype: str
    layout: str
    resident: Resident | None = None
    axis: int | None = None


class LibraryProcess:
    """The library in a process of its own with an open card, or with what stands in for one. Threads may share it.

    Every request may raise LibraryFailed.
    """

    def __init__(
        self,
        python: str,
        environment: Mapping[str, str],
        mesh: tuple[int, int],
        limits: WorkerLimits = PATIENCE,
        small: int = SMALL,
    ) -> None:
        self._notes = tempfile.TemporaryDirectory(prefix="assay-ttnn-", ignore_cleanup_errors=True)
        arguments = list(mesh), small, self._notes.name
        self._worker = Worker(_SERVICE, *arguments, python=python, environment=environment, limits=limits)

    def about(self) -> About:
        """What the library says of itself and of the card."""
        reply = self._ask("about")
        return About(reply["version"], reply["arch"], reply["chips"], tuple(reply["grid"]), reply["dram"], reply["l1"])

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


class Library(LibraryProcess):
    """The library with a stand-in for a card: it checks programs, and computes nothing."""

    def __init__(self, found: Installed, mock: Card, limits: WorkerLimits = PATIENCE, small: int = SMALL) -> None:
        super().__init__(found.python, mock_environment(found.folder, mock), mock.mesh, limits, small)
        self.mock, self.residents = mock, Residents()

    def converted(self, array: Array, dtype: str) -> Array:
        """A float32 array as the library's host code rounds it to one of its dtypes."""
        reply = self._ask("convert", array=array, dtype=dtype)
        if isinstance(reply, dict):
            raise LibraryFailed(f"the library cannot convert {array.shape} to {dtype}: {reply['refused']}")
        return reply

    def check(
        self, steps: Sequence[Any], inputs: Sequence[TensorSpec], joins: Sequence[tuple[int, int]] = ()
    ) -> Checked | RefusedCall:
        """Have every step of a program checked, on inputs that hold nothing. What stays on the card for programs is
        there while it is. `joins` are results that are joined along an axis, of what each chip made."""
        reply = self._ask("check", **self._program(steps, inputs, joins))
        if "refused" in reply:
            return RefusedCall(reply["refused"], reply["step"], reply["given"], reply["others"])
        specs = tuple(tuple(None if spec is None else _spec(spec) for spec in step) for step in reply["specs"])
        return Checked(specs, tuple((dram, l1) for dram, l1 in reply["memory"]), reply["others"])

    def report(
        self,
        folder: Path,
        labels: Sequence[tuple[str, str]],
        steps: Sequence[Any],
        inputs: Sequence[TensorSpec],
        joins: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Have the library write into a folder what its visualizer reads of a program that it has taken, with what each
        input and each step is for (a text, and a place in the source)."""
        self._ask("report", folder=str(folder), labels=list(labels), **self._program(steps, inputs, joins))

    def _program(
        self, steps: Sequence[Any], inputs: Sequence[TensorSpec], joins: Sequence[tuple[int, int]]
    ) -> dict[str, Any]:
        """A program as the worker takes it, with what stays on the card meanwhile."""
        given = [[*each[:4], each.resident and each.resident.number, each.axis] for each in inputs]
        staying = [[each.number, each.shape, each.dtype, each.layout, each.axis] for each in self.residents.live()]
        return {"steps": list(steps), "inputs": given, "staying": staying, "joins": list(joins)}


def _spec(fields: Sequence[Any]) -> Spec:
    shape, dtype, layout, buffer, memory = fields
    return Spec(tuple(shape), dtype, layout, buffer, memory)


def has_card() -> bool:
    """Whether the driver of the cards shows one."""
    return _DRIVER.is_dir() and any(_DRIVER.iterdir())


def open_library(card: Card | None = None) -> Library | str:
    """The library of this process with a stand-in for a card, the chosen one unless another is said; else the reason
    why there is none."""
    found = installed()
    return found.reason or _opened(found, card or chosen_card())


@cache
def _opened(found: Installed, mock: Card) -> Library:
    return Library(found, mock)
