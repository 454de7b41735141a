"""Reading models: versions, functions, bodies that capture values, external data, names and origins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import assay
from assay.errors import ImportFailed, LimitExceeded
from assay.frontends.onnx import load
from assay.frontends.onnx.registry import entered
from assay.frontends.onnx.schema import STANDARD, version_of
from assay.ir.printer import print_graph
from assay.ir.verify import verify
from assay.limits import Limits
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
    for schema in onnx.defs.get_all_schemas_with_history():
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


def test_external_data_is_mapped_not_read(tmp_path: Path) -> None:
    weights = np.arange(3, dtype=np.float32)
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [info("x")],
        ["y"],
        initializer=[external(tmp_path, "w.bin", weights, 16)],
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    graph = load(path)
    stored = next(iter(graph.constants.values()))
    while not isinstance(stored, np.memmap) and stored.base is not None:
        stored = stored.base
    assert isinstance(stored, np.memmap)
    np.testing.assert_array_equal(assay.InferenceSession(path).run(None, {"x": X})[0], X + weights)


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
