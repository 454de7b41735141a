"""ONNX Runtime's names and habits, a file for each group of names; `names.py` says of every name what became of it."""
