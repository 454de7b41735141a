"""The session: ONNX Runtime's habits, clear words for wrong feeds, explain, observe, profile, threads."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import assay
from assay.errors import BadFeed, NotFound, RunFailed
from assay.ir.dtypes import f32
from assay.ir.types import TensorType
from assay.ops.builder import Builder
from assay.runtime import program
from assay.runtime.session import Session, SessionOptions

PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3] x, int64[n] picks, bool flag) => (float[batch, n] y, int64 count) {
  taken = Gather <axis = 1> (x, picks)
  y = Relu (taken)
  count = Size (y)
}"""

BRANCH = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x, bool up) => (float[N] y) {
  y = If (up) <
    then_branch = more () => (float[N] t) { doubled = Add (x, x)  t = Exp (doubled) },
    else_branch = less () => (float[N] e) { halved = Mul (x, x)  e = Neg (halved) }
  >
}"""

LOOP = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, int64 times) => (float[2] last, float[k, 2] all) {
  go = Constant <value = bool {1}> ()
  last, all = Loop (times, go, x) <
    body = step (int64 i, bool c, float[2] s) => (bool d, float[2] s2, float[2] seen) {
      d = Identity (c)
      s2 = Add (s, x)
      seen = Neg (s2)
    }
  >
}"""

FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
g (float[N] x) => (float[N] y) { y = own.Twice (x) }
<domain: "own", opset_import: ["" : 17]>
Twice (a) => (b) { local = Add (a, a)  b = Abs (local) }"""


def data(text: str) -> bytes:
    return onnx.parser.parse_model(text).SerializeToString()


def session(text: str, **options: Any) -> assay.InferenceSession:
    return assay.InferenceSession(data(text), **options)


X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
FEEDS = {"x": X, "picks": np.array([2, 0]), "flag": np.array(True)}


# --- as ONNX Runtime


@pytest.mark.parametrize("text", [PLAIN, BRANCH, LOOP, FUNCTION], ids=["plain", "branch", "loop", "function"])
def test_inputs_and_outputs_are_described_as_onnxruntime_does(text: str) -> None:
    ours, theirs = session(text), onnxruntime.InferenceSession(data(text), providers=["CPUExecutionProvider"])
    for mine, peer in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
        assert [(a.name, a.type) for a in mine] == [(a.name, a.type) for a in peer]
        # A dim that ONNX Runtime calls by the model's name may be known better here, or not at all (None).
        assert [len(a.shape) for a in mine] == [len(a.shape) for a in peer]
    assert [a.shape for a in ours.get_inputs()] == [a.shape for a in theirs.get_inputs()]


@pytest.mark.parametrize("names", [None, [], ["y"], ["count", "y"]])
def test_run_gives_the_outputs_that_onnxruntime_gives(names: list[str] | None) -> None:
    model = PLAIN.replace(", bool flag", "")
    feeds = {key: value for key, value in FEEDS.items() if key != "flag"}
    mine = session(model).run(names, feeds)
    theirs: Any = onnxruntime.InferenceSession(data(model), providers=["CPUExecutionProvider"]).run(names, feeds)
    assert isinstance(mine, list)
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_lists_and_numbers_take_the_models_dtype() -> None:
    y, count = session(PLAIN).run(None, {"x": X.tolist(), "picks": [0], "flag": True})
    assert y.dtype == np.float32
    assert count == 2


def test_unnamed_dims_are_none() -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Neg", ["x"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, [None, 2])],
            [onnx.helper.make_tensor_value_info("y", 1, [None, 2])],
        ),
        ir_version=8,
        opset_imports=[onnx.helper.make_opsetid("", 17)],
    )
    ours = assay.InferenceSession(model.SerializeToString())
    assert ours.get_inputs()[0].shape == ours.get_outputs()[0].shape == [None, 2]


def test_providers() -> None:
    wanted = ["CUDAExecutionProvider", ("CPUExecutionProvider", {"threads": 1})]
    with pytest.warns(UserWarning, match="there is no CUDAExecutionProvider here: the target 'cpu' runs instead"):
        assert session(PLAIN, providers=wanted).get_providers() == ["CPUExecutionProvider", "reference"]
    assert session(PLAIN, providers=["reference"]).get_providers() == ["reference"]
    with pytest.raises(NotFound, match="'slate' is no provider"):
        session(PLAIN, providers=["slate"])


def test_options() -> None:
    with pytest.raises(NotFound, match="there is no target 'refrence'") as caught:
        session(PLAIN, target="refrence")
    assert "'reference'" in caught.value.hint
    with pytest.raises(NotFound, match="there is no mode 'sloppy'"):
        session(PLAIN, mode="sloppy")


def test_options_take_what_their_documentation_says(tmp_path: Path) -> None:
    options = assay.SessionOptions(cache=str(tmp_path / "kept"), disabled_passes=["fold", "cse"])
    assert options.disabled_passes == ("fold", "cse")
    assay.load(_saved(tmp_path), options)
    assert any((tmp_path / "kept").rglob("*"))
    cases: list[dict[str, Any]] = [{"cache": 1.5}, {"disabled_passes": "fold"}, {"disabled_passes": 3}]
    for wrong in cases:
        with pytest.raises(assay.AssayError, match="takes a value of the kind"):
            assay.SessionOptions(**wrong)


def _saved(folder: Path) -> Path:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Relu (x) }"""
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return folder / "model.onnx"


