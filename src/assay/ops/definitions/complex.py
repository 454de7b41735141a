"""Complex numbers and their parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import COMPLEX, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import TensorType, Type
from assay.ops.registry import Sample, op
from assay.ops.samples import Rng, draw, elementwise
from assay.ops.shapes import same

if TYPE_CHECKING:
    from assay.ops.builder import Builder

PARTS = {dtypes.c64: dtypes.f32, dtypes.c128: dtypes.f64}
"""The dtype of the parts of a complex number."""
WHOLE = {part: whole for whole, part in PARTS.items()}
_SHAPES = ((3, 4), (2, 1, 3), (), (0, 3))


def _split_types(x: Fact) -> list[Type]:
    assert isinstance(x.type, TensorType)
    return [TensorType(PARTS[x.type.dtype], None if x.shape is None else (*x.shape, 2))]


def _join_types(x: Fact) -> list[Type]:
    assert isinstance(x.type, TensorType)
    if x.shape is not None and (not x.shape or (isinstance(x.shape[-1], int) and x.shape[-1] != 2)):
        raise ValueError(f"the last axis of a tensor of shape {list(x.shape)} does not hold pairs")
    return [TensorType(WHOLE[x.type.dtype], None if x.shape is None else x.shape[:-1])]


def _pairs(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for shape in _SHAPES:
        yield Sample((draw(rng, dtype, (*shape, 2)),))


@op("T -> T", T=COMPLEX, types=_split_types, samples=elementwise(1), host=True)
def split_complex(x: Array) -> Array:
    """The real and the imaginary part of each number, side by side in a new last axis."""
    plain: Any = x
    return np.stack([plain.real, plain.imag], axis=-1)


@op("T -> T", T=tuple(WHOLE), types=_join_types, samples=_pairs, host=True)
def join_complex(x: Array) -> Array:
    """The complex numbers whose real and imaginary parts stand in the last axis."""
    result = np.empty(x.shape[:-1], np.result_type(x, np.complex64))
    result.real, result.imag = x[..., 0], x[..., 1]
    return result


def _conj_parts(b: Builder, x: Any) -> Any:
    parts = b.split_complex(x)
    real, imaginary = (b.gather(parts, [i], axis=-1) for i in (0, 1))
    return b.join_complex(b.concat(real, b.neg(imaginary), axis=-1))


@op("T -> T", T=COMPLEX, shape=same, parts=_conj_parts, samples=elementwise(1))
def conj(x: Array) -> Array:
    """The complex conjugate."""
    return np.conj(x)
