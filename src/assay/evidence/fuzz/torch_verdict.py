"""Whether two stories of one program agree: values, shapes, strides, memory, gradients and errors, call by call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from assay.errors import AssayError
from assay.evidence.compare.noisy import flips
from assay.evidence.fuzz.torch_program import RandomProgram
from assay.evidence.fuzz.torch_story import (
    Seen,
    compiled_story,
    eager_story,
    noisy_story,
    rounded_story,
    scattered_story,
    traced_story,
    unfused_story,
    wide_story,
)
from assay.evidence.opinfo.unit import reason_of
from assay.evidence.opinfo.verdicts import CallOutcome, allowed, difference, no_farther
from assay.frontends.torch.private.dynamo import counters
from assay.frontends.torch.types import torch_dtype
from assay.limits import DEFAULT
from assay.runtime.targets import make_chain

_LEAST = (1e-5, 2e-6)
"""(relative, absolute): what a few float32 ops may differ by without further questions."""
KINK = "kink"
"""The kind of a difference, and the status of a program, where rounding decides a choice."""
_PEER, _DECOMPOSING_PEER = "aot_eager", "aot_eager_decomp_partition"
EAGER_FAULTS = ("grad_weight needs to be contiguous",)
"""Errors of eager's kernels about what eager itself hands them: a gradient that it laid out as an argument lies."""
TRACING_FAULTS = ("incorrect out shape after application of ViewMeta sequence",)
"""Errors of AOTAutograd's own wrappers, which no backend can avoid: here of a pool of one axis and its detached result,
for which the peer runs windows that are cut out."""
_NOISY = 6
_MARGIN = 4.0


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two stories part: in which call, of what kind, and how."""

    turn: int
    kind: str
    message: str

    def __str__(self) -> str:
        return f"call {self.turn}, {self.kind}: {self.message}"


@dataclass(frozen=True, slots=True)
class JudgedProgram:
    """What became of a program on one target: `pass`, `no graph` (dynamo left everything to eager), `torch` (torch's
    own compiler does the same), `kink` (rounding decides a choice), `wrong` or `error`.

    An error is `untyped` if it is none of Assay's.
    """

    status: str
    found: Difference | None = None
    untyped: bool = False


def judge(program: RandomProgram, target: str, expected: Sequence[Seen] | None = None) -> JudgedProgram:
    """Compare Assay with eager; a disagreement that torch's own compiler shares is torch's."""
    wanted = eager_story(program) if expected is None else expected
    counters.clear()
    mine = compiled_story(program, "assay", {"target": target, "cache": False})
    found = compared(program, mine, wanted, coarse=_rounds_to(target))
    if found is None:
        return JudgedProgram("pass" if counters["stats"]["unique_graphs"] else "no graph")
    if found.kind == KINK:
        return JudgedProgram(KINK, found)
    if _is_torchs_own(found) or any(
        _same_fault(program, mine, traced_story(program, peer), found) for peer in _peers(found)
    ):
        return JudgedProgram("torch", found)
    if _follows_from_refusals(program, target, mine[: found.turn], wanted):
        return JudgedProgram("torch", found)
    error = mine[found.turn].error
    if found.kind != "error" or error is None:
        return JudgedProgram("wrong", found)
    return JudgedProgram("error", found, not isinstance(_cause(error), AssayError))


def _rounds_to(target: str) -> torch.dtype | None:
    """The dtype that a target rounds floats to, if that is narrower than what programs state."""
    narrow = make_chain(target, "exact", DEFAULT)[0].traits.rounds_to
    return None if narrow is None else torch_dtype(narrow)


def _cause(error: Exception) -> Any:
    return getattr(error, "inner_exception", None) or error


def _is_torchs_own(found: Difference) -> bool:
    """Whether eager refuses what its own documentation allows, or tracing fails for every backend."""
    faults = {"no error": EAGER_FAULTS, "error": TRACING_FAULTS}.get(found.kind, ())
    return any(fault in found.message for fault in faults)


def _peers(found: Difference) -> tuple[str, ...]:
    """Backends of torch's own that are asked about a difference. An op of which nobody reads the result raises nothing
    after torch's decompositions, and some kernels give what is empty in another shape than these say; aot_eager calls
    the kernels."""
    return (_PEER, _DECOMPOSING_PEER) if found.kind in ("no error", "form") else (_PEER,)


def _follows_from_refusals(program: RandomProgram, target: str, before: Sequence[Seen], wanted: Sequence[Seen]) -> bool:
    """Whether nothing differs without the calls before that raised everywhere. Tracing refuses such a call before
    anything of it ran, while eager has written to the state what comes before the error."""
    raised = {
        turn for turn, (mine, theirs) in enumerate(zip(before, wanted, strict=False)) if mine.error and theirs.error
    }
    if not raised:
        return False
    rest = tuple(turn for at, turn in enumerate(program.turns) if at not in raised)
    return judge(replace(program, turns=rest), target).status in ("pass", KINK)


def _same_fault(program: RandomProgram, mine: Sequence[Seen], peer: Sequence[Seen], found: Difference) -> bool:
    """Whether the peer does in that call what Assay does."""
    if len(peer) <= found.turn:
        return False
    if found.kind == "error":
        return peer[found.turn].error is not None
    differing = compared(program, mine[: found.turn + 1], peer[: found.turn + 1], noisy=False)
    return differing is None


def compared(
    program: RandomProgram,
    mine: Sequence[Seen],
    theirs: Sequence[Seen],
    *,
    noisy: bool = True,
    coarse: torch.dtype | None = None,
) -> Difference | None:
    """The first difference between two stories; a kink only if there is no other. If the first one's floats are
    rounded to a coarse dtype, so is what noise there is."""
    kinks: list[Difference] = []
    for turn, (first, second) in enumerate(zip(mine, theirs, strict=False)):
        found = _differing(first, second)
        if found is None:
            continue
        kind, message = found
        explained = _rounding(program, turn, first, second, coarse) if kind == "values" and noisy else None
        if explained is None:
            return Difference(turn, kind, message)
        kinks += [Difference(turn, KINK, explained)] if explained else []
    if len(mine) != len(theirs):
        return Difference(min(len(mine), len(theirs)), "error", f"{len(mine)} calls instead of {len(theirs)}")
    return next(iter(kinks), None)


def _differing(mine: Seen, theirs: Seen) -> tuple[str, str] | None:
    """The kind of a difference and how it shows."""
    if mine.error is not None and theirs.error is not None:
        return None
    if mine.error is not None:
        return "error", reason_of(mine.error)
    if theirs.error is not None:
        return "no error", f"eager raises {reason_of(theirs.error)}"
    shape = difference(mine.outcome, theirs.outcome, _LEAST, values=False)
    if shape is not None:
        return "form", shape
    value = difference(mine.outcome, theirs.outcome, _LEAST)
    if value is not None:
        return "values", value
    if mine.shared != theirs.shared:
        less, more = sorted(theirs.shared - mine.shared), sorted(mine.shared - theirs.shared)
        return "memory", f"not shared: {less}, shared: {more}"
    return _strides(mine, theirs)


def _strides(mine: Seen, theirs: Seen) -> tuple[str, str] | None:
    for index, (first, second) in enumerate(zip(mine.strides, theirs.strides, strict=True)):
        if first is None or second is None:
            continue
        shape = theirs.outcome.outputs[index].shape
        telling = [axis for axis, size in enumerate(shape) if size > 1 and 0 not in shape]
        if any(first[axis] != second[axis] for axis in telling):
            return "strides", f"output {index} of shape {list(shape)}: {list(first)} instead of {list(second)}"
    return None


# --- rounding


def _rounding(program: RandomProgram, turn: int, mine: Seen, theirs: Seen, coarse: torch.dtype | None) -> str | None:
    """None if f64, or eager with noise in every op, with its elements apart or with attention in parts, does not say
    that eager itself might as well have given this.

    Else the op whose choice rounding flips, if only runs that flip one come as far; empty if it takes none.
    """
    try:
        exact = wide_story(program)
    except Exception:  # the program says somewhere that it wants f32
        exact = []
    if len(exact) > turn and exact[turn].error is None and _near(mine.outcome, theirs.outcome, exact[turn].outcome):
        return ""
    unfused = unfused_story(program)
    if len(unfused) > turn and unfused[turn].error is None and _same_values(mine.outcome, unfused[turn].outcome):
        return ""
    plain = noisy_story(program, None)[1]
    runs = [noisy_story(program, seed, coarse) for seed in range(_NOISY)]
    flipped = flips(plain, [calls for _, calls in runs])
    moved = {
        index: run[turn].outcome for index, (run, _) in enumerate(runs) if len(run) > turn and run[turn].error is None
    }
    smooth = [outcome for index, outcome in moved.items() if not flipped[index]]
    others = [scattered_story(program), *([] if coarse is None else [rounded_story(program, coarse)])]
    smooth += [story[turn].outcome for story in others if len(story) > turn and story[turn].error is None]
    if smooth and _within(mine.outcome, theirs.outcome, smooth):
        return ""
    if not moved or not _within(mine.outcome, theirs.outcome, list(moved.values())):
        return None
    kinks = dict.fromkeys(filter(None, flipped))
    return f"kink at {', '.join(kinks)}" if kinks else ""


def _same_values(mine: CallOutcome, theirs: CallOutcome) -> bool:
    return difference(mine, theirs, _LEAST) is None


def _near(mine: CallOutcome, theirs: CallOutcome, exact: CallOutcome) -> bool:
    try:
        return no_farther(mine, theirs, exact, _LEAST)
    except RuntimeError:  # shapes that depend on data differ
        return False


def _within(mine: CallOutcome, theirs: CallOutcome, moved: Sequence[CallOutcome]) -> bool:
    """Whether every element lies as near to one of eager's as noise moves it, NaN and infinities being what one is;
    where noise changes a shape, any is."""
    rows = [mine.parts(), theirs.parts(), *(each.parts() for each in moved)]
    if len({len(row) for row in rows}) > 1:
        return False
    return all(_part_within(*(part for _, part in parts)) for parts in zip(*rows, strict=True))


def _part_within(mine: Any, theirs: Any, *moved: Any) -> bool:
    if not isinstance(theirs, torch.Tensor):
        return mine == theirs or any(each != theirs for each in moved)
    if any(not isinstance(each, torch.Tensor) or each.shape != theirs.shape for each in moved):
        return True
    wide, plain, *others = (each.detach().double() for each in (mine, theirs, *moved))
    spread = torch.zeros_like(plain)
    for other in others:
        spread = torch.maximum(spread, (other - plain).abs().nan_to_num(0.0, 0.0, 0.0))
    relative, absolute = allowed(theirs, _LEAST) if theirs.is_floating_point() else (0.0, 0.0)
    right = torch.zeros_like(plain, dtype=torch.bool)
    for each in (plain, *others):
        right |= (wide == each) | (wide.isnan() & each.isnan())
        near = (wide - each).abs() <= absolute + relative * each.abs() + _MARGIN * spread
        right |= near & each.isfinite()
    return bool(right.all())
