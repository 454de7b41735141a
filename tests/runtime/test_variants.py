"""Models that take sizes as inputs: on a native target they run as variants, with the results of the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from assay.errors import AssayError
from assay.frontends.onnx import import_model
from assay.runtime import variants
from assay.runtime.pipeline import KEPT, ModelPrograms
from assay.runtime.session import Session, SessionOptions
from assay.runtime.variants import VariantInputs, Variants, deciding_inputs

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def model(*nodes: onnx.NodeProto, **inputs: tuple[int, list[Any]]) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    return helper.make_model(helper.make_graph(nodes, "m", given, made), opset_imports=[helper.make_opsetid("", 21)])


def reshaped() -> onnx.ModelProto:
    """y = exp(x) in a shape that is fed, times a scalar that decides nothing."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Mul", ["e", "factor"], ["m"]),
        helper.make_node("Reshape", ["m", "shape"], ["r"]),
        helper.make_node("Sqrt", ["r"], ["y"]),
    ]
    sizes: dict[str, tuple[int, list[Any]]] = {
        "x": (TensorProto.FLOAT, [4, 6]),
        "factor": (TensorProto.FLOAT, []),
        "shape": (TensorProto.INT64, [2]),
    }
    return model(*nodes, **sizes)


def session(source: onnx.ModelProto, target: str = "cpu") -> Session:
    return Session(import_model(source), SessionOptions(target=target))


def feeds(*shape: int, factor: float = 2.0) -> dict[str, Any]:
    return {"x": X, "factor": np.float32(factor), "shape": np.array(shape)}


def targets(ready: Session) -> set[str]:
    return {node.target for node in ready.explain().nodes if node.floats}


def test_only_inputs_that_sizes_depend_on_decide() -> None:
    assert deciding_inputs(session(reshaped(), "reference").lowered) == (2,)
    plain = model(helper.make_node("Exp", ["x"], ["y"]), x=(TensorProto.FLOAT, ["n"]))
    assert deciding_inputs(session(plain, "reference").lowered) == ()


def test_a_model_that_takes_a_shape_runs_natively_and_rightly() -> None:
    ready, oracle = session(reshaped()), session(reshaped(), "reference")
    assert targets(ready) == {"cpu", "reference"}
    for shape in ((2, 12), (24, 1), (2, 12), (-1, 3)):
        given = feeds(*shape)
        right = oracle.run(given)["y"]
        np.testing.assert_allclose(ready.run(given)["y"], right, rtol=1e-6)
        assert targets(ready) == {"cpu"}
        assert ready.profile(given)
        assert ready.observe(given, ["y"])["y"].shape == right.shape


def test_other_inputs_make_no_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = session(reshaped())
    first = ready.run(feeds(3, 8))["y"]
    monkeypatch.setattr(ModelPrograms, "_variant", lambda *arguments: pytest.fail("another variant"))
    np.testing.assert_allclose(ready.run(feeds(3, 8, factor=8.0))["y"], 2 * first, rtol=1e-6)


def test_a_run_uses_its_own_variant_whatever_other_threads_choose() -> None:
    class Raced(Session):
        """As if another thread chose the program `rival` right after this one chose its own."""

        rival: Any = None

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, self.rival if name == "_latest" and self.rival else value)

    ready = Raced(import_model(reshaped()), SessionOptions(target="cpu"))
    ready.run(feeds(2, 12))
    ready.rival = ready._latest
    assert ready.run(feeds(24, 1))["y"].shape == (24, 1)


def test_ever_new_sizes_end_at_the_program_that_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "MADE", 3)
    ready = session(reshaped())
    shapes = [(1, 24), (2, 12), (3, 8), (4, 6), (6, 4), (8, 3)]
    for shape in shapes:
        assert ready.run(feeds(*shape))["y"].shape == shape
    assert targets(ready) == {"cpu", "reference"}
    ready.run(feeds(*shapes[0]))
    assert targets(ready) == {"cpu"}


def test_the_variants_that_were_used_last_are_kept() -> None:
    made: list[int] = []
    found = Variants[str](KEPT, lambda known: made.append(int(known.content[0][0])) or "made")
    for number in (*range(KEPT), 0, KEPT, 0, 1):
        assert found.find(VariantInputs({0: np.array([number])}, {})) == "made"
    assert made == [*range(KEPT + 1), 1]


def sized() -> onnx.ModelProto:
    """Half as many columns as x has, by arithmetic of floats that no algebra of sizes follows."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "half"], ["less"]),
        helper.make_node("Cast", ["less"], ["wanted"], to=TensorProto.INT64),
        helper.make_node("Slice", ["x", "zero", "wanted"], ["cut"]),
        helper.make_node("Exp", ["cut"], ["y"]),
    ]
    made = model(*nodes, x=(TensorProto.FLOAT, ["n", "m"]))
    for name, array in (("half", np.array([1, 0.5], np.float32)), ("zero", np.zeros(2, np.int64))):
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


def test_sizes_that_no_algebra_follows_run_natively() -> None:
    ready, oracle = session(sized()), session(sized(), "reference")
    for shape in ((4, 6), (3, 9), (4, 6), (1, 1)):
        x = np.ones(shape, np.float32)
        np.testing.assert_allclose(ready.run({"x": x})["y"], oracle.run({"x": x})["y"], rtol=1e-6)
        assert targets(ready) == {"cpu"}


def test_a_shape_that_does_not_fit_is_the_error_of_the_run() -> None:
    ready, oracle = session(reshaped()), session(reshaped(), "reference")
    found: list[str] = []
    for each in (ready, oracle):
        with pytest.raises(AssayError) as caught:
            each.run(feeds(5, 5))
        found.append(str(caught.value))
    assert found[0] == found[1]
    assert ready.run(feeds(2, 12))["y"].shape == (2, 12)


def test_content_that_is_too_long_makes_no_variant() -> None:
    made = Variants[str](KEPT, lambda known: "made")
    assert made.find(VariantInputs({0: np.zeros(3, np.int64)}, {})) == "made"
    assert made.find(VariantInputs({0: np.zeros(5000, np.int64)}, {})) is None
