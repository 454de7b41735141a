"""Runs of a program: one that is over when it starts, in host memory, and one that devices may still be at."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from assay.errors import OutOfMemory
from assay.ir.graph import Graph
from assay.runtime.device_tensors import DeviceTensor
from assay.runtime.transfers import HOST, Ledger, Metered, Transfer
from assay.targets.base import Device, Executable, Observer, Run
from assay.targets.budget import Allowance

Kept: TypeAlias = Mapping[int, tuple[np.dtype[Any], tuple[int, ...]]]
"""The outputs that stay on devices, by their places, with what they are."""
NOTHING_KEPT: Kept = {}


@dataclass(slots=True)
class CompiledSegment:
    """A segment in a program: the places of what it reads and makes, and of what nobody reads after it."""

    executable: Executable
    graph: Graph
    target: str
    device: Device | None
    reads: list[int] = field(default_factory=list[int])
    writes: list[int] = field(default_factory=list[int])
    frees: list[int] = field(default_factory=list[int])


class ProgramRun(Protocol):
    """A run of a program that was started."""

    def outputs(self, kept: Kept = NOTHING_KEPT) -> tuple[Any, ...]:
        """Wait for the program's outputs. Raises what went wrong in the run. Those in `kept` stay on the device that
        made them, if one did."""
        ...

    @property
    def peak_bytes(self) -> int | None:
        """The memory for intermediate results of the hungriest segment, known once there are outputs; None if a target
        does not tell."""
        ...

    @property
    def transfers(self) -> Ledger | None:
        """What crossed between host and devices so far; None if there is no device."""
        ...


class HostRun:
    """A run in host memory: it is over when it is there."""

    __slots__ = ("_outputs", "peak_bytes")
    transfers: Ledger | None = None

    def __init__(self, outputs: tuple[Any, ...], peak_bytes: int | None) -> None:
        self._outputs, self.peak_bytes = outputs, peak_bytes

    def outputs(self, kept: Kept = NOTHING_KEPT) -> tuple[Any, ...]:
        """The outputs, which are there."""
        return self._outputs


class DeviceRun:
    """A run where some targets have memory of their own: values go there when a segment needs them there.

    When it is made, segments are submitted one after the other, up to the first that takes a value which a device has
    yet to give. `outputs` goes on from there.
    """

    def __init__(
        self,
        segments: Sequence[CompiledSegment],
        values: Sequence[Any],
        outputs: Sequence[int],
        observer: Observer | None,
        allowance: Allowance | None,
        damaged: list[Transfer] | None,
    ) -> None:
        """`values` are where the segments look for them, `outputs` the places of those that are the results."""
        self.transfers: Ledger = Ledger()
        self._homes = _Homes(values, self.transfers, damaged)
        self._left, self._wanted = list(reversed(segments)), outputs
        self._observer, self._allowance = observer, allowance
        self._runs: list[Run] = []
        self._outputs: tuple[Any, ...] | None = None
        self._lock = threading.Lock()
        while self._left and not any(self._homes.waits(at, self._left[-1]) for at in self._left[-1].reads):
            self._submit(self._left.pop())

    def outputs(self, kept: Kept = NOTHING_KEPT) -> tuple[Any, ...]:
        """Submit what is left, and wait."""
        with self._lock:
            while self._left:
                self._submit(self._left.pop())
            if self._outputs is None:
                for run in self._runs:
                    run.wait()
                self._outputs = tuple([self._handed(at, place, kept) for at, place in enumerate(self._wanted)])
            return self._outputs

    @property
    def peak_bytes(self) -> int | None:
        """The memory of the hungriest segment."""
        taken = [run.peak_bytes for run in self._runs]
        known = [each for each in taken if each is not None]
        return max(known, default=0) if len(known) == len(taken) else None

    def _handed(self, at: int, place: int, kept: Kept) -> Any:
        """Output number `at`: where it was made, if it is kept there, else in host memory."""
        stays = self._homes.on_device(place, kept[at]) if at in kept else None
        return self._homes.at(place, HOST, None) if stays is None else stays

    def _submit(self, segment: CompiledSegment) -> None:
        try:
            given = [self._homes.at(place, segment.target, segment.device) for place in segment.reads]
        except OutOfMemory as error:
            where = next((str(node.origin) for node in segment.graph.nodes), "")
            raise error.located(where) from error.__cause__
        results, run = segment.executable.submit(given, self._observer, self._allowance)
        self._runs.append(run)
        for place, result in zip(segment.writes, results, strict=True):
            self._homes.put(place, result, segment.target, segment.device)
        for place in segment.frees:
            self._homes.free(place)


class _Homes:
    """Where the values of a run are: in the host's memory, on devices, or both once they were moved."""

    def __init__(self, values: Sequence[Any], ledger: Ledger, damaged: list[Transfer] | None) -> None:
        self._forms: list[dict[str, Any]] = [
            {value.target: value.buffer} if isinstance(value, DeviceTensor) else {HOST: value} for value in values
        ]
        given = {each.target: each.device for each in values if isinstance(each, DeviceTensor)}
        self._devices = {target: Metered(device, target, ledger, damaged) for target, device in given.items()}
        self._ledger, self._damaged = ledger, damaged

    def put(self, place: int, value: Any, target: str, device: Device | None) -> None:
        """Keep what a segment made, where it made it."""
        self._forms[place] = {HOST if device is None else target: value}
        if device is not None and target not in self._devices:
            self._devices[target] = Metered(device, target, self._ledger, self._damaged)

    def on_device(self, place: int, shape: tuple[np.dtype[Any], tuple[int, ...]]) -> DeviceTensor | None:
        """A value that a device has and the host has not, as it lies there."""
        forms = self._forms[place]
        target = next((name for name in forms if name != HOST), None)
        if HOST in forms or target is None:
            return None
        return DeviceTensor(target, self._devices[target].device, forms[target], *shape)

    def free(self, place: int) -> None:
        """Forget a value that nobody reads any more."""
        self._forms[place] = {}

    def waits(self, place: int, segment: CompiledSegment) -> bool:
        """Whether a segment takes a value that must be fetched from another device first."""
        forms = self._forms[place]
        return HOST not in forms and (HOST if segment.device is None else segment.target) not in forms

    def at(self, place: int, target: str, device: Device | None) -> Any:
        """The value where it is needed, moved there now if it is not there yet."""
        forms, wanted = self._forms[place], HOST if device is None else target
        if wanted in forms:
            return forms[wanted]
        if HOST not in forms:
            source, buffer = next(iter(forms.items()))
            forms[HOST] = self._devices[source].download(buffer)
        if device is not None:
            forms[target] = Metered(device, target, self._ledger, self._damaged).upload(forms[HOST])
        return forms[wanted]
