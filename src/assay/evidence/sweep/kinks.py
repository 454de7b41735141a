"""Kinks and ill-conditioned cases: a result that looks wrong, judged once more with the target's own choices.

An operand of relu that is zero within rounding may come out on either side, and the gradients of the two sides differ
by percents, though both runs are right. So torch runs the case in f64, in the model's dtype, and with noise in every
op: that tells which operands of ops with an edge are undecided (`compare/edges.py`). At those elements, where the
target's operand is within the same noise, torch's runs take the target's, and with it its choice. Then every result is
judged as always. What is wrong now is wrong. Else the words for it are:

* *ill-conditioned at* the op where noise grows to the size of its result. The proof: torch's own runs, with all choices
  alike, are apart by a good part of the largest result.
* *kink at* the ops at which the target chose otherwise than f64. The proof: f64 itself moves by more than is allowed
  when it takes the target's choice there, and then the target is right.
* *noise*: torch's runs with noise in every op are apart by more than the one eager run showed.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx

from assay.errors import RunFailed
from assay.evidence.compare.arrays import closeness
from assay.evidence.compare.edges import undecided
from assay.evidence.compare.models import NOISE_FACTOR, allowed_error
from assay.evidence.records import Output
from assay.evidence.sweep.accuracy import against
from assay.evidence.sweep.lab import Lab, OperandPosition, Operands, Pin, Pins, TorchRun, edges_of
from assay.evidence.sweep.subjects import Results, Subject
from assay.frontends.torch.importer import origin_of
from assay.ir.dtypes import Array
from assay.ops.registry import widen

_NOISY = 4
"""Runs with noise in every op."""
_ROUNDS = 2
"""How often it is asked anew what is undecided: an open choice changes what follows."""
_LARGE = 0.1
"""The part of a value from which on its noise counts as large as the value."""
_COARSE = 8.0
"""A noise floor of so many times what another order of summation does needs an explanation itself."""
_NAMED = 3
"""How many places are named."""


class Verdicts(NamedTuple):
    """Every result judged."""

    outputs: tuple[Output, ...]
    gradients: tuple[Output, ...]

    @property
    def wrong(self) -> list[Output]:
        """The results that are wrong."""
        return [each for each in (*self.outputs, *self.gradients) if not each.ok]


def verdicts(found: Results, plain: Results, exact: Results | None, noisy: Sequence[Results] = ()) -> Verdicts:
    """The results of a run beside torch's."""
    runs = [each.outputs for each in noisy], [each.gradients for each in noisy]
    outputs = against(found.outputs, plain.outputs, exact and exact.outputs, runs[0])
    return Verdicts(outputs, against(found.gradients, plain.gradients, exact and exact.gradients, runs[1]))


def is_coarse(judged: Verdicts, plain: Results) -> bool:
    """Whether a noise floor is so high that it could hide a fault: a kink in eager's own run makes it so."""
    groups = (judged.outputs, plain.outputs), (judged.gradients, plain.gradients)
    return any((each.noise or 0.0) > _COARSE * _units(arrays) for group, arrays in groups for each in group)


def _units(arrays: Mapping[str, Array]) -> float:
    """What another order of summation does to the largest of some results."""
    return max((allowed_error(each, 0.0) for each in arrays.values()), default=0.0)


class Reconsidered(NamedTuple):
    """Results judged with the target's choices, and in words why they are right now; empty if they were or are not."""

    verdicts: Verdicts
    words: str


def reconsidered(subject: Subject, target: str, found: Results, plain: Results, exact: Results) -> Reconsidered:
    """Judge results once more. RunFailed if the graphs of the case do not give in f64 what the model gives."""
    lab = Lab(subject, target)
    mine = lab.on_target()[1]
    free = lab.by_torch(TorchRun(wide=True))[0]
    if verdicts(_like(free, plain), plain, exact).wrong:
        raise RunFailed("its graphs give other results in f64 than the model does", where="kinks")
    runs, flips = pinned(lab, mine)
    judged = verdicts(found, runs.plain, runs.exact, runs.noisy)
    if judged.wrong:
        return Reconsidered(judged, "")
    return Reconsidered(judged, _words(lab, runs, flips, judged, unexpected=bool(verdicts(found, plain, exact).wrong)))


