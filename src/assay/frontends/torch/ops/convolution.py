"""aten convolutions with their gradients, and windows as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.frontends.torch.ops.common import Number, sizes, tensor
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir.graph import Value


def per_axis(given: Sequence[int], rank: int) -> tuple[int, ...]:
    """One number an axis; a single one stands for all."""
    return tuple(given) * rank if len(given) == 1 else tuple(given)


def _static_numbers(b: Builder, given: Sequence[Number], rank: int) -> tuple[int, ...]:
    """Numbers that a convolution needs to know; symbolic ones are waited for."""
    return per_axis(b.ints(sizes(b, given), "the windows of a convolution"), rank)


def _windows(b: Builder, rank: int, stride: Any, padding: Any, dilation: Any, groups: Number) -> dict[str, Any]:
    pads = _static_numbers(b, padding, rank)
    return {
        "strides": _static_numbers(b, stride, rank),
        "pads": (*pads, *pads),
        "dilations": _static_numbers(b, dilation, rank),
        "groups": _static_numbers(b, [groups], 1)[0],
    }


@aten("aten.convolution.default")
def convolution(
    b: Builder,
    n: Call,
    x: Value,
    w: Value,
    bias: Value | None,
    stride: Sequence[Number],
    padding: Sequence[Number],
    dilation: Sequence[Number],
    transposed: bool,
    output_padding: Sequence[Number],
    groups: Number,
) -> Results:
    rank = b.rank(x) - 2
    attrs = _windows(b, rank, stride, padding, dilation, groups)
    if transposed:
        return b.conv_transpose(x, w, bias, output_padding=_static_numbers(b, output_padding, rank), **attrs)
    return b.conv(x, w, bias, **attrs)


@aten("aten.convolution_backward.default")
def convolution_backward(
    b: Builder,
    n: Call,
    grad: Value,
    x: Value,
    w: Value,
    bias_sizes: Any,
    stride: Sequence[Number],
    padding: Sequence[Number],
    dilation: Sequence[Number],
    transposed: bool,
    output_padding: Sequence[Number],
    groups: Number,
    output_mask: Sequence[bool],
) -> Results:
    rank = b.rank(x) - 2
    attrs = _windows(b, rank, stride, padding, dilation, groups)
    for_x, for_w, for_bias = output_mask
    results: list[Value] = []
    if for_x:
        results.append(_for_input(b, grad, x, w, transposed, attrs))
    if for_w:
        kernel = b.static_shape(w)[2:]
        image, places = (grad, x) if transposed else (x, grad)
        results.append(b.conv_weight_gradient(image, places, kernel=kernel, **attrs))
    if for_bias:
        results.append(b.reduce_sum(grad, axes=(0, *range(2, rank + 2))))
    return tuple(results)


def _for_input(b: Builder, grad: Value, x: Value, w: Value, transposed: bool, attrs: dict[str, Any]) -> Value:
    """The gradient of the input: the other convolution, cut to the input's sizes."""
    rank = b.rank(x) - 2
    if transposed:
        found = b.conv(grad, w, None, **attrs)
    else:
        spare = tuple(stride - 1 for stride in attrs["strides"])  # what a division by the stride may have left over
        found = b.conv_transpose(grad, w, None, output_padding=spare, **attrs)
    axes = tuple(range(2, rank + 2))
    return b.slice(found, [0] * rank, sizes(b, [b.size(x, axis) for axis in axes]), [1] * rank, axes=axes)


# --- windows as columns


@aten("aten.im2col.default")
def im2col(
    b: Builder,
    n: Call,
    x: Value,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Results:
    if b.rank(x) == 3:
        return b.squeeze(_columns(b, b.unsqueeze(x, axes=(0,)), kernel, dilation, padding, stride), axes=(0,))
    return _columns(b, x, kernel, dilation, padding, stride)


def _columns(b: Builder, x: Value, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    pads = per_axis(padding, 2)
    views = b.pad(x, (0, 0, *pads, 0, 0, *pads), 0)
    for i in range(2):
        size, step, spread = (per_axis(given, 2)[i] for given in (kernel, stride, dilation))
        views = b.window(views, axis=2 + 2 * i, size=size, stride=step, dilation=spread)
    moved = b.transpose(views, perm=(0, 1, 3, 5, 2, 4))
    size = per_axis(kernel, 2)
    rows = b.mul(b.vector(b.size(x, 1)), size[0] * size[1])
    count = b.mul(b.vector(b.size(moved, 4)), b.vector(b.size(moved, 5)))
    return b.reshape(moved, b.vector(b.size(x, 0), rows, count))


@aten("aten.col2im.default")
def col2im(
    b: Builder,
    n: Call,
    x: Value,
    image: Sequence[Any],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Results:
    pads = per_axis(padding, 2)
    attrs = {
        "image": b.ints(sizes(b, image), "output_size"),
        "block": per_axis(kernel, 2),
        "strides": per_axis(stride, 2),
        "pads": (*pads, *pads),
        "dilations": per_axis(dilation, 2),
    }
    columns = tensor(b, x, n.dtype)
    if b.rank(x) == 2:
        return b.squeeze(b.col2im(b.unsqueeze(columns, axes=(0,)), **attrs), axes=(0,))
    return b.col2im(columns, **attrs)
