"""Where onnxruntime 1.31 and the onnx package's reference evaluator differ from the ONNX standard: data for fuzzing.

A row is here because a shrunk model showed it and the standard says otherwise or nothing. Each has a witness among
`tests/onnx_witnesses.py`: a model of one node on which the peer deviates, and what the standard says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

ORT, REFERENCE = "onnxruntime", "onnx-reference"
PEERS = (ORT, REFERENCE)

Attrs = Mapping[str, Any]
Inputs = Sequence[Any]
Applies = Callable[[Attrs, Inputs], bool]
"""Whether a node with these attributes and inputs shows the deviation."""

_RECURRENT = ("RNN", "GRU", "LSTM")
_POOLS = ("MaxPool", "AveragePool", "LpPool")
_REDUCERS = tuple(
    f"Reduce{name}" for name in ("Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
)
_LARGEST = (np.iinfo(np.int32).max, np.iinfo(np.int64).max)


class PeerFault(Enum):
    """What a peer does wrong: it answers where it should, but otherwise, or where it should refuse; it refuses; or
    sometimes this, sometimes that."""

    ANSWERS = "answers"
    REFUSES = "refuses"
    EITHER = "either"


@dataclass(frozen=True)
class Deviation:
    """Nodes for which what some peers say does not count, and why: their answers, their refusals, or both."""

    peers: tuple[str, ...]
    ops: tuple[str, ...]
    fault: PeerFault
    reason: str
    applies: Applies = lambda attrs, inputs: True


def _is_empty(attrs: Attrs, inputs: Inputs) -> bool:
    return inputs[0].size == 0


def _is_empty_batch(attrs: Attrs, inputs: Inputs) -> bool:
    return inputs[0].shape[0] == 0


def _is_empty_mean(attrs: Attrs, inputs: Inputs) -> bool:
    return inputs[1].size == 0 and attrs.get("reduction", "mean") == "mean"


def _has_empty_images(attrs: Attrs, inputs: Inputs) -> bool:
    return inputs[0].shape[0] > 0 and 0 in inputs[0].shape[2:]


def _is_infinite_where_unlimited(attrs: Attrs, inputs: Inputs) -> bool:
    x = inputs[0]
    if x.dtype.kind != "f":
        return False
    return any(not _given(inputs, limit) and bool((x == end).any()) for limit, end in ((1, -np.inf), (2, np.inf)))


def _counts_from_the_end_of_nothing(attrs: Attrs, inputs: Inputs) -> bool:
    axes = inputs[1] if _given(inputs, 1) else attrs.get("axes", attrs.get("axis", 0))
    return inputs[0].size == 0 and bool((np.asarray(axes) < 0).any())


def _has_nan(attrs: Attrs, inputs: Inputs) -> bool:
    return bool(np.isnan(inputs[0]).any())


def _given(inputs: Inputs, index: int) -> bool:
    return index < len(inputs) and inputs[index] is not None


def _has_no_steps(attrs: Attrs, inputs: Inputs) -> bool:
    lengths = inputs[4] if _given(inputs, 4) else np.ones(1)
    return inputs[0].shape[attrs.get("layout", 0)] == 0 or bool((lengths == 0).any())


def _goes_back_from_the_end(attrs: Attrs, inputs: Inputs) -> bool:
    pairs = zip(inputs[2].tolist(), inputs[4].tolist(), strict=True)
    return any(end in _LARGEST and step < 0 for end, step in pairs)


def _goes_back_from_before(attrs: Attrs, inputs: Inputs) -> bool:
    axes = inputs[3].tolist() if _given(inputs, 3) else range(inputs[1].size)
    rows = zip(inputs[1].tolist(), axes, inputs[4].tolist(), strict=True)
    return any(step < 0 and start < -inputs[0].shape[axis] for start, axis, step in rows)


def _wanted(inputs: Inputs, copies: bool) -> list[int]:
    """The shape that a Reshape is to give; 0 may copy a size."""
    known = [*inputs[0].shape, *[-2] * len(inputs[1])]
    return [known[i] if copies and size == 0 else size for i, size in enumerate(inputs[1].tolist())]


def _leaves_open(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether any number would do for the size that a Reshape is to find beside a copied one."""
    wanted = _wanted(inputs, copies=True)
    return not attrs.get("allowzero") and -1 in wanted and 0 in wanted


