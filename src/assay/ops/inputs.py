"""What the builder takes as an input of an op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from assay.ir.dtypes import Array
from assay.ir.graph import Value

OpInput: TypeAlias = Value | Array | np.generic | bool | int | float | complex | Sequence[Any]
"""A value, or a number, list or array that becomes a constant."""
