"""The model of a card: the oracle's references with the card's rounding, and memory that holds what a card's would.

Every value is rounded to bfloat16 when it is moved to the card and after every op, as it lies in the card's memory;
what a single op does inside is exact. The card itself sums in f32 and approximates functions: see the tolerances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assay.errors import RunFailed
from assay.ir.dtypes import Array
from assay.ir.graph import Value
from assay.targets.base import Event, Finished, Observer, Run
from assay.targets.budget import Allowance
from assay.targets.reference.interpreter import Interpreter
from assay.targets.ttnn.executable import Setting, TakenExecutable
from assay.targets.ttnn.formats import ROUNDING, bfloat16
from assay.targets.ttnn.lowering import Taken
from assay.targets.ttnn.plan import bytes_on_card, fits_words, handed_over, kind_of, matrices_of


class ModelledBuffer:
    """A tensor in the modelled memory."""

    def __init__(self, content: Any) -> None:
        self.content = content

    @property
    def nbytes(self) -> int:
        """The bytes on a card, in the form in which programs hand tensors over."""
        shape = self.content.shape or (1,)
        return bytes_on_card(shape, handed_over(shape, self.content.dtype.kind in "iu"))


class ModelledCard:
    """The memory of the modelled card."""

    def upload(self, array: Array) -> ModelledBuffer:
        """The array as the card holds it. RunFailed for integers beyond its 32 bits."""
        if array.dtype.kind in "iu" and not fits_words(array):
            raise RunFailed("an integer does not fit the card's 32 bits", hint="leave this tensor to another target")
        if array.dtype == np.float32:
            with np.errstate(all="ignore"):
                return ModelledBuffer(bfloat16(array))
        return ModelledBuffer(np.array(array))

    def download(self, buffer: Any) -> Array:
        """A copy for the caller."""
        return buffer.content.copy()


class ModelledExecutable(TakenExecutable):
    """A segment that the library has taken, computed by the model."""

    def __init__(self, setting: Setting, taken: Taken, resident: Mapping[Value, ModelledBuffer]) -> None:
        super().__init__(setting, taken, resident)
        graph, places = self.sharing.modelled, self.sharing.places
        self._narrow = matrices_of(graph) if setting.matrices else frozenset[Value]()
        lasting = dict(graph.constants)
        for value, each in resident.items():
            lasting.update(zip(places(value), self.sharing.shares(value, each.content), strict=False))
        constants = {value: self._held(value, content) for value, content in lasting.items()}
        self._local = [place for value in self.open for place in places(value)]
        one = replace(graph, inputs=tuple(self._local), input_names=(), constants=constants)
        self._oracle = Interpreter(one, "bf16", setting.limits, setting.bodies)
        self._whole = any(kind_of(value) == "int" for node in graph.nodes for value in node.outputs)

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        """Buffers in, buffers out. Chips compute one after the other, or node by node if they exchange something."""
        self.started()
        seen = None if observer is None else self.sharing.watched()
        watch = observer if seen is None else seen
        watch = _widths_watched(watch) if self._whole else watch
        made: list[tuple[Any, ...]] = []
        for given in self.sharing.rounds(self.open, [each.content for each in inputs]):
            own = [self._held(value, each) for value, each in zip(self._local, given, strict=True)]
            made.append(self._oracle.submit(own, watch, allowance)[0])
        if seen is not None and observer is not None:
            seen.tell(observer)
        found = self.sharing.joined(self.setting.segment.outputs, made)
        return tuple(map(ModelledBuffer, found)), Finished(self.taken.peak_bytes)

    def _held(self, value: Value, content: Array) -> Array:
        """What a value is on the card: matrices may be narrower than other floats."""
        if value not in self._narrow:
            return content
        return ROUNDING[self.setting.matrices](content.astype(np.float32)).astype(content.dtype)


def _widths_watched(observer: Observer | None) -> Observer:
    """An observer that raises RunFailed for integers beyond the card's 32 bits, then lets the other one see."""

    def watch(event: Event) -> None:
        for each in event.results:
            if each.dtype.kind == "i" and not fits_words(each):
                raise RunFailed(
                    f"{event.node.op}: an integer does not fit the card's 32 bits",
                    where=str(event.node.origin),
                    hint="leave this op to another target",
                )
        if observer is not None:
            observer(event)

    return watch
