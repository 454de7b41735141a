"""Building large graphs in linear time."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Generator[None]:
    """Pauses Python's cyclic garbage collector.

    A graph is many small objects that all stay alive. The collector would look at every one of them again
    and again while their number grows, and find nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
