"""Programs put to the library without computing them: what the library says is the same, and results are zeros."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from programs import compiled_on
from torch import nn

from assay.errors import CompileFailed, NotFound
from assay.ir import dtypes
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.torch.graphs import recording
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.numbers import ENVIRONMENT, chosen_numbers


@pytest.fixture(autouse=True)
def uncomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "none")


def layer(rows: int) -> Graph:
    b = Builder()
    x, w = b.input(TensorType(dtypes.f32, (rows, 64))), b.constant(np.ones((64, 32), np.float32))
    return b.finish("g", [x], [b.tanh(b.matmul(x, w)), b.arg_max(x, axis=1)])


def test_results_are_zeros_of_the_right_types(library: Library) -> None:
    program = compiled_on(TtnnTarget("exact", DEFAULT), layer(5))
    found, places = program.run([np.ones((5, 64), np.float32)])
    assert (found.dtype, found.shape) == (np.float32, (5, 32))
    assert (places.dtype, places.shape) == (np.int64, (5,))
    assert not found.any()
    assert not places.any()


def test_the_library_is_asked_all_the_same(library: Library) -> None:
    target = TtnnTarget("exact", DEFAULT)
    b = Builder()
    several = [b.input(TensorType(dtypes.f32, (1 << 16, 1 << 16))) for _ in range(2)]
    with pytest.raises(CompileFailed, match="no room"):
        target.compile(b.finish("g", several, [b.add(*several)]), {})


def test_weights_that_nobody_has_written_take_no_memory(library: Library) -> None:
    """A layer of 2 GiB, in pages that are never touched."""
    module = nn.Linear(1 << 15, 1 << 14, bias=False, device="meta").to_empty(device="cpu").eval()
    before = resident()
    torch.compiler.reset()
    with recording() as graphs, torch.no_grad():
        compiled: Any = torch.compile(module, backend="assay", options={"target": "ttnn,cpu", "frozen": True})
        assert not compiled(torch.ones(1, 1 << 15)).any()
    assert {each.target for each in graphs[0].placements} == {"ttnn"}
    assert resident() - before < 1 << 29, "of the 2 GiB"


def resident() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def test_the_probe_says_that_there_are_no_numbers(library: Library) -> None:
    assert TtnnTarget("exact", DEFAULT).probe().details["numbers"] == "none: all results are zeros"


def test_a_wrong_name_is_an_error() -> None:
    with pytest.raises(NotFound, match="cannot come from 'modle'"):
        chosen_numbers({ENVIRONMENT: "modle"})
