"""Casts from and to floats and integers of at most 8 bits, bit by bit those of the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from programs import compiled_on
from targets.test_cpu_scalar import Case, compiled, make_node

from assay.ir import dtypes
from assay.ir.dtypes import FLOATS, INTEGERS, TINY_FLOATS, TINY_INTEGERS, Array, DType
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.registry import Sample
from assay.targets.cpu import CpuTarget
from assay.targets.cpu.toolchain import Toolchain, find_compiler
from assay.targets.reference import ReferenceTarget
from assay.targets.shared.artifacts import Kernel

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")

TINY = (*TINY_FLOATS, *TINY_INTEGERS)
WIDE = (*FLOATS, *INTEGERS, dtypes.boolean)
BYTES = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("dtype", TINY, ids=str)
def test_every_byte_as_every_dtype(dtype: DType) -> None:
    values = BYTES.view(dtype.numpy)
    check([case for target in (*WIDE, *TINY) for case in casts(values, target)])


@pytest.mark.parametrize("dtype", TINY, ids=str)
def test_numbers_of_every_dtype_as_a_tiny_one(dtype: DType) -> None:
    """All floats of 16 bits; of wider ones all that a tiny float holds, those halfway between and their neighbours."""
    check([case for source in WIDE for case in casts(numbers(source, dtype), dtype)])


def casts(values: Array, target: DType) -> Iterator[Case]:
    """All ways to cast to `target`."""
    exponent = target.name == "f8e8m0"
    for saturate in (True, False) if target in TINY_FLOATS else (True,):
        for rounding in ("nearest", "up", "down") if exponent else ("nearest",):
            attrs = {"dtype": target, "saturate": saturate, "rounding": rounding}
            yield Case(make_node(CORE["cast"], Sample((values,), attrs)), [values])


def numbers(source: DType, target: DType) -> Array:
    if source is dtypes.boolean:
        return np.array([False, True])
    rng = np.random.default_rng(1)
    if source.bits <= 16:
        return np.arange(1 << source.bits).astype(f"u{source.bits // 8}").view(source.numpy)
    anything = rng.integers(0, 256, 100_000 * source.bits // 8, np.uint8).view(source.numpy)
    if not source.is_float:
        return np.concatenate([anything, np.arange(-70_000, 70_000).astype(source.numpy)])
    return np.concatenate([anything, special(source), *around(halfway_points(target), source)])


def special(dtype: DType) -> Array:
    info = np.finfo(dtype.numpy)
    values = np.array([0.0, info.tiny, info.smallest_subnormal, info.max, 1e9, np.inf, np.nan], dtype.numpy)
    return np.concatenate([values, -values])


def halfway_points(dtype: DType) -> Array:
    """The numbers of a tiny dtype, those halfway between two and those where the next one were, as f64."""
    held = np.abs(BYTES[: 1 << dtype.bits].view(dtype.numpy).astype(np.float64))
    held = np.unique(held[np.isfinite(held)])
    held = np.append(held, 2 * held[-1] - held[-2])
    points = np.concatenate([held, (held[1:] + held[:-1]) / 2])
    return np.concatenate([points, -points])


def around(points: Array, dtype: DType) -> Iterator[Array]:
    """The points as `dtype` and as f32 in it, and what comes before and after each."""
    for kind in {np.dtype(np.float32), dtype.numpy}:
        near = points.astype(kind)
        for direction in (-np.inf, np.inf):
            yield np.nextafter(near, kind.type(direction)).astype(dtype.numpy)
        yield near.astype(dtype.numpy)


def check(cases: Sequence[Case]) -> None:
    for case, function in zip(cases, compiled(cases), strict=True):
        actual, expected = bits(case.run(function)), bits(case.expected())
        wrong = np.flatnonzero(actual != expected)
        told = [f"{case.inputs[0][i]!r}: {actual[i]:#x} instead of {expected[i]:#x}" for i in wrong[:6]]
        assert not told, f"{case}, {wrong.size} differ\n" + "\n".join(told)


def bits(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


def test_casts_join_the_elementwise_ops_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are read and written by one kernel; a constant and a choice among bytes are part of it."""
    e4m3, e5m2 = dtypes.by_name("f8e4m3fn"), dtypes.by_name("f8e5m2")
    b = Builder()
    x, chosen = b.input(TensorType(e4m3, (256,))), b.input(TensorType(dtypes.boolean, (256,)))
    scaled = b.mul(b.cast(x, dtype=dtypes.f32), b.cast(b.constant(np.array(1.5, e5m2.numpy)), dtype=dtypes.f32))
    tiny = b.where(chosen, b.cast(scaled, dtype=e4m3), b.constant(np.array(-0.0, e4m3.numpy)))
    graph = b.finish("scaled", [x, chosen], [tiny, b.cast(b.cast(tiny, dtype=dtypes.i4), dtype=dtypes.f32)])
    kernels: list[Kernel] = []
    load = Toolchain.load

    def counted(self: Toolchain, wanted: Sequence[Kernel]) -> Any:
        kernels.extend(kernel for kernel in wanted if "void kernel" in kernel.source)
        return load(self, wanted)

    monkeypatch.setattr(Toolchain, "load", counted)
    program = compiled_on(CpuTarget("exact", DEFAULT), graph)
    given = [BYTES.view(e4m3.numpy), BYTES % 3 != 0]
    for mine, right in zip(program.run(given), ReferenceTarget().compile(graph).run(given), strict=True):
        assert np.array_equal(bits(np.asarray(mine)), bits(np.asarray(right)))
    assert len(kernels) == 1
