"""The noise floor of a graph: how far right answers may be apart.

Every op's tolerance class says how far a correct kernel may be from the reference. The graph is run several times with
each float result moved by that much, and once in `precise` mode. What comes out then shows what rounding alone can do
to every value, cancellation and amplification included. A discontinuous op (a comparison, a rounding, a sort) near its
edge gives different answers in these runs: such elements are undecided, no verdict rests on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from assay.evidence.compare.arrays import Closeness, bounds, closeness, epsilon
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Graph, Node, Value
from assay.ops.registry import OPS, widen
from assay.targets.reference.interpreter import Mode, NodeFunction, node_function

PAIRS = 3
"""Pairs of runs in which results are moved: in the first all one way, then at random; each time also the other way."""

MARGIN = 4.0
"""How many times the noise that was seen an answer may be off: a few runs do not see the worst."""

ROUND_INSIDE = frozenset({"quantize_linear", "dynamic_quantize"})
"""Ops with discrete results that round on the way: their float inputs are moved too."""


@dataclass(frozen=True)
class Noise:
    """For one value: what an answer may be off by, and where nothing can be said."""

    allowed: Array | float = 0.0
    undecided: Array | None = None
    everything: bool = False

    def judge(self, actual: Any, expected: Any) -> Closeness:
        """The distance of an answer, as far as it can be judged."""
        if self.everything:
            return Closeness()
        where = None if self.undecided is None else ~self.undecided
        return closeness(actual, expected, absolute=self.allowed, where=where)


def noise_of(graph: Graph, values: Mapping[Value, Any], seed: int) -> dict[Value, Noise]:
    """The noise of every result in `graph`, whose exact values are known."""
    runs = [_run(graph, values, _kernels(graph, "precise"), None)]
    kernels = _kernels(graph, "exact")
    for pair in range(PAIRS):
        runs += [_run(graph, values, kernels, _Mover(seed if pair else None, pair, way)) for way in (1.0, -1.0)]
    return {
        value: _noise(node, values[value], [run.get(value) for run in runs])
        for node in graph.nodes
        for value in node.outputs
    }


def _kernels(graph: Graph, mode: Mode) -> list[tuple[Node, NodeFunction]]:
    return [(node, node_function(OPS[node.op], node, mode)) for node in graph.nodes]


class _Mover:
    """Moves floats: all in the direction `way`, or with a `seed` by half to all of it in random directions."""

    def __init__(self, seed: int | None, pair: int, way: float) -> None:
        self._rng = None if seed is None else np.random.default_rng([seed, pair])
        self._way = way

    def __call__(self, value: Array, by: Array | float) -> Array:
        """Each element of a float array moved by as much."""
        step: Array | float = self._way
        if self._rng is not None:
            sizes, signs = self._rng.uniform(0.5, 1.0, value.shape), self._rng.random(value.shape) - 0.5
            step = self._way * np.copysign(sizes, signs)
        wide: Array = widen(value)
        return np.where(np.isfinite(wide), wide + step * by, wide).astype(value.dtype)


def _run(
    graph: Graph, values: Mapping[Value, Any], kernels: Sequence[tuple[Node, NodeFunction]], mover: _Mover | None
) -> dict[Value, Any]:
    """All values of one run; those that a failing node would have given are missing."""
    given = {value: values[value] for value in (*graph.inputs, *graph.constants)}
    env: dict[Value, Any] = given if mover is not None else {value: _carried(x) for value, x in given.items()}
    with np.errstate(all="ignore"):
        for node, kernel in kernels:
            if any(value is not None and value not in env for value in node.inputs):
                continue
            arguments = [None if value is None else env[value] for value in node.inputs]
            if mover is not None and node.op in ROUND_INSIDE:
                arguments = [mover(x, _spacing(x)) if _is_float(x) else x for x in arguments]
            try:
                results: Sequence[Any] = kernel(arguments)
            except Exception:  # a run off the path may be invalid: what it would have given stays undecided
                continue
            if mover is not None:
                results = [mover(r, _slack(node, arguments, r)) if _is_float(r) else r for r in results]
            env.update(zip(node.outputs, results, strict=True))
    return env


def _noise(maker: Node, exact: Any, others: Sequence[Any]) -> Noise:
    if not isinstance(exact, np.ndarray):
        return Noise()
    array = cast(Array, exact)
    if any(not isinstance(other, np.ndarray) or cast(Array, other).shape != array.shape for other in others):
        return Noise(everything=True)
    if _is_float(array):
        return _float_noise(maker, array, others)
    undecided = np.zeros(array.shape, bool)
    for other in others:
        undecided |= np.asarray(other != array)
    return Noise(undecided=undecided if undecided.any() else None)


def _float_noise(maker: Node, exact: Array, others: Sequence[Array]) -> Noise:
    wide: Array = widen(exact)
    spread, undecided = np.zeros(exact.shape), np.zeros(exact.shape, bool)
    with np.errstate(all="ignore"):
        for other in others:
            moved: Array = widen(other.astype(exact.dtype))
            finite = np.isfinite(moved) & np.isfinite(wide)
            undecided |= ~finite & (moved != wide) & ~(np.isnan(moved) & np.isnan(wide))
            spread = np.maximum(spread, np.where(finite, np.abs(moved - wide), 0.0))
        least = _slack(maker, (), exact) + 2 * _spacing(exact)
    allowed = MARGIN * spread + np.where(np.isfinite(least), least, 0.0)
    return Noise(allowed, undecided if undecided.any() else None)


def _slack(node: Node, arguments: Sequence[Any], result: Array) -> Array:
    """How far a correct kernel may be off in each element of a result."""
    arrays = [x for x in arguments if _is_float(x)]
    terms = max((x.size for x in arrays), default=1) / max(result.size, 1)
    scale = max(map(_magnitude, (*arrays, result)))
    relative, absolute = bounds(OPS[node.op].tolerance, _unit(node, result), terms=terms, scale=scale)
    return absolute + relative * np.abs(widen(result))


def _unit(node: Node, result: Array) -> DType:
    """The coarsest dtype that the op rounds to: that of the result, or one that an attribute states."""
    stated = [attr for attr in node.attrs.values() if isinstance(attr, DType) and attr in dtypes.FLOATS]
    return max([dtypes.of(result), *stated], key=epsilon)


def _spacing(x: Array) -> Array:
    """One unit in the last place of each element."""
    dtype = dtypes.of(x)
    size: Array = np.abs(widen(x)) * epsilon(dtype)
    if dtype.kind == "complex":
        return size
    return np.maximum(size, float(cast(Any, ml_dtypes.finfo(dtype.numpy)).smallest_subnormal))


def _magnitude(x: Array) -> float:
    wide: Array = np.abs(widen(x))
    return float(wide.max(initial=0.0, where=np.isfinite(wide)))


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and dtypes.of(cast(Array, x)).kind in ("float", "complex")


def _carried(x: Any) -> Any:
    """A value as `precise` mode carries it."""
    tiny = isinstance(x, np.ndarray) and dtypes.of(cast(Array, x)) in dtypes.TINY_FLOATS
    return cast(Any, x) if tiny else widen(x)
