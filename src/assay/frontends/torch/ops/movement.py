"""aten ops that move data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.frontends.torch.ops.common import Number, from_the_front, sizes, tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir import dtypes
from assay.ir.graph import Value


@aten(
    "aten.view.default",
    "aten.view_copy.default",
    "aten.reshape.default",
    "aten._reshape_copy.default",
    "aten._unsafe_view.default",
)
def view(b: Builder, n: Call, x: Value, shape: Sequence[Number]) -> Results:
    return b.reshape(x, sizes(b, shape))


@aten("aten.permute.default", "aten.permute_copy.default")
def permute(b: Builder, n: Call, x: Value, dims: Sequence[int]) -> Results:
    rank = b.rank(x)
    return b.transpose(x, perm=tuple(d % rank for d in dims))


@aten("aten.t.default", "aten.t_copy.default", "aten.numpy_T.default")
def t(b: Builder, n: Call, x: Value) -> Results:
    return b.transpose(x, perm=tuple(reversed(range(b.rank(x)))))


@aten("aten.transpose.int", "aten.transpose_copy.int")
def transpose(b: Builder, n: Call, x: Value, first: int, second: int) -> Results:
    perm = list(range(b.rank(x)))
    if perm:
        perm[first], perm[second] = perm[second], perm[first]
    return b.transpose(x, perm=tuple(perm))


@aten("aten.expand.default", "aten.expand_copy.default")
def expand(b: Builder, n: Call, x: Value, shape: Sequence[Number], implicit: bool = False) -> Results:
    new = len(shape) - b.rank(x)
    kept = [b.size(x, i - new) if isinstance(d, int) and d == -1 else d for i, d in enumerate(shape)]
    return b.expand(x, sizes(b, kept))


@aten("aten.unsqueeze.default", "aten.unsqueeze_copy.default")
def unsqueeze(b: Builder, n: Call, x: Value, dim: int) -> Results:
    return b.unsqueeze(x, axes=(dim,))


@aten("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(b: Builder, n: Call, x: Value, dims: Any = None) -> Results:
    given = [dims] if isinstance(dims, int) else dims
    shape, rank = b.dims(x), b.rank(x)
    axes = range(rank) if given is None else [d % rank for d in given] if rank else []
    return b.squeeze(x, axes=tuple(a for a in axes if shape[a] == 1))


@aten("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(b: Builder, n: Call, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Results:
    low, high = 0 if start is None else start, 2**62 if end is None else end
    return b.slice(x, sizes(b, [low]), sizes(b, [high]), sizes(b, [step]), axes=(dim,))


@aten("aten.narrow.default", "aten.narrow_copy.default")
def narrow(b: Builder, n: Call, x: Value, dim: int, start: Number, length: Number) -> Results:
    size = tensor(b, b.size(x, dim), dtypes.i64)
    first = b.reshape(tensor(b, start, dtypes.i64), [1])
    low = b.where(b.lt(first, 0), b.add(first, size), first)
    return b.slice(x, low, b.add(low, sizes(b, [length])), [1], axes=(dim,))


@aten("aten.select.int", "aten.select_copy.int")
def select(b: Builder, n: Call, x: Value, dim: int, index: Number) -> Results:
    return b.gather(x, tensor(b, index, dtypes.i64), axis=dim)


@aten("aten.unbind.int", "aten.unbind_copy.int")
def unbind(b: Builder, n: Call, x: Value, dim: int = 0) -> Results:
    return tuple(b.gather(x, place, axis=dim) for place in range(len(n.types)))


@aten("aten.stack.default", "aten._stack.default")
def stack(b: Builder, n: Call, xs: Sequence[Value], dim: int = 0) -> Results:
    axis = dim % (b.rank(xs[0]) + 1)
    return b.concat(*(b.unsqueeze(tensor(b, x, n.dtype), axes=(axis,)) for x in xs), axis=axis)


@aten("aten.repeat.default")
def repeat(b: Builder, n: Call, x: Value, repeats: Sequence[Number]) -> Results:
    new = len(repeats) - b.rank(x)
    return b.tile(b.unsqueeze(x, axes=tuple(range(new))) if new else x, sizes(b, repeats))


@aten("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(b: Builder, n: Call, x: Value, groups: int) -> Results:
    """Its decomposition gives a view of x where there is nothing to shuffle; eager never does."""
    first, channels, *rest = (b.size(x, axis) for axis in range(b.rank(x)))
    each = channels // groups if isinstance(channels, int) else b.div(channels, groups)
    parted = b.reshape(x, b.vector(first, groups, each, *rest))
    return b.reshape(b.transpose(parted, perm=(0, 2, 1, *range(3, b.rank(parted)))), b.shape_of(x))


@aten("aten.cat.default")
def cat(b: Builder, n: Call, xs: Sequence[Value], dim: int = 0) -> Results:
    real = [tensor(b, x, n.dtype) for x in xs if b.shape(x) != (0,)]
    return b.concat(*real, axis=dim) if real else tensor(b, xs[0], n.dtype)


@aten("aten.flip.default")
def flip(b: Builder, n: Call, x: Value, dims: Sequence[int]) -> Results:
    return b.flip(x, axes=tuple(dims)) if dims else x


@aten("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default")
def split(b: Builder, n: Call, x: Value, lengths: Sequence[Number], dim: int = 0) -> Results:
    pieces: list[Value] = []
    start: Any = 0
    for length in lengths:
        end = (
            start + length
            if isinstance(start, int) and isinstance(length, int)
            else b.add(_i64(b, start), _i64(b, length))
        )
        pieces.append(b.slice(x, sizes(b, [start]), sizes(b, [end]), [1], axes=(dim,)))
        start = end
    return tuple(pieces)


@aten("aten.split.Tensor", "aten.split_copy.Tensor")
def split_evenly(b: Builder, n: Call, x: Value, length: Number, dim: int = 0) -> Results:
    return split(b, n, x, [length] * len(n.types), dim)


def _i64(b: Builder, value: Any) -> Value:
    return tensor(b, value, dtypes.i64)


@aten("aten.constant_pad_nd.default")
def constant_pad(b: Builder, n: Call, x: Value, pads: Sequence[Number], value: Any = 0) -> Results:
    rank = b.rank(x)
    before: list[Number] = [0] * rank
    after: list[Number] = [0] * rank
    for i in range(len(pads) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    return b.pad(x, sizes(b, [*before, *after]), tensor(b, value, n.dtype))


@aten("aten.embedding.default")
def embedding(b: Builder, n: Call, weight: Value, indices: Value, *rest: Any) -> Results:
    return b.gather(weight, from_the_front(b, tensor(b, indices, dtypes.i64), weight, 0), axis=0)


@aten("aten.index_select.default")
def index_select(b: Builder, n: Call, x: Value, dim: int, index: Value) -> Results:
    places = tensor(b, index, dtypes.i64)
    if b.rank(x) == 0:
        return b.reshape(b.expand(x, b.shape_of(places)), [])
    if b.dims(x)[dim] == 0 and 0 not in b.dims(places):
        raise ValueError("an empty axis has no positions: torch refuses them")
    places = from_the_front(b, places, x, dim)
    return b.gather(x, places if b.rank(places) else b.reshape(places, [1]), axis=dim)


@aten("aten.gather.default")
def gather(b: Builder, n: Call, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Results:
    places = tensor(b, index, dtypes.i64)
    if b.rank(x) == 0:
        return b.expand(x, b.shape_of(places))
    places = from_the_front(b, places, x, dim)
    if b.rank(places) == 0:
        return b.reshape(b.gather_elements(x, b.reshape(places, [1]), axis=0), [])
    if 0 in b.dims(places):
        return b.reshape(b.slice(b.reshape(x, [-1]), [0], [0], [1], axes=(0,)), b.shape_of(places))
    return b.gather_elements(x, places, axis=dim)
