"""The ops that this target owns."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.ir.dtypes import TENSORS, Array
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.registry import OPS, op
from assay.ops.samples import elementwise

TTNN_OPS = OPS.of_target("ttnn")


def _same_shape(x: Fact) -> list[Shape]:
    return [x.shape]


def _same_parts(b: Any, x: Any) -> Any:
    return b.expand(x, b.constant(np.zeros(0, np.int64)))


@op("T -> T", into=TTNN_OPS, T=TENSORS, shape=_same_shape, parts=_same_parts, samples=elementwise())
def resident(x: Array) -> Array:
    """x itself. Of a weight it is computed once, so that the weight is on the card before the first run."""
    return x
