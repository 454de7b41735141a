"""aten's recurrent layers that arrive whole."""

from __future__ import annotations

from collections.abc import Sequence

from assay.frontends.torch.ops.normalization import as_declared
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir.graph import Value

_LSTM = 2
"""oneDNN's number for this kind of layer."""
_GATES = (0, 3, 1, 2)
"""Where the core op's gates (input, output, forget, candidate) are among torch's."""


@aten("aten.mkldnn_rnn_layer.default")
def lstm_layer(
    b: Builder,
    n: Call,
    x: Value,
    w: Value,
    r: Value,
    w_bias: Value,
    r_bias: Value,
    hidden: Value,
    state: Value,
    reverse: bool,
    lengths: Sequence[int],
    mode: int,
    size: int,
    layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> Results:
    if mode != _LSTM or layers != 1 or bidirectional or batch_first or train or lengths:
        raise ValueError("only one LSTM layer in one direction is covered, for inference")
    bias = b.concat(*(_reordered(b, part, size) for part in (w_bias, r_bias)), axis=0) if has_biases else None
    start, cell = (b.squeeze(part, axes=(0,)) for part in (hidden, state))
    weights = (_reordered(b, part, size) for part in (w, r))
    outputs, last, last_cell = b.emit("lstm", x, *weights, bias, None, start, cell, reverse=reverse)
    workspace = b.expand(b.constant(0), [0])
    ends = (b.unsqueeze(part, axes=(0,)) for part in (last, last_cell))
    return as_declared(b, n, outputs, *ends, workspace)


def _reordered(b: Builder, x: Value, size: int) -> Value:
    """Rows of torch's four gates in the order of the core op's."""
    gates = b.emit("split", x, sizes=(size,) * len(_GATES), axis=0)
    return b.concat(*(gates[place] for place in _GATES), axis=0)
