"""The machine that a benchmark runs on: what it is, and how busy it is. What only Linux tells is None elsewhere."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from assay.memory import stated

DISTURBED = 0.1
"""Times are disturbed if other processes used more than this part of the machine meanwhile."""
_UNITS = ("avx512f", "avx2", "avx", "sse2")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def described() -> str:
    """The processor in words."""
    parts = [platform.machine()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        flags = next((line.split() for line in lines if line.startswith("flags")), list[str]())
        parts = [*names[:1], *parts, *[unit for unit in _UNITS if unit in flags][:1]]
    return f"{' '.join(parts)}, {cores()} cores"


def cpu_of(process: int | str | None) -> float | None:
    """The seconds of CPU time that a process (`self` is this one) has used so far."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


def cpu_of_all() -> float | None:
    """The seconds of CPU time that all processes have used so far; what a host took away from this machine counts."""
    with suppress(OSError, ValueError):
        words = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
        user, nice, system, _idle, _wait, hard, soft, stolen = map(int, words)
        return (user + nice + system + hard + soft + stolen) / os.sysconf("SC_CLK_TCK")
    return None


class OutsideLoad:
    """What of the machine is used by others than those whose CPU time is told, from now on."""

    def __init__(
        self, own: Sequence[Callable[[], float | None]], used: Callable[[], float | None] = cpu_of_all
    ) -> None:
        self._own, self._used = own, used
        self._begun = self._figures()

    def others(self) -> float | None:
        """The part of all cores; None if it is not known."""
        begun, now = self._begun, self._figures()
        if begun is None or now is None or now[0] <= begun[0]:
            return None
        return max(0.0, (now[1] - begun[1]) / (now[0] - begun[0]) / cores())

    def _figures(self) -> tuple[float, float] | None:
        whole, own = self._used(), [cpu() for cpu in self._own]
        known = [each for each in own if each is not None]
        return None if whole is None or len(known) < len(own) else (time.perf_counter(), whole - sum(known))


def memory_of(process: int | str, field: str) -> int | None:
    """Bytes of a process (`self` is this one) that are in memory (VmRSS), or the most so far (VmHWM)."""
    return stated(f"/proc/{process}/status", field)


def forget_peak() -> None:
    """Let the most memory of this process so far be what it has now, where the system can do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
