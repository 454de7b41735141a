"""One model on two engines: every value that both have, and the first one where they part.

A value is judged against the noise floor: how far the oracle's `exact` mode (rounding at every op) is
from its `precise` mode (floats carried in f64) at that very value. What rounding alone can do, another
correct engine may do too, a few times over; more than that is a divergence. Where an engine rounds to a narrower dtype
than the model states (`Traits.rounds_to`), the oracle rounds to that at every op, too.

An op that is handed different inputs gives different results and is not to blame. So the nodes of values that diverge
are run once more by themselves, on the same inputs on both engines: what differs then is the op's own. Where the
engines differ, the oracle in `precise` mode is a third opinion on which of the two is farther off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from assay.errors import AssayError, RunFailed
from assay.evidence.compare.arrays import Closeness, Signal, closeness, epsilon, signal
from assay.evidence.compare.isolation import Isolated
from assay.evidence.engines import Engine, ModelOnTarget, engine
from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node
from assay.ops.registry import widen
from assay.runtime.feeds import check_feeds
from assay.runtime.load import read
from assay.runtime.session import named_values

NOISE_FACTOR = 16.0
"""An error of this many noise floors is still noise."""
_CLEARLY = 6.0
"""Decibels: twice as far off."""
UNITS = 32.0
"""So is one of this many units in the last place of the tensor's largest element: another order of summation."""


@dataclass(frozen=True, slots=True)
class Judge:
    """What counts as a divergence. With `rtol` or `atol` given, those alone; else the noise floor."""

    rtol: float | None = None
    atol: float | None = None

    @property
    def by_noise(self) -> bool:
        """True if the noise floor has to be measured."""
        return self.rtol is None and self.atol is None


