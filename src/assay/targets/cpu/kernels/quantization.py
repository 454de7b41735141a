"""Linear quantisation."""

from __future__ import annotations

from typing import cast

from assay.ir.dims import Dim, ceildiv, eq, product
from assay.ir.dtypes import FLOATS, TINY_INTEGERS, DType, bf16, f16, f32, f64, i8, i16, i32, u8, u16
from assay.ir.graph import Node, Value
from assay.ir.types import TensorType
from assay.targets.base import limitation
from assay.targets.cpu import scalar
from assay.targets.cpu.kernels.elements import computed
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of
from assay.targets.shared.views import View

_NUMBERS: tuple[DType, ...] = (u8, i8, u16, i16, *TINY_INTEGERS)
_STRETCH = 8192
"""Of how many elements at a time the range is found."""


def _type(value: Value | None) -> TensorType:
    return cast(TensorType, cast(Value, value).type)


def _grid(x: TensorType, scale: TensorType, axis: int, block: int) -> tuple[Dim, Dim, list[Dim]] | None:
    """Rows and columns of x in which scales lie evenly, and how (`c/quantized.h`); None if they do not, or may not."""
    shape, scales = x.shape or (), scale.shape or ()
    if all(size == 1 for size in scales):
        return 1, product(shape), [1, 1, 0, 0]
    place = axis % len(shape)
    size, below, above = shape[place], product(shape[place + 1 :]), product(shape[:place])
    if block and len(scales) == len(shape):
        if not isinstance(size, int) or size % block:
            return None
        if below == 1:
            return above * (size // block), block, [1, above * (size // block), 1, 0]
        return above * size, below, [block, above * (size // block), below, 1]
    if len(scales) != 1 or not eq(scales[0], size):
        return None
    return (above, size, [1, 1, 0, 1]) if below == 1 else (above * size, below, [1, size, 1, 0])


@limitation("there is no kernel that quantises to floats")
def _to_floats(node: Node) -> bool:
    return node.attrs["dtype"] not in (*_NUMBERS, i32)


@limitation("only a run tells how scales lie along x, or they lie unevenly")
def _uneven(node: Node) -> bool:
    return _grid(_type(node.inputs[0]), _type(node.inputs[1]), node.attrs["axis"], node.attrs["block"]) is None


@limitation("only a run tells whether there are as many zero points as scales")
def _unclear_zeros(node: Node) -> bool:
    _, scales, *zeros = node.inputs
    return any(zero is not None and not eq(product(shape_of(zero)), product(shape_of(scales))) for zero in zeros)


@emits("quantize_linear", FLOATS, unless=(_to_floats, _uneven, _unclear_zeros))
def quantize_linear(p: Planner, node: Node) -> None:
    """The quotient is rounded to x's dtype first."""
    x, scale, zero = p.dense(node.inputs[0]), p.dense(node.inputs[1]), _zero(p, node)
    _quantize(p, node, x, scale, zero, p.result(node.outputs[0]))


def _quantize(p: Planner, node: Node, x: View, scale: View, zero: View | None, result: View) -> None:
    kinds = TensorType(x.dtype, x.shape), TensorType(scale.dtype, scale.shape)
    found = _grid(*kinds, node.attrs.get("axis", 0), node.attrs.get("block", 0))
    assert found is not None
    rows, cols, lying = found
    rounded = {f16: "rounded_f16(x)", bf16: "rounded_bf16(x)"}.get(x.dtype, "(x)")
    element = computed(x.dtype)
    p.step(
        template(
            "quantize.h",
            **element,
            **_numbers(result.dtype, zero),
            **{"ROUNDED(x)": rounded, "S": "T", "LOAD_SCALE(x)": "LOAD(x)", "HIGH": int(result.dtype.limits[1])},
        ),
        [x, scale, scale if zero is None else zero, result],
        [cols, *lying],
        rows=rows,
        cols=cols,
        col_grain=64,
        work=4,
    )


@emits("dequantize_linear", (*_NUMBERS, i32), unless=(_uneven, _unclear_zeros))
def dequantize_linear(p: Planner, node: Node) -> None:
    """In f64 where f32 does not hold all numbers."""
    x, scale, zero = p.dense(node.inputs[0]), p.dense(node.inputs[1]), _zero(p, node)
    result = p.result(node.outputs[0])
    found = _grid(_type(node.inputs[0]), _type(node.inputs[1]), node.attrs["axis"], node.attrs["block"])
    assert found is not None
    rows, cols, lying = found
    wide = "double" if x.dtype is i32 or f64 in (scale.dtype, result.dtype) else "float"
    load = computed(scale.dtype)["LOAD(x)"]
    p.step(
        template(
            "dequantize.h",
            **computed(result.dtype, wide),
            **_numbers(x.dtype, zero),
            **{"S": scalar.ctype(scale.dtype), "LOAD_SCALE(x)": load},
        ),
        [x, scale, scale if zero is None else zero, result],
        [cols, *lying],
        rows=rows,
        cols=cols,
        col_grain=64,
        work=2,
        takes_epilogue=True,
    )


@emits("dynamic_quantize", (f32, f64))
def dynamic_quantize(p: Planner, node: Node) -> None:
    """First the range of stretches of x, then scale and zero point, then the numbers."""
    x = p.dense(node.inputs[0])
    result, scale, zero = (p.result(value) for value in node.outputs)
    stretches = ceildiv(x.size, _STRETCH)
    least, largest = p.temporary(x.dtype, (stretches,)), p.temporary(x.dtype, (stretches,))
    kind = scalar.ctype(x.dtype)
    p.step(
        template("extent.h", T=kind), [x, least, largest], [x.size, _STRETCH], rows=stretches, work=_STRETCH, writes=2
    )
    p.step(template("dynamic_scale.h", T=kind), [least, largest, scale, zero], [stretches], rows=1, writes=2)
    _quantize(p, node, x, scale, zero, result)


def _zero(p: Planner, node: Node) -> View | None:
    zeros = node.inputs[2:]
    return p.dense(zeros[0]) if zeros and zeros[0] is not None else None


def _numbers(dtype: DType, zero: View | None) -> dict[str, object]:
    low = "INT32_MIN" if dtype is i32 else int(dtype.limits[0])
    return {"Q": scalar.ctype(dtype), "BITS": dtype.bits, "LOW": low, "ZEROS": int(zero is not None)}
