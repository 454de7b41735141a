"""Layers that families share, each a function of the module whose weights it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from assay.frontends.checkpoint.recipes.network import Network
from assay.ir.graph import Value
from assay.ops.builder import Builder

_QUICK = 1.702

ACTIVATIONS: Mapping[str, Callable[[Builder, Value], Value]] = {
    "gelu": lambda b, x: b.gelu(x),
    "gelu_new": lambda b, x: b.gelu_tanh(x),
    "gelu_pytorch_tanh": lambda b, x: b.gelu_tanh(x),
    "gelu_fast": lambda b, x: b.gelu_tanh(x),
    "quick_gelu": lambda b, x: b.mul(x, b.sigmoid(b.mul(x, _QUICK))),
    "relu": lambda b, x: b.relu(x),
    "silu": lambda b, x: b.silu(x),
    "swish": lambda b, x: b.silu(x),
    "tanh": lambda b, x: b.tanh(x),
}
"""By the names that configurations have for them."""


def linear(m: Network, x: Value, outputs: int, *, bias: bool = False) -> Value:
    """x · weightᵀ + bias, for a weight (outputs, inputs)."""
    with m.op("linear") as b:
        product = b.matmul(x, b.transpose(m.weight("weight", outputs, m.size(x)), perm=(1, 0)))
        return m.named(b.add(product, m.weight("bias", outputs)) if bias else product)


def turned_linear(m: Network, x: Value, outputs: int) -> Value:
    """x · weight + bias, for a weight (inputs, outputs)."""
    with m.op("linear") as b:
        return m.named(b.add(b.matmul(x, m.weight("weight", m.size(x), outputs)), m.weight("bias", outputs)))


def embedding(m: Network, positions: Value, count: int, width: int) -> Value:
    """Rows of the weight (count, width)."""
    with m.op("embedding") as b:
        return m.named(b.gather(m.weight("weight", count, width), positions, axis=0))


def layer_norm(m: Network, x: Value, epsilon: float, *, bias: bool = True) -> Value:
    """The layer normalization of the last axis."""
    width = m.size(x)
    with m.op("layer_norm") as b:
        shift = m.weight("bias", width) if bias else None
        return m.named(b.layer_norm(x, m.weight("weight", width), shift, epsilon=epsilon))


def rms_norm(m: Network, x: Value, epsilon: float) -> Value:
    """The normalization of the last axis by its root mean square."""
    with m.op("rms_norm") as b:
        return m.named(b.rms_norm(x, m.weight("weight", m.size(x)), epsilon=epsilon))


def activation(m: Network, name: str, x: Value) -> Value:
    """A function by the name that configurations have for it."""
    with m.op(name) as b:
        return ACTIVATIONS[name](b, x)


def added(m: Network, x: Value, y: Value) -> Value:
    """A residual connection."""
    with m.op("add") as b:
        return b.add(x, y)


def gated_mlp(m: Network, x: Value, inner: int, function: str, *, bias: bool = False) -> Value:
    """down(f(gate(x)) · up(x))."""
    gate = activation(m, function, linear(m.at("gate_proj"), x, inner, bias=bias))
    up = linear(m.at("up_proj"), x, inner, bias=bias)
    with m.op("gate") as b:
        gated = b.mul(gate, up)
    return m.named(linear(m.at("down_proj"), gated, m.size(x), bias=bias))


def mlp(m: Network, x: Value, inner: int, function: str, names: tuple[str, str]) -> Value:
    """Two layers with a function between them, called `names`."""
    grown = activation(m, function, linear(m.at(names[0]), x, inner, bias=True))
    return m.named(linear(m.at(names[1]), grown, m.size(x), bias=True))


def last_position(m: Network, x: Value) -> Value:
    """x (batch, step, width), or if the graph is to have the last logits alone, its last position (batch, width)."""
    if m.options.logits == "all":
        return x
    with m.op("last") as b:
        step = b.reshape(b.vector(b.size(x, 1)), [])
        return b.gather(x, b.sub(step, 1), axis=1)


def vocabulary_scores(m: Network, head: Network, x: Value, vocabulary: int) -> Value:
    """The logits of x by the rows of a weight (vocabulary, width): a head, or the table of embeddings itself."""
    return linear(head, last_position(m, x), vocabulary)
