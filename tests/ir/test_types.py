"""Element types and types of values."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, symbol
from assay.ir.dtypes import DType
from assay.ir.types import MapType, OptionalType, SequenceType, TensorType, Type

BITS = {
    "f64": 64, "f32": 32, "f16": 16, "bf16": 16, "f8e4m3fn": 8, "f8e4m3fnuz": 8, "f8e5m2": 8, "f8e5m2fnuz": 8,
    "f8e8m0": 8, "f6e2m3": 6, "f6e3m2": 6, "f4e2m1": 4, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i4": 4, "i2": 2,
    "u64": 64, "u32": 32, "u16": 16, "u8": 8, "u4": 4, "u2": 2, "bool": 8, "c64": 64, "c128": 128, "string": 0,
}  # fmt: skip

LIMITS: dict[str, tuple[float, float]] = {
    "f64": (-1.7976931348623157e308, 1.7976931348623157e308),
    "f32": (-3.4028234663852886e38, 3.4028234663852886e38),
    "f16": (-65504.0, 65504.0),
    "bf16": (-3.3895313892515355e38, 3.3895313892515355e38),
    "f8e4m3fn": (-448.0, 448.0),
    "f8e4m3fnuz": (-240.0, 240.0),
    "f8e5m2": (-57344.0, 57344.0),
    "f8e5m2fnuz": (-57344.0, 57344.0),
    "f8e8m0": (2.0**-127, 2.0**127),
    "f6e2m3": (-7.5, 7.5),
    "f6e3m2": (-28.0, 28.0),
    "f4e2m1": (-6.0, 6.0),
    "i64": (-(2**63), 2**63 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "i16": (-(2**15), 2**15 - 1),
    "i8": (-128, 127),
    "i4": (-8, 7),
    "i2": (-2, 1),
    "u64": (0, 2**64 - 1),
    "u32": (0, 2**32 - 1),
    "u16": (0, 2**16 - 1),
    "u8": (0, 255),
    "u4": (0, 15),
    "u2": (0, 3),
}

every_dtype = pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)


def test_every_element_type_is_there_with_its_width() -> None:
    assert {dtype.name: dtype.bits for dtype in dtypes.ALL} == BITS


@every_dtype
def test_an_element_type_is_one_object(dtype: DType) -> None:
    assert dtypes.by_name(dtype.name) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
    assert copy.copy(dtype) is dtype
    assert repr(dtype) == str(dtype) == dtype.name


@every_dtype
def test_an_array_tells_its_element_type(dtype: DType) -> None:
    assert dtypes.of(np.zeros(2, dtype.numpy)) is dtype
    assert dtypes.of(np.zeros((), dtype.numpy)) is dtype


@every_dtype
def test_the_carrier_is_wide_enough(dtype: DType) -> None:
    packed_bytes = -(-dtype.bits // 8)
    assert dtype.numpy.itemsize == (packed_bytes or np.dtype(object).itemsize)


@pytest.mark.parametrize("carrier", ["<U3", "S3", "O", ">f4", ">i8", ">c16"])
def test_other_arrays_count_as_the_nearest_type(carrier: str) -> None:
    expected = {"<U3": "string", "S3": "string", "O": "string", ">f4": "f32", ">i8": "i64", ">c16": "c128"}[carrier]
    assert dtypes.of(np.zeros(1, carrier)).name == expected


@pytest.mark.parametrize("carrier", ["M8[s]", "m8[s]", "V3", np.longdouble, ml_dtypes.float8_e3m4])
def test_arrays_of_nothing_we_know_are_refused(carrier: Any) -> None:
    with pytest.raises(TypeError, match="no tensor element type"):
        dtypes.of(np.zeros(1, carrier))


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError):
        dtypes.by_name("float32")


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    dtype = dtypes.by_name(name)
    assert dtype.limits == LIMITS[name]
    assert {type(end) for end in dtype.limits} == {int if dtype.is_integer else float}
    for end in dtype.limits:
        assert np.array([end], dtype.numpy)[0] == end


def test_kinds_split_the_types() -> None:
    floats = {dtype.name for dtype in dtypes.ALL if dtype.is_float}
    integers = {dtype.name for dtype in dtypes.ALL if dtype.is_integer}
    assert floats | integers == set(LIMITS)
    assert not floats & integers
    assert {dtype.name for dtype in dtypes.ALL} - floats - integers == {"bool", "c64", "c128", "string"}


def test_groups() -> None:
    groups = (dtypes.FLOATS, dtypes.TINY_FLOATS, dtypes.INTEGERS, dtypes.TINY_INTEGERS, dtypes.COMPLEX)
    listed = [dtype for group in groups for dtype in group] + [dtypes.boolean, dtypes.string]
    assert len(listed) == len(dtypes.ALL)
    assert set(listed) == set(dtypes.ALL)
    assert dtypes.NUMERIC == dtypes.FLOATS + dtypes.INTEGERS
    assert all(dtype.bits < 8 for dtype in dtypes.TINY_INTEGERS)


N = symbol("n")
TYPES: list[tuple[Type, str]] = [
    (TensorType(dtypes.f32), "f32[*]"),
    (TensorType(dtypes.f32, ()), "f32[]"),
    (TensorType(dtypes.i4, (2, 0)), "i4[2, 0]"),
    (TensorType(dtypes.boolean, (N, UNKNOWN)), "bool[n, ?]"),
    (SequenceType(TensorType(dtypes.string)), "seq<string[*]>"),
    (OptionalType(SequenceType(TensorType(dtypes.f32, ()))), "opt<seq<f32[]>>"),
    (MapType(dtypes.i64, TensorType(dtypes.f32, ())), "map<i64, f32[]>"),
]


@pytest.mark.parametrize(("kind", "text"), TYPES, ids=[text for _, text in TYPES])
def test_a_type_reads_well(kind: Type, text: str) -> None:
    assert str(kind) == text


def test_types_are_compared_by_what_they_say() -> None:
    again = [other_object(kind) for kind, _ in TYPES]
    assert again == [kind for kind, _ in TYPES]
    assert len({*again, *(kind for kind, _ in TYPES)}) == len(TYPES)
    assert TensorType(dtypes.f32, (2,)) != TensorType(dtypes.f32, (3,))
    assert TensorType(dtypes.f32, (2,)) != TensorType(dtypes.f64, (2,))
    assert TensorType(dtypes.f32, None) != TensorType(dtypes.f32, ())
    assert SequenceType(TYPES[0][0]) != OptionalType(TYPES[0][0])


def other_object(kind: Type) -> Type:
    """An equal type that is another object."""
    return pickle.loads(pickle.dumps(kind))