def test_the_onnx_backend() -> None:
    backend = assay.onnx_backend
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    model = onnx.parser.parse_model(PLAIN)
    for inputs in (list(FEEDS.values()), FEEDS):
        found = backend.prepare(model, decomposed=True).run(inputs)
        assert found.count == backend.run_model(model, inputs)[1] == 4
    node = onnx.helper.make_node("Clip", ["x", "", "top"], ["y"])
    (y,) = backend.run_node(node, [X, np.array(2, np.float32)])
    np.testing.assert_array_equal(y, np.minimum(X, 2))


# --- wrong feeds: one sentence each

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"picks": None}, "the input 'picks' is missing"),
    "extra": ({"more": X}, "the model has no input 'more'"),
    "dtype": ({"x": X.astype(np.float64)}, "the input 'x' is f64, the model takes f32"),
    "integer dtype": ({"picks": np.array([0], np.int32)}, "the input 'picks' is i32, the model takes i64"),
    "rank": ({"x": X[0]}, "the input 'x' has 1 dims [3], the model takes 2: f32[batch, 3]"),
    "dim": ({"x": X[:, :2]}, "dim 1 of the input 'x' is 2, the model takes 3: f32[batch, 3]"),
    "no array": ({"x": {"a": 1}}, "the input 'x' is no array of f32"),
    "ragged": ({"x": [[1.0], [1.0, 2.0]]}, "the input 'x' is no array of f32"),
    "unknown dtype": ({"x": np.zeros((2, 3), "M8[s]")}, "the input 'x' has the dtype datetime64[s], the model takes "),
}


