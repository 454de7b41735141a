"""Small valid models that between them use every feature of the format that the importer reads."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

_TEXTS = {
    "elementwise": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[N,4] x, float[4] w) => (float[N,4] y) {
            a = Mul(x, w)
            b = LeakyRelu <alpha = 0.1> (a)
            y = Softmax <axis = -1> (b)
        }""",
    "shapes": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[N,2,3] x) => (y, t)
        <int64[2] target = {0, 6}, int64[1] zero = {0}, int64[2] reps = {1, 2}, int64[3] big = {2, 1, 3}> {
            r = Reshape(x, target)
            s = Shape(x)
            n = Gather(s, zero)
            e = Expand(x, big)
            t = Tile(r, reps)
            m = ReduceMean(e)
            y = ConstantOfShape <value = float[1] {2.0}> (n)
        }""",
    "branch": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[2,3] x, bool c) => (y) {
            k = Neg(x)
            y = If (c) <
                then_branch = yes () => (float[2,3] t) { t = Add(x, k) },
                else_branch = no () => (float[2,3] e) { e = Abs(k) }
            >
        }""",
    "loop": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[3] x, int64 n) => (last, all) {
            go = Constant <value = bool {1}> ()
            last, all = Loop (n, go, x) <
                body = b (int64 i, bool c, float[3] s) => (bool d, float[3] s2, float[3] out) {
                    d = Identity(c)
                    s2 = Add(s, x)
                    out = Neg(s2)
                }
            >
        }""",
    "functions": """<ir_version: 9, opset_import: ["" : 18, "own" : 1]>
        g (float[2,3] x) => (y) { t = own.Outer(x) y = own.Inner <alpha = 0.3> (t) }
        <domain: "own", opset_import: ["" : 18, "own" : 1]>
        Inner <alpha: float = 0.5> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }
        <domain: "own", opset_import: ["" : 18, "own" : 1]>
        Outer (a) => (b) { c = own.Inner(a) b = Exp(c) }""",
    "sequences": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[4,2] x) => (y, n) {
            s = SplitToSequence <axis = 0> (x)
            n = SequenceLength(s)
            y = ConcatFromSequence <axis = 0> (s)
        }""",
    "convolution": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[1,2,6,6] x, float[4,2,3,3] w, float[4] b) => (y) {
            c = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w, b)
            p = MaxPool <kernel_shape = [2,2]> (c)
            f = Flatten(p)
            y = ReduceSum <keepdims = 0> (f)
        }""",
    "strings": """<ir_version: 9, opset_import: ["" : 20]>
        g (string[3] x) => (y) { y = StringConcat(x, x) }""",
    "quantised": """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2,4] x) => (y) <float s = {0.1}, uint8 z = {3}> {
            q = QuantizeLinear(x, s, z)
            y = DequantizeLinear(q, s, z)
        }""",
    "recurrent": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[3,1,2] x, float[1,8,2] w, float[1,8,2] r) => (y, h, c) {
            y, h, c = LSTM <hidden_size = 2> (x, w, r)
        }""",
    "selection": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[5,3] x) => (v, i, z) <int64[1] k = {2}> {
            v, i = TopK <axis = 0> (x, k)
            b = Cast <to = 9> (x)
            z = NonZero(b)
        }""",
}


def corpus() -> dict[str, onnx.ModelProto]:
    """Valid models by name."""
    models = {name: onnx.parser.parse_model(text) for name, text in _TEXTS.items()}
    models["tensors"] = _tensors()
    models["scan"] = _scan()
    return models


def _tensors() -> onnx.ModelProto:
    """Initializers in every storage: raw, typed fields, packed nibbles, sparse, strings."""
    packed = helper.make_tensor("packed", TensorProto.INT4, [3], np.array([0x21, 0x07], np.uint8).tobytes(), raw=True)
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([1.5, 2.5], np.float32), "sparse"),
        numpy_helper.from_array(np.array([1, 3], np.int64), "sparse_at"),
        [4],
    )
    raw = numpy_helper.from_array(np.arange(4, dtype=np.float32), "raw")
    typed = helper.make_tensor("typed", TensorProto.FLOAT16, [4], [0.5, 1.0, 1.5, 2.0])
    words = TensorProto(name="words", data_type=TensorProto.STRING, dims=[2], string_data=[b"a", "ü".encode()])
    nodes = [
        helper.make_node("Cast", ["typed"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["raw", "wide"], ["a"]),
        helper.make_node("Add", ["a", "sparse"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["y"]),
        helper.make_node("Cast", ["packed"], ["p"], to=TensorProto.FLOAT),
        helper.make_node("Identity", ["words"], ["w"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tensors",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "p", "w")],
        [packed, raw, typed, words],
        sparse_initializer=[sparse],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _scan() -> onnx.ModelProto:
    """A scan that sums and negates."""

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])

    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Neg", ["t"], ["o"])],
        "body",
        [info("s"), info("e")],
        [info("t"), info("o")],
    )
    node = helper.make_node("Scan", ["first", "x"], ["last", "all"], num_scan_inputs=1, body=body)
    inputs = [info("first"), helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("last", "all")]
    graph = helper.make_graph([node], "scan", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
