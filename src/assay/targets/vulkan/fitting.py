"""A plan for given sizes: what every call is told, and where what lives for a while lies in the arena."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, cast

from assay.errors import LimitExceeded, OutOfMemory, RunFailed
from assay.ir.dims import Dim
from assay.limits import Limits
from assay.targets.shared.arena import Layout, arena_storages, lay_out
from assay.targets.shared.arena import Piece as Lifetime
from assay.targets.shared.planner import Planner
from assay.targets.shared.sizes import Sizes
from assay.targets.shared.tape import Control, Step, liveness
from assay.targets.shared.views import Storage
from assay.targets.vulkan.memory import ALIGNMENT
from assay.targets.vulkan.pipelines import Pipeline
from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.recording import KernelCall
from assay.targets.vulkan.templates import Template

_LARGEST = 1 << 31
"""Kernels count elements in 32 bits, and some drivers do so with a sign."""

_Getter = Callable[[Sequence[int]], tuple[int, ...]]


@dataclass(slots=True)
class Fit:
    """A plan for given sizes."""

    calls: list[KernelCall]
    bytes: dict[Storage, int]
    arena: Layout
    places: dict[Storage, int]
    shapes: list[tuple[int, ...]]
    """Of the outputs."""
    recordings: OrderedDict[Any, Any]
    """What was recorded of it, by where memory lies."""


class _Prepared(NamedTuple):
    """A step, with what gives its sizes: rows, columns, the grain of these, offsets of operands, numbers."""

    step: Step
    pipeline: Pipeline
    storages: tuple[Storage, ...]
    sizes: _Getter


class _Rounds(NamedTuple):
    """A loop: the steps of a round, what gives the number of rounds, and what to raise if these are too many."""

    steps: list[_Prepared | _Rounds]
    rounds: _Getter
    too_often: RunFailed


class Fitting:
    """Makes fits of a plan."""

    def __init__(
        self, plan: Planner, steps: Sequence[Step], pipelines: Mapping[int, Pipeline], profile: Profile, limits: Limits
    ) -> None:
        """`steps` are the calls of the plan and what begins and ends loops, `pipelines` those of calls by their id."""
        self._plan, self._profile, self._limits = plan, profile, limits
        lives, sizes = liveness(plan.tape), plan.tape.sizes
        self._inner = arena_storages(lives)
        self._lives = [lives[storage] for storage in self._inner]
        self._storages = [*plan.made, *self._inner]
        self._bytes = _getter(sizes, [storage.bytes for storage in self._storages])
        self._shapes = [_getter(sizes, view.shape) for view in plan.outputs]
        self._checks = [
            (_getter(sizes, step.numbers[:2]), cast(int, step.operands[0].offset))
            for step in plan.tape.steps
            if step.control is Control.CHECK
        ]
        self._round = _round(plan, steps, pipelines)

    def fit(self, symbols: Sequence[int], check_memory: Callable[[int], None]) -> Fit:
        """The plan for these values of the symbols; RunFailed if sizes do not go together. `check_memory` is told how
        many bytes a run takes."""
        plan, values = self._plan, self._plan.tape.sizes.values(symbols)
        for numbers, cell in self._checks:
            found, needed = numbers(values)
            if found < needed:
                node, message = plan.tape.errors[cell]
                raise RunFailed(f"{node.op}: {message}", where=str(node.origin))
        taken = {storage: max(size, 0) for storage, size in zip(self._storages, self._bytes(values), strict=True)}
        if max(taken.values(), default=0) > self._limits.tensor_bytes:
            raise LimitExceeded("a tensor would exceed the limit", hint="check the sizes, or raise Limits.tensor_bytes")
        inner = zip(self._inner, self._lives, strict=True)
        arena = lay_out([Lifetime(taken[storage], *life) for storage, life in inner], ALIGNMENT)
        check_memory(sum(taken[storage] for storage in plan.made) + arena.bytes)
        calls = self._calls(self._round, values)
        shapes = [shape(values) for shape in self._shapes]
        return Fit(calls, taken, arena, dict(zip(self._inner, arena.places, strict=True)), shapes, OrderedDict())

    def _calls(self, steps: Sequence[_Prepared | _Rounds], values: Sequence[int]) -> list[KernelCall]:
        """The calls of steps; those of a loop as often as it has rounds."""
        calls: list[KernelCall] = []
        for each in steps:
            if isinstance(each, _Rounds):
                (rounds,) = each.rounds(values)
                if rounds > self._limits.loop_iterations:
                    raise each.too_often
                calls += self._calls(each.steps, values) * rounds
                continue
            call = _call(each, values, self._profile)
            if call is not None:
                calls.append(call)
        return calls


def _round(plan: Planner, steps: Sequence[Step], pipelines: Mapping[int, Pipeline]) -> list[_Prepared | _Rounds]:
    """Steps made ready, with those of a loop within it."""
    sizes, levels = plan.tape.sizes, [list[_Prepared | _Rounds]()]
    for step in steps:
        if step.control is Control.LOOP:
            levels.append([])
        elif step.control is Control.NEXT:
            assert step.target is not None
            node, message = plan.tape.errors[cast(int, step.target.operands[0].offset)]
            error = RunFailed(f"{node.op}: {message}", where=str(node.origin))
            body = levels.pop()
            levels[-1].append(_Rounds(body, _getter(sizes, step.target.numbers), error))
        else:
            storages = tuple(view.storage for view in step.operands)
            levels[-1].append(_Prepared(step, pipelines[id(step)], storages, _getter(sizes, _sizes_of(step))))
    return levels[0]


def _sizes_of(step: Step) -> list[Dim]:
    return [step.rows, step.cols, step.col_grain, *(view.offset for view in step.operands), *step.numbers]


def _getter(sizes: Sizes, dims: Sequence[Dim]) -> _Getter:
    """What gives the numbers of dims, from those of all slots."""
    slots = [sizes.slot(dim) for dim in dims]
    if len(slots) > 1:
        return cast(_Getter, itemgetter(*slots))
    return lambda values: tuple(values[slot] for slot in slots)


def _call(prepared: _Prepared, values: Sequence[int], profile: Profile) -> KernelCall | None:
    """A step for given sizes; None if there is nothing to do."""
    step, pipeline, storages, sizes = prepared
    template, found = cast(Template, step.kernel), sizes(values)
    begin = 3 + len(storages)
    firsts, numbers = found[3:begin], found[begin:]
    rows, cols = template.tiles(profile, found[0], found[1], found[2], numbers)
    if rows <= 0 or cols <= 0:
        return None
    told = (rows, cols, *numbers)
    if rows * cols >= _LARGEST or max(told) >= _LARGEST or min(told) <= -_LARGEST:
        raise OutOfMemory("a tensor has more elements than kernels count (2³¹)")
    groups = template.groups(profile, rows * cols)
    return KernelCall(template, pipeline, storages, firsts, told, groups, step.writes, step.nodes)
