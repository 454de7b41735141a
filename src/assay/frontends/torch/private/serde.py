"""The classes that torch writes exported programs with, and what reads them back. Loads dynamo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch._export.serde import schema as schema
from torch._export.serde import serialize, union
from torch.export import ExportedProgram

__all__ = ["SIZE_FUNCTIONS", "Alternatives", "dtype_of", "program_of", "schema"]

Alternatives: Any = cast(Any, union)._Union
"""The base of the schema's classes that hold one of several fields."""

SIZE_FUNCTIONS = frozenset(f"{op.__module__}.{op.__name__}" for op in cast(Any, serialize)._SYM_OPS)
"""What torch computes sizes with, as it writes them."""


def program_of(
    written: schema.ExportedProgram, weights: Mapping[str, Any], constants: Mapping[str, Any], examples: Any
) -> ExportedProgram:
    """The program that an object of the schema describes, with these weights, constants and example arguments."""
    return cast(Any, serialize.ExportedProgramDeserializer()).deserialize(written, weights, constants, examples)


def dtype_of(written: schema.ScalarType) -> torch.dtype:
    """torch's dtype for one of the schema."""
    return serialize.deserialize_scalar_type(written)
