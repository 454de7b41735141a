"""Programs that a card runs: their tensors lie in its memory, and the numbers are the card's own.

Every program was put to the library on a mock before, so that what the library refuses never reaches a card.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np

from assay.errors import CompileFailed, RunFailed
from assay.ir.dtypes import Array, is_array
from assay.ir.graph import Node, Value
from assay.ir.types import TensorType
from assay.targets.base import Event, Finished, Observer, Run, Stopwatch
from assay.targets.budget import Allowance
from assay.targets.ttnn.cards import Card, chosen_card
from assay.targets.ttnn.executable import Setting, TakenExecutable, take
from assay.targets.ttnn.library import LibraryProcess, has_card
from assay.targets.ttnn.lowering import Taken
from assay.targets.ttnn.parallel import ENVIRONMENT as PARALLEL
from assay.targets.ttnn.plan import (
    CallProgram,
    Form,
    LibraryCall,
    bytes_on_card,
    fits_words,
    handed_over,
    kind_of,
    on_card,
    sizes,
)
from assay.targets.ttnn.pythons import Installed, installed
from assay.targets.ttnn.residency import Resident
from assay.targets.ttnn.tensor import LayerSharing

_IN_PLACE = frozenset({"experimental.paged_update_cache"})
"""Calls that write to their first argument. It is copied before, as somebody may still have it."""
_QUIET = {"TT_METAL_LOGGER_LEVEL": "fatal", "LOGURU_LEVEL": "ERROR"}


class CardBuffer:
    """A tensor on the card, by its number there: a value of a shape and a dtype of the host's. It is gone with this."""

    __slots__ = ("__weakref__", "dtype", "form", "number", "shape")

    def __init__(self, number: int, shape: tuple[int, ...], dtype: Any, form: Form) -> None:
        self.number, self.shape, self.dtype, self.form = number, shape, np.dtype(dtype), form

    @property
    def nbytes(self) -> int:
        """The bytes on the card."""
        return bytes_on_card(self.shape or (1,), self.form)


class CardProcess(LibraryProcess):
    """The library with a card that computes. Threads may share it."""

    def __init__(self, python: str, environment: Mapping[str, str], like: Card) -> None:
        super().__init__(python, environment, like.mesh)
        self.like = like
        """The mock that programs are put to."""
        self._numbers = count(1)
        self._gone: list[int] = []
        self._residents: WeakKeyDictionary[Resident, CardBuffer] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def put(self, array: Array, form: Form | None = None) -> CardBuffer:
        """An array on the card, in the form in which programs hand tensors over unless another is said."""
        whole = array.dtype.kind in "iu"
        if whole and not fits_words(array):
            raise RunFailed("an integer does not fit the card's 32 bits", hint="leave this tensor to another target")
        shape = array.shape or (1,)
        buffer = self._fresh(array.shape, array.dtype, form or handed_over(shape, whole))
        content = np.ascontiguousarray(array.reshape(shape), np.int32 if whole else np.float32)
        form = buffer.form
        self._asked_card("put", number=buffer.number, array=content, dtype=form.dtype, layout=form.layout)
        return buffer

    def get(self, buffer: CardBuffer) -> Array:
        """The content of a buffer, as the host has it."""
        found: Array = self._asked_card("get", number=buffer.number).reshape(buffer.shape)
        return found != 0 if buffer.dtype.kind == "b" else found.astype(buffer.dtype)

    def run(
        self,
        steps: Sequence[Any],
        inputs: Sequence[tuple[int, CardBuffer, int | None]],
        results: Sequence[tuple[int, CardBuffer]],
        joins: Mapping[int, int] | None = None,
        *,
        timed: bool = False,
    ) -> list[float]:
        """Run calls on what is on the card; the results are in these buffers then. The seconds of each, if `timed`."""
        given = [[ref, buffer.number, axis] for ref, buffer, axis in inputs]
        made = [[ref, buffer.number] for ref, buffer in results]
        told = {"steps": list(steps), "inputs": given, "results": made, "joins": dict(joins or {})}
        return self._asked_card("run", **told, timed=timed)

    def result(self, value: Value) -> CardBuffer:
        """A buffer for a value that a program will make, in the form in which programs hand tensors over."""
        assert isinstance(value.type, TensorType)
        form = handed_over(on_card(value), kind_of(value) == "int")
        return self._fresh(sizes(value), value.type.dtype.numpy, form)

    def kept(self) -> CardBuffer:
        """A buffer for something that programs alone read, whatever it is."""
        return self._fresh((), np.float32, Form("bfloat16"))

    def resident(self, wanted: Resident) -> CardBuffer:
        """A weight in the form that programs want of it, moved there once for all of them."""
        with self._lock:
            found = self._residents.get(wanted)
            if found is None:
                owner = wanted.owner
                content = owner if is_array(owner) else self.get(owner)
                found = self.put(content.reshape(wanted.shape), Form(wanted.dtype, wanted.layout))
                self._residents[wanted] = found
            return found

    def _fresh(self, shape: tuple[int, ...], dtype: Any, form: Form) -> CardBuffer:
        buffer = CardBuffer(next(self._numbers), shape, dtype, form)
        finalize(buffer, self._gone.append, buffer.number)
        return buffer

    def _asked_card(self, do: str, **request: Any) -> Any:
        gone = [self._gone.pop() for _ in range(len(self._gone))]
        reply = self._ask(do, **request, gone=gone)
        if isinstance(reply, dict):
            raise RunFailed(f"the card cannot {do}: {reply['refused']}", hint="load the model again")
        return reply


class CardMemory:
    """The memory of the card."""

    def upload(self, array: Array) -> CardBuffer:
        """The array on the card. RunFailed for integers beyond its 32 bits."""
        return open_card().put(array)

    def download(self, buffer: Any) -> Array:
        """The content of a buffer."""
        return open_card().get(buffer)