@dataclass(frozen=True, slots=True)
class ValueReport:
    """One value on both engines. `noise` is the noise floor there (None: not measured), `allowed` the largest error
    that counts as agreement (None: judged by tolerances)."""

    name: str
    op: str
    node: str
    is_output: bool
    type: str
    closeness: Closeness
    signal: Signal
    noise: float | None
    allowed: float | None
    diverged: bool
    own: bool | None = None
    """Of a value that diverged: whether its op alone, on the same inputs, makes the engines part; None: not known."""
    outlier: str = ""
    """Of a value that diverged: the engine that is farther from the precise oracle, where one clearly is."""
    passes: tuple[str, ...] = ()
    """Of a value that diverged: the passes that touched its node on one of the engines, each as ENGINE:-PASS, which is
    that engine without it."""

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON takes it."""
        close = asdict(self.closeness)
        rest = {key: getattr(self, key) for key in ("name", "op", "node", "is_output", "type")}
        verdict = {key: getattr(self, key) for key in ("noise", "allowed", "diverged", "own", "outlier", "passes")}
        return {**rest, **close, **asdict(self.signal), **verdict}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two engines on one model; `values` in the order in which the model computes them."""

    first: str
    second: str
    values: tuple[ValueReport, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def diverged(self) -> list[ValueReport]:
        """The values that differ by more than is allowed."""
        return [value for value in self.values if value.diverged]

    @property
    def first_divergence(self) -> ValueReport | None:
        """Where the engines part, by an op's own doing or by what it was handed."""
        return next(iter(self.diverged), None)

    @property
    def first_fault(self) -> ValueReport | None:
        """The first op that makes the engines part by itself."""
        return next((value for value in self.diverged if value.own), None)


def compare_models(model: Path, first: str, second: str, feeds: Mapping[str, Any], judge: Judge) -> Comparison:
    """Run `model` on both engines and compare every value that both can show."""
    seen: dict[str, _Seen] = {}

    def values_of(who: Engine) -> dict[str, Any]:
        if who.name not in seen:
            seen[who.name] = _values(who, model, feeds)
        return seen[who.name].values

    source = read(model)
    graph = source.graph
    check_feeds(graph, {**source.memory.initial, **feeds})
    one, two = engine(first), engine(second)
    mine, theirs = values_of(one), values_of(two)
    noise: dict[str, float] = {}
    precise: Mapping[str, Any] = {}
    if judge.by_noise:
        precise = values_of(engine("reference:precise"))
        coarse = next(filter(None, (one.rounds_to, two.rounds_to)), "")
        noise = noise_floor(values_of(engine(f"reference:{coarse}" if coarse else "reference")), precise)
    wide = one.carries_f64 or two.carries_f64
    makers, names = _makers(graph), named_values(graph)
    computed = [name for name in names if name in makers or name in graph.output_names]
    reports = [
        _report(name, makers.get(name), name in graph.output_names, mine[name], theirs[name], noise, judge, wide)
        for name in computed
        if name in mine and name in theirs
    ]
    alone = Isolated(model, graph, theirs)
    reports = [_explained(each, makers.get(each.name), alone, (one, two), judge) for each in reports]
    reports = [replace(each, outlier=_outlier(each, mine, theirs, precise, (one, two))) for each in reports]
    reports = [replace(each, passes=_touched(each, [seen[who.name].passes for who in (one, two)])) for each in reports]
    only_first = tuple(name for name in computed if name in mine and name not in theirs)
    only_second = tuple(name for name in computed if name in theirs and name not in mine)
    return Comparison(first, second, tuple(reports), only_first, only_second)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an engine showed: values by name, and the passes that touched what makes each, if it is Assay's."""

    values: dict[str, Any]
    passes: Mapping[str, Sequence[str]]


def _values(who: Engine, model: Path, feeds: Mapping[str, Any]) -> _Seen:
    """Every value that an engine can show; a peer's error becomes one of ours."""
    try:
        ready = who.load(model)
        values = ready.run_all(feeds)
        makers = _makers(ready.session.graph) if isinstance(ready, ModelOnTarget) else {}
        passes = {name: [f"{who.name}:-{each}" for each in node.origin.passes] for name, node in makers.items()}
        return _Seen(values, passes)
    except AssayError:
        raise
    except Exception as error:
        raise RunFailed(f"{type(error).__name__}: {error}", where=who.name) from error


def noise_floor(exact: Mapping[str, Any], precise: Mapping[str, Any]) -> dict[str, float]:
    """For each value, the largest distance between the oracle's two modes; infinite where one alone is not finite."""
    floor: dict[str, float] = {}
    for name, value in exact.items():
        if name in precise:
            found = closeness(_widened(precise[name]), _widened(value))
            floor[name] = np.inf if found.difference or found.nan or found.inf else found.max_abs
    return floor


def _report(
    name: str,
    node: Node | None,
    is_output: bool,
    mine: Any,
    theirs: Any,
    noise: Mapping[str, float],
    judge: Judge,
    wide: bool,
) -> ValueReport:
    kind = _described(theirs)
    floor = noise.get(name) if judge.by_noise else None
    allowed = allowed_error(theirs, floor or 0.0) if judge.by_noise else None
    if wide:
        mine, theirs = _widened(mine), _widened(theirs)
    absolute = (judge.atol or 0.0) if allowed is None else allowed
    found = closeness(mine, theirs, relative=judge.rtol or 0.0, absolute=absolute)
    beyond_noise = not found.ok and not (floor == np.inf and not found.difference)
    origin = node.origin if node is not None else None
    return ValueReport(
        name,
        origin.op.removeprefix("onnx.").removeprefix("aten.") if origin else "",
        origin.name if origin else "",
        is_output,
        kind,
        found,
        signal(mine, theirs),
        floor,
        allowed,
        beyond_noise,
    )


def _explained(
    report: ValueReport, node: Node | None, alone: Isolated, engines: tuple[Engine, Engine], judge: Judge
) -> ValueReport:
    """The report of a value that diverged, with whether its op differs on equal inputs."""
    if not report.diverged or node is None:
        return report
    names = (*engines, engine("reference"), engine("reference:precise"))
    results = [alone.run(node, who) for who in names]
    found = [None if each is None else each.get(report.name) for each in results]
    mine, theirs, exact, precise = found
    if mine is None or theirs is None:
        return report
    floor = noise_floor({"": exact}, {"": precise}) if exact is not None and precise is not None else {}
    wide = any(who.carries_f64 for who in engines)
    return replace(report, own=_report("", node, False, mine, theirs, floor, judge, wide).diverged)


def _outlier(
    report: ValueReport,
    mine: Mapping[str, Any],
    theirs: Mapping[str, Any],
    precise: Mapping[str, Any],
    engines: tuple[Engine, Engine],
) -> str:
    """Which of two engines is at least twice as far from the precise oracle."""
    if not report.diverged or report.name not in precise:
        return ""
    right = _widened(precise[report.name])
    far, near = (signal(_widened(each[report.name]), right).snr for each in (mine, theirs))
    if far is None or near is None or abs(far - near) < _CLEARLY:
        return ""
    return engines[0].name if far < near else engines[1].name


def _touched(report: ValueReport, passes: Sequence[Mapping[str, Sequence[str]]]) -> tuple[str, ...]:
    if not report.diverged:
        return ()
    return tuple(dict.fromkeys(each for one in passes for each in one.get(report.name, ())))


def allowed_error(expected: Any, floor: float) -> float:
    """The error that rounding excuses in a value like `expected`."""
    arrays = [each for each in _leaves(expected) if each.size and dtypes.of(each).kind in ("float", "complex")]
    with np.errstate(all="ignore"):
        sizes = [np.abs(cast(Array, widen(each))) for each in arrays]
        largest = [float(np.max(size, initial=0.0, where=np.isfinite(size))) for size in sizes]
    units = max((epsilon(dtypes.of(a)) * size for a, size in zip(arrays, largest, strict=True)), default=0.0)
    return NOISE_FACTOR * floor + UNITS * units


def _leaves(value: Any) -> list[Array]:
    if isinstance(value, list | tuple):
        return [leaf for item in cast("list[Any]", value) for leaf in _leaves(item)]
    return [cast(Array, value)] if isinstance(value, np.ndarray) else []


def _widened(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_widened(item) for item in cast("list[Any]", value)]
    return widen(value)


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        array = cast(Array, value)
        return f"{dtypes.of(array)}{list(array.shape)}"
    return type(value).__name__


def _makers(graph: Graph) -> dict[str, Node]:
    """The node of the source that computes each named value, in bodies too."""
    names = {value: name for name, value in named_values(graph).items()}
    return {names[value]: node for node in graph.walk() for value in node.outputs if value in names}
