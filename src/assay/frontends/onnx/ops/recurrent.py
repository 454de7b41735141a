"""ONNX recurrent layers: one core layer for each direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from assay.frontends.onnx.ops.common import as_i64
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir.graph import Value

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


class _Activation(NamedTuple):
    """The core name of an activation and the defaults of its parameters, None for one that it does not have."""

    core: str
    alpha: float | None = None
    beta: float | None = None


_ACTIVATIONS = {
    "affine": _Activation("affine", 1.0, 0.0),
    "elu": _Activation("elu", 1.0),
    "hardsigmoid": _Activation("hard_sigmoid", 0.2, 0.5),
    "leakyrelu": _Activation("leaky_relu", 0.01),
    "relu": _Activation("relu"),
    "scaledtanh": _Activation("scaled_tanh", 1.0, 1.0),
    "sigmoid": _Activation("sigmoid"),
    "softplus": _Activation("softplus"),
    "softsign": _Activation("softsign"),
    "tanh": _Activation("tanh"),
    "thresholdedrelu": _Activation("thresholded_relu", 1.0),
}
LSTM_ACTIVATIONS = ("Sigmoid", "Tanh", "Tanh")


def _activation_attrs(n: Source, defaults: tuple[str, ...], directions: int) -> list[dict[str, Any]]:
    """The activations of each direction as attributes of a core layer; parameters are consumed in order."""
    names = n.strings("activations", None) or defaults * directions
    if len(names) < len(defaults) * directions:
        raise ValueError(f"{len(names)} activations where {len(defaults) * directions} are needed")
    unknown = [name for name in names if name.lower() not in _ACTIVATIONS]
    if unknown:
        raise ValueError(f"there is no activation '{unknown[0]}'")
    rows = [_ACTIVATIONS[name.lower()] for name in names]
    alphas, betas = iter(n.floats("activation_alpha", None) or ()), iter(n.floats("activation_beta", None) or ())
    alpha = [_consumed(row.alpha, alphas) for row in rows]
    beta = [_consumed(row.beta, betas) for row in rows]
    spans = [slice(i * len(defaults), (i + 1) * len(defaults)) for i in range(directions)]
    return [
        {"activations": tuple(row.core for row in rows[span]), "alpha": tuple(alpha[span]), "beta": tuple(beta[span])}
        for span in spans
    ]


def _consumed(default: float | None, given: Iterator[float]) -> float:
    return 0.0 if default is None else next(given, default)


def layer(
    b: Builder,
    n: Source,
    core: Callable[..., tuple[Value, ...]],
    defaults: tuple[str, ...],
    x: Value,
    parameters: Sequence[Value | None],
    lengths: Value | None,
    states: Sequence[Value | None],
    **attrs: Any,
) -> Results:
    """Run `core` in every direction. `parameters` (weights, biases …) lead with the axis of directions, `states` too
    unless the batch comes first."""
    direction = n.str("direction", "forward")
    directions = _DIRECTIONS.get(direction.lower())
    if directions is None:
        raise ValueError(f"there is no direction '{direction}'")
    batch_first = n.flag("layout", 0)
    axis = 1 if batch_first else 0
    sequence = b.transpose(x, perm=(1, 0, 2)) if batch_first else x
    clip = n.float("clip", 0.0)
    runs: list[tuple[Value, ...]] = []
    for index, (reverse, functions) in enumerate(
        zip(directions, _activation_attrs(n, defaults, len(directions)), strict=True)
    ):
        w, r, bias, *more = (value and b.gather(value, index, axis=0) for value in parameters)
        own = [value and b.gather(value, index, axis=axis) for value in states]
        given = (sequence, w, r, bias, lengths and as_i64(b, lengths), *own, *more)
        runs.append(core(*given, reverse=reverse, clip=clip, **functions, **attrs))
    hidden, *last = zip(*runs, strict=True)
    together = b.concat(*(b.unsqueeze(value, axes=(1,)) for value in hidden), axis=1)
    placed = b.transpose(together, perm=(2, 0, 1, 3)) if batch_first else together
    return placed, *(b.concat(*(b.unsqueeze(value, axes=(axis,)) for value in row), axis=axis) for row in last)


@onnx_op("RNN", since=7)
def rnn(
    b: Builder,
    n: Source,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    h0: Value | None = None,
) -> Results:
    return layer(b, n, partial(b.emit, "rnn"), ("Tanh",), x, (w, r, bias), lengths, (h0,))


@onnx_op("GRU", since=7)
def gru(
    b: Builder,
    n: Source,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    h0: Value | None = None,
) -> Results:
    reset_after = n.flag("linear_before_reset")
    return layer(
        b, n, partial(b.emit, "gru"), ("Sigmoid", "Tanh"), x, (w, r, bias), lengths, (h0,), reset_after=reset_after
    )


@onnx_op("LSTM", since=7)
def lstm(
    b: Builder,
    n: Source,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    h0: Value | None = None,
    c0: Value | None = None,
    peepholes: Value | None = None,
) -> Results:
    couple = n.flag("input_forget")
    core, parameters = partial(b.emit, "lstm"), (w, r, bias, peepholes)
    return layer(b, n, core, LSTM_ACTIVATIONS, x, parameters, lengths, (h0, c0), couple=couple)
