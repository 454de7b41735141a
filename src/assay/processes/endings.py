"""How a worker process ended, and the errors that say so."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal, TypeAlias

from assay.errors import RunFailed
from assay.units import size as as_size

How: TypeAlias = Literal["signal", "exit", "time", "memory", "protocol", "stopped"]


@dataclass(frozen=True, slots=True)
class Ending:
    """What ended a worker: a signal, an exit of its own, a limit that it broke, a frame that was none, or its owner.

    `number` is the signal, the exit code or the limit. `said` holds the last lines that it printed, `stack` what Python
    could tell of where it was.
    """

    how: How
    number: float = 0
    said: str = ""
    stack: str = ""
    detail: str = ""

    @property
    def text(self) -> str:
        """The ending in words."""
        texts = {
            "signal": f"the process died with signal {self.number:g}",
            "exit": f"the process died with exit code {self.number:g}",
            "time": f"took longer than {self.number:g} s",
            "memory": f"took more than {as_size(int(self.number))} of memory",
            "protocol": f"the process broke the protocol: {self.detail}",
            "stopped": "the worker was closed",
        }
        return texts[self.how]

    @property
    def signal_name(self) -> str:
        """The name of the signal that it died of; empty if it did not."""
        return signal.Signals(int(self.number)).name if self.how == "signal" else ""

    @property
    def last_line(self) -> str:
        """The last line that it printed."""
        return self.said.rpartition("\n")[2]


class WorkerFailed(RunFailed):
    """A request to a worker process came to nothing; `where` is the request, `reason` says why in few words."""

    usual_hint = "the next request starts another process"
    reason = ""
    traceback = ""
    """Of an error that the service raised: where it was raised, as Python prints it."""


class WorkerDied(WorkerFailed):
    """The worker process ended, or had to be ended, before it replied."""

    def __init__(self, ending: Ending, asked: str) -> None:
        self.ending, self.reason = ending, ending.text
        said = f"\n{ending.said}" if ending.said else ""
        super().__init__(f"{ending.text}{said}", where=asked)


class WorkerRaised(WorkerFailed):
    """The service raised an error of a `kind`. The worker lives on; one that cannot be set up is ended."""

    def __init__(self, kind: str, text: str, traceback: str, asked: str) -> None:
        self.kind, self.text, self.traceback = kind, text, traceback
        self.reason = f"{kind}: {text}"
        super().__init__(self.reason, where=asked, hint="the error's `traceback` shows where in the worker")
