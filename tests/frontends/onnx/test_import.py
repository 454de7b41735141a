"""Reading models: versions, functions, bodies that capture values, external data, names and origins."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import assay
from assay import memory
from assay.errors import ImportFailed, LimitExceeded
from assay.frontends.onnx import load
from assay.frontends.onnx.counting import check_expanded_size
from assay.frontends.onnx.importer import Importer, Scope
from assay.frontends.onnx.registry import entered
from assay.frontends.onnx.schema import STANDARD, version_of
from assay.ir.printer import print_graph
from assay.ir.verify import verify
from assay.limits import DEFAULT, Limits
from assay.ops.lowering import lower

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, kind: int = FLOAT, shape: Any = (2, 3)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[str], opset: int = 18, **more: Any) -> onnx.ModelProto:
    weights = more.pop("initializer", [])
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info(o) for o in outputs], weights)
    imports = more.pop("imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=imports, ir_version=9, **more)


def run(proto: onnx.ModelProto, **feeds: Any) -> list[Any]:
    graph = load(proto)
    verify(graph)
    verify(lower(graph))
    return assay.InferenceSession(proto.SerializeToString()).run(None, feeds)


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("op", "opset", "version"),
    [("Add", 7, 7), ("Add", 12, 7), ("Add", 13, 13), ("Add", 28, 14), ("Relu", 28, 14), ("Gelu", 25, 20)],
)
def test_the_real_version_of_an_op(op: str, opset: int, version: int) -> None:
    assert version_of("", op, opset) == version


def test_every_standard_op_lowers_by_a_rule_or_a_function_body() -> None:
    """Of every op in the default domain that is not deprecated, at every version that opsets 7 and later use."""
    missing: list[str] = []
    schemas: Any = onnx.defs.get_all_schemas_with_history()  # its stubs lack some attributes
    for schema in schemas:
        newest_before_7 = schema.since_version == version_before(schema, 7)
        if schema.domain not in STANDARD or (schema.since_version < 7 and not newest_before_7):
            continue
        served = [since for since in entered().get((schema.domain, schema.name), ()) if since <= schema.since_version]
        if not served and not (schema.has_function or schema.has_context_dependent_function or schema.deprecated):
            missing.append(f"{schema.domain}.{schema.name}@{schema.since_version}")
    assert missing == []


def version_before(schema: Any, opset: int) -> int | None:
    """The version of an op in force under `opset`, None if it came later."""
    try:
        return onnx.defs.get_schema(schema.name, max_inclusive_version=opset, domain=schema.domain).since_version
    except onnx.defs.SchemaError:
        return None


def test_functions_with_attributes_defaults_and_nesting() -> None:
    own = helper.make_opsetid("own", 1)
    std = helper.make_opsetid("", 18)
    alpha = onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, f=2.0)
    scaled = onnx.NodeProto(op_type="LeakyRelu", input=["a"], output=["b"], name="leak")
    scaled.attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    inner = onnx.FunctionProto(name="Leak", domain="own", input=["a"], output=["b"], node=[scaled], opset_import=[std])
    inner.attribute_proto.append(alpha)
    outer = helper.make_function(
        "own",
        "Twice",
        ["x"],
        ["y"],
        [
            helper.make_node("Leak", ["x"], ["t"], "first", domain="own"),
            helper.make_node("Leak", ["t"], ["y"], "second", domain="own", alpha=0.5),
        ],
        [std, own],
    )
    proto = model(
        [helper.make_node("Twice", ["x"], ["y"], "call", domain="own")],
        [info("x")],
        ["y"],
        imports=[std, own],
        functions=[inner, outer],
    )
    result = run(proto, x=X - 2)[0]
    once = np.where(X - 2 < 0, (X - 2) * 2, X - 2)
    np.testing.assert_allclose(result, np.where(once < 0, once * 0.5, once))
    session = assay.InferenceSession(proto.SerializeToString())
    np.testing.assert_allclose(session.observe({"x": X - 2}, ["call/t"])["call/t"], once)
    assert [row.name for row in session.explain().nodes] == ["leak", "leak"]


def test_bodies_capture_values_from_outside() -> None:
    then = helper.make_graph([helper.make_node("Add", ["x", "x"], ["t"])], "then", [], [info("t")])
    other = helper.make_graph([helper.make_node("Neg", ["seen"], ["e"])], "else", [], [info("e")])
    proto = model(
        [
            helper.make_node("Abs", ["x"], ["seen"]),
            helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        ],
        [info("x"), info("c", BOOL, ())],
        ["y"],
    )
    np.testing.assert_array_equal(run(proto, x=X, c=np.array(True))[0], 2 * X)
    np.testing.assert_array_equal(run(proto, x=X, c=np.array(False))[0], -X)


def test_axes_that_are_computed_are_lowered_when_the_program_runs() -> None:
    proto = model(
        [
            helper.make_node("Mod", ["k", "two"], ["axis"]),
            helper.make_node("ReduceSum", ["x", "axis"], ["y"], keepdims=0),
        ],
        [info("x"), info("k", INT64, (1,))],
        ["y"],
        initializer=[numpy_helper.from_array(np.array([2]), "two")],
    )
    session = assay.InferenceSession(proto.SerializeToString())
    for k in (0, 1, 2, 3):
        np.testing.assert_array_equal(session.run(None, {"x": X, "k": np.array([k])})[0], X.sum(k % 2))
    reasons = [row.reason for row in session.explain().nodes]
    assert any("'axes'" in reason for reason in reasons)


def test_one_program_serves_every_size() -> None:
    proto = model(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n"]),
            helper.make_node("Concat", ["n", "minus"], ["target"], axis=0),
            helper.make_node("Reshape", ["x", "target"], ["flat"]),
            helper.make_node("MatMul", ["flat", "w"], ["y"]),
        ],
        [info("x", FLOAT, ["n", 2, 3])],
        ["y"],
        initializer=[
            numpy_helper.from_array(np.array([0]), "zero"),
            numpy_helper.from_array(np.array([-1]), "minus"),
            numpy_helper.from_array(np.ones((6, 4), np.float32), "w"),
        ],
    )
    session = assay.InferenceSession(proto.SerializeToString())
    assert session.get_outputs()[0].shape == ["n", 4]
    assert not any(node.op == "deferred" for node in session.session.graph.nodes)
    for n in (1, 3, 7):
        assert session.run(None, {"x": np.ones((n, 2, 3), np.float32)})[0].shape == (n, 4)


def external(folder: Path, name: str, array: np.ndarray, offset: int) -> TensorProto:
    with (folder / name).open("ab") as handle:
        handle.write(b"\0" * offset + array.tobytes())
    tensor = TensorProto(name="w", data_type=FLOAT, dims=array.shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": name, "offset": str(offset), "length": str(array.nbytes)}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def with_external(folder: Path, weights: np.ndarray, shape: Any = (2, 3)) -> Path:
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [info("x", shape=shape)],
        ["y"],
        initializer=[external(folder, "w.bin", weights, 16)],
    )
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def origin_of_memory(array: np.ndarray) -> Any:
    found: Any = array
    while isinstance(found, np.ndarray) and not isinstance(found, np.memmap) and found.base is not None:
        found = found.base
    return found


@pytest.mark.parametrize("roomy", [True, False])
def test_external_data_is_mapped_only_where_there_is_no_room(
    roomy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = np.arange(3, dtype=np.float32)
    path = with_external(tmp_path, weights)
    monkeypatch.setattr(memory, "free_memory", lambda: 1 << 40 if roomy else 40)
    stored = next(iter(load(path).constants.values()))
    assert isinstance(origin_of_memory(stored), np.memmap) != roomy
    assert not stored.flags.writeable
    np.testing.assert_array_equal(assay.InferenceSession(path).run(None, {"x": X})[0], X + weights)


AFTERWARDS = {
    "cut off": "os.truncate(data, 0)",
    "cut in the middle": "os.truncate(data, os.path.getsize(data) // 2)",
    "removed": "os.remove(data)",
    "overwritten": "open(data, 'r+b').write(bytes(os.path.getsize(data)))",
}


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("deed", AFTERWARDS)
def test_what_becomes_of_a_data_file_after_loading_does_no_harm(deed: str, target: str, tmp_path: Path) -> None:
    path = with_external(tmp_path, np.ones((30_000, 3), np.float32), [3])
    program = f"""
