"""Rows of the exporter: normalizations, windows, layers, quantisation, images, text."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.frontends.onnx.export import (
    NotInOnnx,
    OneOrMoreTerms,
    OnnxEmitter,
    Term,
    exports,
    in_parts,
    ints,
    rank_of,
    shape_of,
)
from assay.frontends.onnx.export_rows import unless_zero
from assay.ir import dtypes
from assay.ir.dtypes import TINY_FLOATS
from assay.ir.graph import Node

# --- softmax and normalizations


@exports("softmax")
def softmax(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    if any(n.attrs[name] not in (None, x.dtype) for name in ("precision", "accumulate")):
        raise NotInOnnx("ONNX does not say how Softmax rounds")
    return e.op("Softmax", x, axis=n.attrs["axis"])


@exports("log_softmax")
def log_softmax(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("LogSoftmax", x, axis=n.attrs["axis"])


@exports("layer_norm")
def layer_norm(e: OnnxEmitter, n: Node, x: Term, scale: Term | None = None, bias: Term | None = None) -> OneOrMoreTerms:
    attrs: dict[str, Any] = {"axis": n.attrs["axis"], "epsilon": n.attrs["epsilon"]}
    ones = e.constant(np.ones(shape_of(n.inputs[0])[n.attrs["axis"] :]), x.dtype) if scale is None else scale
    return e.op("LayerNormalization", x, ones, bias, **attrs)


@exports("rms_norm")
def rms_norm(e: OnnxEmitter, n: Node, x: Term, scale: Term | None = None) -> OneOrMoreTerms:
    attrs: dict[str, Any] = {"axis": n.attrs["axis"], "epsilon": n.attrs["epsilon"]}
    ones = e.constant(np.ones(shape_of(n.inputs[0])[n.attrs["axis"] :]), x.dtype) if scale is None else scale
    return e.op("RMSNormalization", x, ones, **attrs)


def _by_channel(e: OnnxEmitter, n: Node, x: Term, scale: Term | None, bias: Term | None) -> tuple[Term, Term]:
    channels = shape_of(n.inputs[0])[1]
    ones = e.constant(np.ones(channels), x.dtype) if scale is None else scale
    return ones, e.constant(np.zeros(channels), x.dtype) if bias is None else bias


@exports("group_norm")
def group_norm(e: OnnxEmitter, n: Node, x: Term, scale: Term | None = None, bias: Term | None = None) -> OneOrMoreTerms:
    affine = _by_channel(e, n, x, scale, bias)
    attrs: dict[str, Any] = {"num_groups": n.attrs["groups"], "epsilon": n.attrs["epsilon"]}
    return e.op("GroupNormalization", x, *affine, stash_type=x.dtype if x.dtype is dtypes.f64 else None, **attrs)


@exports("instance_norm")
def instance_norm(
    e: OnnxEmitter, n: Node, x: Term, scale: Term | None = None, bias: Term | None = None
) -> OneOrMoreTerms:
    return e.op("InstanceNormalization", x, *_by_channel(e, n, x, scale, bias), epsilon=n.attrs["epsilon"])


@exports("batch_norm")
def batch_norm(
    e: OnnxEmitter, n: Node, x: Term, mean: Term, variance: Term, scale: Term | None = None, bias: Term | None = None
) -> OneOrMoreTerms:
    affine = _by_channel(e, n, x, scale, bias)
    return e.op("BatchNormalization", x, *affine, mean, variance, epsilon=n.attrs["epsilon"])


@exports("lrn")
def lrn(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    if n.attrs["size"] % 2 == 0:
        raise NotInOnnx("ONNX's LRN is meant for odd sizes")
    return e.op("LRN", x, **n.attrs)


# --- windows


@exports("conv")
def conv(e: OnnxEmitter, n: Node, *xs: Term | None) -> OneOrMoreTerms:
    a = n.attrs
    return e.op("Conv", *xs, strides=a["strides"], pads=a["pads"], dilations=a["dilations"], group=a["groups"])


@exports("conv_transpose")
def conv_transpose(e: OnnxEmitter, n: Node, *xs: Term | None) -> OneOrMoreTerms:
    a = n.attrs
    attrs: dict[str, Any] = {key: a[key] for key in ("strides", "pads", "dilations", "output_padding")}
    return e.op("ConvTranspose", *xs, group=a["groups"], **attrs)


@exports("deform_conv")
def deform_conv(e: OnnxEmitter, n: Node, *xs: Term | None) -> OneOrMoreTerms:
    a = n.attrs
    attrs: dict[str, Any] = {key: a[key] for key in ("strides", "pads", "dilations")}
    return e.op("DeformConv", *xs, group=a["groups"], offset_group=a["offset_groups"], **attrs)


@exports("col2im")
def col2im(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    image, block = (ints(e, *n.attrs[key]) for key in ("image", "block"))
    attrs: dict[str, Any] = {key: n.attrs[key] for key in ("strides", "pads", "dilations")}
    return e.op("Col2Im", x, image, block, **attrs)


@exports("einsum")
def einsum(e: OnnxEmitter, n: Node, *xs: Term) -> OneOrMoreTerms:
    return e.op("Einsum", *xs, equation=n.attrs["equation"])


def _windows(n: Node) -> dict[str, Any]:
    a = n.attrs
    shared = {key: a[key] for key in ("strides", "pads", "dilations")}
    return {"kernel_shape": a["kernel"], "ceil_mode": int(a["ceil"]), **shared}


@exports("max_pool")
def max_pool(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("MaxPool", x, **_windows(n))


@exports("max_pool_positions")
def max_pool_positions(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    """ONNX counts positions over the whole tensor, the core op within each plane."""
    largest, places = e.ops("MaxPool", 2, x, **_windows(n))
    plane = int(np.prod(shape_of(n.inputs[0])[2:], dtype=np.int64))
    return largest, unless_zero(e, "Mod", places, e.like(plane, places))


@exports("average_pool")
def average_pool(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("AveragePool", x, count_include_pad=int(n.attrs["include_pad"]), **_windows(n))


@exports("lp_pool")
def lp_pool(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    if n.attrs["p"] != int(n.attrs["p"]):
        raise NotInOnnx("ONNX's LpPool takes a whole number as p")
    return e.op("LpPool", x, p=int(n.attrs["p"]), **_windows(n))


# --- quantisation and what is left


def _quantized(n: Node) -> dict[str, Any]:
    return {"axis": n.attrs["axis"], "block_size": n.attrs["block"]}


@exports("quantize_linear")
def quantize_linear(e: OnnxEmitter, n: Node, x: Term, scale: Term, zero: Term | None = None) -> OneOrMoreTerms:
    target = n.attrs["dtype"]
    saturate = int(n.attrs["saturate"]) if target in TINY_FLOATS else None
    stated = None if zero is not None else target
    attrs: dict[str, Any] = {**_quantized(n), "saturate": saturate, "output_dtype": stated}
    return e.op("QuantizeLinear", x, scale, zero, dtype=target, **attrs)


@exports("dequantize_linear")
def dequantize_linear(e: OnnxEmitter, n: Node, x: Term, scale: Term, zero: Term | None = None) -> OneOrMoreTerms:
    target = n.attrs["dtype"]
    stated = None if target is scale.dtype else target
    return e.op("DequantizeLinear", x, scale, zero, dtype=target, output_dtype=stated, **_quantized(n))


@exports("dynamic_quantize")
def dynamic_quantize(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.ops("DynamicQuantizeLinear", 3, x)


@exports("grid_sample")
def grid_sample(e: OnnxEmitter, n: Node, x: Term, grid: Term) -> OneOrMoreTerms:
    a = n.attrs
    attrs: dict[str, Any] = {"mode": a["mode"], "padding_mode": a["padding"], "align_corners": int(a["align_corners"])}
    return e.op("GridSample", x, grid, **attrs)


@exports("dft")
def dft(e: OnnxEmitter, n: Node, x: Term, length: Term) -> OneOrMoreTerms:
    axis = e.constant(n.attrs["axis"], dtypes.i64)
    return e.op("DFT", x, length, axis, inverse=int(n.attrs["inverse"]), onesided=int(n.attrs["onesided"]))


@exports("non_max_suppression")
def non_max_suppression(
    e: OnnxEmitter, n: Node, boxes: Term, scores: Term, most: Term, overlap: Term, least: Term | None = None
) -> OneOrMoreTerms:
    return e.op("NonMaxSuppression", boxes, scores, most, overlap, least, center_point_box=int(n.attrs["centered"]))


_TRANSFORMS = {"crop": "tf_crop_and_resize", "half_pixel_if_resized": "half_pixel"}
"""What ONNX calls otherwise."""
_ROUNDINGS = {"half_down": "round_prefer_floor", "half_up": "round_prefer_ceil", "floor": "floor", "ceil": "ceil"}


@exports("resize")
def resize(e: OnnxEmitter, n: Node, x: Term, sizes: Term) -> OneOrMoreTerms:
    a = n.attrs
    crop = a["transform"] == "crop"
    roi = e.constant(a["roi"], dtypes.f32) if crop else None
    scales = None if a["scales"] is None else e.constant(a["scales"], dtypes.f32)
    if scales is not None:
        shape = shape_of(n.inputs[0])
        old = np.array([shape[int(axis)] for axis in a["axes"]])
        new = np.floor(old.astype(np.float32) * e.contents[scales.name])
        if not np.array_equal(e.contents.get(sizes.name, ()), new):
            raise NotInOnnx("ONNX's Resize takes scales or sizes, not both")
        if a["transform"] == "half_pixel_if_resized" and (old == new).any():
            raise NotInOnnx("ONNX's Resize does not copy axes that keep their sizes")
    attrs: dict[str, Any] = {"mode": a["mode"], "nearest_mode": _ROUNDINGS[a["rounding"]]}
    attrs |= {"cubic_coeff_a": a["cubic_a"]}
    attrs |= {"coordinate_transformation_mode": _TRANSFORMS.get(a["transform"], a["transform"])}
    attrs |= {"antialias": a["antialias"], "exclude_outside": a["exclude_outside"], "axes": a["axes"]}
    given = (scales, None) if scales is not None else (None, sizes)
    return e.op("Resize", x, roi, *given, extrapolation_value=a["extrapolation"], **attrs)


@exports("roi_align")
def roi_align(e: OnnxEmitter, n: Node, x: Term, rois: Term, images: Term) -> OneOrMoreTerms:
    a = n.attrs
    mode = "half_pixel" if a["aligned"] else "output_half_pixel"
    attrs: dict[str, Any] = {"output_height": a["height"], "output_width": a["width"], "sampling_ratio": a["sampling"]}
    attrs |= {"spatial_scale": a["scale"], "mode": a["mode"], "coordinate_transformation_mode": mode}
    return e.op("RoiAlign", x, rois, images, **attrs)


@exports("sdpa")
def sdpa(e: OnnxEmitter, n: Node, q: Term, k: Term, v: Term, mask: Term | None = None) -> OneOrMoreTerms:
    a = n.attrs
    stated = any(a[name] is not None for name in ("precision", "softmax_precision", "accumulate"))
    if stated or rank_of(n.inputs[0]) != 4 or q.dtype not in (dtypes.f32, dtypes.f16):
        return in_parts(e, n, *(q, k, v, mask)[: len(n.inputs)])
    attrs: dict[str, Any] = {"scale": a["scale"], "is_causal": int(a["causal"]), "softcap": a["softcap"]}
    return e.op("Attention", q, k, v, mask, **attrs)


# --- recurrent layers

_ACTIVATIONS = {
    "affine": "Affine",
    "elu": "Elu",
    "hard_sigmoid": "HardSigmoid",
    "leaky_relu": "LeakyRelu",
    "relu": "Relu",
    "scaled_tanh": "ScaledTanh",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "tanh": "Tanh",
    "thresholded_relu": "ThresholdedRelu",
}
_WITH_ALPHA = {"affine", "elu", "hard_sigmoid", "leaky_relu", "scaled_tanh", "thresholded_relu"}
_WITH_BETA = {"affine", "hard_sigmoid", "scaled_tanh"}


def _recurrent(e: OnnxEmitter, n: Node, kind: str, inputs: list[Term | None], **attrs: Any) -> list[Term]:
    """A layer in one direction; parameters and states get the axis of directions in front."""
    a, first = n.attrs, ints(e, 0)
    x, w, r, bias, lengths, *states = inputs
    spread = [None if term is None else e.op("Unsqueeze", term, first) for term in (w, r, bias)]
    later = [None if term is None else e.op("Unsqueeze", term, first) for term in states]
    counts = None if lengths is None else e.op("Cast", lengths, dtype=dtypes.i32, to=dtypes.i32)
    names = a["activations"]
    alphas = [float(value) for name, value in zip(names, a["alpha"], strict=True) if name in _WITH_ALPHA]
    betas = [float(value) for name, value in zip(names, a["beta"], strict=True) if name in _WITH_BETA]
    functions: dict[str, Any] = {
        "activations": [_ACTIVATIONS[name] for name in names],
        "activation_alpha": alphas or None,
        "activation_beta": betas or None,
        "clip": a["clip"] or None,
        "direction": "reverse" if a["reverse"] else "forward",
        "hidden_size": shape_of(n.inputs[2])[-1],
    }
    results = e.ops(kind, len(n.outputs), x, *spread, counts, *later, **functions, **attrs)
    everything = e.op("Squeeze", results[0], ints(e, 1))
    return [everything, *(e.op("Squeeze", result, first) for result in results[1:])]


def _padded(xs: tuple[Term | None, ...], count: int) -> list[Term | None]:
    return [*xs, *(None,) * (count - len(xs))]


@exports("rnn")
def rnn(e: OnnxEmitter, n: Node, *xs: Term | None) -> OneOrMoreTerms:
    return _recurrent(e, n, "RNN", _padded(xs, 6))


@exports("gru")
def gru(e: OnnxEmitter, n: Node, *xs: Term | None) -> OneOrMoreTerms:
    return _recurrent(e, n, "GRU", _padded(xs, 6), linear_before_reset=int(n.attrs["reset_after"]))


@exports("lstm")
def lstm(e: OnnxEmitter, n: Node, *xs: Term | None) -> OneOrMoreTerms:
    return _recurrent(e, n, "LSTM", _padded(xs, 8), input_forget=int(n.attrs["couple"]))


# --- text and tables


@exports("string_concat")
def string_concat(e: OnnxEmitter, n: Node, x: Term, y: Term) -> OneOrMoreTerms:
    return e.op("StringConcat", x, y)


@exports("string_split")
def string_split(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    limit = n.attrs["limit"]
    return e.ops("StringSplit", 2, x, delimiter=n.attrs["delimiter"], maxsplit=None if limit < 0 else limit)


@exports("regex_full_match")
def regex_full_match(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.op("RegexFullMatch", x, pattern=n.attrs["pattern"])


@exports("string_normalize")
def string_normalize(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    a = n.attrs
    attrs: dict[str, Any] = {"case_change_action": a["case"], "is_case_sensitive": int(a["case_sensitive"])}
    return e.op("StringNormalizer", x, stopwords=a["stopwords"] or None, **attrs)


@exports("ngram_counts")
def ngram_counts(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    a = n.attrs
    pool = "pool_strings" if x.dtype is dtypes.string else "pool_int64s"
    shortest, longest = a["lengths"]
    attrs: dict[str, Any] = {pool: a["pool"], "ngram_counts": a["starts"], "ngram_indexes": a["columns"]}
    attrs |= {"mode": a["mode"], "min_gram_length": shortest, "max_gram_length": longest, "max_skip_count": a["skips"]}
    return e.op("TfIdfVectorizer", x, weights=a["weights"] or None, **attrs)


@exports("unique")
def unique(e: OnnxEmitter, n: Node, x: Term) -> OneOrMoreTerms:
    return e.ops("Unique", 4, x, axis=n.attrs["axis"], sorted=int(n.attrs["ordered"]))[1:]


@exports("checked")
def checked(e: OnnxEmitter, n: Node, x: Term, ok: Term) -> OneOrMoreTerms:
    return e.op("Identity", x)