def _asks_for_zero_and_open(attrs: Attrs, inputs: Inputs) -> bool:
    wanted = _wanted(inputs, copies=False)
    return bool(attrs.get("allowzero")) and -1 in wanted and 0 in wanted


def _has_wide_gaps(attrs: Attrs, inputs: Inputs) -> bool:
    kernel = inputs[1].shape[2:]
    steps, spread = attrs.get("strides", [1] * len(kernel)), attrs.get("dilations", [1] * len(kernel))
    gaps = any((k - 1) * d + 1 < s for k, d, s in zip(kernel, spread, steps, strict=True))
    return attrs.get("auto_pad", "NOTSET").startswith("SAME") and gaps


def _leaves_nothing(attrs: Attrs, inputs: Inputs) -> bool:
    sizes, kernel = inputs[0].shape[2:], inputs[1].shape[2:]
    axes, ones = range(len(kernel)), [1] * len(kernel)
    steps, spread = attrs.get("strides", ones), attrs.get("dilations", ones)
    pads, more = attrs.get("pads", [0] * 2 * len(kernel)), attrs.get("output_padding", [0] * len(kernel))
    full = [(sizes[i] - 1) * steps[i] + (kernel[i] - 1) * spread[i] + 1 + more[i] for i in axes]
    return any(full[i] == pads[i] + pads[i + len(kernel)] for i in axes)


