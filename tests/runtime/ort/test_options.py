"""Session and run options: Assay's settings and ONNX Runtime's in one object, foreign objects, threads, profiles."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import assay
from assay.errors import BadArgument, BadFeed, NotFound, OutOfMemory, RunStopped, Unsupported

MODEL = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3] x) => (float[batch, 3] z) { a = Exp (x)  y = Relu (a)  z = Neg (y) }""").SerializeToString()
X = np.array([[1, -2, 3]], np.float32)


# --- one object for both


def test_assays_own_settings_are_arguments_and_attributes() -> None:
    given = assay.SessionOptions(target="reference", intra_op_num_threads=1)
    given.mode = "precise"
    ready = assay.InferenceSession(MODEL, given)
    assert (ready.session.target.name, ready.session.options.mode) == ("reference", "precise")
    assert ready.get_session_options().intra_op_num_threads == 1


def test_a_session_keeps_a_copy() -> None:
    given = assay.SessionOptions()
    given.add_session_config_entry("a", "1")
    given.target = "cpu"
    ready = assay.InferenceSession(MODEL, given)
    given.intra_op_num_threads, given.target = 5, "reference"
    given.add_session_config_entry("a", "2")
    kept = ready.get_session_options()
    assert (kept.intra_op_num_threads, kept.target, kept.get_session_config_entry("a")) == (0, "cpu", "1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intra_op_num_threads", "2"),
        ("intra_op_num_threads", 1.5),
        ("graph_optimization_level", 7),
        ("graph_optimization_level", "all"),
        ("enable_profiling", "yes"),
        ("profile_file_prefix", 3),
        ("target", 3),
        ("optimize", None),
        ("limits", 5),
    ],
)
def test_a_value_of_another_kind_is_refused_in_words(name: str, value: Any) -> None:
    with pytest.raises(BadArgument, match=f"{name} takes"):
        setattr(assay.SessionOptions(), name, value)
    with pytest.raises(BadArgument, match=f"{name} takes"):
        assay.SessionOptions(**{name: value})
    with pytest.raises(BadArgument, match=f"{name} takes"):
        assay.InferenceSession(MODEL, **{name: value})


def test_numpy_numbers_and_paths_fit() -> None:
    given = assay.SessionOptions(intra_op_num_threads=np.int64(2), profile_file_prefix=Path("here"))  # pyright: ignore
    assert (given.intra_op_num_threads, given.profile_file_prefix) == (2, "here")


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(BadArgument, match="no option 'targt'") as caught:
        assay.InferenceSession(MODEL, targt="cpu")
    assert "'target'" in caught.value.hint
    with pytest.raises(BadArgument, match="int is no SessionOptions"):
        assay.InferenceSession(MODEL, 3)  # pyright: ignore
    with pytest.raises(Unsupported):
        assay.InferenceSession(MODEL, disabled_optimizers=["ConstantFolding"])


# --- ONNX Runtime's own object


def test_a_foreign_object_is_taken_over_field_by_field() -> None:
    foreign = onnxruntime.SessionOptions()
    changed = {"intra_op_num_threads": 3, "logid": "me", "enable_mem_pattern": False, "log_severity_level": 2}
    for name, value in changed.items():
        setattr(foreign, name, value)
    foreign.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    foreign.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    ready = assay.InferenceSession(MODEL, foreign, target="reference")
    kept = ready.get_session_options()
    assert {name: getattr(kept, name) for name in changed} == changed
    assert kept.execution_mode is assay.ExecutionMode.ORT_PARALLEL
    assert not kept.optimizes
    assert kept.target == "reference"
    np.testing.assert_allclose(ready.run(None, {"x": X}, onnxruntime.RunOptions())[0], -np.exp(X), rtol=1e-6)


