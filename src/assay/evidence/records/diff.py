"""What changed between two runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from assay.evidence.machine import DISTURBED
from assay.evidence.records.merge import merged
from assay.evidence.records.schema import Case, Cause, Output, Record

Kind = Literal[
    "new", "gone", "fixed", "broken", "less_supported", "changed_cause", "changed_status", "slower", "faster",
    "less_accurate", "more_accurate",
]  # fmt: skip

KINDS: Mapping[Kind, str] = {
    "broken": "was green and is not",
    "less_supported": "ran on the target alone, and now some of it runs elsewhere",
    "fixed": "is green and was not",
    "changed_cause": "fails as before, for another cause",
    "changed_status": "has another status, neither fixed nor broken",
    "less_accurate": "its worst error, in parts of what is allowed, grew",
    "more_accurate": "the same figure shrank",
    "slower": "its time, in parts of eager's in the same run, grew",
    "faster": "the same figure shrank",
    "new": "is in the new run alone",
    "gone": "is in the old run alone",
}
"""Every kind of change and what it says about a case, the most urgent first."""

BAD: tuple[Kind, ...] = ("broken", "less_supported", "less_accurate", "slower", "gone")
"""What makes the new run worse than the old one."""


@dataclass(frozen=True, slots=True)
class Change:
    """What changed about one case; `before` and `after` are a status, a cause or a figure."""

    kind: Kind
    case: Case
    before: str = ""
    after: str = ""
    factor: float | None = None


def relative_time(record: Record) -> float | None:
    """The median time in parts of eager's; None if either was not measured."""
    speed = record.speed
    return speed.median / speed.eager_median if speed.median is not None and speed.eager_median else None


def disturbed(record: Record) -> bool:
    """Whether other cases or other processes used the machine while the record's times were taken."""
    return (record.environment.workers or 1) > 1 or (record.speed.others or 0.0) > DISTURBED


def verdicts(record: Record) -> tuple[Output, ...]:
    """Everything of a record that has a verdict."""
    return (*record.outputs, *record.gradients)


def part_of_allowed(output: Output) -> float | None:
    """The error of an output in parts of what is allowed; a NaN or an infinity that should not be there is infinitely
    wrong, and so is an error where none is allowed."""
    if output.max_abs is None or output.allowed is None:
        return None
    if not output.ok and (output.nan or output.inf):
        return float("inf")
    if output.allowed == 0:
        return float("inf") if output.max_abs else 0.0
    return output.max_abs / output.allowed


def worst_error(record: Record) -> float | None:
    """The largest error of a record in parts of what is allowed; None if nothing was judged."""
    return max((found for each in verdicts(record) if (found := part_of_allowed(each)) is not None), default=None)


def cause_text(cause: Cause | None) -> str:
    """A cause in one line."""
    if cause is None:
        return ""
    place = " / ".join(part for part in (cause.stage, cause.component or "unknown component", cause.op) if part)
    said = ": ".join(part for part in (cause.error, cause.message) if part)
    return f"{place}: {said}" if said else place


def changes(
    old: Iterable[Record], new: Iterable[Record], *, slower: float = 1.2, accuracy: float = 2.0
) -> tuple[Change, ...]:
    """All changes, the most urgent kind first.

    Of each run the latest record of a case counts. Errors are compared where both runs have them, times where nothing
    disturbed either; they count as changed beyond the factors `accuracy` and `slower`.
    """
    before = {record.case: record for record in merged(old)}
    after = {record.case: record for record in merged(new)}
    found = [
        *(Change("gone", case, before=before[case].status) for case in before.keys() - after.keys()),
        *(Change("new", case, after=after[case].status) for case in after.keys() - before.keys()),
    ]
    for case in before.keys() & after.keys():
        found += _changes(before[case], after[case], slower, accuracy)
    urgency = {kind: rank for rank, kind in enumerate(KINDS)}
    return tuple(sorted(found, key=lambda change: (urgency[change.kind], change.case)))


def _changes(old: Record, new: Record, slower: float, accuracy: float) -> Iterator[Change]:
    if old.green != new.green:
        yield Change("fixed" if new.green else "broken", new.case, _state(old), _state(new))
    elif (old.status, new.status) == ("pass", "pass_with_fallback"):
        yield Change("less_supported", new.case, old.status, new.status)
    elif old.status != new.status:
        yield Change("changed_status", new.case, _state(old), _state(new))
    elif old.cause and new.cause and old.cause.key != new.cause.key:
        yield Change("changed_cause", new.case, cause_text(old.cause), cause_text(new.cause))
    if not (disturbed(old) or disturbed(new)):
        yield from _moved(new.case, relative_time(old), relative_time(new), slower, ("slower", "faster"))
    yield from _moved(new.case, worst_error(old), worst_error(new), accuracy, ("less_accurate", "more_accurate"))


def _state(record: Record) -> str:
    return f"{record.status} ({cause_text(record.cause)})" if record.cause else record.words


def _moved(
    case: Case, old: float | None, new: float | None, limit: float, kinds: tuple[Kind, Kind]
) -> Iterator[Change]:
    """The change of a figure that should be small, if it grew or shrank beyond the limit."""
    if old is None or new is None or old == new:
        return
    factor = new / old if old else float("inf")
    grew, shrank = kinds
    if factor > limit:
        yield Change(grew, case, f"{old:.3g}", f"{new:.3g}", factor)
    elif factor < 1 / limit:
        yield Change(shrank, case, f"{old:.3g}", f"{new:.3g}", factor)
