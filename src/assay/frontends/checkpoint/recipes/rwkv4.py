"""RWKV 4: a recurrent model whose states fade channel by channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.family import HUGGING_FACE, TORCH, Family, FileLayout
from assay.frontends.checkpoint.recipes.layers import added, embedding, layer_norm, linear, vocabulary_scores
from assay.frontends.checkpoint.recipes.network import GraphOptions, Network, Tensors, renamed
from assay.frontends.checkpoint.recipes.recurrent import Recurrence, over_positions, start_recurrence
from assay.ir.graph import Graph, Value
from assay.ops.builder import Builder

_NOTHING = -1e30
"""The logarithm of the weight of what came before the first token."""


@dataclass(frozen=True)
class Rwkv4Configuration:
    """A model of the family."""

    vocabulary: int
    width: int
    attention_width: int
    inner_width: int
    layers: int
    epsilon: float
    tied: bool = False


def _of_hugging_face(fields: Fields, tensors: Tensors) -> Rwkv4Configuration:
    width = fields.size("hidden_size")
    return Rwkv4Configuration(
        vocabulary=fields.size("vocab_size"),
        width=width,
        attention_width=fields.size("attention_hidden_size", width),
        inner_width=fields.size("intermediate_size", 4 * width),
        layers=fields.layers("num_hidden_layers"),
        epsilon=fields.positive("layer_norm_epsilon", 1e-5),
        tied=fields.flag("tie_word_embeddings", False),
    )


def _of_torch(fields: Fields, tensors: Tensors) -> Rwkv4Configuration:
    """Such files say nothing but by the sizes of tensors."""
    vocabulary, width = tensors.matrix("rwkv.embeddings.weight")
    layers = tensors.count(lambda index: f"rwkv.blocks.{index}.ln1.weight")
    return Rwkv4Configuration(
        vocabulary=vocabulary,
        width=width,
        attention_width=tensors.matrix("rwkv.blocks.0.attention.key.weight")[0],
        inner_width=tensors.matrix("rwkv.blocks.0.feed_forward.key.weight")[0],
        layers=layers,
        epsilon=1e-5,
    )


def _names(index: int) -> tuple[str, str, str, str, str]:
    parts = ("attention_shift", "numerator", "denominator", "maximum", "feed_forward_shift")
    first, second, third, fourth, fifth = (f"layers.{index}.{part}" for part in parts)
    return first, second, third, fourth, fifth


def _build(tensors: Tensors, c: Rwkv4Configuration, options: GraphOptions) -> Mapping[str, Graph]:
    root = Network.empty(tensors, options, "rwkv4")
    sizes = (c.width, c.attention_width, c.attention_width, c.attention_width, c.width)
    shapes = {name: (size,) for index in range(c.layers) for name, size in zip(_names(index), sizes, strict=True)}
    recurrence = start_recurrence(root, shapes)
    base = root.at("rwkv")
    x = embedding(base.at("embeddings"), recurrence.tokens, c.vocabulary, c.width)
    x = layer_norm(base.at("blocks.0.pre_ln"), x, c.epsilon)
    for index in range(c.layers):
        m = base.at("blocks", index)
        x = added(m, x, _attention(m.at("attention"), c, recurrence, index, layer_norm(m.at("ln1"), x, c.epsilon)))
        normal = layer_norm(m.at("ln2"), x, c.epsilon)
        x = m.named(added(m, x, _feed_forward(m.at("feed_forward"), c, recurrence, index, normal)))
    x = layer_norm(base.at("ln_out"), x, c.epsilon)
    head = base.at("embeddings") if c.tied else root.at("head")
    return {"decoder": recurrence.finish(vocabulary_scores(root, head, x, c.vocabulary))}


def _mixed(m: Network, name: str, x: Value, before: Value) -> Value:
    """Each channel partly from here, partly from the position before."""
    with m.op("mix") as b:
        share = m.weight(name, 1, 1, m.size(x))
        return b.add(b.mul(x, share), b.mul(before, b.sub(1.0, share)))


def _attention(m: Network, c: Rwkv4Configuration, recurrence: Recurrence, index: int, x: Value) -> Value:
    shift, *sums, _ = _names(index)
    before = recurrence.before(m, shift, x)
    key, value, receptance = (
        linear(m.at(name), _mixed(m, f"time_mix_{name}", x, before), c.attention_width)
        for name in ("key", "value", "receptance")
    )
    numerator, denominator, maximum = (recurrence.states[name] for name in sums)
    with m.op("decay") as b:
        decay = b.neg(b.exp(m.weight("time_decay", c.attention_width)))
        first = m.weight("time_first", c.attention_width)
        maximum = b.where(b.eq(denominator, 0.0), _NOTHING, maximum)

    def step(b: Builder, states: Sequence[Value], rows: Sequence[Value]) -> tuple[Sequence[Value], Value]:
        here, value = rows
        above, below = _weighed(b, states, value, states[2], b.add(here, first))[:2]
        return _weighed(b, states, value, b.add(states[2], decay), here), b.div(above, below)

    last, seen = over_positions(m, [numerator, denominator, maximum], [key, value], step)
    recurrence.renewed.update(zip(sums, last, strict=True))
    with m.op("gate") as b:
        gated = b.mul(b.sigmoid(receptance), seen)
    return m.named(linear(m.at("output"), gated, c.width))


def _weighed(
    b: Builder, states: Sequence[Value], value: Value, earlier: Value, here: Value
) -> tuple[Value, Value, Value]:
    """Sums with a further term: numerator, denominator, and the largest exponent, which both are without."""
    most = b.max(earlier, here)
    old, new = b.exp(b.sub(earlier, most)), b.exp(b.sub(here, most))
    numerator = b.add(b.mul(old, states[0]), b.mul(new, value))
    return numerator, b.add(b.mul(old, states[1]), new), most


def _feed_forward(m: Network, c: Rwkv4Configuration, recurrence: Recurrence, index: int, x: Value) -> Value:
    before = recurrence.before(m, _names(index)[4], x)
    key = linear(m.at("key"), _mixed(m, "time_mix_key", x, before), c.inner_width)
    receptance = linear(m.at("receptance"), _mixed(m, "time_mix_receptance", x, before), c.width)
    with m.op("square") as b:
        grown = b.square(b.relu(key))
    value = linear(m.at("value"), grown, c.width)
    with m.op("gate") as b:
        return m.named(b.mul(b.sigmoid(receptance), value))


_TORCH_NAMES: Mapping[str, str] = {
    "rwkv.embeddings": "emb",
    "rwkv.ln_out": "ln_out",
    "rwkv.blocks.{}.pre_ln": "blocks.{}.ln0",
    "rwkv.blocks.{}.ln1": "blocks.{}.ln1",
    "rwkv.blocks.{}.ln2": "blocks.{}.ln2",
    "rwkv.blocks.{}.attention": "blocks.{}.att",
    **{
        f"rwkv.blocks.{{}}.attention.{each}": f"blocks.{{}}.att.{each}"
        for each in ("key", "value", "receptance", "output")
    },
    **{f"rwkv.blocks.{{}}.feed_forward.{each}": f"blocks.{{}}.ffn.{each}" for each in ("key", "value", "receptance")},
    **{
        f"rwkv.blocks.{{}}.attention.time_mix_{each}": f"blocks.{{}}.att.time_mix_{each[0]}"
        for each in ("key", "value", "receptance")
    },
    **{
        f"rwkv.blocks.{{}}.feed_forward.time_mix_{each}": f"blocks.{{}}.ffn.time_mix_{each[0]}"
        for each in ("key", "receptance")
    },
}

RWKV4 = Family(
    "rwkv4",
    (
        FileLayout(HUGGING_FACE, _of_hugging_face, ("rwkv",)),
        FileLayout(TORCH, _of_torch, mark="blocks.0.att.time_mix_k", naming=renamed(_TORCH_NAMES)),
    ),
    _build,
)
