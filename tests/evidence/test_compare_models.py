"""Who is to blame where two engines part: the op that differs on equal inputs, not those that it hands its error to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

from assay.evidence.compare.models import Comparison, Judge, compare_models

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 4] x) => (float[n, 4] out)
{
    warm = Exp(x)
    guilty = Tanh(warm)
    steep = Mul(guilty, big)
    codes, scale, zero = DynamicQuantizeLinear(steep)
    out = DequantizeLinear(codes, scale, zero)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(MODEL)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(100, np.float32), "big"))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def compared(model: Path, first: str, second: str) -> Comparison:
    feeds = {"x": np.linspace(-2, 1, 20, dtype=np.float32).reshape(5, 4)}
    return compare_models(model, first, second, feeds, Judge())


@pytest.fixture
def wrong_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native target's tanh is wrong by a thousandth."""
    from assay.targets.cpu import scalar

    honest = scalar.expression

    def wrong(node: Any, names: Any) -> str:
        text = honest(node, names)
        return f"({text} * 1.001f)" if node.op == "tanh" else text

    monkeypatch.setattr(scalar, "expression", wrong)


@pytest.mark.usefixtures("wrong_tanh")
@pytest.mark.parametrize("other", ["reference", "onnxruntime"])
def test_the_op_that_differs_by_itself_is_named(model: Path, other: str) -> None:
    found = compared(model, "cpu", other)
    own = {value.name: value.own for value in found.diverged}
    assert own.pop("guilty") is True
    assert own
    assert not any(own.values())
    assert found.first_fault is not None
    assert found.first_fault.op == "Tanh"
    assert {value.outlier for value in found.diverged} <= {"cpu", ""}
    assert found.first_fault.outlier == "cpu"


def test_a_peer_that_differs_is_the_outlier(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.evidence import peers

    honest = peers.run_onnxruntime

    def wrong(session: Any, feeds: Any) -> dict[str, Any]:
        found = honest(session, feeds)
        return {**found, "guilty": found["guilty"] * np.float32(1.01)} if "guilty" in found else found

    monkeypatch.setattr(peers, "run_onnxruntime", wrong)
    found = compared(model, "reference", "onnxruntime")
    assert [(value.name, value.own, value.outlier) for value in found.diverged] == [("guilty", True, "onnxruntime")]


def test_who_agrees_has_no_verdict(model: Path) -> None:
    found = compared(model, "cpu", "reference")
    assert not found.diverged
    assert found.first_fault is None
    assert all(value.own is None and not value.outlier for value in found.values)
