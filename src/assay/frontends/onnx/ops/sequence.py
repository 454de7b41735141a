"""ONNX sequences and optionals."""

from __future__ import annotations

from assay.frontends.onnx.ops.common import as_i64
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.frontends.onnx.types import dtype_of
from assay.ir import dtypes
from assay.ir.graph import Value
from assay.ir.types import OptionalType, SequenceType, TensorType, UnknownType
from assay.ops.registry import FactMissing


@onnx_op("SequenceEmpty")
def sequence_empty(b: Builder, n: Source) -> Results:
    code = n.int("dtype", None)
    return b.sequence_empty(dtype=dtypes.f32 if code is None else dtype_of(code))


@onnx_op("SequenceConstruct")
def sequence_construct(b: Builder, n: Source, *xs: Value) -> Results:
    return b.sequence_construct(*xs)


@onnx_op("SequenceLength")
def sequence_length(b: Builder, n: Source, sequence: Value) -> Results:
    return b.sequence_length(sequence)


@onnx_op("SequenceAt")
def sequence_at(b: Builder, n: Source, sequence: Value, position: Value) -> Results:
    return b.sequence_at(sequence, as_i64(b, position))


@onnx_op("SequenceInsert")
def sequence_insert(b: Builder, n: Source, sequence: Value, x: Value, position: Value | None = None) -> Results:
    return b.sequence_insert(sequence, x, position and as_i64(b, position))


@onnx_op("SequenceErase")
def sequence_erase(b: Builder, n: Source, sequence: Value, position: Value | None = None) -> Results:
    return b.sequence_erase(sequence, position and as_i64(b, position))


@onnx_op("SplitToSequence")
def split_to_sequence(b: Builder, n: Source, x: Value, split: Value | None = None) -> Results:
    return b.sequence_split(x, split and as_i64(b, split), axis=n.int("axis"), keepdims=n.flag("keepdims"))


@onnx_op("ConcatFromSequence")
def concat_from_sequence(b: Builder, n: Source, sequence: Value) -> Results:
    return b.sequence_concat(sequence, axis=n.int("axis"), new_axis=n.flag("new_axis"))


@onnx_op("SequenceMap")
def sequence_map(b: Builder, n: Source, *inputs: Value) -> Results:
    kinds = [value.type for value in inputs]
    if any(isinstance(kind, UnknownType) for kind in kinds):
        raise FactMissing("the type of an input")
    region = n.region("body", [kind.elem if isinstance(kind, SequenceType) else kind for kind in kinds])
    return b.emit("sequence_map", *inputs, regions=(region,))


@onnx_op("Optional")
def optional(b: Builder, n: Source, x: Value | None = None) -> Results:
    return b.optional(x, kind="" if x is not None else n.str("type"))


@onnx_op("OptionalHasElement")
def optional_has_element(b: Builder, n: Source, x: Value | None = None) -> Results:
    if x is None or isinstance(x.type, TensorType | SequenceType):
        return b.constant(x is not None)
    return b.optional_has(x)


@onnx_op("OptionalGetElement")
def optional_get_element(b: Builder, n: Source, x: Value) -> Results:
    return b.optional_get(x) if isinstance(x.type, OptionalType | UnknownType) else x
