"""The stages of a compilation: how long each takes, which one is under way, and which one failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(slots=True)
class Clock:
    """What the stages inside `timing` took. A stage within another one is not counted for the outer one."""

    entered: Callable[[str], None] = lambda name: None
    """Called with the name of each stage when it begins."""
    between: str = ""
    """The stage outside of all others; `entered` is called when it goes on."""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    failed: str = ""
    """The innermost stage that an exception left."""
    _within: list[float] = field(default_factory=list[float])
    """For each stage under way, what the stages inside it took."""

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Count what is inside for the stage `name`."""
        self.entered(name)
        self.failed = ""
        self._within.append(0.0)
        started = time.perf_counter()
        try:
            yield
        except BaseException:
            self.failed = self.failed or name
            raise
        finally:
            whole = time.perf_counter() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + whole - self._within.pop()
            if self._within:
                self._within[-1] += whole
            elif self.between:
                self.entered(self.between)


_clock: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextmanager
def timing(clock: Clock) -> Generator[None]:
    """Inside, `clock` counts every stage of this thread."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)


def stage(name: str) -> AbstractContextManager[None]:
    """Count what is inside for the stage `name`, if somebody counts."""
    clock = _clock.get()
    return nullcontext() if clock is None else clock.stage(name)
