"""Recurrent layers. A cell is written once, over `ops`: a builder that emits core ops, or arrays that apply them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir.dims import UNKNOWN
from assay.ir.dtypes import FLOATS, Array, DType, boolean
from assay.ir.facts import Fact
from assay.ir.types import Shape, TensorType
from assay.ops.parts import sized
from assay.ops.registry import CORE, Compute, FactMissing, Sample, Tolerance, as_results, op
from assay.ops.samples import Rng, draw
from assay.ops.shapes import need

if TYPE_CHECKING:
    from assay.ops.builder import Builder

UNROLLED = 8
"""Sequences of at most this known length become straight code, all others a loop."""

Activation = Callable[[Any, Any, float, float], Any]

ACTIVATIONS: dict[str, Activation] = {
    "affine": lambda ops, x, alpha, beta: ops.add(ops.mul(x, alpha), beta),
    "elu": lambda ops, x, alpha, beta: ops.elu(x, alpha=alpha),
    "hard_sigmoid": lambda ops, x, alpha, beta: ops.min(ops.max(ops.add(ops.mul(x, alpha), beta), 0.0), 1.0),
    "leaky_relu": lambda ops, x, alpha, beta: ops.leaky_relu(x, slope=alpha),
    "relu": lambda ops, x, alpha, beta: ops.relu(x),
    "scaled_tanh": lambda ops, x, alpha, beta: ops.mul(ops.tanh(ops.mul(x, beta)), alpha),
    "sigmoid": lambda ops, x, alpha, beta: ops.sigmoid(x),
    "softplus": lambda ops, x, alpha, beta: ops.softplus(x),
    "softsign": lambda ops, x, alpha, beta: ops.div(x, ops.add(ops.abs(x), 1.0)),
    "tanh": lambda ops, x, alpha, beta: ops.tanh(x),
    "thresholded_relu": lambda ops, x, alpha, beta: ops.where(ops.le(alpha, x), x, 0.0),
}
"""What the gates may be passed through: `(ops, x, alpha, beta)`."""


class _Arrays:
    """Core ops applied to arrays at once."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return CORE[name].reference

    def emit(self, name: str, *inputs: Any, **attrs: Any) -> tuple[Any, ...]:
        """All results of one op."""
        return as_results(CORE[name].reference(*inputs, **attrs))


def gate_functions(activations: Sequence[str], alpha: Sequence[float], beta: Sequence[float], clip: float) -> Any:
    """`(ops, index, x)`: a gate clipped and passed through activation number `index`; not `bounded` does not clip."""

    def apply(ops: Any, index: int, x: Any, *, bounded: bool = True) -> Any:
        clipped = ops.min(ops.max(x, -clip), clip) if clip and bounded else x
        return ACTIVATIONS[activations[index]](ops, clipped, alpha[index], beta[index])

    return apply


# --- running over time

Cell = Callable[..., "tuple[Any, ...]"]
"""`(ops, gates, *states) -> states`, the hidden state first; `gates` is what the input adds to the gates."""
Step = Callable[[Any, Any, "Sequence[Any]"], "tuple[Any, tuple[Any, ...]]"]
"""`(ops, index, states) -> (row, states)`: what one step adds to the results, and the states after it."""


def _over_time(cell: Cell, gates: Array, lengths: Array | None, states: Sequence[Array], reverse: bool) -> Any:
    """All hidden states (length, batch, hidden) and the last states."""
    ops, steps = _Arrays(), range(len(gates))
    hidden = np.zeros((len(gates), *states[0].shape), gates.dtype)
    for step in reversed(steps) if reverse else steps:
        fresh = cell(ops, gates[step], *states)
        if lengths is None:
            states, hidden[step] = fresh, fresh[0]
            continue
        alive = (step < lengths)[:, None]
        states = tuple(np.where(alive, new, old) for new, old in zip(fresh, states, strict=True))
        hidden[step] = np.where(alive, fresh[0], 0.0)
    return hidden, *states


