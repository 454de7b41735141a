"""ONNX control flow: If, Loop and Scan onto `branch` and `loop`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.frontends.onnx.ops.common import as_i64, scalar
from assay.frontends.onnx.ops.counting import counted
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType, Type
from assay.ops.definitions.control import loop_body
from assay.ops.registry import FactMissing

_COUNTER = TensorType(dtypes.i64, ())
_FLAG = TensorType(dtypes.boolean, ())


@onnx_op("If")
def if_(b: Builder, n: Source, condition: Value) -> Results:
    known = b.fact(condition).concrete
    if known is not None:
        return tuple(n.lowering.inline(n.body("then_branch" if known.reshape(-1)[0] else "else_branch"), []))
    regions = (n.region("then_branch", []), n.region("else_branch", []))
    return b.emit("branch", condition, regions=regions)


@onnx_op("Loop")
def loop(b: Builder, n: Source, trip: Value | None, go: Value | None = None, *carried: Value) -> Results:
    source = n.body("body")
    if len(source.inputs) != 2 + len(carried):
        raise ValueError(f"the body takes {len(source.inputs)} inputs, the loop carries {len(carried)} values")
    graph = loop_body(
        lambda kinds: n.region("body", [_COUNTER, _FLAG, *kinds]),
        [value.type for value in carried],
    )
    most = trip and scalar(b, as_i64(b, trip))
    counting = counted(b, go, carried, graph)
    if counting is None:
        return b.emit("loop", most, go, *carried, regions=(graph,))
    rounds = counting.rounds if most is None else b.min(most, counting.rounds)
    return b.emit("loop", rounds, None, *carried, regions=(counting.body,))


@onnx_op("Scan", since=9)
def scan(b: Builder, n: Source, *inputs: Value) -> Results:
    count = n.int("num_scan_inputs")
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    outputs = len(n.body("body").outputs) - len(states)
    in_axes = n.ints("scan_input_axes", None) or (0,) * count
    out_axes = n.ints("scan_output_axes", None) or (0,) * outputs
    backwards = n.ints("scan_input_directions", None) or (0,) * count
    out_backwards = n.ints("scan_output_directions", None) or (0,) * outputs
    results = _scan(b, n, states, scanned, in_axes, backwards)
    return (
        *results[: len(states)],
        *(
            _placed(b, value, axis, bool(back))
            for value, axis, back in zip(results[len(states) :], out_axes, out_backwards, strict=True)
        ),
    )


def _placed(b: Builder, stacked: Value, axis: int, backwards: bool) -> Value:
    """What a scan stacked along axis 0, turned around and moved to where it belongs."""
    turned = b.flip(stacked, axes=(0,)) if backwards else stacked
    if axis == 0:
        return turned
    rank = b.rank(turned)
    perm = list(range(1, rank))
    perm.insert(axis % rank, 0)
    return b.transpose(turned, perm=tuple(perm))


def _scan(
    b: Builder,
    n: Source,
    states: Sequence[Value],
    scanned: Sequence[Value],
    axes: Sequence[int],
    backwards: Sequence[int],
    trip: Value | None = None,
) -> Sequence[Value]:
    """Final states and stacked outputs of the scan's body over slices of `scanned`."""
    sizes = [scalar(b, b.vector(b.size(value, axis))) for value, axis in zip(scanned, axes, strict=True)]

    def body(kinds: Sequence[Type]) -> Graph:
        with n.lowering.nested() as inner:
            counter, flag = inner.input(_COUNTER), inner.input(_FLAG)
            carried = [inner.input(kind) for kind in kinds]
            slices = [
                inner.gather(value, inner.sub(inner.sub(size, 1), counter) if back else counter, axis=axis)
                for value, size, axis, back in zip(scanned, sizes, axes, backwards, strict=True)
            ]
            results = n.lowering.inline(n.body("body"), [*carried, *slices])
            go = inner.constant(np.True_)
            return inner.finish("scan", [counter, flag, *carried], [go, *results])

    if not sizes and trip is None:
        raise ValueError("a scan needs at least one input to scan over")
    graph = loop_body(body, [value.type for value in states])
    return b.emit("loop", sizes[0] if trip is None else trip, None, *states, regions=(graph,))


@onnx_op("Scan")
def scan_batched(b: Builder, n: Source, lengths: Value | None, *inputs: Value) -> Results:
    """Version 8: a batch axis before the scanned one, and a length for each row of the batch."""
    count = n.int("num_scan_inputs")
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    batch, total = b.dims(scanned[0])[:2]
    if not isinstance(batch, int) or not isinstance(total, int):
        raise FactMissing("the batch size and length")
    backwards = n.ints("directions", None) or (0,) * count
    rows: list[list[Value]] = []
    for row in range(batch):
        own = [[b.gather(value, row, axis=0) for value in group] for group in (states, scanned)]
        trip = None if lengths is None else b.gather(lengths, row, axis=0)
        results = _scan(b, n, own[0], own[1], (0,) * count, backwards, trip)
        rows.append([value if i < len(states) else _filled(b, value, total) for i, value in enumerate(results)])
    return tuple(
        b.concat(*(b.unsqueeze(value, axes=(0,)) for value in column), axis=0) for column in zip(*rows, strict=True)
    )


def _filled(b: Builder, value: Value, total: int) -> Value:
    """`value` with zeros appended along its first axis up to `total`."""
    rank = b.rank(value)
    size = b.size(value, 0)
    missing = total - size if isinstance(size, int) else b.sub(total, size)
    return b.pad(
        value, b.vector(*(0,) * rank, missing, *(0,) * (rank - 1)), b.cast(b.constant(0), dtype=b.dtype(value))
    )
