"""Results that stay where they were made: on a device, until a run there takes them or somebody looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.ir.dtypes import Array, is_array
from assay.ir.types import Type, shape_at, symbol_axes
from assay.targets.base import Buffer, Device


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTensor:
    """A tensor on the device of a target. It can be fed to a run; as an array, it is fetched."""

    target: str
    device: Device
    buffer: Buffer
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes that it takes on the device."""
        return self.buffer.nbytes

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self.device.download(self.buffer)
        return found if dtype is None else found.astype(dtype, copy=False)


def fetched(values: Sequence[Any]) -> list[Any]:
    """The values with those on devices as arrays of the host."""
    return [np.asarray(value) if isinstance(value, DeviceTensor) else value for value in values]


def run_shapes(results: Sequence[Type], kinds: Sequence[Type], inputs: Sequence[Any]) -> list[tuple[int, ...] | None]:
    """The shapes of results for these inputs, of these types; None where the types do not tell."""
    sizes: dict[str, int] = {}
    for kind, value in zip(kinds, inputs, strict=True):
        for name, axis in symbol_axes(kind) if is_array(value) or isinstance(value, DeviceTensor) else ():
            sizes.setdefault(name, value.shape[axis])
    return [shape_at(kind, sizes) for kind in results]
