"""Where onnxruntime 1.31 and the onnx package's reference evaluator differ from the ONNX standard: data for fuzzing.

A row is here because a shrunk model showed it and the standard says otherwise or nothing. Each has a witness among
`tests/onnx_witnesses.py`: a model of one node on which the peer deviates, and what the standard says of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from assay.evidence.fuzz import onnx_edges as edges
from assay.evidence.fuzz.onnx_edges import Attrs, Inputs

ORT, REFERENCE = "onnxruntime", "onnx-reference"
PEERS = (ORT, REFERENCE)

Applies = Callable[[Attrs, Inputs], bool]
"""Whether a node with these attributes and inputs shows the deviation."""

_RECURRENT = ("RNN", "GRU", "LSTM")
_POOLS = ("MaxPool", "AveragePool", "LpPool")
_REDUCERS = tuple(
    f"Reduce{name}" for name in ("Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
)


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


ANSWERS, REFUSES, EITHER = PeerFault

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation((ORT,), ("Hardmax",), ANSWERS, "onnxruntime overlooks NaN, the largest", edges.has_nan),
    Deviation((ORT,), ("TopK",), ANSWERS, "onnxruntime overlooks NaN, the largest of all", edges.has_nan),
    Deviation(
        (ORT,),
        ("ArgMax", "ArgMin"),
        ANSWERS,
        "onnxruntime overlooks NaN that does not come first",
        edges.has_nan,
    ),
    Deviation(
        (ORT,),
        ("ReduceMax", "ReduceMin"),
        ANSWERS,
        "onnxruntime forgets NaN among numbers of which it takes one",
        edges.has_nan,
    ),
    Deviation((ORT,), ("Unique",), ANSWERS, "onnxruntime takes everything beside NaN for equal", edges.has_nan),
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
        edges.is_infinite_where_unlimited,
    ),
    # --- places and shapes
    Deviation(
        (ORT,),
        ("Slice",),
        ANSWERS,
        "onnxruntime takes the largest integer for the first place",
        edges.goes_back_from_the_end,
    ),
    Deviation(
        (REFERENCE,),
        ("Slice",),
        ANSWERS,
        "the evaluator starts nowhere where the standard starts at the first place",
        edges.goes_back_from_before,
    ),
    Deviation(
        (ORT,),
        (*_REDUCERS, "ArgMax", "ArgMin"),
        ANSWERS,
        "onnxruntime overlooks axes that count from the end where there are no elements",
        edges.counts_from_the_end_of_nothing,
    ),
    Deviation(
        PEERS, ("Reshape",), REFUSES, "peers refuse an open size beside a copied one that is zero", edges.leaves_open
    ),
    Deviation(
        (ORT,),
        ("Reshape",),
        ANSWERS,
        "onnxruntime finds an open size beside a zero that the standard calls invalid",
        edges.asks_for_zero_and_open,
    ),
    Deviation(
        (ORT,), ("GatherND",), ANSWERS, "onnxruntime looks at no position where nothing is taken", edges.is_empty
    ),
    Deviation(
        (ORT,),
        ("GatherND",),
        ANSWERS,
        "onnxruntime starts over where there are more rows of positions than of data",
        lambda a, i: i[0].shape[: a.get("batch_dims", 0)] != i[1].shape[: a.get("batch_dims", 0)],
    ),
    Deviation((ORT,), ("Pad",), REFUSES, "onnxruntime refuses to reflect an axis more than once", edges.reflects_again),
    Deviation(
        (ORT,),
        ("Pad",),
        REFUSES,
        "onnxruntime refuses to wrap around what is empty",
        lambda a, i: a.get("mode") == "wrap" and edges.is_empty(a, i),
    ),
    Deviation(
        (ORT,), ("Pad",), EITHER, "onnxruntime has a rule of its own for axes cropped to nothing", edges.crops_all
    ),
    Deviation(
        (ORT,), ("TopK",), ANSWERS, "the order of what is not sorted is anybody's", lambda a, i: a.get("sorted", 1) == 0
    ),
    Deviation(
        (REFERENCE,),
        ("TopK",),
        ANSWERS,
        "the evaluator takes counts that an axis does not have",
        edges.asks_for_too_many,
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
        (REFERENCE,), ("OneHot",), ANSWERS, "the evaluator takes an index without axes", lambda a, i: not i[0].ndim
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
        lambda a, i: (
            not edges.given(i, 1) and edges.has_empty_parts(i[0].shape[a.get("axis", 0)], a.get("num_outputs", 1))
        ),
    ),
    Deviation(
        (REFERENCE,),
        ("Split", "SplitToSequence"),
        ANSWERS,
        "the evaluator takes sizes that are negative or not those of the axis",
        edges.misses_the_axis,
    ),
    Deviation(
        (ORT,),
        ("SplitToSequence",),
        EITHER,
        "onnxruntime drops the axis although a size is given",
        lambda a, i: not a.get("keepdims", 1) and edges.given(i, 1) and i[1].ndim == 0,
    ),
    Deviation(
        (ORT,), ("Loop",), ANSWERS, "onnxruntime gives what no round made without its axes", edges.makes_no_round
    ),
    Deviation(
        (REFERENCE,),
        ("Loop",),
        EITHER,
        "the evaluator joins what rounds make along an axis, and may need a condition",
    ),
    # --- windows
    Deviation(
        (ORT,),
        ("ConvTranspose",),
        ANSWERS,
        "onnxruntime leaves out the gaps that SAME padding adds",
        edges.has_wide_gaps,
    ),
    Deviation(
        (REFERENCE,),
        ("Conv",),
        ANSWERS,
        "the evaluator makes nothing of images that a kernel does not fit into",
        lambda a, i: min(edges.room_for_windows(a, i[0], i[1].shape[2:])) < 1,
    ),
    Deviation(
        (REFERENCE,),
        ("MaxPool",),
        ANSWERS,
        "the evaluator leaves out the last window where SAME_LOWER does not come out even",
        edges.leaves_out_a_window,
    ),
    Deviation((ORT,), ("ConvTranspose",), REFUSES, "onnxruntime refuses to leave an empty image", edges.leaves_nothing),
    Deviation((ORT,), ("ConvTranspose",), REFUSES, "onnxruntime refuses to keep an image empty", edges.keeps_nothing),
    Deviation(
        (ORT,),
        ("ConvTranspose",),
        REFUSES,
        "onnxruntime refuses more pixels after an empty image",
        lambda a, i: 0 in i[0].shape[2:] and any(a.get("output_padding", ())),
    ),
    Deviation((ORT,), _POOLS, REFUSES, "onnxruntime refuses empty images", edges.has_empty_images),
    Deviation(
        (ORT,), _POOLS, ANSWERS, "onnxruntime rounds towards one window where none fits", edges.window_fits_nowhere
    ),
    Deviation(
        (ORT,),
        ("MaxPool", "AveragePool"),
        REFUSES,
        "onnxruntime refuses SAME padding of less than nothing",
        lambda a, i: edges.same_padding(a, i) < 0,
    ),
    Deviation(
        (ORT,),
        ("MaxPool", "AveragePool", "LpPool"),
        ANSWERS,
        "onnxruntime crops by SAME padding, which is to pad",
        lambda a, i: edges.same_padding(a, i) < -1,
    ),
    Deviation(
        (REFERENCE,),
        _POOLS,
        EITHER,
        "the evaluator crops or fails where SAME padding is less than nothing",
        lambda a, i: edges.same_padding(a, i) < 0,
    ),
    Deviation(
        PEERS,
        ("MaxPool",),
        ANSWERS,
        "peers find something in a window of padding alone, one NaN, the other the lowest number",
        edges.has_window_of_padding,
    ),
    Deviation(
        (REFERENCE,),
        ("MaxPool",),
        EITHER,
        "the evaluator moves windows by uneven padding",
        lambda a, i: edges.is_uneven(a.get("pads", ())),
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
        edges.has_empty_images,
    ),
    Deviation(
        (REFERENCE,), ("GlobalMaxPool",), EITHER, "the evaluator gives empty tensors another rank", edges.is_empty
    ),
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
        edges.scales_to_the_same,
    ),
    Deviation(
        (ORT,),
        ("Resize",),
        ANSWERS,
        "onnxruntime scales by whole sizes, the standard's test by fractions",
        edges.scales_to_fractions,
    ),
    Deviation(
        (ORT,), ("Resize",), ANSWERS, "onnxruntime does not crop axes that keep their size", edges.crops_what_it_keeps
    ),
    Deviation((ORT,), ("Resize",), ANSWERS, "onnxruntime's places in f32 fall short of a pixel", edges.meets_a_pixel),
    Deviation(
        (REFERENCE,),
        ("Resize",),
        ANSWERS,
        "the evaluator's places in f32 go beyond a pixel",
        edges.meets_a_pixel,
    ),
    Deviation(
        (REFERENCE,),
        ("Resize",),
        ANSWERS,
        "the evaluator makes something of an axis without elements",
        edges.fills_nothing,
    ),
    Deviation(
        (REFERENCE,),
        ("Resize",),
        ANSWERS,
        "the evaluator takes more than one pixel for several",
        edges.leaves_one_pixel,
    ),
    Deviation(
        (REFERENCE,),
        ("Resize",),
        ANSWERS,
        "the evaluator reads a single pixel half a pixel before the first",
        edges.asks_for_one_pixel,
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
        edges.cancels,
    ),
    Deviation(
        (ORT,), ("MeanVarianceNormalization",), ANSWERS, "onnxruntime divides zero by zero", edges.has_equal_elements
    ),
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
    Deviation(
        (ORT,),
        ("ReduceProd",),
        ANSWERS,
        "onnxruntime's products of integers end at the largest",
        edges.multiplies_beyond_the_largest,
    ),
    Deviation(
        (ORT,),
        ("LogSoftmax",),
        ANSWERS,
        "onnxruntime makes numbers of what follows from infinities",
        edges.has_no_number,
    ),
    Deviation(
        PEERS, ("GroupNormalization",), REFUSES, "peers refuse to reshape what is empty in its body", edges.is_empty
    ),
    Deviation(
        (ORT,),
        ("SoftmaxCrossEntropyLoss",),
        REFUSES,
        "onnxruntime refuses to reshape an empty batch in its body",
        edges.is_empty_batch,
    ),
    Deviation(
        (REFERENCE,),
        ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
        REFUSES,
        "the evaluator refuses to reshape an empty batch of rows",
        lambda a, i: i[0].ndim == 2 and edges.is_empty_batch(a, i),
    ),
    Deviation(
        (ORT,),
        ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
        ANSWERS,
        "onnxruntime takes the mean of no losses for zero",
        edges.is_empty_mean,
    ),
    Deviation(
        (REFERENCE,),
        ("NegativeLogLikelihoodLoss",),
        ANSWERS,
        "the evaluator takes an ignored class of -1 for none",
        lambda a, i: a.get("ignore_index") == -1 and not edges.given(i, 2),
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
        PEERS, _RECURRENT, ANSWERS, "the last state of an empty sequence is not what it began with", edges.has_no_steps
    ),
    Deviation(
        (REFERENCE,),
        _RECURRENT,
        EITHER,
        "the evaluator knows neither lengths, directions, peepholes nor coupled gates",
        lambda a, i: edges.given(i, 4) or edges.given(i, 7) or a.get("direction", "forward") != "forward" or len(a) > 2,
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
