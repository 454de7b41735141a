"""Models that take time and memory, and sessions of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from assay.frontends.onnx import load
from assay.limits import Limits
from assay.runtime.session import Session, SessionOptions


def session_of(text: str, target: str, limits: Limits | None = None) -> Session:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')
    return Session(load(proto), SessionOptions(target=target, limits=limits or Limits()))


CHAIN = """g (float[n, m] x) => (float[n, m] y) {
    a = Exp(x)
    t = Transpose<perm = [1, 0]>(a)
    b = MatMul(a, t)
    c = Softmax<axis = 1>(b)
    y = MatMul(c, a)
}"""

HUNGRY = {
    "result": "y = Exp(x)",
    "between": "a = Exp(x) \n t = Transpose<perm = [1, 0]>(a) \n b = Softmax<axis = 1>(t) \n y = ReduceSum(b)",
}


def feeds_of_chain(rows: int = 8, columns: int = 16) -> dict[str, Any]:
    return {"x": np.linspace(-1, 1, rows * columns, dtype=np.float32).reshape(rows, columns)}
