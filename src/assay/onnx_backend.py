"""Assay as an ONNX backend, which `onnx.backend.test.BackendTest(assay.onnx_backend, __name__)` takes unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from assay.frontends.onnx import import_model
from assay.runtime.session import Session, SessionOptions


class AssayRep(BackendRep):
    """A model made ready to run."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """All outputs, for inputs given in order or by name."""
        in_order = zip(self.session.input_names, inputs, strict=False)
        feeds: dict[str, Any] = dict(inputs if hasattr(inputs, "keys") else in_order)
        return namedtupledict("Outputs", list(self.session.output_names))(*self.session.run(feeds).values())


class AssayBackend(Backend):
    """The backend's functions; the module offers them under its own name."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> AssayRep:
        """Load and compile a model; keyword arguments are those of `SessionOptions`."""
        return AssayRep(Session(import_model(model), SessionOptions(**kwargs)))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepare and run at once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node of the newest opset on arrays, one for each input that the node names."""
        infos = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(filter(None, node.input), inputs, strict=True)
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "node", infos, outputs))
        return cls.run_model(model, inputs, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The CPU alone."""
        return device == "CPU"


prepare = AssayBackend.prepare
run_model = AssayBackend.run_model
run_node = AssayBackend.run_node
supports_device = AssayBackend.supports_device
