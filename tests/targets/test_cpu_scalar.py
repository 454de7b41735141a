"""Every row of the table of elementwise ops, compiled and compared with the reference, special values included."""

from __future__ import annotations

import ctypes
import itertools
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from assay.evidence.compare.arrays import bounds, closeness
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Node
from assay.ir.types import TensorType
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.registry import OpDef, Tolerance, evaluate
from assay.targets.cpu import scalar
from assay.targets.cpu.toolchain import find_compiler, shared_toolchain
from assay.targets.shared.artifacts import Kernel

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")

OPS = sorted(scalar.OPS)
_MAGNITUDES = (0.0, 1e-45, 1e-40, 1e-30, 1e-8, 1e-7, 6e-5, 1e-3, 0.1, 0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 15.5)
_LARGE = (88.0, 89.5, 104.0, 300.0, 3e4, 65504.0, 7e4, 3e9, 1e19, 2e19, 3e38, math.inf, math.nan)


@dataclass
class Case:
    """A node with arguments for it: one-dimensional, of one length."""

    node: Node
    inputs: list[Array]

    def __str__(self) -> str:
        return f"{self.node.op} {[str(array.dtype) for array in self.inputs]} {dict(self.node.attrs)}"

    @property
    def source(self) -> str:
        """Its loop in C."""
        given = [value for value in self.node.inputs if value is not None]
        kinds = [dtype_of(value) for value in (*given, *self.node.outputs)]
        params = ", ".join(f"{scalar.ctype(kind)} *restrict p{i}" for i, kind in enumerate(kinds))
        lines = [
            f"const {scalar.compute_type(kind)} a{i} = {scalar.load(kind, f'p{i}[x]')};"
            for i, kind in enumerate(kinds[:-1])
        ]
        value = scalar.expression(self.node, [f"a{i}" for i in range(len(given))])
        lines.append(f"const {scalar.compute_type(kinds[-1])} value = {value};")
        lines.append(f"p{len(given)}[x] = {scalar.store(kinds[-1], 'value')};")
        body = "\n    ".join(lines)
        return f"({params}, int64_t n) {{\n  for (int64_t x = 0; x < n; x++) {{\n    {body}\n  }}\n}}\n"

    def run(self, function: Any) -> Array:
        """What the compiled loop gives."""
        result = np.zeros(self.inputs[0].shape, dtype_of(self.node.outputs[0]).numpy)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*self.inputs, result)]
        function(*pointers, ctypes.c_int64(result.size))
        return result

    def expected(self) -> Array:
        """What the reference gives in `exact` mode."""
        arguments = iter(self.inputs)
        given = [None if value is None else next(arguments) for value in self.node.inputs]
        carriers = [dtype_of(self.node.outputs[0]).numpy]
        with np.errstate(all="ignore"):
            return evaluate(CORE[self.node.op], given, self.node.attrs, carriers)[0]


def dtype_of(value: Any) -> DType:
    return value.type.dtype


def cases(definition: OpDef) -> Iterator[Case]:
    """One case for each dtype and set of attributes that the table has a row for."""
    for dtype in definition.main_dtypes:
        rng = np.random.default_rng(zlib.crc32(f"{definition.name} {dtype}".encode()))
        groups: dict[str, list[Any]] = {}
        for sample in definition.samples(rng, dtype):
            groups.setdefault(f"{sample.attrs} {[x is None for x in sample.inputs]}", []).append(sample)
        for samples in groups.values():
            node = make_node(definition, samples[0])
            if not any(row.applies(node) for row in scalar.LIMITATIONS):
                rows: list[Sequence[Array]] = [
                    np.broadcast_arrays(*(x for x in s.inputs if x is not None)) for s in samples
                ]
                rows.append(special_rows([dtype_of(v) for v in node.inputs if v is not None], definition.name))
                yield Case(node, [np.concatenate([np.ravel(x) for x in column]) for column in zip(*rows, strict=True)])


def make_node(definition: OpDef, sample: Any) -> Node:
    b = Builder()
    inputs = [None if x is None else b.input(TensorType(dtypes.of(x), (8,))) for x in sample.inputs]
    (value,) = b.emit(definition.name, *inputs, **sample.attrs)
    return b.finish("one", [v for v in inputs if v is not None], [value]).nodes[-1]


def special_rows(kinds: Sequence[DType], op: str) -> list[Array]:
    """All combinations of special values, those left out at which the reference fails."""
    rows = list(itertools.product(*(special_values(kind) for kind in kinds)))
    if op == "pow" and kinds[0].kind == "int":
        rows = [row for row in rows if row[1] != kinds[0].limits[0]]
    return [np.array(column).astype(kind.numpy) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]


def special_values(dtype: DType) -> list[Any]:
    if dtype is dtypes.boolean:
        return [False, True]
    if dtype.is_float:
        with np.errstate(over="ignore"):
            values = [sign * x for x in (*_MAGNITUDES, *_LARGE) for sign in (1.0, -1.0)]
            return list(np.array(values).astype(dtype.numpy))
    low, high = (int(limit) for limit in dtype.limits)
    values = [low, low + 1, high, high - 1, *range(-3, 4), 7, -7, dtype.bits - 1, dtype.bits, dtype.bits + 1]
    return list(np.array([x for x in values if low <= x <= high], dtype.numpy))


def compiled(group: Sequence[Case]) -> list[Any]:
    """The loops of some cases, as functions."""
    tools = shared_toolchain()
    assert tools is not None
    loops = "".join(f"void loop{i}{case.source}" for i, case in enumerate(group))
    (library,) = tools.load([Kernel(f'#include "math.h"\n{loops}', entry="loop0")])
    return [getattr(library, f"loop{i}") for i in range(len(group))]


@pytest.mark.parametrize("op", OPS)
def test_every_row_agrees_with_the_reference(op: str) -> None:
    """Bit for bit where the op is exact or rounds once, else within its tolerance."""
    tolerance, group = CORE[op].tolerance, list(cases(CORE[op]))
    assert group
    for case, function in zip(group, compiled(group), strict=True):
        actual, expected = case.run(function), case.expected()
        dtype = dtype_of(case.node.outputs[0])
        relative, absolute = bounds(tolerance, dtype) if tolerance is Tolerance.FUNCTION else (0.0, 0.0)
        found = closeness(actual, expected, relative=relative, absolute=absolute)
        assert found.ok, f"{case}: {found}\n{told(case, actual, expected, relative, absolute)}"
        if dtype.is_float:
            zeros = expected == 0
            assert np.array_equal(np.signbit(actual[zeros]), np.signbit(expected[zeros])), f"{case}: signs of zeros"


def told(case: Case, actual: Array, expected: Array, relative: float, absolute: float) -> str:
    """The first few elements that differ."""
    with np.errstate(all="ignore"):
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        differs = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= absolute + relative * np.abs(b)))
    places = np.flatnonzero(differs)[:6]
    return "\n".join(f"{[x[i] for x in case.inputs]}: {actual[i]} instead of {expected[i]}" for i in places)
