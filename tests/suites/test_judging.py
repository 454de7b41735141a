"""The judge of the suites: what it takes from a target that rounds to a narrower dtype, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from suites.op_cases import complaints

from assay.ir.dtypes import bf16, f32
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.registry import Sample
from assay.targets.base import Traits
from assay.targets.reference import ReferenceTarget

X = np.linspace(-3, 3, 64, dtype=np.float32).reshape(8, 8)


class Coarse(ReferenceTarget):
    """A target that says that it rounds to bf16."""

    @property
    def traits(self) -> Traits:
        return replace(super().traits, rounds_to=bf16)


def judged(target: ReferenceTarget, op: str, results: tuple[Any, ...]) -> list[str]:
    return complaints(target, CORE[op], f32, Sample((X,), attrs_of(op)), graph_of(op), results)


def attrs_of(op: str) -> dict[str, Any]:
    return {"axis": -1} if op == "softmax" else {}


def graph_of(op: str) -> Graph:
    b = Builder()
    x = b.input(TensorType(f32, X.shape))
    return b.finish(op, [x], b.emit(op, x, **attrs_of(op)))


def rough(op: str) -> tuple[Any, ...]:
    """What a machine without wider floats than bf16 gives."""
    return ReferenceTarget("bf16").compile(graph_of(op)).run([X])


@pytest.mark.parametrize("op", ["exp", "softmax"])
def test_results_rounded_to_the_targets_dtype_are_right(op: str) -> None:
    assert judged(Coarse(), op, rough(op)) == []


@pytest.mark.parametrize("op", ["exp", "softmax"])
def test_they_are_wrong_on_a_target_that_does_not_say_so(op: str) -> None:
    assert judged(ReferenceTarget(), op, rough(op)) != []


@pytest.mark.parametrize("op", ["exp", "softmax"])
def test_more_than_rounding_is_wrong_on_a_coarse_target_too(op: str) -> None:
    (found,) = rough(op)
    wrong = found.copy()
    wrong[2, 3] *= 1.5
    assert judged(Coarse(), op, (wrong,)) != []


def test_integers_are_wrong_where_rounding_makes_no_other_of_them() -> None:
    (found,) = rough("is_nan")
    assert judged(Coarse(), "is_nan", (found,)) == []
    assert judged(Coarse(), "is_nan", (~found,)) != []
