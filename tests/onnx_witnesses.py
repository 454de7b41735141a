"""A witness for each row of `evidence/fuzz/onnx_deviations.py`: a model of one node on which a peer deviates from the
standard, and what the standard says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from assay.evidence.fuzz.onnx_deviations import ORT, REFERENCE
from assay.ir.dtypes import Array

NAN, INF = float("nan"), float("inf")


class Refused:
    """What the standard calls invalid."""


REFUSED = Refused()


@dataclass(frozen=True)
class Witness:
    """Inputs and attributes of a node, and what it gives by the standard: as another peer says, or as is written here
    together with where it is said. `fixed` lists the inputs that are initialisers."""

    inputs: Sequence[Any]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expected: Any = None
    """A peer's name, arrays (one for each result), or REFUSED."""
    because: str = ""
    results: int = 1
    fixed: tuple[int, ...] = ()
    opset: int = 22


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def counting(*shape: int) -> Array:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def _loop() -> Any:
    """The body of a loop that halves a value and keeps it; the shapes are not declared."""
    one = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
    infos = {
        name: helper.make_tensor_value_info(name, kind, dims)
        for name, kind, dims in (
            ("i", TensorProto.INT64, []),
            ("go", TensorProto.BOOL, []),
            ("a", TensorProto.FLOAT, None),
            ("go_on", TensorProto.BOOL, []),
            ("b", TensorProto.FLOAT, None),
            ("kept", TensorProto.FLOAT, None),
        )
    }
    nodes = [
        helper.make_node("Constant", [], ["half"], value=one),
        helper.make_node("Mul", ["a", "half"], ["b"]),
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("Abs", ["b"], ["kept"]),
    ]
    return helper.make_graph(
        nodes, "body", [infos["i"], infos["go"], infos["a"]], [infos["go_on"], infos["b"], infos["kept"]]
    )


def _recurrent(gates: int, *lengths: int) -> list[Any]:
    """Two steps that are not taken, from a state of 1."""
    x, w, r = zeros(2, 1, 1), ones(1, gates, 1), ones(1, gates, 1)
    return [x, w, r, None, np.array(lengths, np.int32), ones(1, 1, 1)]


_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_LAST = "Y_h is 'the last output value of the hidden': without steps the hidden is still initial_h"
_SAME = (
    "auto_pad: 'pad the input so that output_shape[i] = ceil(input_shape[i] / strides[i])', which holds without padding"
)
_UNDEFINED = "ReduceMean: 'reduction over an empty set of values yields undefined'; NaN as NumPy has it"

