"""Loading and lowering must stay linear: twice the nodes, at most 2.2 times the time.

Prints the ratio for 10,000 and 20,000 nodes, measured in turns in one run: medians, and the least disturbed rounds.
"""

from __future__ import annotations

import gc
import statistics
import time

import onnx
from onnx import TensorProto, helper

from assay.frontends.onnx import load
from assay.ops.lowering import lower
from assay.passes import STANDARD, apply
from assay.targets.reference import ReferenceTarget

ROUNDS = 9
CYCLE = ("Relu", "Neg", "Exp", "Sigmoid", "Tanh")


def chain(nodes: int) -> bytes:
    """A model of `nodes` nodes: elementwise ops, with a weight added and a reshape every few nodes."""
    body: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    value = "x"
    for index in range(nodes):
        result = f"v{index}"
        if index % 7 == 0:
            weights.append(helper.make_tensor(f"w{index}", TensorProto.FLOAT, [8], [0.1 * i for i in range(8)]))
            body.append(helper.make_node("Add", [value, f"w{index}"], [result]))
        elif index % 7 == 3:
            weights.append(helper.make_tensor(f"w{index}", TensorProto.INT64, [2], [-1, 8]))
            body.append(helper.make_node("Reshape", [value, f"w{index}"], [result]))
        else:
            body.append(helper.make_node(CYCLE[index % len(CYCLE)], [value], [result]))
        value = result
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])]
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)]
    return helper.make_model(helper.make_graph(body, "chain", inputs, outputs, weights)).SerializeToString()


def timed(model: bytes) -> float:
    """Seconds from bytes to a runnable program; what earlier rounds left behind is not charged to this one."""
    gc.collect()
    started = time.perf_counter()
    ReferenceTarget().compile(apply(lower(load(model)), STANDARD))
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    models = {count: chain(count) for count in (10_000, 20_000)}
    times: dict[int, list[float]] = {count: [] for count in models}
    for _ in range(ROUNDS):
        for count, model in models.items():
            times[count].append(timed(model))
    for name, pick in (("median", statistics.median), ("least", min)):
        small, large = (pick(times[count]) for count in models)
        ratio = f"ratio {large / small:.2f} (at most 2.2)"
        print(f"{name}: 10,000 nodes {small:.2f} s, 20,000 nodes {large:.2f} s, {ratio}")


if __name__ == "__main__":
    main()
