"""Attention and the caches of decoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from assay.frontends.checkpoint.recipes.network import Network
from assay.ir import dtypes
from assay.ir.dims import Dim, symbol
from assay.ir.graph import Graph, Value
from assay.ops.parts import scalar_size

BATCH, STEP, PAST = symbol("batch", 1), symbol("step", 1), symbol("past")
"""Rows, tokens of this call, and tokens of earlier calls."""
SOURCES = symbol("sources", 1)
"""What rows were made of: each row has one of its own, or as many rows as beams share one."""


@dataclass(frozen=True)
class Decoding:
    """What the layers of a decoder share: the tokens and their positions, the states of earlier calls, and those that
    this call leaves."""

    network: Network
    tokens: Value
    positions: Value
    total: Value
    """How many tokens there are with those of earlier calls."""
    states: Mapping[str, Value]
    renewed: dict[str, Value] = field(default_factory=dict[str, Value])
    _masks: dict[int | None, Value] = field(default_factory=dict["int | None", Value])

    def extended(self, name: str, rows: Value) -> Value:
        """A cache (batch, heads, past, width) with the rows of this call behind it."""
        with self.network.op("cache") as b:
            self.renewed[name] = b.concat(self.states[name], rows, axis=2)
        return self.renewed[name]

    def visible(self, window: int | None = None) -> Value:
        """Which keys a query may see, (step, past + step): its own and earlier ones, or the last `window` of those."""
        if window not in self._masks:
            with self.network.op("mask") as b:
                queries, keys = b.unsqueeze(self.positions, axes=(1,)), b.iota(self.total)
                seen = b.bit_not(b.lt(queries, keys))
                near = None if window is None else b.lt(b.sub(queries, keys), window)
                self._masks[window] = seen if near is None else b.bit_and(seen, near)
        return self._masks[window]

    def finish(self, logits: Value, name: str = "decoder") -> Graph:
        """The graph: logits, then the states in the order in which they came."""
        renewed = {each: self.renewed[each] for each in self.states}
        return self.network.finish(name, {"logits": logits, **renewed})


def start_decoding(network: Network, layers: int, heads: int, width: int) -> Decoding:
    """The inputs of a decoder: tokens, then a cache of keys and one of values for each layer."""
    tokens = network.input("tokens", dtypes.i64, BATCH, STEP)
    dims: tuple[Dim, ...] = (BATCH, heads, PAST, width)
    names = [f"layers.{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
    states = {name: network.input(name, network.options.dtype, *dims) for name in names}
    with network.op("positions") as b:
        past, step = scalar_size(b, states[names[0]], 2), scalar_size(b, tokens, 1)
        return Decoding(network, tokens, b.add(b.iota(step), past), b.add(past, step), states)


def split_heads(m: Network, x: Value, heads: int) -> Value:
    """(batch, step, heads · width) as (batch, heads, step, width)."""
    with m.op("split_heads") as b:
        split = b.reshape(x, b.vector(b.size(x, 0), b.size(x, 1), heads, m.size(x) // heads))
        return b.transpose(split, perm=(0, 2, 1, 3))


def join_heads(m: Network, x: Value) -> Value:
    """(batch, heads, step, width) as (batch, step, heads · width)."""
    with m.op("join_heads") as b:
        turned = b.transpose(x, perm=(0, 2, 1, 3))
        return b.reshape(turned, b.vector(b.size(turned, 0), b.size(turned, 1), m.size(x, 1) * m.size(x)))


def attend(
    m: Network,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    causal: bool = False,
) -> Value:
    """Attention over heads (batch, heads, length, width), as (batch, step, heads · width)."""
    with m.op("attention") as b:
        found = b.sdpa(query, key, value, mask, scale=scale, softcap=softcap, causal=causal)
    return join_heads(m, found)


def attend_to_source(
    m: Network, query: Value, key: Value, value: Value, mask: Value | None = None, *, scale: float | None = None
) -> Value:
    """`attend` to sources (sources, heads, length, width) that neighbouring rows of the query share, so many each. What
    is read of a source serves all its rows."""
    heads, width = m.size(query, 1), m.size(query)
    with m.op("attention") as b:
        batch, step, sources = b.size(query, 0), b.size(query, 2), b.size(key, 0)
        split = b.reshape(query, b.vector(sources, -1, heads, step, width))
        joined = b.reshape(b.transpose(split, perm=(0, 2, 1, 3, 4)), b.vector(sources, heads, -1, width))
        found = b.sdpa(joined, key, value, mask, scale=scale)
        split = b.reshape(found, b.vector(sources, heads, -1, step, width))
        return b.reshape(b.transpose(split, perm=(0, 2, 3, 1, 4)), b.vector(batch, step, heads * width))


def cached_attention(
    m: Network,
    decoding: Decoding,
    layer: int,
    query: Value,
    key: Value,
    value: Value,
    *,
    window: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
) -> Value:
    """`attend` to the keys and values of this call and of earlier ones, of which the last `window` may be seen."""
    keys = decoding.extended(f"layers.{layer}.key", key)
    values = decoding.extended(f"layers.{layer}.value", value)
    return attend(m, query, keys, values, decoding.visible(window), scale=scale, softcap=softcap)
