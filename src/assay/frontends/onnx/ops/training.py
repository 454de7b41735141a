"""ai.onnx.preview.training: one step of an optimiser, and gradients."""

from __future__ import annotations

from collections.abc import Sequence

from assay.errors import LowerFailed
from assay.frontends.onnx.ops.common import scalar
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dims import Expr
from assay.ir.graph import Value
from assay.ops.registry import FactMissing

TRAINING = "ai.onnx.preview.training"


def _columns(n: Source, inputs: Sequence[Value], count: int) -> list[tuple[Value, ...]]:
    """The inputs of each optimised tensor: they are listed kind by kind."""
    if not inputs or len(inputs) % count:
        raise ValueError(f"{len(inputs)} tensors are no groups of {count}")
    each = len(inputs) // count
    return list(zip(*(inputs[i * each : (i + 1) * each] for i in range(count)), strict=True))


def _kind_by_kind(rows: Sequence[Sequence[Value]]) -> tuple[Value, ...]:
    return tuple(value for column in zip(*rows, strict=True) for value in column)


def _as(b: Builder, x: Value, like: Value) -> Value:
    """A scalar in the dtype of another tensor."""
    return b.cast(scalar(b, x), dtype=b.dtype(like))


def _regularised(b: Builder, n: Source, x: Value, g: Value) -> Value:
    return b.add(b.mul(x, n.float("norm_coefficient")), g)


@onnx_op("Adagrad", domain=TRAINING)
def adagrad(b: Builder, n: Source, rate: Value, count: Value, *inputs: Value) -> Results:
    rows: list[tuple[Value, Value]] = []
    for x, g, h in _columns(n, inputs, 3):
        decay = b.add(b.mul(_as(b, count, x), n.float("decay_factor")), 1.0)
        step = b.div(_as(b, rate, x), decay)
        slope = _regularised(b, n, x, g)
        squares = b.add(h, b.mul(slope, slope))
        adaptive = b.add(b.sqrt(squares), n.float("epsilon"))
        rows.append((b.sub(x, b.div(b.mul(step, slope), adaptive)), squares))
    return _kind_by_kind(rows)


@onnx_op("Adam", domain=TRAINING)
def adam(b: Builder, n: Source, rate: Value, count: Value, *inputs: Value) -> Results:
    alpha, beta = n.float("alpha"), n.float("beta")
    rows: list[tuple[Value, Value, Value]] = []
    for x, g, v, h in _columns(n, inputs, 4):
        slope = _regularised(b, n, x, g)
        mean = b.add(b.mul(v, alpha), b.mul(slope, 1 - alpha))
        squares = b.add(b.mul(h, beta), b.mul(b.mul(slope, slope), 1 - beta))
        step = _corrected(b, _as(b, rate, x), scalar(b, count), alpha, beta)
        moved = b.sub(x, b.div(b.mul(step, mean), b.add(b.sqrt(squares), n.float("epsilon"))))
        rows.append((b.mul(moved, 1 - n.float("norm_coefficient_post")), mean, squares))
    return _kind_by_kind(rows)


def _corrected(b: Builder, rate: Value, count: Value, alpha: float, beta: float) -> Value:
    """Adam's learning rate without the bias of the first steps."""
    wide = b.cast(count, dtype=dtypes.f64)
    weights = [b.sub(1.0, b.pow(b.constant(base, dtypes.f64), wide)) for base in (alpha, beta)]
    factor = b.cast(b.div(b.sqrt(weights[1]), weights[0]), dtype=b.dtype(rate))
    return b.where(b.lt(0, count), b.mul(rate, factor), rate)


@onnx_op("Momentum", domain=TRAINING)
def momentum(b: Builder, n: Source, rate: Value, count: Value, *inputs: Value) -> Results:
    alpha, mode = n.float("alpha"), n.str("mode")
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"the mode '{mode}' is neither 'standard' nor 'nesterov'")
    rows: list[tuple[Value, Value]] = []
    for x, g, v in _columns(n, inputs, 3):
        slope = _regularised(b, n, x, g)
        share = b.where(b.lt(0, scalar(b, count)), b.constant(n.float("beta"), b.dtype(x)), 1.0)
        speed = b.add(b.mul(v, alpha), b.mul(share, slope))
        direction = speed if mode == "standard" else b.add(slope, b.mul(speed, alpha))
        rows.append((b.sub(x, b.mul(_as(b, rate, x), direction)), speed))
    return _kind_by_kind(rows)


@onnx_op("Gradient", domain=TRAINING)
def gradient(b: Builder, n: Source, *inputs: Value) -> Results:
    """The node's region is what `xs`, `zs` and `y` name of the graph around it, here built anew for the inputs."""
    from assay.passes.gradient import gradients

    count = len(n.strings("xs"))
    body = n.node.regions[0]
    if len(inputs) != len(body.inputs):
        raise ValueError(f"{len(body.inputs)} tensors are named, {len(inputs)} given")
    variables = [b.mul(x, 1.0) for x in inputs[:count]]  # a value of its own for each, also if two are the same
    try:
        mark = len(b.nodes)
        (y,) = n.lowering.inline(body, [*variables, *inputs[count:]])
        return tuple(gradients(b, b.nodes[mark:], y, variables))
    except FactMissing as missing:
        if all(_is_static(b, value) for value in inputs):
            raise LowerFailed(
                f"the gradient needs {missing}, which is known only after a run",
                where=str(n.node.origin),
                hint="shapes between the variables and the result must not depend on data",
            ) from None
        raise


def _is_static(b: Builder, value: Value) -> bool:
    shape = b.shape(value)
    return shape is not None and not any(isinstance(dim, Expr) for dim in shape)
