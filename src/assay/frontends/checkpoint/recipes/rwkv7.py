"""RWKV 7: a recurrent model whose heads keep a matrix that each token fades, corrects and adds to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.family import TORCH, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import added, embedding, layer_norm, linear, vocabulary_scores
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors
from assay.frontends.checkpoint.recipes.recurrent import Recurrence, over_positions, start_recurrence
from assay.ir.graph import Graph, Value
from assay.ops.builder import Builder

_EPSILON = 1e-5
_SMALLEST = 1e-12
"""The least length that keys are divided by."""
_SLOWEST = -math.exp(-0.5)
"""The logarithm of the strongest fading in one step."""


@dataclass(frozen=True)
class Rwkv7Configuration:
    """A model of the family. `ranks` are those of the products that give the fading (w), the strength of corrections
    (a), the share of the first layer's values (v) and the gate (g)."""

    vocabulary: int
    width: int
    inner_width: int
    layers: int
    heads: int
    ranks: Mapping[str, int]


def _of_torch(fields: Fields, tensors: Tensors) -> Rwkv7Configuration:
    """Such files say nothing but by the sizes of tensors."""
    vocabulary, width = tensors.matrix("emb.weight")
    layers = tensors.count(lambda index: f"blocks.{index}.ln1.weight")
    deepest = max(layers - 1, 0)
    ranks = {name: tensors.matrix(f"blocks.{deepest}.att.{name}1")[1] for name in ("wavg" if deepest else "wag")}
    heads = tensors.matrix("blocks.0.att.r_k")[0]
    fields.divides("heads", "width", heads, width)
    return Rwkv7Configuration(vocabulary, width, tensors.matrix("blocks.0.ffn.key.weight")[0], layers, heads, ranks)


def _names(index: int) -> tuple[str, str, str]:
    return f"layers.{index}.attention_shift", f"layers.{index}.memory", f"layers.{index}.feed_forward_shift"


def _build(tensors: Tensors, c: Rwkv7Configuration, options: GraphOptions) -> Mapping[str, Graph]:
    root = Network.empty(tensors, options, "rwkv7")
    size = c.width // c.heads
    sizes = ((c.width,), (c.heads, size, size), (c.width,))
    shapes = {name: shape for index in range(c.layers) for name, shape in zip(_names(index), sizes, strict=True)}
    recurrence = start_recurrence(root, shapes)
    x = embedding(root.at("emb"), recurrence.tokens, c.vocabulary, c.width)
    x = layer_norm(root.at("blocks.0.ln0"), x, _EPSILON)
    first: Value | None = None
    for index in range(c.layers):
        m = root.at("blocks", index)
        mixing = _Mixing(m.at("att"), c, recurrence, index, layer_norm(m.at("ln1"), x, _EPSILON))
        attended, first = mixing.result(first)
        x = added(m, x, attended)
        x = m.named(added(m, x, _feed_forward(m.at("ffn"), c, recurrence, index, layer_norm(m.at("ln2"), x, _EPSILON))))
    x = layer_norm(root.at("ln_out"), x, _EPSILON)
    return {"decoder": recurrence.finish(vocabulary_scores(root, root.at("head"), x, c.vocabulary))}


def _mixed(m: Network, name: str, x: Value, before: Value) -> Value:
    """Each channel moved by its share towards the position before."""
    with m.op("mix") as b:
        return b.add(x, b.mul(b.sub(before, x), m.weight(name, 1, 1, m.size(x))))


def _feed_forward(m: Network, c: Rwkv7Configuration, recurrence: Recurrence, index: int, x: Value) -> Value:
    before = recurrence.before(m, _names(index)[2], x)
    key = linear(m.at("key"), _mixed(m, "x_k", x, before), c.inner_width)
    with m.op("square") as b:
        grown = b.square(b.relu(key))
    return m.named(linear(m.at("value"), grown, c.width))


