"""Programs that the library has taken and nobody computes: every result is zeros, which take no memory.

With these a model of any size is put to the library, weights and all, in the time that the library takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.graph import Value
from assay.ir.types import TensorType
from assay.targets.base import Finished, Observer, Run
from assay.targets.budget import Allowance
from assay.targets.ttnn.device_model import ModelledBuffer
from assay.targets.ttnn.executable import TakenExecutable
from assay.targets.ttnn.plan import sizes


class UncomputedCard:
    """Memory that keeps shapes and dtypes alone."""

    def upload(self, array: Array) -> ModelledBuffer:
        """A buffer of zeros."""
        return _zeros(array.shape, array.dtype)

    def download(self, buffer: Any) -> Array:
        """Zeros for the caller."""
        content: Array = buffer.content
        return np.zeros(content.shape, content.dtype)


class UncomputedExecutable(TakenExecutable):
    """A segment that the library has taken; its results are zeros."""

    def submit(
        self, inputs: Sequence[Any], observer: Observer | None = None, allowance: Allowance | None = None
    ) -> tuple[tuple[Any, ...], Run]:
        """Buffers in, zeros out. An observer is told of nothing, as nothing is computed."""
        self.started()
        return tuple(map(_result, self.setting.segment.outputs)), Finished(self.taken.peak_bytes)


def _result(value: Value) -> ModelledBuffer:
    assert isinstance(value.type, TensorType)
    return _zeros(sizes(value), value.type.dtype.numpy)


def _zeros(shape: tuple[int, ...], dtype: Any) -> ModelledBuffer:
    return ModelledBuffer(np.broadcast_to(np.zeros((), dtype), shape))
