"""Options that take numbers: each has bounds, so that what makes no sense is refused before anything starts."""

from __future__ import annotations

import math
from typing import Any

import typer

MOST_THREADS = 256
MOST_WORKERS = 1024
MOST_COUNT = 100_000_000
MOST_SEED = 2**63 - 1
MOST_SECONDS = 10_000_000.0
MOST_GIB = 65_536.0
MOST_FACTOR = 1e9


def count_option(*names: str, least: int = 1, most: int = MOST_COUNT, **more: Any) -> Any:
    """An option that takes a whole number."""
    return typer.Option(*names, min=least, max=most, **more)


def number_option(*names: str, least: float = 0.0, most: float, **more: Any) -> Any:
    """An option that takes a number, which NaN is not."""
    return typer.Option(*names, min=least, max=most, callback=_number, **more)


def _number(value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is no number")
    return value
