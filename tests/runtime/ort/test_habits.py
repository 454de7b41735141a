"""The same calls on ONNX Runtime and on Assay: the same results, or an error that the same `except` catches."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import external_data_helper, helper

import assay
from assay.errors import AssayError
from assay.runtime.ort.errors import EXCEPTIONS

onnxruntime.set_default_logger_severity(4)

TEXT = """<ir_version: 8, opset_import: ["" : 17], producer_name: "somebody", model_version: 3, domain: "org.example",
           doc_string: "what it does">
g (float[batch, 3] x, int64[n] picks) => (float[batch, n] y, int64 count)
<float[3] bias = {1, 2, 3}>
{
  moved = Add (x, bias)
  taken = Gather <axis = 1> (moved, picks)
  y = Softmax <axis = 1> (taken)
  count = Size (y)
}"""
PARSED = onnx.parser.parse_model(TEXT)
PARSED.metadata_props.add(key="author", value="nobody")
PARSED.graph.doc_string = "of the graph"
MODEL = PARSED.SerializeToString()
SCALED = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {2}> { y = Mul (x, w) }""").SerializeToString()
SCALAR = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float x) => (float y) { y = Neg (x) }""").SerializeToString()
LISTED = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x) => (seq(float[N]) y) { y = SequenceConstruct (x, x) }""").SerializeToString()
NAMED = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3] x, float[batch, 3] past, bool first) => (float[m, 3] y) {
  y = If (first) <
    then_branch = begin () => (float[a, 3] t) { t = Neg (x) },
    else_branch = go_on () => (float[b, 3] e) { e = Add (x, past) }
  >
}""").SerializeToString()
RANDOM = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g () => (float[4] y) { y = RandomNormal <shape = [4]> () }""").SerializeToString()
STRANGE = helper.make_model(
    helper.make_graph(
        [helper.make_node("NoSuchOp", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [2])],
    ),
    opset_imports=[helper.make_opsetid("", 17)],
    ir_version=8,
).SerializeToString()

X = np.arange(6, dtype=np.float32).reshape(2, 3)
PICKS = np.array([2, 0])
FEEDS = {"x": X, "picks": PICKS}


def session(ort: Any, model: Any = MODEL, options: Any = None, **more: Any) -> Any:
    return ort.InferenceSession(model, options, **{"providers": ["CPUExecutionProvider"], **more})


def run(ort: Any, feeds: Any, names: Any = None, model: bytes = MODEL) -> Any:
    return session(ort, model).run(names, feeds)


def with_options(ort: Any, change: Callable[[Any, Any], None]) -> Any:
    options = ort.SessionOptions()
    change(ort, options)
    return session(ort, MODEL, options)


def described(args: Any) -> list[Any]:
    return [(arg.name, arg.type, arg.shape) for arg in args]


def value(ort: Any, array: Any) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(np.array(array))


def bound(ort: Any, **places: Any) -> Any:
    ready = session(ort)
    binding = ready.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_input("picks", value(ort, PICKS))
    for name, place in places.items():
        if place is None:
            binding.bind_output(name)
        else:
            binding.bind_ortvalue_output(name, place)
    ready.run_with_iobinding(binding)
    return binding


def by_pointer(ort: Any) -> Any:
    ready = session(ort)
    binding, place = ready.io_binding(), np.zeros((2, 2), np.float32)
    binding.bind_input("x", "cpu", 0, np.float32, [2, 3], X.ctypes.data)
    binding.bind_input("picks", "cpu", 0, np.int64, [2], PICKS.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, [2, 2], place.ctypes.data)
    ready.run_with_iobinding(binding)
    return place


def asynchronous(ort: Any, feeds: Any) -> Any:
    done, told = threading.Event(), list[Any]()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    ready = session(ort, MODEL, options)

    def callback(results: Any, user_data: Any, error: str) -> None:
        told.extend([list(results), user_data, bool(error)])
        done.set()

    ready.run_async(["y"], feeds, callback, "mine")
    assert done.wait(30)
    return told


def shared(ort: Any) -> Any:
    array = np.ones((2, 2), np.float32)
    made = ort.OrtValue.ortvalue_from_numpy(array)
    made.update_inplace(np.full((2, 2), 5, np.float32))
    return [array, np.shares_memory(made.numpy(), array)]


