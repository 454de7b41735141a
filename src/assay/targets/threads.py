"""How many threads a run may use: a question that is asked at each run, because the answer may change."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeAlias

Threads: TypeAlias = Callable[[], int]


def available_threads(environment: Mapping[str, str] = os.environ) -> int:
    """For those who say nothing: `OMP_NUM_THREADS`, else all cores that this process may use."""
    return _stated(environment.get("OMP_NUM_THREADS", ""))


def fixed_threads(count: int) -> Threads:
    """Always `count`; those available if that is 0 or less."""
    return (lambda: count) if count > 0 else available_threads


@cache
def _stated(text: str) -> int:
    return int(text) if text.isdecimal() and int(text) > 0 else len(os.sched_getaffinity(0))