@pytest.mark.parametrize(("change", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_wrong_feeds_are_told_in_one_sentence(change: dict[str, Any], sentence: str) -> None:
    feeds = {key: value for key, value in {**FEEDS, **change}.items() if value is not None}
    with pytest.raises(BadFeed) as caught:
        session(PLAIN).run(None, feeds)
    assert caught.value.message.startswith(sentence)
    assert "\n" not in caught.value.message


def test_none_and_sequences() -> None:
    with pytest.raises(BadFeed, match="the input 'x' is None"):
        session(PLAIN).run(None, {**FEEDS, "x": None})
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (seq(float[2]) s) => (int64 n) { n = SequenceLength (s) }"""
    assert session(text).run(None, {"s": [X[0, :2]] * 3}) == [3]
    with pytest.raises(BadFeed, match="the input 's' takes a list of values, got ndarray"):
        session(text).run(None, {"s": X})
    with pytest.raises(BadFeed, match=r"the input 's\[1\]' is f64, the model takes f32"):
        session(text).run(None, {"s": [X[0, :2], np.zeros(2)]})


def test_dims_of_one_name_must_be_equal() -> None:
    text = PLAIN.replace("int64[n] picks", "int64[batch] picks")
    with pytest.raises(BadFeed, match=r"'batch' is 2 as dim 0 of 'x' but 3 as dim 0 of 'picks'"):
        session(text).session.run({**FEEDS, "picks": np.array([0, 1, 2])})


def test_a_misspelt_input_is_recognised() -> None:
    with pytest.raises(BadFeed) as caught:
        session(PLAIN).run(None, {"pick": FEEDS["picks"]})
    assert caught.value.hint == "did you mean 'picks'?"


def test_outputs_that_do_not_exist() -> None:
    with pytest.raises(NotFound, match="there is no output called 'yy'"):
        session(PLAIN).run(["yy"], FEEDS)


def test_a_failing_op_is_named() -> None:
    with pytest.raises(RunFailed) as caught:
        session(PLAIN).run(None, {**FEEDS, "picks": np.array([7])})
    assert "Gather" in str(caught.value)
    assert "taken" in str(caught.value)


# --- explain


def test_explain_names_every_node_and_where_it_runs() -> None:
    found = session(PLAIN).explain()
    assert ("onnx.Gather", "taken", "gather", "reference") in [(n.source, n.name, n.op, n.target) for n in found.nodes]
    assert found.segments == 1
    assert found.transferred_bytes == 0
    lines = str(found).splitlines()
    assert lines[0].split() == ["source", "name", "op", "target", "reason"]
    assert len(lines) == len(found.nodes) + 3
    assert lines[-1] == f"{len(found.nodes)} nodes in 1 segment: {len(found.nodes)} on reference"


def test_explain_counts_one_as_one() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Exp (x) }"""
    assert str(session(text).explain()).splitlines()[-1] == "1 node in 1 segment: 1 on reference"


def test_explain_looks_into_bodies() -> None:
    ops = {(n.name, n.op) for n in session(BRANCH).explain().nodes}
    assert {("y", "branch"), ("t", "exp"), ("e", "neg")} <= ops


def test_explain_sums_up_why_nodes_are_elsewhere() -> None:
    text = """<ir_version: 8, opset_import: ["" : 20]> g (string[n] x, bool c, float[n] z) => (y, w) {
        w = Exp (z)
        y = If (c) <then_branch = t () => (a) { a = StringConcat (x, x) },
                    else_branch = e () => (a) { a = Identity (x) }> }"""
    found = session(text, target="cpu").explain()
    away = [node for node in found.nodes if node.target != "cpu"]
    assert [node.op for node in away] == ["branch", "string_concat"]
    assert all(node.reason for node in away)
    table = str(found).split("Why not on cpu:\n")[1].splitlines()
    assert table[0].split() == ["nodes", "reason", "ops"]
    assert sum(int(line.split()[0]) for line in table[1:]) == len(away)
    assert any("strings" in line and "branch, string_concat" in line for line in table)
    totals = re.search(r"(\d+) nodes in \d+ segments?: (.*)", str(found))
    assert totals is not None
    counts = [int(part.split()[0]) for part in totals[2].split(", ")]
    assert sum(counts) == int(totals[1]) == len(found.nodes)


def test_explain_tells_what_waits_for_the_run() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[a, b] x, int64[r] axes) => (float y) { y = ReduceSum <keepdims = 0> (x, axes) }"""
    waiting = [n for n in session(text).explain().nodes if n.reason]
    assert [(n.source, n.target) for n in waiting] == [("onnx.ReduceSum", "reference")]
    assert waiting[0].reason.startswith("lowered when the program runs: it needs ")


# --- observe


def test_observe_gives_intermediates_outputs_and_inputs() -> None:
    everything = session(PLAIN).observe(FEEDS)
    assert {"x", "picks", "flag", "taken", "y", "count"} <= set(everything)
    np.testing.assert_array_equal(everything["taken"], X[:, [2, 0]])
    chosen = session(PLAIN).observe(FEEDS, ["taken"])
    assert list(chosen) == ["taken"]
    np.testing.assert_array_equal(chosen["taken"], everything["taken"])


def test_observe_sees_what_the_passes_take_away() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[3] x) => (float[3] y) { unused = Exp (x)  same = Abs (x)  again = Abs (x)  y = Add (same, again) }"""
    found = session(text).observe({"x": X[0]})
    np.testing.assert_allclose(found["unused"], np.exp(X[0]), rtol=1e-6)
    np.testing.assert_array_equal(found["again"], np.abs(X[0]))


@pytest.mark.parametrize(("up", "inside", "absent"), [(True, "doubled", "halved"), (False, "halved", "doubled")])
def test_observe_sees_into_the_branch_that_was_taken(up: bool, inside: str, absent: str) -> None:
    feeds = {"x": X[0], "up": np.array(up)}
    found = session(BRANCH).observe(feeds)
    np.testing.assert_array_equal(found[inside], X[0] * 2 if up else X[0] * X[0])
    assert absent not in found
    with pytest.raises(NotFound, match=f"'{absent}' was not computed in this run"):
        session(BRANCH).observe(feeds, [absent])


def test_observe_gives_the_last_iteration_of_a_loop() -> None:
    found = session(LOOP).observe({"x": np.array([1, 10], np.float32), "times": np.array(3)}, ["s2", "seen", "all"])
    np.testing.assert_array_equal(found["s2"], [4, 40])
    np.testing.assert_array_equal(found["seen"], [-4, -40])
    np.testing.assert_array_equal(found["all"], [[-2, -20], [-3, -30], [-4, -40]])


def test_observe_sees_values_of_functions() -> None:
    found = session(FUNCTION).observe({"x": X[0]})
    np.testing.assert_array_equal(found["y/local"], X[0] * 2)


def test_observe_names_what_it_does_not_know() -> None:
    with pytest.raises(NotFound, match="there is no value called 'take'") as caught:
        session(PLAIN).observe(FEEDS, ["take"])
    assert "'taken'" in caught.value.hint


def test_observe_in_precise_mode_carries_f64() -> None:
    found = session(PLAIN, mode="precise").observe(FEEDS, ["taken"])
    assert found["taken"].dtype == np.float64


# --- profile


def test_profile_counts_time_and_bytes_of_every_node() -> None:
    times = session(PLAIN).session.profile(FEEDS)
    assert {"gather", "relu"} <= {t.op for t in times}
    gather = next(t for t in times if t.op == "gather")
    assert (gather.source, gather.name, gather.result_bytes) == ("onnx.Gather", "taken", 16)
    assert all(t.seconds >= 0 and t.live_bytes > 0 for t in times)


def test_times_are_those_of_the_program_that_runs() -> None:
    """A product, what goes on with its result, and elementwise work that is fused: two calls for five nodes."""
    b = Builder()
    x, w = b.input(TensorType(f32, (64, 32))), b.input(TensorType(f32, (32, 48)))
    y = b.softmax(b.mul(b.relu(b.add(b.matmul(x, w), 1.0)), 2.0), axis=-1)
    ready = Session(
        b.finish("g", [x, w], [y], input_names=("x", "w"), output_names=("y",)), SessionOptions(target="cpu")
    )
    feeds = {"x": np.ones((64, 32), np.float32), "w": np.ones((32, 48), np.float32)}
    before = ready.run(feeds)
    calls = ready.times(feeds)
    assert [call.ops for call in calls] == [("matmul", "add", "relu", "mul"), ("softmax",)]
    assert {call.target for call in calls} == {"cpu"}
    assert all(call.seconds > 0 for call in calls)
    oracle = Session(ready.source, SessionOptions(target="reference"))
    assert [call.ops for call in oracle.times(feeds)] == [("matmul",), ("add",), ("relu",), ("mul",), ("softmax",)]
    assert [time.op for time in ready.profile(feeds)] == ["matmul", "add", "relu", "mul", "softmax"]
    np.testing.assert_array_equal(ready.run(feeds)["y"], before["y"])


def test_programs_that_observe_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    one = session(PLAIN).session
    compiled: list[Any] = []
    compile_plan = program.compile_plan
    monkeypatch.setattr(program, "compile_plan", lambda *given: compiled.append(given) or compile_plan(*given))
    first = one.observe(FEEDS, ["taken"])
    again = one.observe(FEEDS, ["taken"])
    np.testing.assert_array_equal(first["taken"], again["taken"])
    assert len(compiled) == 1


# --- threads


@pytest.mark.parametrize("text", [LOOP, BRANCH], ids=["loop", "branch"])
def test_threads_share_a_session(text: str) -> None:
    one = session(text)

    def feeds(i: int) -> dict[str, Any]:
        x = np.array([i, -i], np.float32)
        return {"x": x, "times": np.array(i % 5)} if text is LOOP else {"x": x, "up": np.array(i % 2 == 0)}

    with np.errstate(over="ignore"):
        expected = [session(text).run(None, feeds(i)) for i in range(5)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda i: (one.run(None, feeds(i % 5)), one.observe(feeds(i % 5))), range(200)))
    for i, (results, observed) in enumerate(found):
        for a, b in zip(results, expected[i % 5], strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(observed[one.get_outputs()[0].name], expected[i % 5][0])


def test_threads_share_what_is_lowered_when_it_runs() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[a, b] x, int64[r] axes) => (float[q] y) { y = ReduceSum <keepdims = 0> (x, axes) }"""
    one = session(text)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: one.run(None, {"x": x, "axes": np.array([i % 2])})[0], range(200)))
    assert all(np.array_equal(y, x.sum(i % 2)) for i, y in enumerate(found))