class CardExecutable(TakenExecutable):
    """A segment that the library has taken on a mock, run by the card.

    Calls that do not depend on a run's inputs are made once. With an observer another program runs, whose results are
    all values of the segment.
    """

    def __init__(self, setting: Setting, taken: Taken, resident: Mapping[Value, Any]) -> None:
        super().__init__(setting, taken, resident)
        if isinstance(self.sharing, LayerSharing):
            raise CompileFailed(
                "chips of a card do not share linear layers yet: that is computed by the device model alone",
                hint=f"{PARALLEL}=data or none, or ASSAY_TTNN_NUMBERS=model",
            )
        self._card, program = open_card(), taken.program
        calls = _copying(program)
        lasting = [
            (each.ref.number, self._card.resident(spec.resident), None)
            for each, spec in zip(program.given, taken.given, strict=True)
            if spec.resident is not None
        ]
        self._steps = [call for call, step in calls if not step.once]
        self._nodes = [step.node for _, step in calls if not step.once]
        read = {*program.outputs, *(ref for step in program.steps if not step.once for ref in step.reads)}
        made = [ref for step in program.steps if step.once for ref in step.results if ref in read]
        results = [(ref.number, self._card.kept()) for ref in made]
        if results:
            self._card.run([{**call, "frees": []} for call, step in calls if step.once], lasting, results)
        self._lasting = [*lasting, *((number, buffer, None) for number, buffer in results)]
        local = dict(zip(self.sharing.graph.inputs, setting.segment.inputs, strict=True))
        self._given = {
            local[each.value]: (each.ref.number, spec.axis)
            for each, spec in zip(program.given, taken.given, strict=True)
            if spec.resident is None
        }
        self._watched: CardExecutable | None = None

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        """Buffers in, buffers out."""
        self.started()
        if allowance is not None:
            allowance.check(self._nodes[0] if self._nodes else None)
        if isinstance(observer, Stopwatch):
            return self._timed(inputs, observer), Finished(self.taken.peak_bytes)
        if observer is not None:
            return self._observed(inputs, observer), Finished(self.taken.peak_bytes)
        return self._run(inputs, timed=False)[0], Finished(self.taken.peak_bytes)

    def _run(self, inputs: Sequence[Any], *, timed: bool) -> tuple[tuple[CardBuffer, ...], list[float]]:
        program, outputs = self.taken.program, self.setting.segment.outputs
        buffers = dict(zip(self.open, inputs, strict=True))
        given = [(number, buffers[value], axis) for value, (number, axis) in self._given.items()]
        results = [self._card.result(value) for value in outputs]
        pairs = [(ref.number, buffer) for ref, buffer in zip(program.outputs, results, strict=True)]
        seconds = self._card.run(self._steps, [*self._lasting, *given], pairs, dict(self.taken.joins), timed=timed)
        return tuple(results), seconds

    def _timed(self, inputs: Sequence[Any], stopwatch: Stopwatch) -> tuple[CardBuffer, ...]:
        """A run whose calls are waited for one by one, each with its copies."""
        results, seconds = self._run(inputs, timed=True)
        for node, took in zip(self._nodes, seconds, strict=True):
            stopwatch.note((node,), took)
        return results

    def _observed(self, inputs: Sequence[Any], observer: Observer) -> tuple[CardBuffer, ...]:
        segment = self.setting.segment
        nodes: list[Node] = list(segment.nodes)
        if self._watched is None:
            values = dict.fromkeys((*segment.outputs, *(value for node in nodes for value in node.outputs)))
            setting = replace(self.setting, segment=replace(segment, outputs=tuple(values), output_names=()))
            self._watched = CardExecutable(setting, take(setting, self.resident), self.resident)
        found, _ = self._watched._run(inputs, timed=False)
        made = dict(zip(self._watched.setting.segment.outputs, found, strict=True))
        for node in nodes:
            observer(Event(node, tuple(self._card.get(made[value]) for value in node.outputs), 0.0, 0))
        return tuple(made[value] for value in segment.outputs)


def _copying(program: CallProgram) -> list[tuple[dict[str, Any], LibraryCall]]:
    """The calls of a program, each with the step that it is made for; what is written in place is a copy."""
    found: list[tuple[dict[str, Any], LibraryCall]] = []
    for step, call in zip(program.steps, program.calls(), strict=True):
        if step.op in _IN_PLACE:
            written, copy = call["args"][0], -call["results"][0]
            clone: dict[str, Any] = {"op": "clone", "args": [written], "kwargs": {}, "results": [copy], "frees": []}
            found.append((clone, step))
            call = {**call, "args": [{"value": copy}, *call["args"][1:]], "frees": [*call["frees"], copy]}
        found.append((call, step))
    return found


def open_card() -> CardProcess:
    """The card of this process. CompileFailed if there is none, no library, or a card that programs are not for."""
    if not has_card():
        raise CompileFailed("the driver shows no card", hint="ASSAY_TTNN_NUMBERS=model computes with a model of one")
    found = installed()
    if found.reason:
        raise CompileFailed(found.reason)
    return _opened(found, chosen_card())


@cache
def _opened(found: Installed, like: Card) -> CardProcess:
    card = CardProcess(found.python, _QUIET, like)
    about = card.about()
    if (about.arch.lower(), about.chips) != (like.chip.arch, len(like.chips)):
        raise CompileFailed(
            f"programs are for an {like.name} ({len(like.chips)} × {like.chip.arch}), and the card of this machine is "
            f"{about.chips} × {about.arch.lower()}",
            hint="say which card it is by ASSAY_TTNN_CARD",
        )
    return card
