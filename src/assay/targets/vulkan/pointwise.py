"""Elementwise units and copies as kernels: each item is one element, its places by strides."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from assay.ir import dtypes
from assay.ir.dims import Dim
from assay.ir.dtypes import DType
from assay.targets.shared.artifacts import Kernel
from assay.targets.shared.loops import Loops
from assay.targets.shared.pointwise import Elementwise, Writer
from assay.targets.shared.tensors import dtype_of
from assay.targets.vulkan import scalar
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.shader import Shader, TensorOperand
from assay.targets.vulkan.storage import computed_kind
from assay.targets.vulkan.templates import template
from assay.targets.vulkan.tiny import TINY, byte_of

_WORDS = {dtypes.f64: "<d", dtypes.f32: "<f", dtypes.f16: "<f", dtypes.bf16: "<f"}

_EITHER_WAY = frozenset({"add", "mul"})
"""Ops whose arguments may change places: those that differ in that alone are one kernel."""


class ScalarStep(NamedTuple):
    """A node of a unit. Its arguments are numbers of earlier values, or literals."""

    op: str
    dtype: str
    result: str
    attrs: tuple[tuple[str, Any], ...]
    args: tuple[int | str, ...]


def _unit(unit: Elementwise, loops: Loops) -> Kernel:
    """A unit as a template: every input loaded, every node computed, every result stored."""
    places: dict[Any, int | str] = dict(unit.literals)
    places.update({value: index for index, value in enumerate(unit.inputs)})
    steps: list[ScalarStep] = []
    for node in unit.nodes:
        args = tuple(places[value] for value in node.inputs if value is not None)
        if node.op in _EITHER_WAY:
            args = tuple(sorted(args, key=str))
        result = node.outputs[0]
        dtypes_of = (scalar.main_dtype(node).name, dtype_of(result).name)
        steps.append(ScalarStep(node.op, *dtypes_of, scalar.attributes(node), args))
        places[result] = len(unit.inputs) + len(steps) - 1
    kinds = [dtype_of(value) for value in (*unit.inputs, *unit.kept)]
    kept = tuple(places[value] for value in unit.kept)
    return template(
        elementwise,
        kinds,
        len(loops.numbers),
        depth=len(loops.outer),
        strides=_known(loops.inner_strides),
        steps=tuple(steps),
        kept=kept,
        straight=True,
        texels=(1,) * len(unit.inputs),
        literal_kinds=_literal_kinds(unit),
    )


def _literal_kinds(unit: Elementwise) -> tuple[tuple[str, str], ...]:
    return tuple((text, computed_kind(dtype_of(value))) for value, text in unit.literals.items())


def elementwise(
    s: Shader,
    *,
    depth: int,
    strides: tuple[int | None, ...],
    steps: tuple[ScalarStep, ...],
    kept: tuple[int, ...],
    literal_kinds: tuple[tuple[str, str], ...],
) -> None:
    """Compute a unit for every element of the grid."""
    unit = _Unit(depth, strides, steps, kept, literal_kinds)
    with s.items(s.rows * s.cols) as item:
        _compute(s, unit, s.operands, element_places(s, item, s.cols, depth, strides))


def go_on(
    s: Shader,
    unit: Mapping[str, Any],
    operands: Sequence[TensorOperand | ShaderValue],
    item: ShaderValue,
    columns: ShaderValue,
    first: int,
) -> None:
    """Compute a unit, by the parameters of its template, for one element of a grid with so many columns.

    An operand may be known as a value. The numbers of the unit are those from `first` on.
    """
    made = _Unit(**unit)
    _compute(s, made, operands, element_places(s, item, columns, made.depth, made.strides, first))


class _Unit(NamedTuple):
    """What `elementwise` is told."""

    depth: int
    strides: tuple[int | None, ...]
    steps: tuple[ScalarStep, ...]
    kept: tuple[int, ...]
    literal_kinds: tuple[tuple[str, str], ...]


def _compute(
    s: Shader, unit: _Unit, operands: Sequence[TensorOperand | ShaderValue], places: Sequence[ShaderValue]
) -> None:
    literals = {text: literal_value(s, text, kind) for text, kind in unit.literal_kinds}
    inputs = len(operands) - len(unit.kept)
    values = [
        operand if isinstance(operand, ShaderValue) else operand.load(place)
        for operand, place in zip(operands[:inputs], places, strict=False)
    ]
    for op, dtype, result, attrs, refs in unit.steps:
        args = [literals[ref] if isinstance(ref, str) else values[ref] for ref in refs]
        kinds = (dtypes.by_name(dtype), dtypes.by_name(result))
        values.append(scalar.applied(s, op, *kinds, dict(attrs), args))
    for operand, place, value in zip(operands[inputs:], places[inputs:], unit.kept, strict=True):
        assert isinstance(operand, TensorOperand)
        operand.store(place, values[value])


def _copy(dtype: DType, loops: Loops) -> Kernel:
    """A copy as a template: elements move as they are, whatever they mean."""
    strides = _known(loops.inner_strides)
    return template(
        move, [dtype, dtype], len(loops.numbers), texels=(1,), depth=len(loops.outer), strides=strides, straight=True
    )


def move(s: Shader, *, depth: int, strides: tuple[int | None, ...]) -> None:
    """Copy every element of the grid."""
    source, target = s.operands
    with s.items(s.rows * s.cols) as item:
        here, there = element_places(s, item, s.cols, depth, strides)
        target.put_bits(there, source.bits(here))


def _known(strides: Sequence[Dim]) -> tuple[int | None, ...]:
    """Inner strides that a kernel is made for: 0 and 1; the others it is told."""
    return tuple(stride if stride in (0, 1) else None for stride in strides)  # type: ignore[misc]


def element_places(
    s: Shader, item: ShaderValue, columns: ShaderValue, depth: int, strides: Sequence[int | None], first: int = 0
) -> list[ShaderValue]:
    """Where each operand has the element of an item; the numbers from `first` on are those of `Loops.numbers`."""
    column, along = item, list[ShaderValue]()
    if depth:
        rest = item / columns
        column = item - rest * columns
        for axis in range(first + depth - 1, first, -1):
            above = rest / s.number(axis)
            along.insert(0, rest - above * s.number(axis))
            rest = above
        along.insert(0, rest)
    places: list[ShaderValue] = []
    for operand, stride in enumerate(strides):
        begin = first + depth + operand * (depth + 1)
        place = column * s.number(begin + depth) if stride is None else column
        if stride == 0:
            place = s.value(0, "u32")
        for axis, index in enumerate(along):
            place = place + index * s.number(begin + axis)
        places.append(place)
    return places


# --- numbers in kernels


def literal(dtype: DType, value: Any) -> str:
    """A number as text: its bits."""
    if dtype in _WORDS:
        return f"{dtype.name}:{struct.pack(_WORDS[dtype], float(value)).hex()}"
    if dtype in TINY:
        return f"{dtype.name}:{byte_of(dtype, value)}"
    return f"{dtype.name}:{int(value)}"


def literal_value(s: Shader, text: str, kind: str) -> ShaderValue:
    """The number that a literal stands for."""
    name, _, content = text.partition(":")
    dtype = dtypes.by_name(name)
    if dtype in _WORDS:
        return s.value(struct.unpack(_WORDS[dtype], bytes.fromhex(content))[0], kind)
    return s.value(int(content), kind)


WRITER = Writer(scalar.OPS, scalar.LIMITATIONS, scalar.work, literal, _unit, _copy)
