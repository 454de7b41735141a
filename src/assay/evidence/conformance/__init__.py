"""The official ONNX suite on targets and peers."""
