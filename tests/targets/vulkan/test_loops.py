"""Loops on the device: those whose rounds can be counted before a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import assay
from assay.errors import RunFailed
from assay.limits import Limits
from assay.targets.vulkan.device import VulkanDevice

SUMS = """<ir_version: 9, opset_import: ["" : 18]> sums (float[n, 4] x) => (float[4] last, float[n, 4] all)
    { zero = Constant <value = float[4] {0, 0, 0, 0}> ()
      last, all = Scan <num_scan_inputs = 1, body = step (float[4] s, float[4] row) => (float[4] t, float[4] u)
      { half = Constant <value = float {0.5}> () old = Mul (s, half) t = Add (old, row) u = Exp (t) }> (zero, x) }"""
TURNS = """<ir_version: 9, opset_import: ["" : 18]> turns (float[n, 4] x) => (float[4] a, float[4] b, float[n, 4] all)
    { one = Constant <value = float[4] {1, 1, 1, 1}> () two = Constant <value = float[4] {2, 2, 2, 2}> ()
      a, b, all = Scan <num_scan_inputs = 1, body = step (float[4] p, float[4] q, float[4] row)
      => (float[4] q2, float[4] r, float[4] u) { q2 = Identity (q) r = Add (p, row) u = Mul (p, q) }> (one, two, x) }"""
NESTED = """<ir_version: 9, opset_import: ["" : 18]> nested (float[n, 4] x) => (float[n] all)
    { zero = Constant <value = float {0}> ()
      last, all = Scan <num_scan_inputs = 1, body = line (float s, float[4] row) => (float t, float u)
      { inner, rows = Scan <num_scan_inputs = 1, body = element (float a, float e) => (float b, float c)
        { b = Add (a, e) c = Mul (a, e) }> (s, row) t = Identity (inner) total = ReduceSum <keepdims = 0> (rows)
        u = Add (total, inner) }> (zero, x) }"""


def loaded(text: str, **options: Any) -> tuple[Any, Any]:
    model = onnx.parser.parse_model(text).SerializeToString()
    return assay.InferenceSession(model, target="vulkan", **options), onnxruntime.InferenceSession(model)


@pytest.mark.parametrize("text", [SUMS, TURNS, NESTED], ids=["sums", "turns", "nested"])
def test_loops_run_on_the_device_as_often_as_there_are_rows(device: VulkanDevice, text: str) -> None:
    ours, theirs = loaded(text)
    for rows in (1, 2, 7, 40):
        x = np.random.default_rng(rows).standard_normal((rows, 4), np.float32)
        for found, wanted in zip(ours.run(None, {"x": x}), theirs.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert {each.target for each in ours.session.explain().nodes} == {"vulkan"}


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_of_any_length_run_on_the_device(device: VulkanDevice, kind: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    rng = np.random.default_rng(3)
    w, r = (rng.standard_normal((1, gates * 5, size)).astype(np.float32) / 3 for size in (6, 5))
    node = onnx.helper.make_node(kind, ["x", "w", "r"], ["y"], hidden_size=5)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["t", 2, 6])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["t", 1, 2, 5])
    weights = [onnx.numpy_helper.from_array(array, name) for array, name in ((w, "w"), (r, "r"))]
    graph = onnx.helper.make_graph([node], "g", [x], [y], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    data = model.SerializeToString()
    ours, theirs = assay.InferenceSession(data, target="vulkan"), onnxruntime.InferenceSession(data)
    for length in (1, 9, 60):
        given = {"x": rng.standard_normal((length, 2, 6)).astype(np.float32)}
        wanted: Any = theirs.run(None, given)[0]
        np.testing.assert_allclose(ours.run(None, given)[0], wanted, rtol=1e-4, atol=1e-5)
    assert {each.target for each in ours.session.explain().nodes} == {"vulkan"}


def test_more_rounds_than_allowed_are_an_error(device: VulkanDevice) -> None:
    ours, _ = loaded(SUMS, limits=Limits(loop_iterations=10))
    assert ours.run(None, {"x": np.ones((10, 4), np.float32)})[1].shape == (10, 4)
    with pytest.raises(RunFailed, match="loop_iterations"):
        ours.run(None, {"x": np.ones((11, 4), np.float32)})