WITNESSES: dict[str, Witness | dict[str, Witness]] = {
    "onnxruntime overlooks NaN, the largest": Witness([f32(1, NAN, 2)], expected=REFERENCE),
    "onnxruntime overlooks NaN, the largest of all": Witness([f32(1, NAN, 2), i64(1)], expected=REFERENCE, results=2),
    "onnxruntime overlooks NaN that does not come first": Witness(
        [f32(1, NAN, 0, 3).reshape(1, 4)], {"axis": 1}, REFERENCE
    ),
    "onnxruntime forgets NaN among numbers of which it takes one": Witness(
        [f32(1, NAN, 2)], {"keepdims": 0}, REFERENCE
    ),
    "onnxruntime takes everything beside NaN for equal": Witness([f32(1, NAN, 2)], expected=REFERENCE, results=4),
    "onnxruntime forgets NaN that a larger or smaller number is looked for beside": {
        "ScatterElements": Witness([f32(NAN, 1), i64(0), f32(2)], {"reduction": "max"}, REFERENCE),
        "ScatterND": Witness([f32(NAN, 1), i64(0).reshape(1, 1), f32(2)], {"reduction": "min"}, REFERENCE),
    },
    "the evaluator overlooks NaN among what is written, unlike its ScatterND": Witness(
        [f32(0, 1), i64(0), f32(NAN)], {"reduction": "max"}, ORT
    ),
    "onnxruntime limits infinities where no limit is given": Witness(
        [f32(INF, -INF, 1), f32(0)[0]], expected=REFERENCE
    ),
    "onnxruntime takes the largest integer for the first place": Witness(
        [f32(0, 1, 2, 3), i64(3), i64(2**63 - 1), i64(0), i64(-1)], expected=REFERENCE
    ),
    "the evaluator starts nowhere where the standard starts at the first place": Witness(
        [f32(0, 1, 2, 3), i64(-9), i64(-10), i64(0), i64(-1)], expected=ORT
    ),
    "onnxruntime overlooks axes that count from the end where there are no elements": {
        **{
            f"Reduce{name}": Witness([zeros(0, 3), i64(-1)], {"keepdims": 0}, REFERENCE)
            for name in ("Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
        },
        "ArgMax": Witness([zeros(0, 3)], {"axis": -1}, REFERENCE),
        "ArgMin": Witness([zeros(0, 3)], {"axis": -1}, REFERENCE),
    },
    "peers refuse an open size beside a copied one that is zero": Witness(
        [zeros(0, 3, 4), i64(0, -1)],
        expected=[zeros(0, 12)],
        because="only 'if the attribute allowzero is set, it is invalid' to have both; what is copied says nothing of "
        "what is left",
    ),
    "onnxruntime finds an open size beside a zero that the standard calls invalid": Witness(
        [zeros(0, 3), i64(0, -1)],
        {"allowzero": 1},
        REFUSED,
        "'if the attribute allowzero is set, it is invalid for the shape to contain both a zero value and -1'",
    ),
    "onnxruntime looks at no position where nothing is taken": Witness([zeros(1, 0), i64(1)], expected=REFERENCE),
    "onnxruntime refuses to reflect an axis more than once": Witness(
        [f32(1, 2, 3), i64(4, 0)], {"mode": "reflect"}, REFERENCE
    ),
    "onnxruntime refuses to wrap around what is empty": Witness(
        [zeros(0, 3), i64(0, 1, 0, 0)],
        {"mode": "wrap"},
        [zeros(0, 4)],
        "there are no rows, and one column more in each",
    ),
    "onnxruntime has a rule of its own for axes cropped to nothing": Witness(
        [f32(1, 2), i64(-1, -1)],
        {"mode": "edge"},
        [zeros(0)],
        "pads 'can be negative', and output_shape = pad_begin + input_shape + pad_end is 0: there is nothing to fill",
    ),
    "the order of what is not sorted is anybody's": Witness(
        [f32(1, 3, 2), i64(3)], {"sorted": 0}, REFERENCE, results=2
    ),
    "the evaluator takes counts that an axis does not have": Witness([f32(1, 2), i64(-1)], expected=ORT, results=2),
    "peers compare fractions where the standard casts to integers": Witness(
        [f32(0.5), f32(2)[0], f32(0, 1)],
        expected=[f32(1, 0).reshape(1, 2)],
        because="'In case indices is of non-integer type, the values will be casted to int64 before use'",
    ),
    "the evaluator makes something of no classes": Witness([i64(0), i64(0)[0], f32(0, 1)], expected=ORT),
    "the evaluator takes an index without axes": Witness([i64(0)[0], i64(2)[0], f32(0, 1)], expected=ORT),
    "the evaluator fails on empty tensors that are not to be sorted": Witness(
        [zeros(3, 0)], {"sorted": 0}, ORT, results=4
    ),
    "the evaluator takes what is not sorted along the first axis, whatever the axis": Witness(
        [f32(2, 1, 2).reshape(1, 3)], {"sorted": 0, "axis": 1}, ORT, results=4
    ),
    "onnxruntime refuses parts without elements": Witness([f32(1, 2)], {"num_outputs": 3}, REFERENCE, results=3),
    "the evaluator takes sizes that are negative or not those of the axis": {
        "Split": Witness([f32(1, 2), i64(1, 2)], expected=ORT, results=2),
        "SplitToSequence": Witness([f32(1, 2), i64(1, 2)], expected=ORT),
    },
    "onnxruntime drops the axis although a size is given": Witness(
        [zeros(2, 2), i64(1)[0]], {"keepdims": 0}, REFERENCE
    ),
    "onnxruntime gives what no round made without its axes": Witness(
        [i64(0)[0], np.array(True), f32(1, 2)],
        {"body": _loop()},
        [f32(1, 2), zeros(0, 2)],
        "scan outputs are 'concatenated' along a new first axis: none of them are (0, 2)",
        results=2,
    ),
    "the evaluator joins what rounds make along an axis, and may need a condition": Witness(
        [i64(2)[0], np.array(True), ones(1, 2)], {"body": _loop()}, ORT, results=2
    ),
    "onnxruntime leaves out the gaps that SAME padding adds": Witness(
        [ones(1, 1, 2), ones(1, 1, 1)], {"strides": [3], "auto_pad": "SAME_UPPER"}, REFERENCE
    ),
    "onnxruntime refuses to leave an empty image": Witness([ones(1, 1, 1), ones(1, 1, 2)], {"pads": [1, 1]}, REFERENCE),
    "onnxruntime refuses to keep an image empty": Witness(
        [zeros(1, 1, 0), ones(1, 1, 2)],
        {"auto_pad": "SAME_LOWER", "strides": [2]},
        [zeros(1, 1, 0)],
        "with auto_pad SAME_LOWER, output_shape = input_shape * strides",
    ),
    "onnxruntime refuses more pixels after an empty image": Witness(
        [zeros(1, 1, 0), ones(1, 1, 2)],
        {"strides": [2], "output_padding": [1]},
        [zeros(1, 1, 1)],
        "output_shape = stride * (input_size - 1) + output_padding + kernel - pads = -2 + 1 + 2",
    ),
    "onnxruntime refuses empty images": Witness(
        [zeros(1, 1, 0)],
        {"kernel_shape": [1]},
        [zeros(1, 1, 0)],
        "output_spatial_shape = floor((0 - 1) / 1 + 1) = 0",
    ),
    "onnxruntime rounds towards one window where none fits": Witness(
        [ones(1, 1, 2, 2)], {"kernel_shape": [3, 1], "strides": [3, 1]}, REFERENCE
    ),
    "onnxruntime refuses SAME padding of less than nothing": dict.fromkeys(
        ("MaxPool", "AveragePool"),
        Witness(
            [counting(1, 1, 5)],
            {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_UPPER"},
            [f32(1, 4).reshape(1, 1, 2)],
            _SAME,
            opset=18,
        ),
    ),
    "onnxruntime crops by SAME padding, which is to pad": {
        **dict.fromkeys(
            ("AveragePool", "LpPool"),
            Witness(
                [counting(1, 1, 7)],
                {"kernel_shape": [1], "strides": [4], "auto_pad": "SAME_UPPER"},
                [f32(1, 5).reshape(1, 1, 2)],
                _SAME,
            ),
        ),
        "MaxPool": Witness(
            [counting(1, 1, 7)],
            {"kernel_shape": [1], "strides": [4], "auto_pad": "SAME_UPPER"},
            [f32(1, 5).reshape(1, 1, 2), i64(0, 4).reshape(1, 1, 2)],
            _SAME,
            results=2,
        ),
    },
    "the evaluator crops or fails where SAME padding is less than nothing": Witness(
        [counting(1, 1, 5)],
        {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_UPPER"},
        [f32(1, 4).reshape(1, 1, 2)],
        _SAME,
    ),
    "the evaluator leaves out the last window where SAME_LOWER does not come out even": Witness(
        [counting(1, 1, 5)], {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_LOWER"}, ORT
    ),
    "onnxruntime starts over where there are more rows of positions than of data": Witness(
        [counting(3, 2), np.zeros((15, 1), np.int64)],
        {"batch_dims": 1},
        REFUSED,
        "'the first b dimensions of the shape of indices tensor and data tensor must be equal'",
    ),
    "the evaluator makes nothing of images that a kernel does not fit into": Witness(
        [ones(1, 1, 2), ones(1, 1, 3)], {"strides": [2]}, ORT
    ),
    "peers find something in a window of padding alone, one NaN, the other the lowest number": Witness(
        [ones(1, 1, 2)],
        {"kernel_shape": [2], "pads": [1, 1], "strides": [3], "dilations": [3]},
        [np.full((1, 1, 1), -INF, np.float32)],
        "padding takes no part; ReduceMax of nothing 'yields minus infinity'",
    ),
    "the evaluator moves windows by uneven padding": Witness(
        [counting(1, 1, 4)], {"kernel_shape": [3], "pads": [0, 2]}, ORT
    ),
    "the evaluator scales windows that reach outside as if they did not": Witness(
        [counting(1, 1, 5)], {"kernel_shape": [3], "strides": [3], "ceil_mode": 1}, ORT
    ),
    "onnxruntime refuses empty images as a whole": {
        "GlobalAveragePool": Witness([zeros(1, 1, 0)], expected=REFERENCE),
        "GlobalMaxPool": Witness(
            [zeros(1, 1, 0)],
            expected=[np.full((1, 1, 1), -INF, np.float32)],
            because="MaxPool over all of it; ReduceMax of nothing 'yields minus infinity'",
        ),
        "GlobalLpPool": Witness(
            [zeros(1, 1, 0)], expected=[zeros(1, 1, 1)], because="the norm of no elements is that of zeros", opset=21
        ),
    },
    "the evaluator gives empty tensors another rank": Witness([zeros(0, 3, 2)], expected=ORT),
    "onnxruntime refuses a window of no size unless it is fed": Witness([i64(0)[0]], expected=REFERENCE, fixed=(0,)),
    "onnxruntime copies what keeps its sizes, whatever the scales": Witness(
        [counting(1, 1, 4), None, f32(1, 1, 1.2)], {"mode": "linear"}, REFERENCE
    ),
    "onnxruntime scales by whole sizes, the standard's test by fractions": Witness(
        [counting(1, 1, 4), None, f32(1, 1, 1.3)],
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        REFERENCE,
    ),
    "onnxruntime does not crop axes that keep their size": Witness(
        [counting(1, 1, 4), f32(0, 0, 0, 1, 1, 0.6), None, i64(1, 1, 4)],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        REFERENCE,
    ),
    "onnxruntime's places in f32 fall short of a pixel": Witness(
        [counting(1, 1, 5), None, None, i64(1, 1, 3)],
        {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "half_pixel_symmetric"},
        REFERENCE,
    ),
    "onnxruntime's products of integers end at the largest": Witness([np.full(2, 2**16, np.int32)], expected=REFERENCE),
    "onnxruntime makes numbers of what follows from infinities": Witness(
        [np.array([[INF, -INF, 1]])], expected=[np.full((1, 3), NAN)], because="∞ - ∞ is no number"
    ),
    "the evaluator's places in f32 go beyond a pixel": Witness(
        [counting(4), f32(0, 0.6), f32(0.7)],
        {"mode": "nearest", "nearest_mode": "ceil", "coordinate_transformation_mode": "tf_crop_and_resize"},
        [f32(1, 2)],
        "the last of 4 · 0.7 places at 0.6 · 3 / (4 · 0.7 - 1) is 1",
    ),
    "the evaluator makes something of an axis without elements": Witness(
        [zeros(0, 1, 0), None, None, i64(0, 1, 2)], {"mode": "nearest"}, ORT
    ),
    "the evaluator reads a single pixel half a pixel before the first": Witness(
        [counting(1, 1, 3, 6), None, None, i64(1, 1, 1, 6)],
        {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"},
        ORT,
    ),
    "the evaluator takes more than one pixel for several": Witness(
        [counting(1, 1, 2), f32(0, 0, 0, 1, 1, 0.6), f32(1, 1, 0.7)],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        ORT,
    ),
    "onnxruntime refuses rows without elements": Witness([zeros(2, 0), zeros(0)], expected=REFERENCE),
    "onnxruntime takes axes that are not there for granted": Witness([counting(2, 2, 3)], expected=REFERENCE),
    "onnxruntime is more exact than the standard's difference of squares": Witness(
        [f32(1000, 1000.1).reshape(2, 1, 1, 1)], expected=REFERENCE
    ),
    "onnxruntime divides zero by zero": Witness([ones(2, 1, 1, 1)], expected=REFERENCE),
    "onnxruntime takes odd sizes and four axes alone": Witness([counting(4, 4, 1, 1)], {"size": 2}, REFERENCE),
    "the evaluator goes through as many channels as there are images": Witness(
        [counting(1, 4, 1, 1)], {"size": 3}, ORT
    ),
    "the evaluator sums without signs": Witness([f32(-1, 2)], {"p": 1}, ORT),
    "peers refuse to reshape what is empty in its body": Witness(
        [zeros(0, 2, 3), ones(2), zeros(2)],
        {"num_groups": 2},
        [zeros(0, 2, 3)],
        "'the output tensor of the same shape as X'",
    ),
    "onnxruntime refuses to reshape an empty batch in its body": Witness(
        [zeros(0, 3, 2), np.zeros((0, 2), np.int64)], {"reduction": "sum"}, REFERENCE
    ),
    "the evaluator refuses to reshape an empty batch of rows": {
        "SoftmaxCrossEntropyLoss": Witness(
            [zeros(0, 3), i64()],
            {"reduction": "none"},
            [zeros(0)],
            "'reduction is none: the output is the loss for each sample', a tensor of shape (N)",
        ),
        "NegativeLogLikelihoodLoss": Witness([zeros(0, 3), i64()], {"reduction": "none"}, ORT),
    },
    "onnxruntime takes the mean of no losses for zero": Witness(
        [zeros(2, 3, 0), np.zeros((2, 0), np.int64)], {"reduction": "mean"}, REFERENCE
    ),
    "the evaluator takes an ignored class of -1 for none": Witness(
        [counting(2, 3), i64(-1, 1)], {"ignore_index": -1}, ORT
    ),
    "onnxruntime takes the mean of nothing for zero: the standard leaves it undefined": Witness(
        [zeros(0, 2), i64(0)], {"keepdims": 0}, [f32(NAN, NAN)], _UNDEFINED
    ),
    "the evaluator casts NaN to integers: the standard leaves the mean of nothing undefined": Witness(
        [np.zeros((0, 2), np.int64), i64(0)], {"keepdims": 0}, ORT
    ),
    "onnxruntime refuses products with a vector where something is empty, or gives what lay in memory": Witness(
        [zeros(0, 0), zeros(0)], expected=REFERENCE
    ),
    "the last state of an empty sequence is not what it began with": {
        op: Witness(
            _recurrent(gates, 0),
            {"hidden_size": 1},
            [zeros(2, 1, 1, 1), ones(1, 1, 1)],
            _LAST,
            results=2,
        )
        for op, gates in _GATES.items()
    },
    "the evaluator knows neither lengths, directions, peepholes nor coupled gates": {
        op: Witness(
            [ones(2, 1, 1), ones(1, gates, 1), ones(1, gates, 1), None, np.array([1], np.int32)],
            {"hidden_size": 1},
            ORT,
            results=2,
        )
        for op, gates in _GATES.items()
    },
}
"""By the reason of a row, for all its ops or for each."""