def stopped(ort: Any) -> Any:
    options = ort.RunOptions()
    options.terminate = True
    return session(ort).run(None, FEEDS, options)


def entries(ort: Any) -> Any:
    options, of_run = ort.SessionOptions(), ort.RunOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    of_run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return [
        options.get_session_config_entry("session.intra_op.allow_spinning"),
        of_run.get_run_config_entry("memory.enable_memory_arena_shrinkage"),
    ]


def fixed(ort: Any, feeds: Any) -> Any:
    ready = with_options(ort, lambda _, o: o.add_free_dimension_override_by_name("batch", 2))
    return [described(ready.get_inputs()), described(ready.get_outputs())[0][2][0], ready.run(None, feeds)]


def denoted(ort: Any) -> Any:
    model = onnx.ModelProto()
    model.CopyFrom(PARSED)
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    return described(session(ort, model.SerializeToString(), options).get_inputs())


def other_bias(ort: Any) -> Any:
    options, zeros = ort.SessionOptions(), ort.OrtValue.ortvalue_from_numpy(np.zeros(3, np.float32))
    options.add_initializer("bias", zeros)
    return session(ort, MODEL, options).run(None, FEEDS)


def kept_elsewhere(ort: Any) -> Any:
    """A model whose data lies in a file that is not there, and is given instead."""
    model = onnx.ModelProto()
    model.CopyFrom(PARSED)
    bias = model.graph.initializer[0]
    bias.ClearField("float_data")
    bias.raw_data = np.ones(3, np.float32).tobytes()
    external_data_helper.set_external_data(bias, "none.bin", length=12)
    bias.ClearField("raw_data")
    options, zeros = ort.SessionOptions(), ort.OrtValue.ortvalue_from_numpy(np.zeros(3, np.float32))
    options.add_external_initializers(["bias"], [zeros])
    return session(ort, model.SerializeToString(), options).run(None, FEEDS)


def seeded(ort: Any) -> Any:
    drawn: list[Any] = []
    for _ in range(2):
        ort.set_seed(11)
        drawn.append(session(ort, RANDOM).run(None, {})[0])
    return [bool((drawn[0] == drawn[1]).all()), drawn[0].shape]


def of_value(ort: Any, made: Any) -> Any:
    return [
        made.shape(),
        made.data_type(),
        made.element_type(),
        made.device_name(),
        made.is_tensor(),
        made.is_tensor_sequence(),
        made.is_sparse_tensor(),
        made.has_value(),
        made.tensor_size_in_bytes(),
        made.__dlpack_device__(),
        made.data_ptr() == made.numpy().ctypes.data,
        np.asarray(made),
        np.from_dlpack(made),
    ]


