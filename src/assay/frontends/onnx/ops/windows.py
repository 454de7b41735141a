"""How ONNX's convolutions and poolings say where their windows lie."""

from __future__ import annotations

from typing import Any, NamedTuple

from assay.frontends.onnx.registry import Builder, Source
from assay.ir.dims import Dim, eq
from assay.ir.graph import Value
from assay.ops.builder import FactMissing, check_size

SAME = ("SAME_UPPER", "SAME_LOWER")


class Windows(NamedTuple):
    """Kernel, strides and dilations along the spatial axes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def spans(self) -> list[int]:
        """How far a window reaches along each axis."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]


def windows_of(n: Source, kernel: tuple[int, ...]) -> Windows:
    """The windows of a node whose kernel is known; ValueError where its attributes do not fit."""
    strides, dilations = (tuple(n.ints(name, None) or (1,) * len(kernel)) for name in ("strides", "dilations"))
    for name, given in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        if len(given) != len(kernel) or any(item < 1 for item in given):
            raise ValueError(f"{name} {list(given)} does not fit {len(kernel)} spatial axes")
    return Windows(kernel, strides, dilations)


def kernel_of(b: Builder, n: Source, weights: Value) -> tuple[int, ...]:
    """The spatial sizes of a convolution's weights; ValueError if the node states others."""
    kernel = b.dims(weights)[2:]
    stated = n.ints("kernel_shape", None)
    if stated is not None and (len(stated) != len(kernel) or any(map(_differ, stated, kernel))):
        raise ValueError(f"kernel_shape is {list(stated)}, the weights have {list(kernel)}")
    sizes = stated or tuple(size for size in kernel if isinstance(size, int))
    if len(sizes) != len(kernel):
        raise FactMissing("the kernel's sizes")
    return sizes


def _differ(a: Dim, b: Dim) -> bool:
    return eq(a, b) is False


def explicit_pads(b: Builder, n: Source, x: Value, rank: int) -> tuple[int, ...]:
    """The attribute `pads`, zeros if absent; ValueError if it does not fit, LimitExceeded if it is absurd."""
    pads = n.ints("pads", None) or (0,) * (2 * rank)
    if len(pads) != 2 * rank or any(amount < 0 for amount in pads):
        raise ValueError(f"pads {list(pads)} do not fit {rank} spatial axes")
    check_size([before + after for before, after in zip(pads, pads[rank:], strict=False)], b.dtype(x), b.limits)
    return pads


def split_pads(totals: list[int], mode: str) -> tuple[int, ...]:
    """Totals halved; the odd one goes after x for SAME_UPPER, else before it."""
    low = [total // 2 for total in totals]
    high = [total - half for total, half in zip(totals, low, strict=True)]
    return (*low, *high) if mode == "SAME_UPPER" else (*high, *low)


def pads_of(b: Builder, n: Source, x: Value, windows: Windows) -> tuple[int, ...]:
    """The padding along each spatial axis; FactMissing where it depends on a size that is not known yet."""
    rank = len(windows.kernel)
    mode = n.str("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return explicit_pads(b, n, x, rank)
    if mode == "VALID":
        return (0,) * (2 * rank)
    if mode not in SAME:
        raise ValueError(f"auto_pad is '{mode}'")
    if b.rank(x) != rank + 2:
        raise ValueError(f"windows over {rank} axes got the shape {list(b.dims(x))}")
    totals: list[int] = []
    for size, stride, span in zip(b.dims(x)[2:], windows.strides, windows.spans, strict=True):
        if stride == 1:
            totals.append(span - 1)
        elif isinstance(size, int):
            totals.append(max((-(-size // stride) - 1) * stride + span - size, 0))
        else:
            raise FactMissing("the sizes of the axes that are padded")
    return split_pads(totals, mode)


def padded_same(b: Builder, n: Source, x: Value, windows: Windows) -> Value:
    """x padded with zeros as `auto_pad` says, by amounts that are computed when the program runs."""
    halves: list[tuple[Any, Any]] = []
    for axis, (stride, span) in enumerate(zip(windows.strides, windows.spans, strict=True), start=2):
        size = b.vector(b.size(x, axis))
        starts = b.mul(b.sub(b.div(b.add(size, stride - 1), stride), 1), stride)
        total = b.max(b.sub(b.add(starts, span), size), 0)
        low = b.div(total, 2)
        halves.append((low, b.sub(total, low)))
    before, after = zip(*halves, strict=True)
    if n.str("auto_pad") == "SAME_LOWER":
        before, after = after, before
    return b.pad(x, b.vector(0, 0, *before, 0, 0, *after), 0)
