"""What one run may take: a limit of time, a limit of memory, and a way to stop it."""

from __future__ import annotations

import ctypes
import math
import time

from assay.errors import BadFeed, OutOfMemory, RunStopped
from assay.ir.graph import Node
from assay.units import size as as_size


class Budget:
    """Limits of a run: `seconds` from its start, and `memory` in bytes for what it computes; None is no limit.

    Inputs, weights and prepared weights do not count as memory of a run. `cancel`, from any thread, stops the runs that
    were given this budget, and those that will be, until `reset`.
    """

    def __init__(self, seconds: float | None = None, memory: int | None = None) -> None:
        self.limit(seconds, memory)
        self._flag = ctypes.c_int32(0)

    def limit(self, seconds: float | None, memory: int | None) -> None:
        """Other limits, for the runs that start from now on."""
        if seconds is not None and not seconds > 0:
            raise BadFeed(f"a run cannot have {seconds} seconds", hint="give a number above 0, or None")
        if memory is not None and memory <= 0:
            raise BadFeed(f"a run cannot have {memory} bytes of memory", hint="give a number above 0, or None")
        self.seconds, self.memory = seconds, memory

    def cancel(self) -> None:
        """Stop the runs that have this budget; each ends with RunStopped at the next node or kernel."""
        self._flag.value = 1

    def reset(self) -> None:
        """Let runs run again after `cancel`."""
        self._flag.value = 0

    @property
    def cancelled(self) -> bool:
        """Whether runs with this budget are stopped."""
        return bool(self._flag.value)

    def begin(self) -> Allowance:
        """What a run that starts now may take."""
        return Allowance(self, self._flag)


class _Stop(ctypes.Structure):
    """As `c/machine.c` reads it: the time after which to stop, in nanoseconds (0: never), and where to look."""

    _fields_ = (("deadline", ctypes.c_int64), ("flag", ctypes.c_void_p))


class Allowance:
    """The budget of one run that has started."""

    def __init__(self, budget: Budget, flag: ctypes.c_int32) -> None:
        self._seconds, self._flag = budget.seconds, flag
        limited = budget.seconds is not None and math.isfinite(budget.seconds)
        self._deadline = time.monotonic_ns() + int(budget.seconds * 1e9) if limited and budget.seconds else 0
        self.memory = budget.memory
        self.held = 0
        """Bytes of results that the run keeps, besides those that are checked for."""
        self.stop = _Stop(self._deadline, ctypes.addressof(flag))

    def check(self, node: Node | None) -> None:
        """RunStopped, with the node that would have been next, if time is over or the run was cancelled."""
        if self._flag.value or (self._deadline and time.monotonic_ns() > self._deadline):
            raise self.stopped(node)

    def stopped(self, node: Node | None) -> RunStopped:
        """The error of a run that ends before `node`."""
        where = "" if node is None else str(node.origin)
        if self._flag.value:
            return RunStopped("the run was cancelled", where=where, hint="the session can be used again")
        return RunStopped(f"the run took longer than its {self._seconds:g} seconds", where=where)

    def check_memory(self, needed: int, where: str) -> None:
        """OutOfMemory if `needed` bytes, with what is held elsewhere, are more than the run may take."""
        if self.memory is not None and self.held + needed > self.memory:
            asked, most = as_size(self.held + needed), as_size(self.memory)
            raise OutOfMemory(f"the run needs {asked} of memory for its results, it was given {most}", where=where)