METADATA = ("producer_name", "graph_name", "graph_description", "description", "domain", "version")
CALLS: dict[str, Callable[[Any], Any]] = {
    "run": lambda ort: run(ort, FEEDS),
    "run no names": lambda ort: run(ort, FEEDS, []),
    "run names": lambda ort: run(ort, FEEDS, ["count", "y"]),
    "run a tuple of names": lambda ort: run(ort, FEEDS, ("count",)),
    "run the same name twice": lambda ort: run(ort, FEEDS, ["count", "count"]),
    "run lists": lambda ort: run(ort, {"x": X.tolist(), "picks": [2, 0]}),
    "run a list of arrays": lambda ort: run(ort, {"x": [X[0], X[1]], "picks": PICKS}),
    "run out of order": lambda ort: run(ort, {"x": np.asfortranarray(X), "picks": PICKS[::-1]}),
    "run values": lambda ort: run(ort, {"x": value(ort, X), "picks": PICKS}),
    "run with options": lambda ort: session(ort).run(None, FEEDS, ort.RunOptions()),
    "run empty": lambda ort: run(ort, {"x": np.zeros((0, 3), np.float32), "picks": PICKS}),
    "another dtype": lambda ort: run(ort, {"x": X.astype(np.float64), "picks": PICKS}),
    "another integer": lambda ort: run(ort, {"x": X, "picks": PICKS.astype(np.int32)}),
    "a missing input": lambda ort: run(ort, {"x": X}),
    "an unknown input": lambda ort: run(ort, {**FEEDS, "z": X}),
    "another rank": lambda ort: run(ort, {"x": X[0], "picks": PICKS}),
    "another size": lambda ort: run(ort, {"x": X[:, :2], "picks": PICKS}),
    "an unknown output": lambda ort: run(ort, FEEDS, ["z"]),
    "ort values": lambda ort: [
        each.numpy()
        for each in session(ort).run_with_ort_values(["y"], {"x": value(ort, X), "picks": value(ort, PICKS)})
    ],
    "async": lambda ort: asynchronous(ort, FEEDS),
    "async that fails": lambda ort: asynchronous(ort, {"x": X, "picks": np.array([9])}),
    "terminate": stopped,
    "inputs": lambda ort: described(session(ort).get_inputs()),
    "input as text": lambda ort: str(session(ort).get_inputs()[0]),
    "outputs": lambda ort: described(session(ort).get_outputs()),
    "metadata": lambda ort: [getattr(session(ort).get_modelmeta(), name) for name in METADATA],
    "custom metadata": lambda ort: session(ort).get_modelmeta().custom_metadata_map,
    "no overridable initializers": lambda ort: described(session(ort).get_overridable_initializers()),
    "overridable initializers": lambda ort: described(session(ort, SCALED).get_overridable_initializers()),
    "inputs beside them": lambda ort: described(session(ort, SCALED).get_inputs()),
    "initializer not fed": lambda ort: run(ort, {"x": X[0]}, model=SCALED),
    "initializer fed": lambda ort: run(ort, {"x": X[0], "w": np.array([5], np.float32)}, model=SCALED),
    "initializer fed with another dtype": lambda ort: run(ort, {"x": X[0], "w": np.array([5.0])}, model=SCALED),
    "a scalar": lambda ort: run(ort, {"x": np.array(2, np.float32)}, model=SCALAR),
    "dims that share a name alone": lambda ort: run(ort, {"x": X, "past": X[:0], "first": np.array(True)}, model=NAMED),
    "dims that an op compares": lambda ort: run(
        ort, {"x": X, "past": np.zeros((3, 3), np.float32), "first": np.array(False)}, model=NAMED
    ),
    "a list of outputs": lambda ort: run(ort, {"x": X[0]}, model=LISTED)[0],
    "a sequence as a value": lambda ort: [
        (each.data_type(), each.is_tensor(), each.is_tensor_sequence(), each.has_value(), each.element_type())
        for each in session(ort, LISTED).run_with_ort_values(None, {"x": value(ort, X[0])})
    ],
    "shape of a sequence": lambda ort: (
        session(ort, LISTED).run_with_ort_values(None, {"x": value(ort, X[0])})[0].shape()
    ),
    "free dims": lambda ort: fixed(ort, FEEDS),
    "free dims do not fit": lambda ort: fixed(ort, {"x": X[:1], "picks": PICKS}),
    "free dims by denotation": denoted,
    "add_initializer": other_bias,
    "add_external_initializers": kept_elsewhere,
    "add_initializer of no value": lambda ort: ort.SessionOptions().add_initializer("bias", np.zeros(3, np.float32)),
    "entries": entries,
    "no such entry": lambda ort: ort.SessionOptions().get_session_config_entry("none"),
    "no such entry of a run": lambda ort: ort.RunOptions().get_run_config_entry("none"),
    "has providers": lambda ort: [ort.SessionOptions().has_providers()],
    "add_provider of other hardware": lambda ort: ort.SessionOptions().add_provider("CUDAExecutionProvider", {}),
    "options of a session": lambda ort: (
        with_options(ort, lambda _, o: setattr(o, "intra_op_num_threads", 3)).get_session_options().intra_op_num_threads
    ),
    "negative threads": lambda ort: with_options(ort, lambda _, o: setattr(o, "intra_op_num_threads", -1)).run(
        None, FEEDS
    ),
    "unoptimized": lambda ort: with_options(
        ort, lambda o, s: setattr(s, "graph_optimization_level", o.GraphOptimizationLevel.ORT_DISABLE_ALL)
    ).run(None, FEEDS),
    "first provider": lambda ort: session(ort).get_providers()[0],
    "provider options": lambda ort: session(ort).get_provider_options()["CPUExecutionProvider"],
    "CUDA, else the CPU": lambda ort: session(
        ort, providers=[("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
    ).get_providers()[0],
    "options beside": lambda ort: session(ort, provider_options=[{"arena_extend_strategy": "kSameAsRequested"}]).run(
        None, FEEDS
    ),
    "the CPU can be had": lambda ort: "CPUExecutionProvider" in ort.get_available_providers(),
    "all providers": lambda ort: sorted(set(ort.get_all_providers()) & set(onnxruntime.get_all_providers())),
    "the device": lambda ort: ort.get_device(),
    "severity": lambda ort: ort.set_default_logger_severity(4),
    "no such severity": lambda ort: ort.set_default_logger_severity(9),
    "seed": seeded,
    "no file": lambda ort: session(ort, "no/such.onnx"),
    "a path": lambda ort: session(ort, Path("no/such.onnx")),
    "garbage": lambda ort: session(ort, b"garbage"),
    "nothing": lambda ort: session(ort, b""),
    "an unknown op": lambda ort: session(ort, STRANGE),
    "bound": lambda ort: bound(ort, y=None, count=None).copy_outputs_to_cpu(),
    "bound values": lambda ort: [each.numpy() for each in bound(ort, count=None, y=None).get_outputs()],
    "bound to a value": lambda ort: bound(ort, y=value(ort, np.zeros((2, 2), np.float32))).get_outputs()[0].numpy(),
    "bound to too little": lambda ort: bound(ort, y=value(ort, np.zeros((1, 2), np.float32))),
    "nothing bound": lambda ort: bound(ort),
    "bound by address": by_pointer,
    "bound under no name": lambda ort: session(ort).io_binding().bind_cpu_input("z", X),
    "a value": lambda ort: of_value(ort, value(ort, X)),
    "a value of zeros": lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32).shape(),
    "a value by ONNX's number": lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2], 10).data_type(),
    "a value under another type": lambda ort: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
        np.zeros(3, np.uint16), 16
    ).data_type(),
    "a value of a session": lambda ort: (
        session(ort).create_ortvalue_from_shape_and_type([1], np.int64, "cpu").data_type()
    ),
    "a value out of DLPack": lambda ort: ort.OrtValue.from_dlpack(X.copy()).numpy(),
    "a value of strings": lambda ort: value(ort, ["a"]),
    "a value elsewhere": lambda ort: ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0),
    "a value shares memory": shared,
    "a value takes no other size": lambda ort: value(ort, X).update_inplace(np.zeros(5, np.float32)),
    "a device": lambda ort: [
        getattr(ort.OrtDevice.make("cpu", 0), name)() for name in ("device_type", "device_id", "device_vendor_id")
    ],
    "set_providers": lambda ort: (
        (ready := session(ort)).set_providers(["CPUExecutionProvider"]),
        ready.run(None, FEEDS),
    )[1],
    "tuning": lambda ort: session(ort).get_tuning_results(),
    "nothing profiled": lambda ort: session(ort).end_profiling(),
}
IN_OWN_WORDS = {"nothing", "dims that an op compares"}
"""No bytes are a damaged model, and dims of one name that an op cannot bring together bad feeds."""


def outcome(ort: Any, call: Callable[[Any], Any]) -> tuple[Any, BaseException | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(ort), None
        except Exception as error:
            return None, error


def assert_same(mine: Any, expected: Any) -> None:
    if isinstance(expected, list | tuple):
        assert len(mine) == len(expected)
        for a, b in zip(mine, expected, strict=True):
            assert_same(a, b)
    elif isinstance(expected, np.ndarray):
        assert (mine.dtype, mine.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(mine, expected, rtol=1e-6)
    else:
        assert mine == expected


@pytest.mark.parametrize("name", CALLS)
def test_it_behaves_as_in_onnxruntime(name: str) -> None:
    expected, refusal = outcome(onnxruntime, CALLS[name])
    mine, error = outcome(assay, CALLS[name])
    if refusal is None:
        assert error is None, error
        assert_same(mine, expected)
        return
    assert isinstance(error, AssayError), f"onnxruntime raises {refusal!r}"
    kind = type(refusal)
    known = EXCEPTIONS.get(kind.__name__, kind)
    assert isinstance(error, known) or name in IN_OWN_WORDS, f"{error!r} for {refusal!r}"
    assert error.message