def over_time_parts(b: Builder, cell: Cell, gates: Any, lengths: Any, states: Sequence[Any], reverse: bool) -> Any:
    """As `_over_time`, in core ops."""
    lengths = None if lengths is None else sized(b, lengths, (gates, 1))

    def step(ops: Any, index: Any, states: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        fresh = cell(ops, ops.gather(gates, index, axis=0), *states)
        if lengths is None:
            return fresh[0], fresh
        alive = ops.unsqueeze(ops.lt(index, lengths), axes=(1,))
        kept = tuple(ops.where(alive, new, old) for new, old in zip(fresh, states, strict=True))
        return ops.where(alive, fresh[0], 0.0), kept

    return over_steps(b, step, gates, states, reverse)


def over_steps(b: Builder, step: Step, gates: Any, states: Sequence[Any], reverse: bool) -> tuple[Any, ...]:
    """The rows that `step` gives for each index of the first axis of `gates`, together, then the last states."""
    length = b.dims(gates)[0]
    if not isinstance(length, int) or length > UNROLLED:
        return _looped(b, step, b.reshape(b.vector(b.size(gates, 0)), []), states, reverse)
    rows: list[Any] = [None] * length
    for index in reversed(range(length)) if reverse else range(length):
        rows[index], states = step(b, b.constant(np.int64(index)), states)
    if not rows:
        return b.expand(b.constant(0.0, b.dtype(gates)), b.vector(0, b.shape_of(states[0]))), *states
    return b.concat(*(b.unsqueeze(row, axes=(0,)) for row in rows), axis=0), *states


def _looped(b: Builder, step: Step, length: Any, states: Sequence[Any], reverse: bool) -> Any:
    inner = b.child()
    counter, flag = inner.input(TensorType(b.dtype(length), ())), inner.input(TensorType(boolean, ()))
    carried = [inner.input(state.type) for state in states]
    index = inner.sub(inner.sub(length, 1), counter) if reverse else counter
    row, fresh = step(inner, index, carried)
    body = inner.finish("step", [counter, flag, *carried], [inner.constant(np.True_), *fresh, row])
    *last, stacked = b.emit("loop", length, None, *states, regions=(body,))
    hidden = b.reshape(stacked, b.vector(length, b.shape_of(states[0])))  # also where nothing was stacked
    return b.flip(hidden, axes=(0,)) if reverse else hidden, *last


# --- what the layers share


def _layer_shape(states: int, gates: int) -> Callable[..., list[Shape]]:
    def rule(x: Fact, w: Fact, r: Fact, *others: Fact | None, **attrs: Any) -> list[Shape]:
        length, batch, size = x.shape or (UNKNOWN,) * 3
        hidden = (r.shape or (UNKNOWN,))[-1]
        state = (batch, hidden)
        wanted = [
            ("the weight of the input", (hidden * gates, size)),
            ("the weight of the state", (hidden * gates, hidden)),
            ("the bias", (hidden * gates * 2,)),
            ("the vector of lengths", (batch,)),
            ("the initial state", state),
            ("the initial cell", state),
            ("the vector of peepholes", (hidden * 3,)),
        ]
        for (what, shape), given in zip(wanted, (w, r, *others), strict=False):
            need(what, given and given.shape, shape)
        return [(length, batch, hidden), *[(batch, hidden)] * states]

    return rule


def _initial(state: Array | None, x: Array, r: Array) -> Array:
    return np.zeros((x.shape[1], r.shape[-1]), x.dtype) if state is None else state


def initial_parts(b: Builder, state: Any, x: Any, r: Any) -> Any:
    """The state that a layer starts from: what is given, else zeros, as long as the last axis of `r`."""
    if state is not None:
        return sized(b, state, (x, 1), (r, -1))
    return b.expand(b.constant(0.0, b.dtype(x)), b.vector(b.size(x, 1), b.size(r, -1)))


def hidden_size(b: Builder, r: Any) -> int:
    """How long the hidden state is, and the last axis of `r`; FactMissing if that is no number."""
    hidden = b.dims(r)[-1]
    if not isinstance(hidden, int):
        raise FactMissing("the hidden size")
    return hidden


def _products(ops: Any, x: Any, w: Any, bias: Any) -> Any:
    product = ops.matmul(x, ops.transpose(w, perm=(1, 0)))
    return product if bias is None else ops.add(product, bias)


def _biases(ops: Any, bias: Any, size: int) -> tuple[Any, Any]:
    """The biases of the input's and of the state's products."""
    return (None, None) if bias is None else ops.emit("split", bias, sizes=(size, size), axis=0)


def _layer_samples(gates: int, states: int, functions: int, **flags: bool) -> Any:
    def samples(rng: Rng, dtype: DType) -> Iterable[Sample]:
        batch, size, hidden = 2, 3, 4

        def arguments(length: int) -> list[Any]:
            def small(*shape: int) -> Array:
                return draw(rng, dtype, shape, -0.5, 0.5)

            return [
                small(length, batch, size),
                small(gates * hidden, size),
                small(gates * hidden, hidden),
                small(2 * gates * hidden),
                np.array([length, max(length - 2, 0)]),
                *(small(batch, hidden) for _ in range(states)),
                *([small(3 * hidden)] if states == 2 else []),
            ]

        yield Sample(tuple(arguments(3)[:3]))
        yield Sample(tuple(arguments(4)), {"reverse": True, **flags})
        yield Sample(tuple(arguments(UNROLLED + 2)), {"clip": 0.25})
        yield Sample((*arguments(UNROLLED + 1)[:4], None), {"reverse": True})
        yield Sample(tuple(arguments(0)))
        for name in ACTIVATIONS:
            attrs = {"activations": (name,) * functions, "alpha": (0.3,) * functions, "beta": (0.2,) * functions}
            yield Sample(tuple(arguments(2)[:4]), attrs)

    return samples


# --- the layers


def _rnn_cell(r: Any, bias: Any, apply: Any) -> Cell:
    def cell(ops: Any, gates: Any, h: Any) -> tuple[Any, ...]:
        return (apply(ops, 0, ops.add(gates, _products(ops, h, r, bias))),)

    return cell


def _rnn_parts(
    b: Builder,
    x: Any,
    w: Any,
    r: Any,
    bias: Any = None,
    lengths: Any = None,
    h0: Any = None,
    *,
    reverse: bool,
    **gates: Any,
) -> Any:
    given, own = _biases(b, bias, hidden_size(b, r))
    cell = _rnn_cell(r, own, gate_functions(**gates))
    return over_time_parts(b, cell, _products(b, x, w, given), lengths, [initial_parts(b, h0, x, r)], reverse)


@op(
    "T, T, T, T?, i64?, T? -> T, T",
    T=FLOATS,
    ranks={"x": 3, "r": 2},
    shape=_layer_shape(states=1, gates=1),
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_rnn_parts,
    samples=_layer_samples(gates=1, states=1, functions=1),
)
def rnn(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    *,
    reverse: bool = False,
    activations: Sequence[str] = ("tanh",),
    alpha: Sequence[float] = (0.0,),
    beta: Sequence[float] = (0.0,),
    clip: float = 0.0,
) -> tuple[Array, Array]:
    """h ← f(x wᵀ + h rᵀ + both biases) over x (length, batch, size): all states, the last one. `bias` holds that of w,
    then that of r; rows of the batch end after their `lengths`, their states then stay and their outputs are zero;
    `reverse` runs from each row's end; `clip` bounds the gates before their activations (0: it does not)."""
    given, own = _biases(_Arrays(), bias, r.shape[-1])
    cell = _rnn_cell(r, own, gate_functions(activations, alpha, beta, clip))
    return _over_time(cell, _products(_Arrays(), x, w, given), lengths, [_initial(h0, x, r)], reverse)


def _gru_cell(r: Any, bias: Any, apply: Any, size: int, reset_after: bool) -> Cell:
    def cell(ops: Any, gates: Any, h: Any) -> tuple[Any, ...]:
        both, last = ops.emit("split", gates, sizes=(2 * size, size), axis=-1)
        r_both, r_last = ops.emit("split", r, sizes=(2 * size, size), axis=0)
        own, own_last = (None, None) if bias is None else ops.emit("split", bias, sizes=(2 * size, size), axis=0)
        update, reset = ops.emit(
            "split", apply(ops, 0, ops.add(both, _products(ops, h, r_both, own))), sizes=(size, size), axis=-1
        )
        if reset_after:
            inner = ops.mul(reset, _products(ops, h, r_last, own_last))
        else:
            inner = _products(ops, ops.mul(reset, h), r_last, own_last)
        fresh = apply(ops, 1, ops.add(last, inner))
        return (ops.add(ops.mul(ops.sub(1.0, update), fresh), ops.mul(update, h)),)

    return cell


def _gru_parts(
    b: Builder,
    x: Any,
    w: Any,
    r: Any,
    bias: Any = None,
    lengths: Any = None,
    h0: Any = None,
    *,
    reverse: bool,
    reset_after: bool,
    **gates: Any,
) -> Any:
    size = hidden_size(b, r)
    given, own = _biases(b, bias, 3 * size)
    cell = _gru_cell(r, own, gate_functions(**gates), size, reset_after)
    return over_time_parts(b, cell, _products(b, x, w, given), lengths, [initial_parts(b, h0, x, r)], reverse)


@op(
    "T, T, T, T?, i64?, T? -> T, T",
    T=FLOATS,
    ranks={"x": 3, "r": 2},
    shape=_layer_shape(states=1, gates=3),
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_gru_parts,
    samples=_layer_samples(gates=3, states=1, functions=2, reset_after=True),
)
def gru(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    *,
    reverse: bool = False,
    activations: Sequence[str] = ("sigmoid", "tanh"),
    alpha: Sequence[float] = (0.0, 0.0),
    beta: Sequence[float] = (0.0, 0.0),
    clip: float = 0.0,
    reset_after: bool = False,
) -> tuple[Array, Array]:
    """As `rnn`, with gates update z, reset s and candidate (in this order in w, r and the biases):
    h ← (1 − z) · g(x wᵀ + (s · h) rᵀ) + z · h; `reset_after` takes s · (h rᵀ) instead."""
    size = r.shape[-1]
    given, own = _biases(_Arrays(), bias, 3 * size)
    cell = _gru_cell(r, own, gate_functions(activations, alpha, beta, clip), size, reset_after)
    return _over_time(cell, _products(_Arrays(), x, w, given), lengths, [_initial(h0, x, r)], reverse)


def lstm_cell(recurrent: Callable[[Any, Any], Any], peepholes: Any, apply: Any, size: int, couple: bool) -> Cell:
    """The cell of an LSTM; `recurrent(ops, h)` is what the hidden state adds to the gates."""

    def cell(ops: Any, gates: Any, h: Any, c: Any) -> tuple[Any, ...]:
        total = ops.add(gates, recurrent(ops, h))
        enter, leave, keep, fresh = ops.emit("split", total, sizes=(size,) * 4, axis=-1)
        through = None if peepholes is None else ops.emit("split", peepholes, sizes=(size,) * 3, axis=0)
        if through is not None:
            enter, keep = ops.add(enter, ops.mul(through[0], c)), ops.add(keep, ops.mul(through[2], c))
        enter = apply(ops, 0, enter)
        keep = ops.sub(1.0, enter) if couple else apply(ops, 0, keep)
        cell_state = ops.add(ops.mul(keep, c), ops.mul(enter, apply(ops, 1, fresh)))
        if through is not None:
            leave = ops.add(leave, ops.mul(through[1], cell_state))
        return ops.mul(apply(ops, 0, leave), apply(ops, 2, cell_state, bounded=False)), cell_state

    return cell


def _recurrent(r: Any, bias: Any) -> Callable[[Any, Any], Any]:
    return lambda ops, h: _products(ops, h, r, bias)


def _lstm_parts(
    b: Builder,
    x: Any,
    w: Any,
    r: Any,
    bias: Any = None,
    lengths: Any = None,
    h0: Any = None,
    c0: Any = None,
    peepholes: Any = None,
    *,
    reverse: bool,
    couple: bool,
    **gates: Any,
) -> Any:
    size = hidden_size(b, r)
    given, own = _biases(b, bias, 4 * size)
    cell = lstm_cell(_recurrent(r, own), peepholes, gate_functions(**gates), size, couple)
    states = [initial_parts(b, state, x, r) for state in (h0, c0)]
    return over_time_parts(b, cell, _products(b, x, w, given), lengths, states, reverse)


@op(
    "T, T, T, T?, i64?, T?, T?, T? -> T, T, T",
    T=FLOATS,
    ranks={"x": 3, "r": 2},
    shape=_layer_shape(states=2, gates=4),
    compute=Compute.WIDE,
    tolerance=Tolerance.ACCUMULATED,
    parts=_lstm_parts,
    samples=_layer_samples(gates=4, states=2, functions=3, couple=True),
)
def lstm(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    c0: Array | None = None,
    peepholes: Array | None = None,
    *,
    reverse: bool = False,
    activations: Sequence[str] = ("sigmoid", "tanh", "tanh"),
    alpha: Sequence[float] = (0.0, 0.0, 0.0),
    beta: Sequence[float] = (0.0, 0.0, 0.0),
    clip: float = 0.0,
    couple: bool = False,
) -> tuple[Array, Array, Array]:
    """As `rnn`, with gates input i, output o, forget f and candidate (in this order in w, r and the biases):
    c ← f · c + i · candidate, h ← o · tanh(c): all h, the last h, the last c. Peepholes (i, o, f) add multiples of c to
    the gates; `couple` makes f = 1 − i."""
    size = r.shape[-1]
    given, own = _biases(_Arrays(), bias, 4 * size)
    cell = lstm_cell(_recurrent(r, own), peepholes, gate_functions(activations, alpha, beta, clip), size, couple)
    states = [_initial(state, x, r) for state in (h0, c0)]
    return _over_time(cell, _products(_Arrays(), x, w, given), lengths, states, reverse)