import os, sys
import numpy as np, assay
path, data, target = sys.argv[1:]
session = assay.InferenceSession(path, target=target)
{AFTERWARDS[deed]}
x = np.ones(3, np.float32)
assert (session.run(None, {{"x": x}})[0] == 2).all()
assert (session.observe({{"x": x}})["y"] == 2).all()
"""
    arguments = [str(path), str(tmp_path / "w.bin"), target]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_external_data_needs_a_folder(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [info("x")],
        ["y"],
        initializer=[external(tmp_path, "w.bin", X[0], 0)],
    )
    with pytest.raises(ImportFailed, match="by its path"):
        load(proto)


def test_nodes_out_of_order_are_sorted_and_cycles_refused() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Abs", ["x"], ["a"])]
    np.testing.assert_array_equal(run(model(nodes, [info("x")], ["y"]), x=X)[0], -np.abs(X))
    looped = [helper.make_node("Add", ["x", "y"], ["a"]), helper.make_node("Abs", ["a"], ["y"])]
    with pytest.raises(ImportFailed, match="cycle"):
        load(model(looped, [info("x")], ["y"]))


def test_a_function_that_calls_itself_is_refused() -> None:
    own, std = helper.make_opsetid("own", 1), helper.make_opsetid("", 18)
    body = [helper.make_node("Again", ["x"], ["y"], domain="own")]
    function = helper.make_function("own", "Again", ["x"], ["y"], body, [std, own])
    proto = model(
        [helper.make_node("Again", ["x"], ["y"], domain="own")],
        [info("x")],
        ["y"],
        imports=[std, own],
        functions=[function],
    )
    with pytest.raises(LimitExceeded, match="may not call itself"):
        load(proto)


def test_limits_are_kept() -> None:
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(50)]
    with pytest.raises(LimitExceeded, match="more than 20 nodes"):
        load(model(nodes, [info("v0")], ["v50"]), Limits(nodes=20))


def test_the_symbolic_graph_reads_as_text() -> None:
    proto = model([helper.make_node("LeakyRelu", ["x"], ["y"], "act", alpha=0.5)], [info("x", FLOAT, ["n", 3])], ["y"])
    text = print_graph(load(proto))
    assert "onnx.LeakyRelu@16" in text
    assert "f32[n, 3]" in text
    assert "alpha = 0.5" in text


def test_an_unknown_op_names_close_ones() -> None:
    with pytest.raises(ImportFailed, match="did you mean Relu"):
        load(model([helper.make_node("Rellu", ["x"], ["y"])], [info("x")], ["y"]))


# --- functions that call functions


def nested_calls(levels: int, calls: int, *, body: bool = False) -> onnx.ModelProto:
    """Functions each of which calls the next one several times; the last one negates."""

    def function(level: int) -> onnx.FunctionProto:
        last = level == levels - 1
        names = ["x", *(f"v{i}" for i in range(calls - 1)), "y"]
        make = (lambda a, b: helper.make_node("Neg", [a], [b])) if last else caller(level + 1)
        nodes = [make(a, b) for a, b in itertools.pairwise(names)]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
        return helper.make_function("own", f"f{level}", ["x"], ["y"], nodes, opsets)

    def caller(level: int) -> Callable[[str, str], onnx.NodeProto]:
        return lambda a, b: helper.make_node(f"f{level}", [a], [b], domain="own")

    first = caller(0)("x", "y")
    if body:
        branch = helper.make_graph([caller(0)("x", "z")], "b", [], [helper.make_empty_tensor_value_info("z")])
        first = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    flag = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph(
        [first], "g", [info("x"), *([flag] if body else [])], [helper.make_empty_tensor_value_info("y")]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = [function(level) for level in range(levels)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions)


@pytest.mark.parametrize("body", [False, True])
def test_functions_that_blow_up_are_counted_and_not_expanded(body: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million million nodes are refused without making one of them."""

    def never(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("this expands")

    proto = nested_calls(12, 10, body=body)
    with monkeypatch.context() as patched:
        patched.setattr(Importer, "expand", never)
        with pytest.raises(
            LimitExceeded, match=rf"{'2' if body else '1'}\d{{12}} with its functions expanded"
        ) as caught:
            load(proto)
    assert caught.value.where


@pytest.mark.parametrize(("levels", "calls"), [(1, 1), (1, 5), (2, 3), (3, 4), (31, 1)])
@pytest.mark.parametrize("body", [False, True])
def test_nodes_are_counted_as_they_are_expanded(levels: int, calls: int, body: bool) -> None:
    proto = nested_calls(levels, calls, body=body)
    importer = Importer.of_model(proto, None, DEFAULT)
    importer.graph(proto.graph, Scope(), root=True)
    check_expanded_size(proto, replace(DEFAULT, nodes=importer.count))
    with pytest.raises(LimitExceeded):
        check_expanded_size(proto, replace(DEFAULT, nodes=importer.count - 1))


def test_functions_that_call_each_other_are_refused() -> None:
    proto = nested_calls(3, 2)
    proto.functions[2].node[0].CopyFrom(helper.make_node("f0", ["x"], ["v0"], domain="own"))
    with pytest.raises(LimitExceeded, match="may not call itself"):
        load(proto)


def test_long_names_in_functions_take_no_more_memory_with_every_call() -> None:
    proto = nested_calls(3, 10)
    for function in proto.functions:
        for node in function.node:
            node.name = f"{node.name}{'n' * 5000}"
            node.input[:] = [name if name == "x" else name + "v" * 5000 for name in node.input]
            node.output[:] = [name if name == "y" else name + "v" * 5000 for name in node.output]
    graph = load(proto)
    assert len(graph.nodes) == 1000
    assert sum(map(len, graph.names)) < 1_500_000
    np.testing.assert_array_equal(assay.InferenceSession(proto.SerializeToString()).run(None, {"x": X})[0], X)