def _window_fits_nowhere(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether some axis is shorter than a window, so that division rounds to one window or to none."""
    kernel, sizes = attrs["kernel_shape"], inputs[0].shape[2:]
    axes = range(len(kernel))
    spread, pads = attrs.get("dilations", [1] * len(kernel)), attrs.get("pads", [0] * 2 * len(kernel))
    room = [sizes[i] + pads[i] + pads[i + len(kernel)] - (kernel[i] - 1) * spread[i] for i in axes]
    rounds_down = not attrs.get("ceil_mode") and not attrs.get("auto_pad", "NOTSET").startswith("SAME")
    return rounds_down and min(room) < 1


def _same_padding(attrs: Attrs, inputs: Inputs) -> int:
    """What SAME padding adds to the axis to which it adds least; 0 where padding is another."""
    if not attrs.get("auto_pad", "NOTSET").startswith("SAME"):
        return 0
    kernel, sizes = attrs["kernel_shape"], inputs[0].shape[2:]
    ones = [1] * len(kernel)
    steps, spread = attrs.get("strides", ones), attrs.get("dilations", ones)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True)]
    return min((-(-size // s) - 1) * s + span - size for size, s, span in zip(sizes, steps, spans, strict=True))


def _is_uneven(pads: Sequence[int]) -> bool:
    return list(pads[: len(pads) // 2]) != list(pads[len(pads) // 2 :])


def _left_by_crops(inputs: Inputs) -> list[tuple[int, int]]:
    """For each axis that is padded how much of it negative pads leave, and the larger of its pads."""
    axes = inputs[3].tolist() if _given(inputs, 3) else range(inputs[0].ndim)
    rows = zip(axes, *inputs[1].reshape(2, -1).tolist(), strict=True)
    return [(inputs[0].shape[axis] + min(b, 0) + min(e, 0), max(b, e)) for axis, b, e in rows]


def _reflects_again(attrs: Attrs, inputs: Inputs) -> bool:
    return attrs.get("mode") == "reflect" and any(far >= left for left, far in _left_by_crops(inputs))


def _crops_all(attrs: Attrs, inputs: Inputs) -> bool:
    return attrs.get("mode", "constant") != "constant" and any(left < 1 for left, _ in _left_by_crops(inputs))


def _misses_the_axis(attrs: Attrs, inputs: Inputs) -> bool:
    if not _given(inputs, 1):
        return False
    sizes = inputs[1]
    return bool((sizes < 0).any()) or (sizes.ndim == 1 and sizes.sum() != inputs[0].shape[attrs.get("axis", 0)])


def _has_empty_parts(size: int, count: int) -> bool:
    return -(-size // count) * (count - 1) >= size


def _has_equal_elements(attrs: Attrs, inputs: Inputs) -> bool:
    return bool((inputs[0].astype(np.float64).var(axis=tuple(attrs.get("axes", (0, 2, 3)))) == 0).any())


def _cancels(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether E[x²] − E[x]² loses most of its digits somewhere."""
    x, axes = inputs[0].astype(np.float64), tuple(attrs.get("axes", (0, 2, 3)))
    return bool((x.var(axis=axes) < 1e-2 * (x**2).mean(axis=axes)).any())


def _asks_for_too_many(attrs: Attrs, inputs: Inputs) -> bool:
    return _given(inputs, 1) and not 0 <= int(inputs[1].reshape(-1)[0]) <= inputs[0].shape[attrs.get("axis", -1)]


def _makes_no_round(attrs: Attrs, inputs: Inputs) -> bool:
    return (_given(inputs, 0) and int(inputs[0]) <= 0) or (_given(inputs, 1) and not bool(inputs[1]))


def _kept_axes(attrs: Attrs, inputs: Inputs) -> list[bool]:
    """Which of the axes that are resized keep their size."""
    shape = np.array(inputs[0].shape)
    axes = [axis % len(shape) for axis in attrs.get("axes", range(len(shape)))]
    scales = inputs[2] if _given(inputs, 2) else np.zeros(0)
    found = np.floor(shape[axes] * scales.astype(np.float64)) if scales.size else inputs[3]
    return (found == shape[axes]).tolist()


def _scales_to_the_same(attrs: Attrs, inputs: Inputs) -> bool:
    if not _given(inputs, 2):
        return False
    kept = _kept_axes(attrs, inputs)
    scaled = any(same and scale != 1 for same, scale in zip(kept, inputs[2], strict=True))
    return scaled and (bool(attrs.get("antialias")) or all(kept))


def _crops_what_it_keeps(attrs: Attrs, inputs: Inputs) -> bool:
    if attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize" or not _given(inputs, 1):
        return False
    begins, ends = inputs[1].reshape(2, -1).tolist()
    rows = zip(begins, ends, _kept_axes(attrs, inputs), strict=True)
    return any(kept and (begin, end) != (0, 1) for begin, end, kept in rows)


def _fills_nothing(attrs: Attrs, inputs: Inputs) -> bool:
    axes = attrs.get("axes", range(inputs[0].ndim))
    sizes: list[int] = inputs[3].tolist() if _given(inputs, 3) else []
    return any(inputs[0].shape[axis] == 0 and size > 0 for axis, size in zip(axes, sizes, strict=False))


def _fractional_sizes(attrs: Attrs, inputs: Inputs) -> list[float]:
    """The sizes that scales ask for, where they are no whole numbers."""
    scales = inputs[2] if _given(inputs, 2) else np.zeros(0)
    axes = attrs.get("axes", range(inputs[0].ndim))
    exact = [inputs[0].shape[axis] * float(scale) for axis, scale in zip(axes, scales, strict=False)]
    return [size for size in exact if size % 1]


def _scales_to_fractions(attrs: Attrs, inputs: Inputs) -> bool:
    mode = attrs.get("coordinate_transformation_mode")
    return mode in ("align_corners", "tf_crop_and_resize") and bool(_fractional_sizes(attrs, inputs))


def _leaves_one_pixel(attrs: Attrs, inputs: Inputs) -> bool:
    crops = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return crops and any(1 < size < 2 for size in _fractional_sizes(attrs, inputs))


def _meets_a_pixel(attrs: Attrs, inputs: Inputs) -> bool:
    """Whether the place of a new pixel is a whole number, of which a scale that f32 cannot hold makes a little less."""
    halves = attrs.get("coordinate_transformation_mode", "half_pixel") in ("half_pixel", "half_pixel_symmetric")
    if not halves or attrs.get("nearest_mode") != "floor" or not _given(inputs, 3):
        return False
    sizes: list[int] = [inputs[0].shape[axis] for axis in attrs.get("axes", range(inputs[0].ndim))]
    lines = [(size, new) for size, new in zip(sizes, inputs[3].tolist(), strict=True) if size and new]
    rounded = [(size, new) for size, new in lines if float(np.float32(new / size)) * size != new]
    return any(((2 * at + 1) * size - new) % (2 * new) == 0 for size, new in rounded for at in range(new))


def _keeps_nothing(attrs: Attrs, inputs: Inputs) -> bool:
    return attrs.get("auto_pad", "NOTSET").startswith("SAME") and 0 in inputs[0].shape[2:]


ANSWERS, REFUSES, EITHER = PeerFault

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation((ORT,), ("Hardmax",), ANSWERS, "onnxruntime overlooks NaN, the largest", _has_nan),
    Deviation((ORT,), ("TopK",), ANSWERS, "onnxruntime overlooks NaN, the largest of all", _has_nan),
    Deviation(
        (ORT,),
        ("ArgMax", "ArgMin"),
        ANSWERS,
        "onnxruntime overlooks NaN where the last place is asked for",
        lambda a, i: bool(a.get("select_last_index")) and _has_nan(a, i),
    ),
    Deviation((ORT,), ("Unique",), ANSWERS, "onnxruntime takes everything beside NaN for equal", _has_nan),
    Deviation(
        (ORT,),
        ("ScatterElements", "ScatterND"),
        ANSWERS,
        "onnxruntime forgets NaN that a larger or smaller number is looked for beside",
        lambda a, i: a.get("reduction") in ("max", "min") and bool(np.isnan(i[0]).any()),
    ),
    Deviation(
        (REFERENCE,),
        ("ScatterElements",),
        ANSWERS,
        "the evaluator overlooks NaN among what is written, unlike its ScatterND",
        lambda a, i: a.get("reduction") in ("max", "min") and bool(np.isnan(i[2]).any()),
    ),
    Deviation(
        (ORT,),
        ("Clip",),
        ANSWERS,
        "onnxruntime limits infinities where no limit is given",
        _is_infinite_where_unlimited,
    ),
    # --- places and shapes
    Deviation(
        (ORT,),
        ("Slice",),
        ANSWERS,
        "onnxruntime takes the largest integer for the first place",
        _goes_back_from_the_end,
    ),
    Deviation(
        (REFERENCE,),
        ("Slice",),
        ANSWERS,
        "the evaluator starts nowhere where the standard starts at the first place",
        _goes_back_from_before,
    ),
    Deviation(
        (ORT,),
        (*_REDUCERS, "ArgMax", "ArgMin"),
        ANSWERS,
        "onnxruntime overlooks axes that count from the end where there are no elements",
        _counts_from_the_end_of_nothing,
    ),
    Deviation(PEERS, ("Reshape",), REFUSES, "peers refuse an open size beside a copied one that is zero", _leaves_open),
    Deviation(
        (ORT,),
        ("Reshape",),
        ANSWERS,
        "onnxruntime finds an open size beside a zero that the standard calls invalid",
        _asks_for_zero_and_open,
    ),
    Deviation((ORT,), ("GatherND",), ANSWERS, "onnxruntime looks at no position where nothing is taken", _is_empty),
    Deviation((ORT,), ("Pad",), REFUSES, "onnxruntime refuses to reflect an axis more than once", _reflects_again),
    Deviation((ORT,), ("Pad",), EITHER, "onnxruntime has a rule of its own for axes cropped to nothing", _crops_all),
    Deviation(
        (ORT,), ("TopK",), ANSWERS, "the order of what is not sorted is anybody's", lambda a, i: a.get("sorted", 1) == 0
    ),
    Deviation(
        (REFERENCE,), ("TopK",), ANSWERS, "the evaluator takes counts that an axis does not have", _asks_for_too_many
    ),
    Deviation(
        PEERS,
        ("OneHot",),
        ANSWERS,
        "peers compare fractions where the standard casts to integers",
        lambda a, i: i[0].dtype.kind == "f" and bool((i[0] % 1 != 0).any()),
    ),
    Deviation(
        (REFERENCE,), ("OneHot",), ANSWERS, "the evaluator makes something of no classes", lambda a, i: int(i[1]) <= 0
    ),
    Deviation(
        (REFERENCE,),
        ("Unique",),
        REFUSES,
        "the evaluator fails on empty tensors that are not to be sorted",
        lambda a, i: not a.get("sorted", 1) and i[0].size == 0,
    ),
    Deviation(
        (REFERENCE,),
        ("Unique",),
        EITHER,
        "the evaluator takes what is not sorted along the first axis, whatever the axis",
        lambda a, i: not a.get("sorted", 1) and a.get("axis", 0) % max(i[0].ndim, 1) != 0,
    ),
    Deviation(
        (ORT,),
        ("Split",),
        REFUSES,
        "onnxruntime refuses parts without elements",
        lambda a, i: not _given(i, 1) and _has_empty_parts(i[0].shape[a.get("axis", 0)], a.get("num_outputs", 1)),
    ),
    Deviation(
        (REFERENCE,),
        ("Split", "SplitToSequence"),
        ANSWERS,
        "the evaluator takes sizes that are negative or not those of the axis",
        _misses_the_axis,
    ),
    Deviation(
        (ORT,),
        ("SplitToSequence",),
        EITHER,
        "onnxruntime drops the axis although a size is given",
        lambda a, i: not a.get("keepdims", 1) and _given(i, 1) and i[1].ndim == 0,
    ),
    Deviation((ORT,), ("Loop",), ANSWERS, "onnxruntime gives what no round made without its axes", _makes_no_round),
    Deviation(
        (REFERENCE,),
        ("Loop",),
        EITHER,
        "the evaluator joins what rounds make along an axis, and may need a condition",
    ),
    # --- windows
    Deviation(
        (ORT,), ("ConvTranspose",), ANSWERS, "onnxruntime leaves out the gaps that SAME padding adds", _has_wide_gaps
    ),
    Deviation((ORT,), ("ConvTranspose",), REFUSES, "onnxruntime refuses to leave an empty image", _leaves_nothing),
    Deviation((ORT,), ("ConvTranspose",), REFUSES, "onnxruntime refuses to keep an image empty", _keeps_nothing),
    Deviation(
        (ORT,),
        ("ConvTranspose",),
        REFUSES,
        "onnxruntime refuses more pixels after an empty image",
        lambda a, i: 0 in i[0].shape[2:] and any(a.get("output_padding", ())),
    ),
    Deviation((ORT,), _POOLS, REFUSES, "onnxruntime refuses empty images", _has_empty_images),
    Deviation((ORT,), _POOLS, ANSWERS, "onnxruntime rounds towards one window where none fits", _window_fits_nowhere),
    Deviation(
        (ORT,),
        ("MaxPool",),
        REFUSES,
        "onnxruntime refuses SAME padding of less than nothing",
        lambda a, i: _same_padding(a, i) < 0,
    ),
    Deviation(
        (ORT,),
        ("AveragePool", "LpPool"),
        ANSWERS,
        "onnxruntime crops by SAME padding, which is to pad",
        lambda a, i: _same_padding(a, i) < -1,
    ),
    Deviation(
        (REFERENCE,),
        _POOLS,
        EITHER,
        "the evaluator crops or fails where SAME padding is less than nothing",
        lambda a, i: _same_padding(a, i) < 0,
    ),
    Deviation(
        (REFERENCE,),
        ("MaxPool",),
        EITHER,
        "the evaluator moves windows by uneven padding",
        lambda a, i: _is_uneven(a.get("pads", ())),
    ),
    Deviation(
        (REFERENCE,),
        ("LpPool",),
        ANSWERS,
        "the evaluator scales windows that reach outside as if they did not",
        lambda a, i: bool(a.get("ceil_mode")),
    ),
    Deviation(
        (ORT,),
        ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
        REFUSES,
        "onnxruntime refuses empty images as a whole",
        _has_empty_images,
    ),
    Deviation((REFERENCE,), ("GlobalMaxPool",), EITHER, "the evaluator gives empty tensors another rank", _is_empty),
    Deviation(
        (ORT,),
        tuple(f"{name}Window" for name in ("Blackman", "Hann", "Hamming")),
        REFUSES,
        "onnxruntime refuses a window of no size unless it is fed",
        lambda a, i: int(i[0]) == 0,
    ),
    # --- resampling
    Deviation(
        (ORT,),
        ("Resize",),
        ANSWERS,
        "onnxruntime copies what keeps its sizes, whatever the scales",
        _scales_to_the_same,
    ),
    Deviation(
        (ORT,),
        ("Resize",),
        ANSWERS,
        "onnxruntime scales by whole sizes, the standard's test by fractions",
        _scales_to_fractions,
    ),
    Deviation(
        (ORT,), ("Resize",), ANSWERS, "onnxruntime does not crop axes that keep their size", _crops_what_it_keeps
    ),
    Deviation((ORT,), ("Resize",), ANSWERS, "onnxruntime's places in f32 fall short of a pixel", _meets_a_pixel),
    Deviation(
        (REFERENCE,), ("Resize",), ANSWERS, "the evaluator makes something of an axis without elements", _fills_nothing
    ),
    Deviation(
        (REFERENCE,), ("Resize",), ANSWERS, "the evaluator takes more than one pixel for several", _leaves_one_pixel
    ),
    # --- norms, losses, products and recurrence
    Deviation(
        (ORT,),
        ("LayerNormalization",),
        REFUSES,
        "onnxruntime refuses rows without elements",
        lambda a, i: 0 in i[0].shape[a.get("axis", -1) :],
    ),
    Deviation(
        (ORT,),
        ("MeanVarianceNormalization",),
        ANSWERS,
        "onnxruntime takes axes that are not there for granted",
        lambda a, i: "axes" not in a and i[0].ndim < 4,
    ),
    Deviation(
        (ORT,),
        ("MeanVarianceNormalization",),
        ANSWERS,
        "onnxruntime is more exact than the standard's difference of squares",
        _cancels,
    ),
    Deviation((ORT,), ("MeanVarianceNormalization",), ANSWERS, "onnxruntime divides zero by zero", _has_equal_elements),
    Deviation(
        (ORT,),
        ("LRN",),
        REFUSES,
        "onnxruntime takes odd sizes and four axes alone",
        lambda a, i: a["size"] % 2 == 0 or i[0].ndim != 4,
    ),
    Deviation(
        (REFERENCE,),
        ("LRN",),
        EITHER,
        "the evaluator goes through as many channels as there are images",
        lambda a, i: i[0].shape[0] < i[0].shape[1],
    ),
    Deviation(
        (REFERENCE,),
        ("LpNormalization",),
        ANSWERS,
        "the evaluator sums without signs",
        lambda a, i: a.get("p", 2) == 1 and bool((i[0] < 0).any()),
    ),
    Deviation(PEERS, ("GroupNormalization",), REFUSES, "peers refuse to reshape what is empty in its body", _is_empty),
    Deviation(
        (ORT,),
        ("SoftmaxCrossEntropyLoss",),
        REFUSES,
        "onnxruntime refuses to reshape an empty batch in its body",
        _is_empty_batch,
    ),
    Deviation(
        (REFERENCE,),
        ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
        REFUSES,
        "the evaluator refuses to reshape an empty batch of rows",
        lambda a, i: i[0].ndim == 2 and _is_empty_batch(a, i),
    ),
    Deviation(
        (ORT,),
        ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
        ANSWERS,
        "onnxruntime takes the mean of no losses for zero",
        _is_empty_mean,
    ),
    Deviation(
        (REFERENCE,),
        ("NegativeLogLikelihoodLoss",),
        ANSWERS,
        "the evaluator takes an ignored class of -1 for none",
        lambda a, i: a.get("ignore_index") == -1 and not _given(i, 2),
    ),
    Deviation(
        (ORT,),
        ("ReduceMean",),
        ANSWERS,
        "onnxruntime takes the mean of nothing for zero: the standard leaves it undefined",
        lambda a, i: i[0].size == 0 and i[0].dtype.kind == "f",
    ),
    Deviation(
        (REFERENCE,),
        ("ReduceMean",),
        ANSWERS,
        "the evaluator casts NaN to integers: the standard leaves the mean of nothing undefined",
        lambda a, i: i[0].size == 0 and i[0].dtype.kind in "iu",
    ),
    Deviation(
        (ORT,),
        ("MatMul",),
        EITHER,
        "onnxruntime refuses products with a vector where something is empty, or gives what lay in memory",
        lambda a, i: i[1].ndim == 1 and 0 in (i[0].size, i[1].size),
    ),
    Deviation(
        PEERS, _RECURRENT, ANSWERS, "the last state of an empty sequence is not what it began with", _has_no_steps
    ),
    Deviation(
        (REFERENCE,),
        _RECURRENT,
        EITHER,
        "the evaluator knows neither lengths, directions, peepholes nor coupled gates",
        lambda a, i: _given(i, 4) or _given(i, 7) or a.get("direction", "forward") != "forward" or len(a) > 2,
    ),
)
"""What does not count; all rows that apply do."""

DECLINED = (
    "NOT_IMPLEMENTED",
    "NotImplemented",
    "is not currently registered or supported",
    "is not implemented",
    "No registered implementation",
    "Subgraph must have the shape set for all outputs",
    "Number of elements of input 'sizes' (0) must be same as rank",
    "Batchwise recurrent operations (layout == 1) are not supported",
)
"""Words by which a peer says that it does not have an op, which is no opinion on it."""
