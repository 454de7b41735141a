"""The noise floor of a graph: how far right answers may be apart.

Every op's tolerance class says how far a correct kernel may be from the reference. The graph is run several times with
each float result moved by just that much, up or down at random and then the other way round, and once in `precise`
mode. What comes out then shows what rounding alone can do to every value, cancellation and amplification included. A
discontinuous op (a comparison, a rounding, a sort) near its edge gives different answers in these runs: such elements
are undecided, no verdict rests on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from assay.evidence.compare import Closeness, bounds, closeness, epsilon
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Graph, Node, Value
from assay.ops.registry import CORE
from assay.targets.reference.interpreter import Mode, make_kernel

PAIRS = 2
"""Pairs of perturbed runs, each with opposite signs."""

MARGIN = 4.0
"""How many times the noise that was seen an answer may be off: a few runs do not see the worst."""

ROUND_INSIDE = frozenset({"quantize_linear", "dynamic_quantize"})
"""Ops with discrete results that round on the way: their float inputs are moved too."""


@dataclass(frozen=True)
class Noise:
    """For one value: what an answer may be off by, and where nothing can be said."""

    allowed: Array | float
    undecided: Array | None
    everything: bool = False

    def judge(self, actual: Any, expected: Any) -> Closeness:
        """The distance of an answer, as far as it can be judged."""
        if self.everything:
            return Closeness()
        where = None if self.undecided is None else ~self.undecided
        return closeness(actual, expected, absolute=self.allowed, where=where)


def noise_of(graph: Graph, values: Mapping[Value, Any], seed: int) -> dict[Value, Noise]:
    """The noise of every result in `graph`, whose exact values are known."""
    runs = [_run(graph, values, "precise", None)]
    for pair in range(PAIRS):
        runs += [_run(graph, values, "exact", _Signs(seed + pair, flip)) for flip in (1.0, -1.0)]
    results = [value for node in graph.nodes for value in node.outputs]
    makers = {value: node for node in graph.nodes for value in node.outputs}
    return {value: _noise(values[value], [run.get(value) for run in runs], makers[value]) for value in results}


class _Signs:
    """Random signs; those of a run with `flip` −1 are opposite to those with 1."""

    def __init__(self, seed: int, flip: float) -> None:
        self._rng, self._flip = np.random.default_rng(seed), flip

    def moved(self, value: Array, by: Array | float) -> Array:
        """Each element of a float array up or down by as much."""
        signs = self._rng.choice(np.array([-1.0, 1.0]), size=value.shape) * self._flip
        wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
        return np.where(np.isfinite(wide), wide + signs * by, wide).astype(value.dtype)


def _run(graph: Graph, values: Mapping[Value, Any], mode: Mode, signs: _Signs | None) -> dict[Value, Any]:
    """All values of one run; those that a failing node would have given are missing."""
    env: dict[Value, Any] = {v: values[v] for v in (*graph.inputs, *graph.constants)}
    if mode == "precise":
        env = {value: _wide(array) for value, array in env.items()}
    for node in graph.nodes:
        if any(value is not None and value not in env for value in node.inputs):
            continue
        arguments = [None if value is None else env[value] for value in node.inputs]
        if signs is not None and node.op in ROUND_INSIDE:
            arguments = [signs.moved(x, _spacing(x)) if _is_float(x) else x for x in arguments]
        try:
            with np.errstate(all="ignore"):
                results = make_kernel(CORE[node.op], node, mode)(arguments)
                if signs is not None:
                    results = [signs.moved(r, _slack(node, arguments, r)) if _is_float(r) else r for r in results]
        except Exception:  # a run off the path may be invalid: what it would have given stays undecided
            continue
        env.update(zip(node.outputs, results, strict=True))
    return env


def _noise(exact: Any, others: list[Any], maker: Node) -> Noise:
    if not isinstance(exact, np.ndarray):
        return Noise(0.0, None)
    found: list[Array] = []
    for other in others:
        if not isinstance(other, np.ndarray) or other.shape != exact.shape:
            return Noise(0.0, None, everything=True)
        found.append(other)
    if not _is_float(exact):
        undecided = np.zeros(exact.shape, bool)
        for other in found:
            undecided |= np.asarray(other != exact)
        return Noise(0.0, undecided if undecided.any() else None)
    wide = exact.astype(np.complex128 if exact.dtype.kind == "c" else np.float64)
    spread, undecided = np.zeros(exact.shape), np.zeros(exact.shape, bool)
    with np.errstate(all="ignore"):
        for other in found:
            moved = other.astype(exact.dtype).astype(wide.dtype)
            same = (moved == wide) | (np.isnan(moved) & np.isnan(wide))
            undecided |= ~same & ~(np.isfinite(moved) & np.isfinite(wide))
            spread = np.maximum(spread, np.where(np.isfinite(moved) & np.isfinite(wide), np.abs(moved - wide), 0.0))
        least = _slack(maker, [], exact) + 2 * _spacing(exact)
    return Noise(MARGIN * spread + np.where(np.isfinite(least), least, 0.0), undecided if undecided.any() else None)


def _slack(node: Node, arguments: list[Any], result: Array) -> Array:
    """How far a correct kernel may be off in each element of a result."""
    tolerance = CORE[node.op].tolerance
    arrays = [x for x in arguments if _is_float(x)]
    terms = max((x.size for x in arrays), default=1) / max(result.size, 1)
    scale = max((_magnitude(x) for x in (*arrays, result)), default=1.0)
    relative, absolute = bounds(tolerance, _unit(node, result), terms=terms, scale=scale)
    return absolute + relative * np.abs(result.astype(np.complex128 if result.dtype.kind == "c" else np.float64))


def _unit(node: Node, result: Array) -> DType:
    """The coarsest dtype that the op rounds to: that of the result, or one that an attribute states."""
    stated = [attr for attr in node.attrs.values() if isinstance(attr, DType) and attr in dtypes.FLOATS]
    return max([dtypes.of(result), *stated], key=epsilon)


def _spacing(x: Array) -> Array:
    """One unit in the last place of each element."""
    dtype = dtypes.of(x)
    if dtype.kind == "complex":
        return np.abs(x) * epsilon(dtype)
    size = np.abs(x.astype(np.float64))
    least = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)
    return np.maximum(size * epsilon(dtype), least)


def _magnitude(x: Array) -> float:
    wide = np.abs(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64))
    return float(wide.max(initial=0.0, where=np.isfinite(wide)))


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and dtypes.of(x).kind in ("float", "complex")


def _wide(x: Any) -> Any:
    carried = isinstance(x, np.ndarray) and dtypes.of(x) in (*dtypes.FLOATS, dtypes.c64)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) if carried else x
