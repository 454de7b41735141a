"""Where onnxruntime 1.31 differs from the ONNX standard, or declines what the standard allows: data for fuzzing.

A row is here because a shrunk graph showed it and the standard, or its reference evaluator, says otherwise or nothing.
`docs/fuzzing.md` lists the rows; a test keeps it so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ir.graph import Node

Applies = Callable[[Node, Sequence[Any]], bool]
"""Whether a node with these inputs shows the deviation."""


@dataclass(frozen=True)
class GraphDeviation:
    """What onnxruntime is not asked, and why."""

    ops: tuple[str, ...]
    reason: str
    applies: Applies


def _of(*names: str) -> Applies:
    return lambda node, inputs: dtypes.of(inputs[0]).name in names


def _has_nan(node: Node, inputs: Sequence[Any]) -> bool:
    return any(x is not None and dtypes.of(x) in dtypes.FLOATS and bool(np.isnan(x).any()) for x in inputs)


def _out_of_range(node: Node, inputs: Sequence[Any]) -> bool:
    source, target = dtypes.of(inputs[0]), node.attrs["dtype"]
    if not source.is_float or not target.is_integer:
        return False
    low, high = target.limits
    wide = inputs[0].astype(np.float64)
    return not bool(((wide > low - 1) & (wide < high + 1)).all())


def _to_tiny_integers(node: Node, inputs: Sequence[Any]) -> bool:
    return dtypes.of(inputs[0]).is_float and node.attrs["dtype"] in dtypes.TINY_INTEGERS


def _to_text(node: Node, inputs: Sequence[Any]) -> bool:
    return node.attrs["dtype"] is dtypes.string


def _zero_to_negative_power(node: Node, inputs: Sequence[Any]) -> bool:
    base, exponent = inputs
    return base.dtype.kind in "iu" and bool(np.any((base == 0) & (exponent < 0)))


def _blocks_of_text(node: Node, inputs: Sequence[Any]) -> bool:
    x: Array = inputs[0]
    return x.dtype == object and int(np.prod(x.shape[node.attrs["axis"] % x.ndim + 1 :])) != 1


def _empty(node: Node, inputs: Sequence[Any]) -> bool:
    return any(isinstance(x, np.ndarray) and cast(Array, x).size == 0 for x in inputs)


def _both(first: Applies, second: Applies) -> Applies:
    return lambda node, inputs: first(node, inputs) and second(node, inputs)


def _f16_to_integers(node: Node, inputs: Sequence[Any]) -> bool:
    return dtypes.of(inputs[0]).bits == 16


def _tiny_zero_point(node: Node, inputs: Sequence[Any]) -> bool:
    return node.attrs["dtype"].is_float and len(inputs) > 2 and inputs[2] is not None and bool(np.any(inputs[2] != 0))


def _blends_integers(node: Node, inputs: Sequence[Any]) -> bool:
    return node.attrs["mode"] != "nearest" and dtypes.of(inputs[0]).is_integer


def _inverts(node: Node, inputs: Sequence[Any]) -> bool:
    return bool(node.attrs["inverse"])


def _cubic_outside(node: Node, inputs: Sequence[Any]) -> bool:
    return node.attrs["mode"] == "cubic" and node.attrs["padding"] != "zeros"


def _long_spectrum(node: Node, inputs: Sequence[Any]) -> bool:
    x, length = inputs
    whole = node.attrs["inverse"] and node.attrs["onesided"]
    return bool(whole) and x.shape[node.attrs["axis"]] != int(length) // 2 + 1


def _splits_nothing(node: Node, inputs: Sequence[Any]) -> bool:
    return node.attrs["delimiter"] != "" and bool(np.any(inputs[0] == ""))


DEVIATIONS: tuple[GraphDeviation, ...] = (
    GraphDeviation(("cast",), "ONNX leaves a float beyond the range of an integer undefined", _out_of_range),
    GraphDeviation(
        ("cast",), "onnxruntime rounds floats to 4-bit integers, to wider ones it truncates", _to_tiny_integers
    ),
    GraphDeviation(("cast",), "ONNX does not say how many digits a number has as text", _to_text),
    GraphDeviation(("pow",), "ONNX leaves a negative power of the integer 0 undefined", _zero_to_negative_power),
    GraphDeviation(("sign",), "onnxruntime's Sign of NaN is 0 in f16 and bf16", _both(_has_nan, _of("f16", "bf16"))),
    GraphDeviation(
        ("gather", "window"), "onnxruntime's Gather copies but the first of a block of strings", _blocks_of_text
    ),
    GraphDeviation(
        ("matmul",), "onnxruntime's MatMul fails on empty unsigned integers", _both(_empty, _of("u32", "u64"))
    ),
    GraphDeviation(("gelu_tanh",), "ONNX's own body of Gelu has its constants in f32", _of("f64")),
    GraphDeviation(
        ("quantize_linear",), "onnxruntime divides in f32, ONNX in the dtype of the scale", _f16_to_integers
    ),
    GraphDeviation(("quantize_linear",), "onnxruntime ignores the zero point of tiny floats", _tiny_zero_point),
    GraphDeviation(("grid_sample",), "onnxruntime clamps what a cubic kernel reads differently", _cubic_outside),
    GraphDeviation(("dft",), "onnxruntime reads values beyond the half spectrum that is asked for", _long_spectrum),
    GraphDeviation(("dft",), "onnxruntime inverts with factors in f32", _both(_inverts, _of("f64"))),
    GraphDeviation(("resize",), "onnxruntime truncates integers, ONNX's evaluator rounds them", _blends_integers),
    GraphDeviation(("rnn", "gru", "lstm"), "onnxruntime gives zeros as the last state of an empty sequence", _empty),
    GraphDeviation(("string_split",), "onnxruntime splits an empty string into no parts at all", _splits_nothing),
    GraphDeviation(("unique",), "onnxruntime aborts the process on empty slices", _empty),
    GraphDeviation(("unique",), "onnxruntime takes everything beside NaN for equal", _has_nan),
)
"""What onnxruntime is not asked; the first row that applies counts."""

REFUSALS: dict[str, str] = {
    r"NOT_IMPLEMENTED": "onnxruntime does not implement {} of {}",
    r"does not support double yet": "onnxruntime does not implement {} of {}",
    r"data type is not supported": "onnxruntime does not implement {} of {} with a reduction",
    r"is not currently registered or supported": "onnxruntime has no tensors of {1}",
    r"number of dimensions is less than 3": "onnxruntime's InstanceNormalization wants three axes or more",
    r"X_shape.NumDimensions\(\) == 4 was false": "onnxruntime's LRN wants four axes",
    r"must be 4D|Only 4-D or 5-D tensor is supported": "onnxruntime implements {} for images only",
    r"outermost 2 scale values being 1": "onnxruntime implements {} for images only",
    r"exclude_outside can be set to 1": "onnxruntime's Resize excludes the outside in some modes only",
    r"Scale value should be greater than 0": "onnxruntime's Resize does not resize to nothing",
    r"zero_point == nullptr": "onnxruntime's DequantizeLinear wants 0 as the zero point of some dtypes",
    r"kv_sequence_length > 0 was false": "onnxruntime's Attention wants at least one key",
    r"only subscript labels allowed are": "onnxruntime's Einsum rejects capitals without an arrow",
    r"Ellipsis represents incompatible dimensions": "ONNX's Einsum wants ellipses of one shape",
    r"operand cannot broadcast on dim": "onnxruntime's MatMul does not spread one matrix over none",
    r"Input tensor has no dimensions": "onnxruntime's Pad wants an axis",
    r"Failed to construct locale": "onnxruntime's StringNormalizer needs a locale that is not there",
}
"""Messages by which onnxruntime declines a node that the standard allows, with what they mean. `{}` is the op, then its
dtypes."""
