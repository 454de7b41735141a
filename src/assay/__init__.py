"""Assay compiles ONNX and PyTorch models and tells, op by op, whether the result is right."""
