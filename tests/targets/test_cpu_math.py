"""The elementary functions of `math.h`: how accurate they are all over the range of f32, and that loops vectorise."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from programs import placed_on

from assay.evidence.compare.arrays import bounds, closeness
from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops import CORE
from assay.ops.builder import Builder
from assay.ops.registry import Tolerance, evaluate
from assay.targets.cpu import CpuTarget
from assay.targets.cpu.toolchain import FLAGS, SOURCES, find_compiler, shared_toolchain
from assay.targets.shared.artifacts import Kernel

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")

HALF = 0.51
"""Units in the last place that a function is off by if nothing but the final rounding matters."""
LARGEST_ERROR: dict[str, float] = {
    **dict.fromkeys(("expm1", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan"), HALF),
    **dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh", "softplus"), HALF),
    "exp": 1.1,
    "exp2": 1.1,
    "log": 0.9,
    "tanh": 2.6,
    "sigmoid": 2.6,
    "erf": 2.1,
    "gelu": 12.0,
    "gelu_tanh": 36.0,
    "silu": 3.5,
    "mish": 5.0,
}
"""A little more than docs/performance.md states, for machines that have no fused multiply-add."""
_SEEN = {"gelu", "gelu_tanh", "silu", "mish"}
"""Functions that vanish for negative x: results below 2⁻²⁰, which nobody adds to x, are not counted in units."""
PAIRS = ("pow", "atan2", "hypot")
CONVERSIONS = {
    "f16_to_f32": ("uint16_t", "float"),
    "bf16_to_f32": ("uint16_t", "float"),
    "f16_bits": ("float", "uint16_t"),
    "bf16_bits": ("float", "uint16_t"),
    "rounded_f16": ("float", "float"),
    "rounded_bf16": ("float", "float"),
}

CHAINS = {
    "choices": "pow_f32(cos_f32(x[i] < 0 ? 0 : x[i]), x[i])",
    "narrow": "rounded_f16(log_f32(rounded_f16(max_f32(rounded_f16(x[i]), 0))))",
    "falling": "exp_falling_f32(x[i])",
}
"""Functions one after the other, of which compilers like to make branches, and one for falling numbers alone."""


def source() -> str:
    """A plain loop over each function, one a line."""
    unary = [
        f"void {name}_loop(const float *restrict x, float *restrict y, int64_t n) {{"
        f" for (int64_t i = 0; i < n; i++) y[i] = {name}_f32(x[i]); }}"
        for name in LARGEST_ERROR
    ]
    binary = [
        f"void {name}_loop(const float *restrict x, const float *restrict y, float *restrict z, int64_t n) {{"
        f" for (int64_t i = 0; i < n; i++) z[i] = {name}_f32(x[i], y[i]); }}"
        for name in PAIRS
    ]
    conversions = [
        f"void {name}_loop(const {given} *restrict x, {result} *restrict y, int64_t n) {{"
        f" for (int64_t i = 0; i < n; i++) y[i] = {name}(x[i]); }}"
        for name, (given, result) in CONVERSIONS.items()
    ]
    chains = [
        f"void {name}_loop(const float *restrict x, float *restrict y, int64_t n) {{"
        f" for (int64_t i = 0; i < n; i++) y[i] = {text}; }}"
        for name, text in CHAINS.items()
    ]
    return "\n".join(["#define W float", '#include "exponential.h"', *unary, *binary, *conversions, *chains, ""])


@cache
def library() -> ctypes.CDLL:
    tools = shared_toolchain()
    assert tools is not None
    return tools.load([Kernel(source(), entry=f"{next(iter(CHAINS))}_loop")])[0]


def run(name: str, result: Any, *inputs: Array) -> Array:
    """What the loop over a function gives."""
    out = np.zeros(inputs[0].shape, result)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, out)]
    getattr(library(), f"{name}_loop")(*pointers, ctypes.c_int64(out.size))
    return out


def sample(step: int = 20_011) -> Array:
    """f32 from all over the range, infinities and NaN included, with more of them around where functions bend."""
    every = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ends = np.array([0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x3F800000], np.uint32)
    near = np.concatenate([np.linspace(-20, 20, 40_001), np.linspace(-110, 110, 20_001)]).astype(np.float32)
    return np.concatenate([every, near, ends.view(np.float32), -ends.view(np.float32)])


def reference(op: str, *inputs: Array) -> tuple[Array, Array]:
    """The results in f64, and those of the oracle."""
    with np.errstate(all="ignore"):
        wide = np.asarray(CORE[op].reference(*(x.astype(np.float64) for x in inputs)), np.float64)
        return wide, evaluate(CORE[op], inputs, {}, [np.dtype(np.float32)])[0]


def units(actual: Array, wide: Array) -> Array:
    """How far results are off, in distances between neighbours of f32."""
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(wide.astype(np.float32))).astype(np.float64)
        off = np.abs(actual.astype(np.float64) - wide) / unit
        return np.where(np.isfinite(actual) & np.isfinite(wide.astype(np.float32)), off, 0.0)


@pytest.mark.parametrize("op", LARGEST_ERROR)
def test_functions_are_as_accurate_as_stated(op: str) -> None:
    x = sample()
    actual, (wide, expected) = run(op, np.float32, x), reference(op, x)
    relative, absolute = bounds(Tolerance.FUNCTION, dtypes.f32)
    found = closeness(actual, expected, relative=relative / 2, absolute=absolute / 2)
    assert found.ok, f"{op}: {found}"
    off = units(actual, wide)
    counted = np.abs(expected) >= 2.0**-20 if op in _SEEN else np.ones(x.shape, np.bool_)
    worst = int(np.argmax(np.where(counted, off, 0.0)))
    assert off[worst] <= LARGEST_ERROR[op], f"{op}({x[worst]!r}) is off by {off[worst]} units"


def test_the_exponential_of_falling_numbers_reaches_the_least_of_f32() -> None:
    x = sample()
    x = np.concatenate([x[x <= 0], np.linspace(-105, -85, 100_001, dtype=np.float32)])
    actual, (wide, _) = run("falling", np.float32, x), reference("exp", x)
    assert units(actual, wide).max() <= LARGEST_ERROR["exp"]
    assert (actual[x < -104] == 0).all()
    assert np.isnan(run("falling", np.float32, np.array([np.nan], np.float32))).all()


@pytest.mark.parametrize("length", [5, 64, 300])
def test_small_shares_of_softmax_and_attention_are_kept(length: int) -> None:
    """A share of e⁻¹⁰⁰ is denormal, and its logarithm is −100, not −∞."""
    scores = np.linspace(-100, 0, length, dtype=np.float32)
    b = Builder()
    x, values = b.input(TensorType(dtypes.f32, (length,))), b.input(TensorType(dtypes.f32, (1, 1, length, length)))
    keys, query = b.reshape(x, (1, 1, length, 1)), b.constant(np.ones((1, 1, 1, 1), np.float32))
    graph = b.finish("shares", [x, values], [b.softmax(x, axis=0), b.sdpa(query, keys, values, scale=1.0)])
    given = [scores, np.eye(length, dtype=np.float32)[None, None]]
    expected = np.exp(scores.astype(np.float64))
    expected /= expected.sum()
    for found in placed_on(CpuTarget("exact", DEFAULT), graph).run(given):
        np.testing.assert_allclose(found.reshape(-1), expected, rtol=1e-5, atol=2e-45)
        assert (found > 0).all()


@pytest.mark.parametrize("op", PAIRS)
def test_functions_of_two_numbers_are_all_but_correctly_rounded(op: str) -> None:
    rng = np.random.default_rng(7)
    every, narrow = sample(60_013), rng.normal(size=200_000).astype(np.float32) * 8
    x = np.concatenate([every, np.abs(narrow), narrow])
    y = np.concatenate([rng.permutation(every), rng.permutation(narrow), np.round(rng.permutation(narrow))])
    actual, (wide, expected) = run(op, np.float32, x, y), reference(op, x, y)
    assert closeness(actual, expected, relative=2.0**-23, absolute=1e-45).ok
    assert units(actual, wide).max() <= HALF


def test_narrow_floats_are_converted_exactly() -> None:
    codes = np.arange(1 << 16).astype(np.uint16)
    for name, kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        values = run(f"{name}_to_f32", np.float32, codes)
        np.testing.assert_array_equal(values, codes.view(kind).astype(np.float32))
        np.testing.assert_array_equal(run(f"{name}_bits", np.uint16, values), codes)


def test_rounding_to_narrow_floats_is_to_nearest_even() -> None:
    x = sample(5003)
    halfway = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    finite = np.arange(0x7C00).astype(np.uint16).view(np.float16).astype(np.float32)
    x = np.concatenate([x, halfway, (finite[1:] + finite[:-1]) / 2, -(finite[1:] + finite[:-1]) / 2])
    with np.errstate(all="ignore"):
        for name, kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
            actual, expected = run(f"rounded_{name}", np.float32, x), x.astype(kind).astype(np.float32)
            np.testing.assert_array_equal(actual, expected)
            assert np.array_equal(np.signbit(actual) & ~np.isnan(x), np.signbit(expected) & ~np.isnan(x))


def has_vectors() -> bool:
    """Whether this is gcc on a machine with the vector instructions that the functions count on."""
    compiler = find_compiler()
    if compiler is None or platform.system() != "Linux":
        return False
    told = subprocess.run([compiler.path, "--version"], capture_output=True, text=True, check=False).stdout
    return "Free Software Foundation" in told and (
        platform.machine() == "aarch64" or " avx2 " in Path("/proc/cpuinfo").read_text()
    )


@pytest.mark.skipif(not has_vectors(), reason="the compiler is not gcc, or the machine has no AVX2 or NEON")
def test_loops_over_every_function_vectorise(tmp_path: Path) -> None:
    compiler = find_compiler()
    assert compiler is not None
    command = [compiler.path, *FLAGS, "-fopt-info-vec", f"-I{SOURCES}", "-x", "c", "-", "-o", str(tmp_path / "x.so")]
    told = subprocess.run(command, input=source(), capture_output=True, text=True, check=True).stderr
    vectorised = {int(line) for line in re.findall(r"<stdin>:(\d+):\d+: optimized: loop vectorized", told)}
    lines = source().splitlines()
    missing = [text for number, text in enumerate(lines, 1) if "_loop" in text and number not in vectorised]
    assert not missing