def _words(lab: Lab, runs: Runs, flips: Sequence[Flip], judged: Verdicts, *, unexpected: bool) -> str:
    noise = max((each.noise or 0.0 for each in judged.gradients or judged.outputs), default=0.0)
    largest = max(map(_size, (runs.exact.gradients or runs.exact.outputs).values()), default=0.0)
    if noise > _LARGE * largest:
        proof = f"with noise in every op eager is off by {noise / largest:.2g} of the largest result"
        return f"ill-conditioned at {magnifier(lab, runs.pins)}; {proof}"
    kinks = [flip.place for flip in _that_matter(lab, runs, flips, judged)]
    if kinks:
        more = f" and {len(kinks) - _NAMED} more" if len(kinks) > _NAMED else ""
        return f"kink at {'; '.join(kinks[:_NAMED])}{more}"
    return "noise: with noise in every op eager is as far off" if unexpected else ""


def _like(found: Results, plain: Results) -> Results:
    """Results in the dtypes that they have elsewhere."""
    pairs = (found.outputs, plain.outputs), (found.gradients, plain.gradients)
    given = [{name: array.astype(there[name].dtype) for name, array in here.items()} for here, there in pairs]
    return Results(*given)


def _size(array: Array) -> float:
    """The largest finite number of an array."""
    with np.errstate(all="ignore"):
        wide: Array = np.abs(widen(array))
    return float(wide.max(initial=0.0, where=np.isfinite(wide)))


# --- choices


class Runs(NamedTuple):
    """torch's results with some operands pinned: in f64, in the model's dtype, and with noise in every op.

    `operands` are those that f64 has before they are pinned, `noise` how far the other runs are from them.
    """

    pins: Pins
    exact: Results
    plain: Results
    noisy: Sequence[Results]
    operands: Operands
    noise: Operands


class Flip(NamedTuple):
    """A node at which the target chose otherwise than f64."""

    graph: int
    node: str
    place: str


def pinned(lab: Lab, mine: Operands) -> tuple[Runs, Sequence[Flip]]:
    """Runs with the target's choices wherever rounding decides, and where those are not f64's.

    `mine` are the target's operands. An open choice changes what follows, so it is asked anew what else is open.
    """
    runs = _runs(lab, {})
    pins, flips = _pins(lab.modules, runs, mine)
    for _ in range(_ROUNDS):
        if _covers(runs.pins, pins):
            break
        runs = _runs(lab, pins)
        pins, flips = _pins(lab.modules, runs, mine)
    return runs, flips


def _runs(lab: Lab, pins: Pins) -> Runs:
    exact, operands = lab.by_torch(TorchRun(pins, wide=True))
    noise = {key: np.zeros(value.shape) for key, value in operands.items()}
    others: list[Results] = []
    for seed in (None, *range(_NOISY)):
        results, seen = lab.by_torch(TorchRun(pins, noise=seed))
        others.append(results)
        with np.errstate(all="ignore"):
            for key, value in operands.items():
                noise[key] = np.fmax(noise[key], np.abs(seen[key] - value))
    return Runs(pins, exact, others[0], others[1:], operands, noise)


def _pins(modules: Sequence[fx.GraphModule], runs: Runs, mine: Operands) -> tuple[Pins, list[Flip]]:
    """What to take from the target, and where it chose otherwise than f64."""
    pins: dict[OperandPosition, Pin] = {}
    flips: list[Flip] = []
    for index, module in enumerate(modules):
        for edge in edges_of(module):
            keys = {name: OperandPosition(index, edge.node.name, name) for name in edge.tensors()}
            exact = {name: runs.operands[key] for name, key in keys.items()}
            margin = {name: NOISE_FACTOR * runs.noise[key] for name, key in keys.items()}
            known = {name: _as_near(mine[key], exact[name], margin[name]) for name, key in keys.items()}
            found = undecided(edge.op, {**edge.arguments, **exact}, margin, known)
            pins.update((keys[name], Pin(near, known[name])) for name, near in found.near.items() if near.any())
            if found.flipped:
                flips.append(Flip(index, edge.node.name, _place(edge.node)))
    return pins, flips


def _as_near(mine: Array, exact: Array, margin: Array) -> Array:
    """The target's operand where it is within noise of the exact one; else the exact one."""
    return np.where(np.abs(mine - exact) <= margin, mine, exact)


def _covers(before: Pins, after: Pins) -> bool:
    """Whether nothing is pinned afterwards that was not before."""
    return all(key in before and not (pin.where & ~before[key].where).any() for key, pin in after.items())


