"""ONNX Runtime's exceptions under its own names: `from onnxruntime.capi.onnxruntime_pybind11_state import Fail`."""

from assay.runtime.ort.errors import EXCEPTIONS

globals().update(EXCEPTIONS)
__all__ = sorted(EXCEPTIONS)  # pyright: ignore[reportUnsupportedDunderAll]
