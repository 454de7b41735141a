"""Nodes of layers: products, convolutions, pools, resampling, norms, recurrence, quantisation, losses and signals."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from assay.evidence.fuzz.drawing import NotPossible
from assay.evidence.fuzz.onnx_grow import Drawn, Growth, NodeMaker, drawn, is_finite
from assay.ir.dtypes import Array


def _image(g: Growth, axes: int, channels: int | None = None, dtype: str = "float32") -> str:
    """A tensor (batch, channels, sizes …)."""
    fitting = [
        name
        for name, value in g.values.items()
        if isinstance(value, np.ndarray)
        and value.ndim == 2 + axes
        and g.kind(name) == dtype
        and name[0] == "y"
        and is_finite(cast(Array, value))
    ]
    if fitting and channels is None and g.chance(0.5):
        return g.pick(fitting)
    wide = g.width() if channels is None else channels
    return g.data(g.array([g.size(), wide, *(g.size() + g.pick((0, 2)) for _ in range(axes))], dtype))


def _pads(g: Growth, axes: int, most: int) -> dict[str, Any]:
    if g.chance(0.25):
        return {"auto_pad": g.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))}
    return {"pads": [g.rng.randint(0, most) for _ in range(2 * axes)]} if g.chance(0.6) else {}


def matmul(g: Growth) -> Drawn:
    x = g.tensor(1, 4, ("float32", "float64"), special=False)
    inner = g.shape(x)[-1]
    rows = ([inner, g.size()], [inner], [1, inner, 2]) if g.rank(x) > 1 else ([inner, g.size()], [inner])
    return drawn("MatMul", [x, g.data(g.array(g.pick(rows), g.kind(x)))])


def gemm(g: Growth) -> Drawn:
    """Both transposes, a factor of 0, a bias of every shape that broadcasts, or none."""
    rows, inner, columns = g.size(), g.width(), g.width()
    first, second = g.pick((0, 1, None)), g.pick((0, 1, None))
    x = g.data(g.array([inner, rows] if first else [rows, inner]))
    w = g.weight([columns, inner] if second else [inner, columns])
    bias = g.pick((None, [columns], [1], [1, columns], []))
    inputs = [x, w] if bias is None else [x, w, g.weight(bias)]
    factors = {"alpha": g.pick((None, 0.5, 0.0, 2.0)), "beta": g.pick((None, 0.0, 1.5))}
    return drawn("Gemm", inputs, transA=first, transB=second, **factors)


def einsum(g: Growth) -> Drawn:
    i, j, k = g.size(), g.size(), g.width()
    rows = {
        "ij,jk->ik": ([i, j], [j, k]),
        "ij->ji": ([i, j],),
        "ij->": ([i, j],),
        "ii->i": ([i, i],),
        "ij,ij->i": ([i, j], [i, j]),
        "i,j": ([i], [j]),
        "...ij,...jk->...ik": ([2, i, j], [2, j, k]),
        "bij,bkj->bik": ([2, i, k], [2, j, k]),
        "ijk->kij": ([i, j, k],),
    }
    equation = g.pick(list(rows))
    return drawn("Einsum", [g.data(g.array(shape)) for shape in rows[equation]], equation=equation)


def convolution(g: Growth) -> Drawn:
    axes = g.pick((1, 2, 2, 3))
    groups, inner, out = g.pick((1, 1, 2)), g.width(), g.width()
    x = _image(g, axes, groups * inner)
    kernel = [g.pick((1, 2, 3)) for _ in range(axes)]
    w = g.weight([groups * out, inner, *kernel])
    inputs = [x, w, g.weight([groups * out])] if g.chance(0.5) else [x, w]
    pads = _pads(g, axes, 2)
    steps = {"strides": g.maybe([g.pick((1, 2)) for _ in range(axes)])}
    spread = {} if "auto_pad" in pads else {"dilations": g.maybe([g.pick((1, 2)) for _ in range(axes)], 0.4)}
    return drawn("Conv", inputs, group=groups, kernel_shape=g.maybe(kernel), **pads, **steps, **spread)


def transposed_convolution(g: Growth) -> Drawn:
    axes = g.pick((1, 2, 2))
    groups, inner, out = g.pick((1, 1, 2)), g.width(), g.width()
    x = _image(g, axes, groups * inner)
    w = g.weight([groups * inner, out, *(g.pick((1, 2, 3)) for _ in range(axes))])
    inputs = [x, w, g.weight([groups * out])] if g.chance(0.5) else [x, w]
    strides = [g.pick((1, 2, 3)) for _ in range(axes)]
    more = {
        "strides": strides,
        "output_padding": g.maybe([g.rng.randint(0, step - 1) for step in strides], 0.4),
        "dilations": g.maybe([g.pick((1, 2)) for _ in range(axes)], 0.3),
    }
    return drawn("ConvTranspose", inputs, group=groups, **_pads(g, axes, 1), **more)


def pooling(g: Growth) -> Drawn:
    """Windows that hang over the edges, `ceil_mode`, dilations, indices, padding counted or not."""
    axes = g.pick((1, 2, 2, 3))
    x = _image(g, axes)
    kernel = [g.pick((1, 2, 3)) for _ in range(axes)]
    pads = _pads(g, axes, min(kernel) - 1) if min(kernel) > 1 else {}
    steps = {"strides": g.maybe([g.pick((1, 2, 3, 4)) for _ in range(axes)], 0.7)}
    ceil = None if "auto_pad" in pads else g.pick((0, 1, None))
    spread = {} if "auto_pad" in pads else {"dilations": g.maybe([g.pick((1, 2)) for _ in range(axes)], 0.4)}
    kind = g.pick(("MaxPool", "MaxPool", "AveragePool", "LpPool"))
    common = {"kernel_shape": kernel, **pads, **steps, "ceil_mode": ceil}
    if kind == "MaxPool":
        order = g.maybe(g.pick((0, 1)), 0.3)
        return drawn(kind, [x], g.pick((1, 2)), **common, **spread, storage_order=order)
    if kind == "AveragePool":
        spread = spread if g.opset >= 19 else {}
        return drawn(kind, [x], **common, **spread, count_include_pad=g.pick((0, 1, None)))
    return drawn(kind, [x], **common, p=g.pick((1, 2, 3)))


def global_pooling(g: Growth) -> Drawn:
    return drawn(g.pick(("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")), [_image(g, g.pick((1, 2, 3)))])


_MODES = ("nearest", "linear", "cubic")
_PLACES = (
    "half_pixel",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
    "half_pixel_symmetric",
)
_ROUNDED = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resize(g: Growth) -> Drawn:
    """Every mode and way to map places, by scales or to sizes, with a region or axes."""
    mode = g.pick(_MODES)
    x = _image(g, 2) if mode == "cubic" else _image(g, g.pick((1, 2)))
    places = g.pick(_PLACES)
    rank = g.rank(x)
    roi = None
    if places == "tf_crop_and_resize":
        roi = g.given(
            [*[0.0] * rank, *[1.0] * (rank - 2), *[g.pick((1.0, 0.6, 1.2)) for _ in range(2)]][: 2 * rank], "float32"
        )
    if g.chance(0.5):
        scales = [1.0, 1.0, *(g.pick((0.5, 1.0, 2.0, 1.3, 0.7)) for _ in range(rank - 2))]
        inputs = [x, roi, g.given(scales, "float32", fed=0.4)]
    else:
        sizes = [*g.shape(x)[:2], *(g.pick((1, 2, 3, 5, 6)) for _ in range(rank - 2))]
        inputs = [x, roi, None, g.given(sizes, "int64", fed=0.4)]
    return drawn(
        "Resize",
        inputs,
        mode=mode,
        coordinate_transformation_mode=places,
        nearest_mode=g.pick(_ROUNDED) if mode == "nearest" else None,
        cubic_coeff_a=g.maybe(-0.5, 0.4) if mode == "cubic" else None,
        exclude_outside=g.maybe(1, 0.3) if mode == "cubic" else None,
        antialias=g.maybe(1, 0.15) if mode != "nearest" and places != "tf_crop_and_resize" else None,
        extrapolation_value=g.maybe(10.0) if places == "tf_crop_and_resize" else None,
    )


def grid(g: Growth) -> Drawn:
    x = _image(g, 2)
    places = g.data(g.array([g.shape(x)[0], g.size(), g.width(), 2]))
    modes = ("linear", "nearest", "cubic") if g.opset >= 20 else ("bilinear", "nearest", "bicubic")
    return drawn(
        "GridSample",
        [x, places],
        mode=g.pick(modes),
        padding_mode=g.pick(("zeros", "border", "reflection")),
        align_corners=g.pick((0, 1, None)),
    )


def regions(g: Growth) -> Drawn:
    """RoiAlign and NonMaxSuppression."""
    if g.chance(0.4):
        x = g.data(g.array([2, g.width(), 4, 5]))
        rois = g.data(np.abs(g.array([g.size(), 4])).cumsum(-1).astype(np.float32))
        images = g.data(g.numbers.integers(0, 2, [g.shape(rois)[0]]))
        more = {"sampling_ratio": g.pick((0, 2, None)), "spatial_scale": g.pick((None, 0.5))}
        size = {"output_height": g.pick((1, 2)), "output_width": g.pick((1, 3))}
        mode = {
            "mode": g.pick(("avg", "max")),
            "coordinate_transformation_mode": g.pick(("half_pixel", "output_half_pixel")),
        }
        return drawn("RoiAlign", [x, rois, images], **size, **more, **mode)
    count = g.size()
    boxes = g.data(np.abs(g.array([1, count, 4])).cumsum(-1).astype(np.float32))
    scores = g.data(g.numbers.random([1, g.width(), count]).astype(np.float32))
    most = g.maybe(g.given([g.pick((0, 1, 3, 100))], "int64"), 0.8)
    overlap = g.maybe(g.given([g.pick((0.0, 0.5, 1.0))], "float32"), 0.7)
    least = g.maybe(g.given([g.pick((0.0, 0.5))], "float32"), 0.4)
    return drawn("NonMaxSuppression", [boxes, scores, most, overlap, least], center_point_box=g.pick((0, 1, None)))


def norm(g: Growth) -> Drawn:
    kind = g.pick(("Batch", "Layer", "Instance", "LRN", "Lp", "MeanVariance", "Group"))
    x = _image(g, g.pick((1, 2)))
    channels = g.shape(x)[1]
    if kind == "Batch":
        given = [g.weight([channels]), g.weight([channels]), g.weight([channels])]
        variance = g.given(np.abs(g.array([channels], fixed=True)) + 0.5, "float32")
        return drawn("BatchNormalization", [x, *given, variance], epsilon=g.maybe(1e-3))
    if kind == "Layer":
        axis = g.rng.randint(1, g.rank(x) - 1)
        shape = g.shape(x)[axis:]
        scale = g.data(g.array(shape))
        return drawn("LayerNormalization", [x, scale], g.pick((1, 3)), axis=g.pick((axis, axis - g.rank(x))))
    if kind == "Instance":
        return drawn("InstanceNormalization", [x, g.weight([channels]), g.weight([channels])])
    if kind == "Group":
        if g.opset < 21:
            raise NotPossible("GroupNormalization is newer")
        return drawn(
            "GroupNormalization", [x, g.weight([channels]), g.weight([channels])], num_groups=g.pick((1, channels or 1))
        )
    if kind == "LRN":
        return drawn("LRN", [x], size=g.pick((1, 2, 3, 5)), alpha=g.maybe(0.1), bias=g.maybe(2.0))
    if kind == "Lp":
        return drawn("LpNormalization", [x], axis=g.axis(x), p=g.pick((1, 2, None)))
    return drawn("MeanVarianceNormalization", [x], axes=g.maybe([0, 2]))


def softmax(g: Growth) -> Drawn:
    x = g.tensor(1, 4, ("float32", "float64"))
    return drawn(g.pick(("Softmax", "LogSoftmax", "Hardmax")), [x], axis=g.maybe(g.axis(x), 0.8))


def recurrent(g: Growth) -> Drawn:
    """Every direction, lengths, first states, activations, clipping, layouts, peepholes."""
    kind, gates = g.pick((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    direction = g.pick(("forward", "reverse", "bidirectional"))
    ways, hidden, inner = 2 if direction == "bidirectional" else 1, g.width(), g.width()
    layout = g.maybe(1, 0.2)
    steps, batch = g.size(), g.size()
    x = g.data(g.array([batch, steps, inner] if layout else [steps, batch, inner]))
    inputs: list[str | None] = [x, g.weight([ways, gates * hidden, inner]), g.weight([ways, gates * hidden, hidden])]
    bias = g.maybe(g.weight([ways, 2 * gates * hidden]))
    lengths = g.maybe(g.data(g.numbers.integers(0, steps + 1, [batch]).astype(np.int32)), 0.4)
    state = [batch, ways, hidden] if layout else [ways, batch, hidden]
    inputs += [bias, lengths, g.maybe(g.data(g.array(state)), 0.4)]
    if kind == "LSTM":
        inputs += [g.maybe(g.data(g.array(state)), 0.4), g.maybe(g.weight([ways, 3 * hidden]), 0.3)]
    functions = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[kind]
    chosen = [g.pick((each, "Relu", "Tanh", "Sigmoid", "HardSigmoid", "Softsign")) for each in functions] * ways
    more: dict[str, Any] = {"layout": layout, "clip": g.maybe(0.5, 0.2), "activations": g.maybe(chosen, 0.3)}
    if kind == "GRU":
        more["linear_before_reset"] = g.pick((0, 1, None))
    if kind == "LSTM":
        more["input_forget"] = g.maybe(1, 0.2)
    return drawn(kind, inputs, 3 if kind == "LSTM" else 2, hidden_size=hidden, direction=direction, **more)


def quantised(g: Growth) -> Drawn:
    """Quantising and back: per tensor, per axis, in blocks; products and convolutions of bytes."""
    way = g.pick(("quantize", "dequantize", "dynamic", "matmul", "qmatmul", "conv"))
    if way == "dynamic":
        return drawn("DynamicQuantizeLinear", [g.tensor(0, 3, special=False)], 3)
    if way in ("matmul", "qmatmul"):
        return _byte_product(g, quantised=way == "qmatmul")
    if way == "conv":
        x, w = _image(g, 2, 2, "uint8"), g.given(g.array([3, 2, 2, 2], "int8", fixed=True))
        zeros = [g.given(g.pick((0, 5)), "uint8"), g.given(g.pick((0, -2)), "int8")]
        return drawn("ConvInteger", [x, w, *zeros[: g.pick((0, 1, 2))]], **_pads(g, 2, 1))
    kind = g.pick(("uint8", "int8"))
    x = _image(g, g.pick((0, 1)), g.width(), "float32" if way == "quantize" else kind)
    axis = g.pick((None, 1))
    shape = [g.shape(x)[1]] if axis else []
    scale = g.given(np.abs(g.array(shape, fixed=True)) + 0.1, "float32")
    point = g.maybe(g.given(np.abs(g.array(shape, kind, fixed=True))), 0.7)
    inputs = [x, scale, point] if point else [x, scale]
    if way == "quantize":
        return drawn("QuantizeLinear", inputs, axis=axis)
    return drawn("DequantizeLinear", inputs, axis=axis)


def _byte_product(g: Growth, *, quantised: bool) -> Drawn:
    inner, columns = g.width(), g.width()
    kind = g.pick(("uint8", "int8"))
    x, w = g.data(g.array([g.size(), inner], "uint8")), g.given(g.array([inner, columns], kind, fixed=True))
    points = [g.given(g.pick((0, 3)), "uint8"), g.given(g.pick((0, 2)), kind)]
    if not quantised:
        return drawn("MatMulInteger", [x, w, *points[: g.pick((0, 1, 2))]])
    scales = [g.given(each, "float32") for each in (0.1, 0.2, 0.5)]
    last = g.given(7, "uint8")
    return drawn("QLinearMatMul", [x, scales[0], points[0], w, scales[1], points[1], scales[2], last])


def loss(g: Growth) -> Drawn:
    """Weights, ignored targets, every reduction; all targets ignored too."""
    classes = g.width()
    axes = g.pick((0, 1))
    shape = [g.size(), classes, *(g.size() for _ in range(axes))]
    x = g.data(g.array(shape))
    low = g.pick((0, 0, -1))
    high = g.pick((classes, classes, 0)) if low else classes
    target = g.data(g.numbers.integers(low, max(high, low + 1), [shape[0], *shape[2:]]))
    weight = [g.given(np.abs(g.array([classes], fixed=True)))] if g.chance(0.4) else []
    more = {"ignore_index": -1 if low else g.maybe(0), "reduction": g.pick(("mean", "sum", "none", None))}
    name = g.pick(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    return drawn(name, [x, target, *weight], 1 if name[0] == "N" else g.pick((1, 2)), **more)


def signal(g: Growth) -> Drawn:
    way = g.pick(("window", "window", "dft", "stft", "mel"))
    if way == "window":
        name = g.pick(("HannWindow", "HammingWindow", "BlackmanWindow"))
        return drawn(name, [g.given(g.pick((1, 2, 5, 0)), "int64", fed=0.5)], periodic=g.pick((0, 1, None)))
    if way == "mel":
        given = [
            g.given(each, kind)
            for each, kind in ((4, "int64"), (8, "int64"), (8000, "int64"), (0.0, "float32"), (4000.0, "float32"))
        ]
        return drawn("MelWeightMatrix", given)
    if way == "stft":
        x = g.data(g.array([g.pick((1, 2)), 12, 1]))
        return drawn(
            "STFT", [x, g.given(g.pick((2, 4)), "int64"), None, g.given(4, "int64")], onesided=g.pick((0, 1, None))
        )
    if g.opset < 20:
        raise NotPossible("DFT took its axis otherwise")
    x = g.data(g.array([g.pick((1, 2)), g.pick((3, 4)), g.pick((1, 2))]))
    length = g.maybe(g.given(g.pick((2, 4, 6)), "int64"), 0.4)
    one = g.pick((0, 1, None)) if g.shape(x)[-1] == 1 else None
    return drawn(
        "DFT", [x, length, g.maybe(g.given(g.pick((1, -2)), "int64"))], onesided=one, inverse=g.pick((0, None))
    )


def attention(g: Growth) -> Drawn:
    if g.opset < 23:
        raise NotPossible("Attention is newer")
    batch, heads, width = g.size(), g.pick((1, 2)), g.width()
    q, k, v = (g.data(g.array([batch, heads, size, width])) for size in (g.size(), 4, 4))
    return drawn("Attention", [q, k, v], is_causal=g.pick((0, 1, None)), scale=g.maybe(0.5), softcap=g.maybe(2.0, 0.2))


def other(g: Growth) -> Drawn:
    """Det, Dropout, RMSNormalization, CenterCropPad, Col2Im."""
    way = g.pick(("Det", "Dropout", "CenterCropPad", "Col2Im"))
    if way == "Det":
        size = g.width()
        return drawn("Det", [g.data(g.array([g.size(), size, size]))])
    if way == "Dropout":
        return drawn("Dropout", [g.tensor(0, 3)], g.pick((1, 2)))
    if way == "CenterCropPad":
        x = g.tensor(1, 3, ("float32", "int64"))
        return drawn("CenterCropPad", [x, g.given([g.pick((0, 1, 3, 6)) for _ in range(g.rank(x))], "int64")])
    x = g.data(g.array([g.size(), 4 * g.width(), 4]))
    return drawn("Col2Im", [x, g.given([4, 4], "int64"), g.given([2, 2], "int64")], strides=[2, 2])


LAYERS: dict[NodeMaker, float] = {
    **dict.fromkeys((matmul, convolution, pooling, resize, norm, recurrent, quantised), 1.5),
    **dict.fromkeys((gemm, einsum, transposed_convolution, softmax, loss, regions), 1.0),
    **dict.fromkeys((global_pooling, grid, signal, attention, other), 0.5),
}
"""How often each is drawn."""