def _that_matter(lab: Lab, runs: Runs, flips: Sequence[Flip], judged: Verdicts) -> list[Flip]:
    """The flips that move a result of f64 by more than is allowed, each beside those before it."""
    found: list[Flip] = []
    pins: dict[OperandPosition, Pin] = {}
    before = lab.by_torch(TorchRun(pins, wide=True))[0]
    for flip in flips:
        pins |= {key: pin for key, pin in runs.pins.items() if (key.graph, key.node) == (flip.graph, flip.node)}
        after = lab.by_torch(TorchRun(pins, wide=True))[0]
        if _apart(before.outputs, after.outputs, judged.outputs) or _apart(
            before.gradients, after.gradients, judged.gradients
        ):
            found.append(flip)
        before = after
    return found


def _apart(one: Mapping[str, Array], two: Mapping[str, Array], judged: Sequence[Output]) -> bool:
    """Whether results are farther apart than is allowed."""
    return any(not closeness(one[each.name], two[each.name], absolute=each.allowed or 0.0).ok for each in judged)


def _place(node: fx.Node) -> str:
    """Where a node is from: its op and name, the path of its module, and the end of its file's."""
    origin = origin_of(node)
    file = "/".join(Path(origin.file).parts[-2:])
    return str(replace(origin, module=origin.module.removeprefix("L['self']."), file=file))


# --- noise that grows


def magnifier(lab: Lab, pins: Pins) -> str:
    """The op where noise grows to the size of its result: the first on the way to the result with the most noise."""
    noise = _noise_of_values(lab, pins)
    nodes = {(index, node.name): node for index, module in enumerate(lab.modules) for node in module.graph.nodes}
    made = {node.name: (index, node.name) for (index, _), node in nodes.items() if node.op != "placeholder"}
    results = [
        (index, each.name)
        for index, module in enumerate(lab.modules)
        for each in module.graph.output_node().all_input_nodes
        if (index, each.name) in noise
    ]
    reached: set[Key] = set()
    open_ = [max(results, key=lambda key: noise[key].largest)]
    while open_:
        key = open_.pop()
        if key not in reached:
            reached.add(key)
            open_ += [each for each in _before(nodes[key], key, made) if each in noise and noise[each].part > _LARGE]
    order = {key: at for at, key in enumerate(nodes)}
    first = min((key for key in reached if nodes[key].op != "placeholder"), key=order.__getitem__)
    handed = max((noise[each].part for each in _before(nodes[first], first, made) if each in noise), default=0.0)
    return (
        f"{_place(_maker(nodes[first]))}, where noise grows from {handed:.2g} to {noise[first].part:.2g} of the value"
    )


Key = tuple[int, str]
"""A node, by the number of its graph and its name."""


class Grown(NamedTuple):
    """The noise of a value: the largest difference, and as a part of the largest element."""

    largest: float
    part: float


def _before(node: fx.Node, key: Key, made: Mapping[str, Key]) -> list[Key]:
    """What a node is made of; an input of a later graph is what an earlier one of that name kept for it."""
    if node.op == "placeholder":
        return [made[node.name]] if node.name in made else []
    return [(key[0], each.name) for each in _maker(node).all_input_nodes]


def _maker(node: fx.Node) -> fx.Node:
    """The op of a node that takes one of its results; else the node itself."""
    whole = node.args[0] if node.target is operator.getitem else node
    return whole if isinstance(whole, fx.Node) else node


def _noise_of_values(lab: Lab, pins: Pins) -> dict[Key, Grown]:
    """The noise of every float that the graphs make."""
    exact: dict[Key, torch.Tensor] = {}
    noise: dict[Key, Grown] = {}

    def keep(index: int, node: fx.Node, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            exact[index, node.name] = value

    def compare(index: int, node: fx.Node, value: Any) -> None:
        right = exact.get((index, node.name))
        if right is not None and right.shape == value.shape:
            before = noise.get((index, node.name), Grown(0.0, 0.0))
            apart, size = float((value.double() - right).abs().max()), float(right.abs().max())
            part = apart / size if size else float(apart > 0)
            noise[index, node.name] = Grown(max(apart, before.largest), max(part, before.part))

    lab.by_torch(TorchRun(pins, wide=True, watch=keep))
    for seed in range(_NOISY):
        lab.by_torch(TorchRun(pins, noise=seed, watch=compare))
    return noise