def test_what_a_foreign_object_asks_for_in_vain_raises() -> None:
    foreign = onnxruntime.SessionOptions()
    foreign.add_session_config_entry("session.load_model_format", "ORT")
    with pytest.raises(Unsupported, match="load_model_format"):
        assay.InferenceSession(MODEL, foreign)
    foreign = onnxruntime.SessionOptions()
    foreign.add_provider("CPUExecutionProvider", {})
    with pytest.raises(Unsupported, match="providers"):
        assay.InferenceSession(MODEL, foreign)
    foreign = onnxruntime.SessionOptions()
    foreign.optimized_model_filepath = "there.onnx"
    with pytest.raises(Unsupported, match="optimized_model_filepath"):
        assay.InferenceSession(MODEL, foreign)


def test_entries_that_would_change_results_raise() -> None:
    given = assay.SessionOptions()
    with pytest.raises(Unsupported, match="set_denormal_as_zero"):
        given.add_session_config_entry("session.set_denormal_as_zero", "1")
    given.add_session_config_entry("session.set_denormal_as_zero", "0")
    with pytest.raises(BadArgument, match="two strings"):
        given.add_session_config_entry("a", 1)  # pyright: ignore


# --- what options do


def test_the_optimization_level_switches_the_passes() -> None:
    def count(**options: Any) -> int:
        model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[N] x) => (float[N] y) { a = Identity (x)  b = Neg (a)  c = Neg (a)  y = Add (b, c) }""")
        return len(assay.InferenceSession(model.SerializeToString(), target="reference", **options).session.graph.nodes)

    off = count(graph_optimization_level=assay.GraphOptimizationLevel.ORT_DISABLE_ALL)
    assert off == count(optimize=False) > count()
    assert count(graph_optimization_level=assay.GraphOptimizationLevel.ORT_ENABLE_BASIC) == count()


THREADS = """
import os, sys
import numpy as np, onnx.parser
import assay
model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
g (float[64, 64] x) => (float[64, 64] y) { y = MatMul (x, x) }''').SerializeToString()
options = assay.SessionOptions()
options.intra_op_num_threads = int(sys.argv[1])
session = assay.InferenceSession(model, options)
before = len(os.listdir("/proc/self/task"))
session.run(None, {"x": np.ones((64, 64), np.float32)})
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.parametrize(("wanted", "stated", "more"), [(1, "4", 0), (3, "1", 2), (0, "4", 3), (-1, "1", 0)])
def test_a_session_uses_as_many_threads_as_it_is_told(wanted: int, stated: str, more: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS, str(wanted)],
        env={"OMP_NUM_THREADS": stated, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == more


def test_free_dims_are_fixed_for_assay_load_too(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(MODEL)
    given = assay.SessionOptions()
    given.add_free_dimension_override_by_name("batch", 2)
    ready = assay.load(tmp_path / "m.onnx", given)
    assert ready.run({"x": np.zeros((2, 3), np.float32)})["z"].shape == (2, 3)
    with pytest.raises(BadFeed, match="the model takes 2"):
        ready.run({"x": X})


def test_what_a_model_does_not_have_is_warned_of() -> None:
    given = assay.SessionOptions()
    given.add_free_dimension_override_by_name("bach", 2)
    given.add_initializer("w", assay.OrtValue.ortvalue_from_numpy(X))
    with (
        pytest.warns(UserWarning, match="no symbolic dim 'bach': did you mean 'batch'?"),
        pytest.warns(UserWarning, match="no initializer 'w'"),
    ):
        assay.InferenceSession(MODEL, given)
    with pytest.raises(BadArgument, match="the size -1"):
        given.add_free_dimension_override_by_name("batch", -1)


def test_an_initializer_of_another_shape_is_refused() -> None:
    scaled = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N] x) => (float[N] y) <float[1] w = {2}> { y = Mul (x, w) }""").SerializeToString()
    given = assay.SessionOptions()
    given.add_initializer("w", assay.OrtValue.ortvalue_from_numpy(X))
    with pytest.raises(BadArgument, match="the initializer 'w' has another dtype or shape"):
        assay.InferenceSession(scaled, given)


def test_what_only_a_session_of_onnx_does_is_refused_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(MODEL)
    with pytest.raises(Unsupported, match="writes no profiles"):
        assay.load(tmp_path / "m.onnx", assay.SessionOptions(enable_profiling=True))


# --- runs


LOOP = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x, int64 n) => (y) {
  go = Constant <value = bool {1}> ()
  y = Loop (n, go, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) {
    d = Identity (c)
    t = Add (s, s)
  }>
}""").SerializeToString()
LONG, SHORT = ({"x": np.ones(4, np.float32), "n": np.array(n)} for n in (900_000_000, 3))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_terminate_stops_a_run_that_is_under_way(target: str) -> None:
    ready, options = assay.InferenceSession(LOOP, target=target), assay.RunOptions()
    stopping = threading.Timer(0.3, lambda: setattr(options, "terminate", True))
    stopping.start()
    with pytest.raises(RunStopped, match="cancelled"):
        ready.run(None, LONG, options)
    with pytest.raises(RunStopped, match="cancelled"):
        ready.run(None, SHORT, options)
    np.testing.assert_array_equal(ready.run(None, SHORT)[0], np.full(4, 8, np.float32))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_run_takes_no_more_than_its_options_give(target: str) -> None:
    ready, options = assay.InferenceSession(LOOP, target=target), assay.RunOptions()
    options.time_limit = 0.2
    with pytest.raises(RunStopped, match=r"longer than its 0\.2 seconds"):
        ready.run(None, LONG, options)
    options.time_limit, options.memory_limit = 0.0, 4
    with pytest.raises(OutOfMemory, match="it was given 4 B"):
        ready.run(None, SHORT, options)
    options.memory_limit = 0
    np.testing.assert_array_equal(ready.run(None, SHORT, options)[0], np.full(4, 8, np.float32))


@pytest.mark.parametrize(("name", "value"), [("time_limit", "soon"), ("memory_limit", 1.5), ("terminate", "yes")])
def test_limits_are_numbers(name: str, value: Any) -> None:
    with pytest.raises(BadArgument, match=name):
        setattr(assay.RunOptions(), name, value)


def test_options_of_onnx_runtime_itself_stop_a_run() -> None:
    options, ready = onnxruntime.RunOptions(), assay.InferenceSession(MODEL)
    assert len(ready.run(None, {"x": X}, options)) == 1
    options.terminate = True
    with pytest.raises(RunStopped, match="told to stop"):
        ready.run(None, {"x": X}, options)


def test_a_stopped_run_can_be_tried_again() -> None:
    given = assay.RunOptions()
    given.terminate = True
    ready = assay.InferenceSession(MODEL)
    with pytest.raises(RunStopped):
        ready.run(None, {"x": X}, given)
    given.terminate = False
    assert len(ready.run(None, {"x": X}, given)) == 1


def test_async_runs_report_on_a_thread_of_their_own() -> None:
    ready, told, done = assay.InferenceSession(MODEL), list[Any](), threading.Event()

    def tell(*given: Any) -> None:
        told.extend([*given, threading.current_thread()])
        done.set()

    ready.run_async(None, {"x": X}, tell, "data")
    assert done.wait(30)
    results, user_data, error, thread = told
    np.testing.assert_allclose(results[0], -np.exp(X), rtol=1e-6)
    assert (user_data, error) == ("data", "")
    assert thread is not threading.current_thread()


# --- better than ONNX Runtime


def test_numbers_and_other_byte_orders_are_understood() -> None:
    scalar = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float x) => (float y) { y = Neg (x) }""").SerializeToString()
    for number in (2, 2.0, np.float32(2), np.array(2, ">f4")):
        assert assay.InferenceSession(scalar).run(None, {"x": number})[0] == -2


def test_a_name_that_is_no_list_is_refused() -> None:
    with pytest.raises(BadArgument, match="output_names is a list"):
        assay.InferenceSession(MODEL).run("z", {"x": X})
    with pytest.raises(BadArgument, match="providers is a list"):
        assay.InferenceSession(MODEL, providers="CPUExecutionProvider")
    with pytest.raises(NotFound, match="'Foo' is no provider"):
        assay.InferenceSession(MODEL, providers=["Foo", "CPUExecutionProvider"])
    with pytest.warns(UserWarning, match="there is no CUDAExecutionProvider here"):
        assay.InferenceSession(MODEL, providers=["CUDAExecutionProvider"])


def test_dims_that_an_op_compares_are_named() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N] x, float[N] y) => (float[N] z) { z = Add (x, y) }""").SerializeToString()
    ready = assay.InferenceSession(model)
    with pytest.raises(BadFeed, match="'N' is 3 as dim 0 of 'x' but 2 as dim 0 of 'y'"):
        ready.run(None, {"x": X[0], "y": X[0, :2]})
    assert ready.run(None, {"x": X[0], "y": X[0, :1]})[0].shape == (3,)


def test_values_take_their_own_dtype_alone() -> None:
    first, second = (assay.OrtValue.ortvalue_from_numpy(np.full((2, 2), n, np.float32)) for n in (1, 2))
    assay.copy_tensors([first], [second])
    assert (second.numpy() == 1).all()
    with pytest.raises(BadArgument, match=r"float64\[2, 2\] does not fit into float32\[2, 2\]"):
        first.update_inplace(np.zeros((2, 2)))
    with pytest.raises(BadArgument, match="1 values do not go into 0"):
        assay.copy_tensors([first], [])


def test_a_binding_belongs_to_its_session() -> None:
    one, other = assay.InferenceSession(MODEL), assay.InferenceSession(MODEL)
    binding = one.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z")
    with pytest.raises(BadArgument, match="belongs to the session"):
        other.run_with_iobinding(binding)
    with pytest.raises(Unsupported, match="no device 'cuda:0'"):
        binding.bind_output("z", "cuda")
    one.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    with pytest.raises(BadArgument, match="no output is bound"):
        one.run_with_iobinding(binding)


# --- profiles


def events(path: str) -> list[dict[str, Any]]:
    return json.loads(Path(path).read_text())


def profiled(ort: Any, prefix: Path) -> list[dict[str, Any]]:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(prefix)
    ready = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    assert ready.get_profiling_start_time_ns() > 0
    ready.run(None, {"x": X})
    path = ready.end_profiling()
    assert path.startswith(str(prefix))
    assert path.endswith(".json")
    assert ready.end_profiling() == ""
    return events(path)


def test_a_profile_is_written_as_onnxruntime_writes_it(tmp_path: Path) -> None:
    ours, theirs = profiled(assay, tmp_path / "ours"), profiled(onnxruntime, tmp_path / "theirs")
    assert all(set(event) == set(theirs[0]) for event in ours)
    assert all(event["ph"] == "X" and event["dur"] >= 0 and event["ts"] >= 0 for event in ours)
    assert {event["cat"] for event in ours} == {event["cat"] for event in theirs}
    named = {event["args"]["op_name"] for event in theirs if event["cat"] == "Node"}
    mine = [event for event in ours if event["cat"] == "Node"]
    assert {event["args"]["op_name"] for event in mine} == named
    assert mine[0]["args"]["output_type_shape"] == [{"float": [1, 3]}]
    assert mine[0]["args"]["provider"] == "CPUExecutionProvider"
    assert "model_run" in {event["name"] for event in ours}


def test_a_profile_that_nobody_ends_is_written_with_its_session(tmp_path: Path) -> None:
    ready = assay.InferenceSession(MODEL, enable_profiling=True, profile_file_prefix=str(tmp_path / "p"))
    ready.run(None, {"x": X})
    del ready
    gc.collect()
    (written,) = tmp_path.iterdir()
    assert any(event["cat"] == "Node" for event in events(str(written)))