class _Mixing:
    """The mixing of positions in one layer."""

    def __init__(self, m: Network, c: Rwkv7Configuration, recurrence: Recurrence, index: int, x: Value) -> None:
        self.m, self.c, self.recurrence, self.index, self.x = m, c, recurrence, index, x
        self.before = recurrence.before(m, _names(index)[0], x)

    def result(self, first: Value | None) -> tuple[Value, Value]:
        """What the layer adds, and the first layer's values, which later layers take a share of."""
        m, c = self.m, self.c
        receptance, key, value = (self._linear(name) for name in ("receptance", "key", "value"))
        if first is None:
            first = value
        else:
            value = self._between(value, first)
        with m.op("fade") as b:
            fading = b.exp(b.mul(b.sigmoid(self._low_rank("w", b.tanh)), _SLOWEST))
            strength = b.sigmoid(self._low_rank("a"))
            direction = self._unit(b, b.mul(key, self._vector("k_k")))
            share = b.mul(b.sub(strength, 1.0), self._vector("k_a"))
            key = b.add(key, b.mul(key, share))
            columns = [self._heads(b, each) for each in (receptance, fading, key, value, strength)]
            receptance, fading, key, value, strength = columns
            correction = b.mul(direction, strength)
        rows = [receptance, fading, key, value, direction, correction]
        state = _names(self.index)[1]
        (self.recurrence.renewed[state],), seen = over_positions(m, [self.recurrence.states[state]], rows, _step)
        with m.op("bonus") as b:
            normal = b.layer_norm(seen, epsilon=_EPSILON * m.size(seen))
            scaled = b.mul(self._joined(b, normal), m.weight("ln_x.weight", c.width))
            alike = b.mul(b.mul(receptance, key), m.weight("r_k", c.heads, c.width // c.heads))
            own = b.mul(b.reduce_sum(alike, axes=(3,), keepdims=True), value)
            found = b.add(b.add(scaled, m.weight("ln_x.bias", c.width)), self._joined(b, own))
            gate = b.matmul(
                b.sigmoid(b.matmul(self._mixed("g"), m.weight("g1", c.width, c.ranks["g"]))), self._second("g")
            )
            gated = b.mul(found, gate)
        return m.named(linear(m.at("output"), gated, c.width)), first

    def _mixed(self, name: str) -> Value:
        return _mixed(self.m, f"x_{name}", self.x, self.before)

    def _linear(self, name: str) -> Value:
        return linear(self.m.at(name), self._mixed(name[0]), self.c.width)

    def _vector(self, name: str) -> Value:
        return self.m.weight(name, 1, 1, self.c.width)

    def _second(self, name: str) -> Value:
        return self.m.weight(f"{name}2", self.c.ranks[name], self.c.width)

    def _low_rank(self, name: str, function: Callable[[Value], Value] = lambda x: x) -> Value:
        """A bias and a product of two matrices with a function between them."""
        b = self.m.b
        inner = b.matmul(self._mixed(name), self.m.weight(f"{name}1", self.c.width, self.c.ranks[name]))
        return b.add(b.matmul(function(inner), self._second(name)), self._vector(f"{name}0"))

    def _between(self, value: Value, first: Value) -> Value:
        with self.m.op("residual") as b:
            return b.add(value, b.mul(b.sub(first, value), b.sigmoid(self._low_rank("v"))))

    def _heads(self, b: Builder, x: Value) -> Value:
        c = self.c
        return b.reshape(x, b.vector(b.size(x, 0), b.size(x, 1), c.heads, c.width // c.heads))

    def _joined(self, b: Builder, x: Value) -> Value:
        return b.reshape(x, b.vector(b.size(x, 0), b.size(x, 1), self.c.width))

    def _unit(self, b: Builder, x: Value) -> Value:
        """Heads of length one."""
        heads = self._heads(b, x)
        length = b.sqrt(b.reduce_sum(b.square(heads), axes=(3,), keepdims=True))
        return b.div(heads, b.max(length, _SMALLEST))


def _step(b: Builder, states: Sequence[Value], rows: Sequence[Value]) -> tuple[Sequence[Value], Value]:
    """Fade the columns of the memory, move it along `direction` by `correction`, and write the value at the key."""
    (memory,) = states
    receptance, fading, key, value, direction, correction = rows
    seen = b.matmul(memory, b.unsqueeze(direction, axes=(3,)))
    kept = b.mul(memory, b.unsqueeze(fading, axes=(2,)))
    corrected = b.sub(kept, b.mul(seen, b.unsqueeze(correction, axes=(2,))))
    renewed = b.add(corrected, b.mul(b.unsqueeze(value, axes=(3,)), b.unsqueeze(key, axes=(2,))))
    return [renewed], b.squeeze(b.matmul(renewed, b.unsqueeze(receptance, axes=(3,))), axes=(3,))


RWKV7 = Family(
    "rwkv7",
    (FileLayout(TORCH, _of_torch, mark="blocks.0.att.k_k", ignored=(r"blocks\.0\.att\.v[012]",)),),
    _build,
)
