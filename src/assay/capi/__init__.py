"""Where programs that are written for ONNX Runtime look for its exceptions."""

from assay.capi import onnxruntime_pybind11_state as onnxruntime_pybind11_state
