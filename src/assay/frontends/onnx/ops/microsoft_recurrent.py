"""`com.microsoft` recurrent layers with quantised weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from assay.frontends.onnx.ops.microsoft import microsoft_op, standard
from assay.frontends.onnx.ops.microsoft_quantized import dynamic_quantize_matmul
from assay.frontends.onnx.ops.recurrent import LSTM_ACTIVATIONS, layer
from assay.frontends.onnx.registry import Builder, Results, Source
from assay.ir.graph import Value
from assay.ops.definitions.recurrent import (
    Cell,
    Step,
    gate_functions,
    hidden_size,
    initial_parts,
    lstm_cell,
    over_steps,
    over_time_parts,
)
from assay.ops.registry import as_results


@microsoft_op("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    b: Builder,
    n: Source,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None,
    lengths: Value | None,
    h0: Value | None,
    c0: Value | None,
    peepholes: Value | None,
    *quantization: Value,
) -> Results:
    """The standard's LSTM with weights (directions, size, gates) that are quantised: `quantization` is scale and zero
    point of w, then of r. The input as a whole and, at each step, the hidden states of the batch are quantised by
    their own range before they are multiplied."""
    couple = n.flag("input_forget", 0)
    parameters = (w, r, bias, peepholes, *quantization)
    return layer(b, n, partial(_lstm, b, n), LSTM_ACTIVATIONS, x, parameters, lengths, (h0, c0), couple=couple)


def _lstm(
    b: Builder,
    n: Source,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None,
    lengths: Value | None,
    h0: Value | None,
    c0: Value | None,
    peepholes: Value | None,
    *quantization: Value,
    reverse: bool,
    couple: bool,
    **functions: Any,
) -> tuple[Value, ...]:
    """One direction. Rows of different lengths that run backwards start together, each at its own end."""
    turn = partial(_turned, b, n, lengths=lengths) if reverse and lengths is not None else _as_it_is
    sequence = turn(x) if lengths is None else _without_padding(b, turn(x), lengths)
    products = _product(n, w, *quantization[:2])(b, sequence)
    like_r = b.transpose(r, perm=(1, 0))
    size = hidden_size(b, like_r)
    gates = products if bias is None else b.add(products, b.add(*b.emit("split", bias, sizes=(4 * size,) * 2, axis=0)))
    cell = lstm_cell(_product(n, r, *quantization[2:]), peepholes, gate_functions(**functions), size, couple)
    h, c = (initial_parts(b, state, x, like_r) for state in (h0, c0))
    if lengths is None:
        return over_time_parts(b, cell, gates, None, (h, c), reverse)
    hidden, _, c, h = over_steps(b, _step_of_the_living(cell, gates, lengths), gates, (h, c, h), reverse=False)
    return turn(hidden), h, c


def _product(n: Source, weights: Value, scale: Value, zero: Value) -> Callable[[Builder, Value], Value]:
    return lambda ops, x: as_results(dynamic_quantize_matmul(ops, n, x, weights, scale, zero))[0]


def _as_it_is(x: Value) -> Value:
    return x


def _turned(b: Builder, n: Source, x: Value, lengths: Value) -> Value:
    """(length, batch, …) with each row of the batch backwards, up to its own end."""
    return as_results(standard(b, n, "ReverseSequence", 10, x, lengths, time_axis=0, batch_axis=1))[0]


def _without_padding(b: Builder, x: Value, lengths: Value) -> Value:
    """(length, batch, size) with zeros after the end of the longest row, where nothing counts."""
    line = b.iota(b.reshape(b.vector(b.size(x, 0)), []))
    return b.where(b.unsqueeze(b.lt(line, b.reduce_max(lengths)), axes=(1, 2)), x, 0.0)


def _step_of_the_living(cell: Cell, gates: Value, lengths: Value) -> Step:
    """States are the hidden state, zero in rows that ended, so that they do not widen its range; the cell; the last
    hidden state of each row."""

    def step(ops: Any, index: Any, states: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        h, c, last = states
        fresh_h, fresh_c = cell(ops, ops.gather(gates, index, axis=0), h, c)
        alive = ops.unsqueeze(ops.lt(index, lengths), axes=(1,))
        living = ops.where(alive, fresh_h, 0.0)
        return living, (living, ops.where(alive, fresh_c, c), ops.where(alive, fresh_h, last))

    return step
