"""The cards' floats, bit for bit as the library's own host code rounds to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from assay.targets.ttnn.formats import ROUNDING
from assay.targets.ttnn.library import Library

SHAPES = [
    (1,),
    (7,),
    (16,),
    (33,),
    (5, 1),
    (32, 32),
    (70, 50),
    (2, 3, 5),
    (1, 1, 1, 1),
    (2, 3, 33, 65),
    (2, 2, 2, 2, 3),
]


def bits(rng: np.random.Generator, high: int, shape: tuple[int, ...] = (64, 64)) -> Any:
    return rng.integers(0, high, size=shape, dtype=np.uint64).astype(np.uint32).view(np.float32)


def with_some(rng: np.random.Generator, *special: float) -> Any:
    found = rng.normal(size=(64, 64)).astype(np.float32)
    for value in special:
        found[rng.random(found.shape) < 0.03] = value
    return found


VALUES: Mapping[str, Callable[[np.random.Generator], Any]] = {
    "any bits": lambda rng: bits(rng, 1 << 32),
    "mixed exponents": lambda rng: (rng.normal(size=(64, 64)) * 2.0 ** rng.integers(-30, 30, (64, 64))).astype("f4"),
    "subnormal": lambda rng: bits(rng, 1 << 23),
    "subnormal and tiny": lambda rng: bits(rng, 1 << 25),
    "halfway": lambda rng: (rng.integers(-600, 600, (64, 64)) / 2).astype(np.float32),
    "just below a power of two": lambda rng: np.nextafter(2.0 ** rng.integers(-9, 9, (64, 64)), 0).astype(np.float32),
    "zero": lambda rng: np.zeros((3, 5), np.float32),
    "minus zero": lambda rng: -np.zeros((3, 5), np.float32),
    "infinite": lambda rng: with_some(rng, np.inf, -np.inf),
    "not a number": lambda rng: with_some(rng, np.nan, -np.nan, np.inf, 0.0),
    **{str(shape): lambda rng, shape=shape: rng.normal(size=shape).astype(np.float32) for shape in SHAPES},
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("dtype", ROUNDING)
def test_rounding_is_the_librarys_bit_for_bit(library: Library, dtype: str, values: str) -> None:
    for seed in range(3):
        array = VALUES[values](np.random.default_rng(seed))
        with np.errstate(all="ignore"):
            mine = ROUNDING[dtype](array)
        theirs = library.converted(array, dtype)
        different = np.argwhere(mine.view(np.uint32) != theirs.view(np.uint32))
        assert not len(different), [(array[tuple(at)], mine[tuple(at)], theirs[tuple(at)]) for at in different[:5]]
