"""Matrix products on one thread while the oracle runs.

That makes them the same on every machine, however many cores it has; and the small products that models
are made of are several times slower when BLAS splits each over threads.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any


@cache
def _libraries() -> Any:
    """The BLAS libraries of this process."""
    import threadpoolctl  # pyright: ignore[reportMissingTypeStubs]

    return threadpoolctl.ThreadpoolController().select(user_api="blas")  # pyright: ignore[reportUnknownMemberType]


class _Limit:
    """Held while any program runs; the last one out gives the threads back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = 0
        self._stack = ExitStack()

    @contextmanager
    def __call__(self) -> Generator[None]:
        with self._lock:
            if self._held == 0:
                self._stack.enter_context(_libraries().limit(limits=1))
            self._held += 1
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1
                if self._held == 0:
                    self._stack.close()


single_threaded = _Limit()
"""`with single_threaded():` keeps BLAS on one thread."""
