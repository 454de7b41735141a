"""Rotary position embeddings: how fast each pair of elements turns, and the tables of a call.

Frequencies are computed in f32 in the order of operations that the models were trained with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from assay.frontends.checkpoint.fields import Fields
from assay.frontends.checkpoint.recipes.attention import Decoding
from assay.frontends.checkpoint.recipes.network import Network
from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ir.graph import Value
from assay.ops.parts import converted

_WIDEST = 1 << 16
"""Elements of a head."""


@dataclass(frozen=True)
class LinearScaling:
    """All pairs turn slower by a factor."""

    factor: float
    attention: ClassVar[float] = 1.0

    def scaled(self, wavelengths: Array, rotary: Rotary) -> Array:
        """The frequencies of pairs of such wavelengths (over 2π)."""
        return _reciprocal(wavelengths) / np.float32(self.factor)


@dataclass(frozen=True)
class Llama3Scaling:
    """Pairs that turn slowly turn slower by a factor, those between two wavelengths by a part of it."""

    factor: float
    low: float
    high: float
    original: int
    """Positions that the model was first trained with."""
    attention: ClassVar[float] = 1.0

    def scaled(self, wavelengths: Array, rotary: Rotary) -> Array:
        """The frequencies of pairs of such wavelengths (over 2π)."""
        plain = _reciprocal(wavelengths)
        lengths = np.float32(2 * math.pi) / plain
        slow = np.where(lengths > self.original / self.low, plain / np.float32(self.factor), plain)
        part = (np.float32(self.original) / lengths - np.float32(self.low)) / np.float32(self.high - self.low)
        mixed = (1 - part) * slow / np.float32(self.factor) + part * slow
        between = (lengths >= self.original / self.high) & (lengths <= self.original / self.low)
        return np.where(between, mixed, slow).astype(np.float32)


@dataclass(frozen=True)
class YarnScaling:
    """Pairs that turn slowly turn slower by a factor, with a ramp between two numbers of turns; results are scaled."""

    factor: float
    fast: float
    slow: float
    original: int
    attention: float
    truncated: bool = True

    def scaled(self, wavelengths: Array, rotary: Rotary) -> Array:
        """The frequencies of pairs of such wavelengths (over 2π)."""
        low, high = (self._pair(turns, rotary) for turns in (self.fast, self.slow))
        if self.truncated:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotary.width - 1)
        span = high - low if high != low else 0.001
        ramp = np.clip((np.arange(rotary.width // 2, dtype=np.float32) - np.float32(low)) / np.float32(span), 0, 1)
        kept = 1 - ramp
        return _reciprocal(np.float32(self.factor) * wavelengths) * (1 - kept) + _reciprocal(wavelengths) * kept

    def _pair(self, turns: float, rotary: Rotary) -> float:
        """The pair that turns so often over the original positions."""
        return rotary.width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(rotary.theta))


@dataclass(frozen=True)
class LongScaling:
    """A factor for each pair, others as soon as there are more than `original` positions; results are scaled."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    attention: float

    def scaled(self, wavelengths: Array, rotary: Rotary) -> Array:
        """The frequencies of pairs of such wavelengths (over 2π), while there are few positions."""
        return _reciprocal(np.asarray(self.short, np.float32) * wavelengths)

    def scaled_far(self, wavelengths: Array) -> Array:
        """The same for many positions."""
        return _reciprocal(np.asarray(self.long, np.float32) * wavelengths)


RotaryScaling: TypeAlias = LinearScaling | Llama3Scaling | YarnScaling | LongScaling


@dataclass(frozen=True)
class Rotary:
    """Rotary embeddings: the first `width` elements of a head turn, in pairs of neighbours if `interleaved`, else of
    the two halves."""

    width: int
    theta: float = 10_000.0
    scaling: RotaryScaling | None = None
    interleaved: bool = False

    @property
    def wavelengths(self) -> Array:
        """The reciprocal of each pair's frequency, before it is scaled."""
        exponents = np.arange(0, self.width, 2, dtype=np.float32) / np.float32(self.width)
        return np.power(np.float32(self.theta), exponents)

    @property
    def frequencies(self) -> Array:
        """How far each pair turns from one position to the next."""
        return _reciprocal(self.wavelengths) if self.scaling is None else self.scaling.scaled(self.wavelengths, self)


def _reciprocal(x: Array) -> Array:
    return np.float32(1) / x


# --- what files say


def read_rotary(
    fields: Fields,
    head_width: int,
    *,
    theta: float = 10_000.0,
    part: float = 1.0,
    named: str = "",
    renamed: Mapping[str, str] | None = None,
) -> Rotary:
    """The fields of a Hugging Face configuration, in the form of today (`rope_parameters`, perhaps by the kind of a
    layer, `named`) or that of earlier years (`rope_theta`, `rope_scaling`). `theta` and `part` (of a head, that is
    turned) hold where nothing is said; `renamed` are other words for kinds of scaling."""
    given = fields.table("rope_parameters") or fields.table("rope_scaling") or Fields({}, fields.where)
    inner = given.table(named) if named else None
    given = given if inner is None else inner
    base = given.positive("rope_theta", fields.positive("rope_theta", theta))
    share = given.positive("partial_rotary_factor", fields.positive("partial_rotary_factor", part))
    width = int(head_width * share)
    if width % 2 or not 0 < width <= head_width <= _WIDEST:
        fields.refuse("partial_rotary_factor", f"{width} of {head_width} elements cannot be turned in pairs")
    words = {**{kind: kind for kind in _SCALINGS}, **(renamed or {})}
    kind = given.word("rope_type", words, given.word("type", words, "default"))
    return Rotary(width, base, _SCALINGS[words[kind]](given, fields, width))


