"""Weights that are quantised in blocks, as the bytes of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, floordiv
from assay.ir.dtypes import Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType
from assay.ops.block_formats import BLOCK_FORMATS, Bits, BlockFormat, BlockScaling
from assay.ops.conditions import differ
from assay.ops.registry import Compute, OpDef, Registry, Sample, Tolerance, op
from assay.ops.samples import Rng, draw, listed

if TYPE_CHECKING:
    from assay.ops.builder import Builder


def block_format(name: str) -> BlockFormat:
    """The format of this name; ValueError if there is none."""
    if name not in BLOCK_FORMATS:
        raise ValueError(f"there is no format '{name}'; there are {', '.join(BLOCK_FORMATS)}")
    return BLOCK_FORMATS[name]


def _elements_shape(blocks: Fact, *, format: str) -> list[Shape]:
    form, shape = block_format(format), blocks.shape
    if shape is None:
        return [None]
    if not shape:
        raise ValueError("blocks need an axis of bytes")
    count = floordiv(shape[-1], form.block_bytes)
    if differ(shape[-1], count * form.block_bytes):
        raise ValueError(f"{shape[-1]} bytes are no whole blocks of {form.block_bytes}")
    return [(*shape[:-1], count * form.elements)]


# --- in simpler ops


class _Parts(NamedTuple):
    """Blocks (blocks, bytes) in a graph that is built."""

    b: Builder
    form: BlockFormat
    blocks: Any

    def field(self, name: str, start: int = 0, count: int | None = None) -> Any:
        """Bytes of a field (blocks, bytes): all, or `count` from one on."""
        first, end = self.form.span(name)
        first += start
        return self.b.slice(self.blocks, [first], [end if count is None else first + count], [1], axes=(1,))

    def half(self, name: str) -> Any:
        """A field of one f16 number (blocks, 1) as f32."""
        low, high = (self.b.cast(self.field(name, byte, 1), dtype=dtypes.u16) for byte in (0, 1))
        bits = self.b.bit_or(low, self.b.shift_left(high, 8))
        return self.b.cast(self.b.bitcast(bits, dtype=dtypes.f16), dtype=dtypes.f32)

    def bits(self, packed: Any, width: int, run: int) -> Any:
        """The numbers in bytes (blocks, bytes), as `Bits` says."""
        b, size = self.b, self.b.size(packed, 1)
        assert isinstance(size, int)
        shifts = b.constant(np.arange(0, 8, width).reshape(-1, 1), dtypes.u8)
        parts = b.shift_right(b.reshape(packed, [-1, size // run, 1, run]), shifts)
        return b.reshape(b.bit_and(parts, (1 << width) - 1), [-1, size * 8 // width])

    def joined(self, parts: Iterable[tuple[Any, Bits]]) -> Any:
        """Numbers of which parts are the bits, the lowest first."""
        whole, shift = None, 0
        for packed, each in parts:
            found = self.bits(packed, each.width, each.run)
            whole = found if whole is None else self.b.bit_or(whole, self.b.shift_left(found, shift))
            shift += each.width
        return whole

    def wide(self, x: Any, middle: int = 0) -> Any:
        """Bytes less a number, as f32."""
        signed = self.b.cast(x, dtype=dtypes.i8)
        return self.b.cast(self.b.sub(signed, middle) if middle else signed, dtype=dtypes.f32)


def _by_nibbles(p: _Parts) -> tuple[Any, Any]:
    packed = p.field("scales")
    scales, offsets = p.wide(p.b.bit_and(packed, 0x0F)), p.wide(p.b.shift_right(packed, 4))
    return p.b.mul(p.half("scale"), scales), p.b.mul(p.half("offset"), offsets)


def _by_sixes(p: _Parts) -> tuple[Any, Any]:
    low, high = p.field("scales", 0, 8), p.field("scales", 8)
    scales = p.joined([(low, Bits("scales", 4, 8)), (high, Bits("scales", 2, 4))])
    return p.b.mul(p.half("scale"), p.wide(scales, 32)), None


def _by_pairs(p: _Parts) -> tuple[Any, Any]:
    b = p.b
    first, second, third = (p.field("scales", start, 4) for start in (0, 4, 8))

    def sixes(whole: Any, low: Any) -> Any:
        high = b.bit_and(b.shift_right(whole, 2), 0x30)
        return p.wide(b.emit("concat", b.bit_and(whole, 0x3F), b.bit_or(low, high), axis=1)[0])

    scales, offsets = sixes(first, b.bit_and(third, 0x0F)), sixes(second, b.shift_right(third, 4))
    return b.mul(p.half("scale"), scales), b.mul(p.half("offset"), offsets)


_SCALES: Mapping[BlockScaling, Callable[[_Parts], tuple[Any, Any]]] = {
    BlockScaling.ONE: lambda p: (p.half("scale"), None),
    BlockScaling.OFFSET: lambda p: (p.half("scale"), p.half("offset")),
    BlockScaling.NIBBLES: _by_nibbles,
    BlockScaling.SIXES: _by_sixes,
    BlockScaling.PAIRS: _by_pairs,
    BlockScaling.BYTES: lambda p: (p.b.mul(p.half("scale"), p.wide(p.field("scales"))), None),
}


def _dequantized_parts(b: Builder, blocks: Any, *, format: str) -> Any:
    form, rank = block_format(format), b.rank(blocks)
    p = _Parts(b, form, b.reshape(blocks, [-1, form.block_bytes]))
    scales, offsets = _SCALES[form.scaling](p)
    count = b.size(scales, 1)
    assert isinstance(count, int)
    integers = p.wide(p.joined((p.field(each.field), each) for each in form.integers), form.middle)
    values = b.mul(b.unsqueeze(scales, axes=(2,)), b.reshape(integers, [-1, count, form.elements // count]))
    if offsets is not None:
        combine = b.add if form.scaling is BlockScaling.OFFSET else b.sub
        values = combine(values, b.unsqueeze(offsets, axes=(2,)))
    lead, row = [b.size(blocks, axis) for axis in range(rank - 1)], b.size(blocks, rank - 1)
    whole = b.mul(b.div(row, form.block_bytes), form.elements)
    return b.reshape(values, b.vector(*lead, whole))


# --- samples


def drawn_blocks(rng: Rng, form: BlockFormat, *shape: int) -> Array:
    """Blocks (…, blocks) of random bytes with scales of a usual size, as rows of bytes."""
    blocks = rng.integers(0, 256, (*shape, form.block_bytes), dtype=np.uint8)
    fields = blocks.view(form.fields)
    for name in {"scale", "offset"} & set(form.fields.names or ()):
        fields[name] = rng.uniform(-1, 1, fields[name].shape) / 16
    return blocks.reshape(*shape[:-1], shape[-1] * form.block_bytes)


def _samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
    for form in BLOCK_FORMATS.values():
        for shape in ((3, 2), (1,), (2, 0, 1)):
            yield Sample((drawn_blocks(rng, form, *shape),), {"format": form.name})


@op(
    "Q -> f32",
    Q=(dtypes.u8,),
    shape=_elements_shape,
    parts=_dequantized_parts,
    compute=Compute.STORED,
    samples=_samples,
)
def block_dequantize(blocks: Array, *, format: str) -> Array:
    """The elements (…, elements) of rows of quantised blocks (…, bytes), as GGUF files hold them. `format` is one of
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K and Q6_K. Weights may stay packed where they are read."""
    return block_format(format).dequantized(blocks)


# --- products with blocks, which targets own that read them as they are


def _product_shape(x: Fact, blocks: Fact, *, format: str) -> list[Shape]:
    if blocks.shape is not None and len(blocks.shape) != 2:
        raise ValueError("the blocks of a matrix have two axes")
    (matrix,) = block_dequantize.infer([blocks], {"format": format})
    assert isinstance(matrix, TensorType)
    if x.shape is None:
        return [None]
    if not x.shape:
        raise ValueError("a matrix product needs operands of rank one or more")
    if matrix.shape is not None and differ(x.shape[-1], matrix.shape[-1]):
        raise ValueError(f"{x.shape[-1]} columns do not fit rows of {matrix.shape[-1]} elements")
    return [(*x.shape[:-1], UNKNOWN if matrix.shape is None else matrix.shape[0])]


def _product_parts(b: Builder, x: Any, blocks: Any, *, format: str) -> Any:
    return b.matmul(x, b.transpose(b.block_dequantize(blocks, format=format), perm=(1, 0)))


def define_matmul_blocks(into: Registry, *sizes: tuple[tuple[int, ...], int]) -> OpDef:
    """Define the product with blocks as an op of a target. Its samples have these leading sizes of x and rows."""

    def samples(rng: Rng, dtype: DType) -> Iterable[tuple[Any, ...]]:
        for form in BLOCK_FORMATS.values():
            for lead, rows in sizes:
                blocks = drawn_blocks(rng, form, rows, 2)
                yield draw(rng, dtype, (*lead, 2 * form.elements)), blocks, {"format": form.name}

    @op(
        "T, Q -> T",
        into=into,
        T=(dtypes.f32,),
        Q=(dtypes.u8,),
        shape=_product_shape,
        parts=_product_parts,
        compute=Compute.WIDE,
        tolerance=Tolerance.ACCUMULATED,
        samples=listed(samples),
    )
    def matmul_blocks(x: Array, blocks: Array, *, format: str) -> Array:
        """`matmul` of x with the transpose of the matrix whose rows are quantised `blocks`, which stay packed."""
        return np.matmul(x, block_format(format).dequantized(blocks).astype(x.dtype).T)

    return matmul_blocks
