"""What tests of processes share."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import process_services as services
import pytest

from assay.processes import Worker, WorkerDied, wire

FILE = services.__file__
SMALL = wire.SHARED // 8  # f64 elements from which on an array travels in shared memory


def interpreters() -> list[str]:
    """Other Pythons on this machine, one of each other version."""
    found: dict[str, str] = {}
    for minor in sorted({8, 9, 10, 11, 12, 13, 14} - {sys.version_info.minor}):
        ours = map(str, Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python3"))
        for path in filter(None, (*ours, shutil.which(f"python3.{minor}"))):
            told = subprocess.run(
                [path, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True
            )
            if told.stdout.strip() == str(minor):
                found.setdefault(f"3.{minor}", path)
    return list(found.values())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(*pids: int, seconds: float = 10.0) -> bool:
    """Whether all processes end within some seconds."""
    return eventually(lambda: not any(map(alive, pids)), seconds)


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return False


def died(worker: Worker, *request: Any) -> WorkerDied:
    with pytest.raises(WorkerDied) as caught:
        worker.ask(request, what=str(request[0]))
    return caught.value


def same(array: Any, found: Any) -> None:
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tolist() == array.tolist() if array.dtype == object else found.tobytes() == array.tobytes()
    assert found.flags.writeable
    assert found.flags.c_contiguous
    assert found.flags.aligned