def _original(given: Fields, fields: Fields) -> int:
    name = "original_max_position_embeddings"
    most = fields.size("max_position_embeddings", 2048)
    return fields.size(name) if fields.has(name) else given.size(name, most)


def _no_scaling(given: Fields, fields: Fields, width: int) -> None:
    return None


def _linear(given: Fields, fields: Fields, width: int) -> RotaryScaling:
    return LinearScaling(given.positive("factor"))


def _llama3(given: Fields, fields: Fields, width: int) -> RotaryScaling:
    low, high = given.positive("low_freq_factor"), given.positive("high_freq_factor")
    if high <= low:
        given.refuse("high_freq_factor", f"it should be above the low one, {low}")
    return Llama3Scaling(given.positive("factor"), low, high, _original(given, fields))


def _yarn(given: Fields, fields: Fields, width: int) -> RotaryScaling:
    original = _original(given, fields)
    factor = given.positive("factor", fields.size("max_position_embeddings", 2048) / original)
    scale, of_all = given.optional_positive("mscale"), given.optional_positive("mscale_all_dim")
    usual = _mscale(factor, scale) / _mscale(factor, of_all) if scale and of_all else _mscale(factor, 1.0)
    attention = given.positive("attention_factor", usual)
    fast, slow = given.positive("beta_fast", 32.0), given.positive("beta_slow", 1.0)
    return YarnScaling(factor, fast, slow, original, attention, given.flag("truncate", True))


def _mscale(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _long(given: Fields, fields: Fields, width: int) -> RotaryScaling:
    original = _original(given, fields)
    factor = given.positive("factor", fields.size("max_position_embeddings", 2048) / original)
    usual = 1.0 if factor <= 1 or original == 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    short, long = (_factors(given, name, width // 2) for name in ("short_factor", "long_factor"))
    return LongScaling(short, long, original, given.positive("attention_factor", usual))


def _factors(given: Fields, name: str, count: int) -> tuple[float, ...]:
    found = given.numbers(name, count)
    if min(found) <= 0:
        given.refuse(name, "factors are above zero")
    return found


_SCALINGS: Mapping[str, Callable[[Fields, Fields, int], RotaryScaling | None]] = {
    "default": _no_scaling,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _long,
}


def read_gguf_rotary(fields: Fields, head_width: int, *, interleaved: bool) -> Rotary:
    """The facts of a GGUF file. Other scalings are a tensor of factors there."""
    width = fields.size("rope.dimension_count", head_width)
    if width % 2 or not width <= head_width <= _WIDEST:
        fields.refuse("rope.dimension_count", f"so many of {head_width} elements cannot be turned in pairs")
    theta = fields.positive("rope.freq_base", 10_000.0)
    kind = fields.word("rope.scaling.type", ("none", "linear"), "none")
    scaling = LinearScaling(fields.positive("rope.scaling.factor")) if kind == "linear" else None
    return Rotary(width, theta, scaling, interleaved)


# --- the tables of a call


@dataclass(frozen=True)
class Turns:
    """Cosines and sines (step, pairs) of the positions of a call."""

    cosines: Value
    sines: Value
    interleaved: bool

    def of(self, m: Network, x: Value) -> Value:
        """Heads (batch, heads, step, width), turned by their positions."""
        with m.op("rotary") as b:
            return b.rotary_embedding(x, self.cosines, self.sines, interleaved=self.interleaved)


def turns_of(decoding: Decoding, rotary: Rotary, factors: Value | None = None) -> Turns:
    """The tables of the positions of a call; `factors` (pairs) divide the frequencies."""
    m = decoding.network
    with m.op("rotary") as b:
        frequencies: Value = b.constant(rotary.frequencies)
        if isinstance(rotary.scaling, LongScaling):
            far = b.lt(rotary.scaling.original, decoding.total)
            frequencies = b.where(far, b.constant(rotary.scaling.scaled_far(rotary.wavelengths)), frequencies)
        if factors is not None:
            frequencies = b.div(frequencies, b.cast(factors, dtype=dtypes.f32))
        positions = b.unsqueeze(b.cast(decoding.positions, dtype=dtypes.f32), axes=(1,))
        angles = b.mul(positions, frequencies)
        scale = 1.0 if rotary.scaling is None else rotary.scaling.attention
        tables = (b.cos(angles), b.sin(angles))
        scaled = tables if scale == 1.0 else tuple(b.mul(table, scale) for table in tables)
        cosines, sines = (converted(b, table, m.options.dtype) for table in scaled)
        return Turns(cosines, sines, rotary.interleaved)
