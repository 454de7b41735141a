"""Conformance: the official ONNX suite on targets and peers, judged by one strict comparison.

A NaN equals only a NaN, an infinity only the same infinity; dtype and shape must match; strings,
sequences, optionals and maps are compared item by item; the tolerances are the suite's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import numpy as np

from assay.evidence.attempts import Attempt, IsolatedAttempts, attempt
from assay.evidence.compare.arrays import closeness
from assay.evidence.conformance.suite import KINDS, Content, SuiteCase, official_cases
from assay.evidence.engines import Engine, engine
from assay.ir import dtypes
from assay.ir.dtypes import Array

_BF16_RELATIVE = 2.0**-6
"""Two units in the last place: what the suite's own runner allows for bf16 results."""


@dataclass(frozen=True, slots=True)
class SuiteLimitation:
    """Cases whose expected outputs no target of Assay gives, and why. Tests and the page both read this list."""

    pattern: str
    reason: str

    def covers(self, name: str) -> bool:
        """True if the case called `name` is one of them."""
        return re.fullmatch(self.pattern, name) is not None


LIMITATIONS = (
    SuiteLimitation(
        r"test_bernoulli(_double|_seed)?(_expanded)?",
        "random: the expected outputs are draws of NumPy's generator, which ONNX does not prescribe",
    ),
)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What became of one case with one engine; `status` is one of DESIGN's status words.

    `fallbacks` are the nodes with floats that a target left to the oracle, each as its op and the reason.
    """

    name: str
    kind: str
    engine: str
    status: str
    stage: str
    reason: str
    seconds: float
    fallbacks: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True for a pass alone."""
        return self.status == "pass"

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON takes it."""
        return {"record": "case", **asdict(self)}


def excuse(record: CaseResult) -> SuiteLimitation | None:
    """The known limitation that explains a result that differs, if there is one."""
    known = (limit for limit in LIMITATIONS if limit.covers(record.name))
    return next(known, None) if record.status == "fail_accuracy" else None


@dataclass(frozen=True)
class ConformanceRun:
    """All records of a run; `engines` are its columns, with their versions."""

    engines: Mapping[str, str]
    records: Sequence[CaseResult] = field(default_factory=list[CaseResult])

    def of(self, name: str) -> list[CaseResult]:
        """The records of one engine."""
        return [record for record in self.records if record.engine == name]

    def counts(self, name: str) -> dict[str, tuple[int, int]]:
        """For each kind of case: how many passed, of how many."""
        mine = self.of(name)
        total = Counter(record.kind for record in mine)
        passed = Counter(record.kind for record in mine if record.passed)
        return {kind: (passed[kind], total[kind]) for kind in KINDS if total[kind]}

    def native(self, name: str) -> dict[str, tuple[int, int]]:
        """For each kind of case: how many passed with no float left to the oracle, of how many."""
        mine = self.of(name)
        whole = Counter(record.kind for record in mine if record.passed and not record.fallbacks)
        return {kind: (whole[kind], total) for kind, (_, total) in self.counts(name).items()}

    def seconds(self, name: str) -> dict[str, float]:
        """The time of one engine, loading and running, by kind of case."""
        spent: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        for record in self.of(name):
            spent[record.kind] += record.seconds
        return spent

    def surprises(self) -> list[CaseResult]:
        """What is not as it should be on Assay's own targets: whatever does not pass and is not a known
        limitation. Those excuse other results alone, not a failure to run."""
        own = {name for name in self.engines if engine(name).options is not None}
        return [record for record in self.records if record.engine in own and not record.passed and not excuse(record)]


def run_conformance(
    specs: Sequence[str],
    contains: str = "",
    *,
    kinds: Sequence[str] = KINDS,
    watch: Callable[[CaseResult, int, int], None] | None = None,
    timeout: float = 600.0,
) -> ConformanceRun:
    """Run the suite, or the cases of it with `contains` in their name, on every engine named in `specs`.

    `watch` sees each record as it is made, and how many there are of how many. Peers run in processes of their own,
    so that a crash costs one case; `timeout` seconds is the longest that a peer may take for one.
    """
    engines = [engine(spec) for spec in specs]
    versions = {who.name: who.version() for who in engines}
    cases = official_cases(contains, kinds)
    records: list[CaseResult] = []
    for record in _records(engines, cases, timeout):
        records.append(record)
        if watch is not None:
            watch(record, len(records), len(cases) * len(engines))
    return ConformanceRun(versions, records)


def _records(engines: Sequence[Engine], cases: Sequence[SuiteCase], timeout: float) -> Iterator[CaseResult]:
    with ExitStack() as stack:
        workers = {
            who.name: stack.enter_context(IsolatedAttempts(who.name, timeout)) for who in engines if who.options is None
        }
        for case in cases:
            content = case.read()
            feeds = [each.feeds for each in content.sets]
            for who in engines:
                worker = workers.get(who.name)
                tried = worker.attempt(content.model, feeds) if worker else attempt(who, content.model, feeds)
                yield judged(case, content, who.name, tried)


def judged(case: SuiteCase, content: Content, who: str, tried: Attempt) -> CaseResult:
    """The record of an attempt at a case: what it gave, compared with what was expected."""
    if tried.outputs is None:
        return CaseResult(case.name, case.kind, who, tried.status, tried.stage, tried.reason, tried.seconds)
    reason = _first_mismatch(case, content, tried.outputs)
    status = "pass" if reason is None else "fail_accuracy"
    return CaseResult(case.name, case.kind, who, status, "compare", reason or "", tried.seconds, tried.fallbacks)


def _first_mismatch(case: SuiteCase, content: Content, outputs: Sequence[Mapping[str, Any]]) -> str | None:
    if not content.sets:
        return "the case has no data"
    for each, given in zip(content.sets, outputs, strict=True):
        if len(given) != len(each.expected):
            return f"{len(given)} outputs instead of {len(each.expected)}"
        for (name, actual), expected in zip(given.items(), each.expected, strict=True):
            reason = mismatch(actual, expected, case.rtol, case.atol)
            if reason is not None:
                return f"'{name}': {reason}"
    return None


def mismatch(actual: Any, expected: Any, rtol: float, atol: float) -> str | None:
    """None if `actual` agrees with what the suite expects, else how it differs."""
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        return _items_mismatch(cast("Sequence[Any]", actual), cast("Sequence[Any]", expected), rtol, atol)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        mine, theirs = cast("Mapping[Any, Any]", actual), cast("Mapping[Any, Any]", expected)
        if list(mine) != list(theirs):
            return "other keys"
        return _items_mismatch(list(mine.values()), list(theirs.values()), rtol, atol)
    mine, theirs = _as_array(actual), _as_array(expected)
    if getattr(theirs, "dtype", None) == dtypes.bf16.numpy:
        rtol = max(rtol, _BF16_RELATIVE)
    found = closeness(mine, theirs, relative=rtol, absolute=atol)
    return None if found.ok else str(found)


def _items_mismatch(actual: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> str | None:
    if len(actual) != len(expected):
        return f"{len(actual)} items instead of {len(expected)}"
    reasons = (mismatch(a, b, rtol, atol) for a, b in zip(actual, expected, strict=True))
    return next((f"item {i}: {reason}" for i, reason in enumerate(reasons) if reason is not None), None)


def _as_array(value: Any) -> Any:
    """NumPy's scalars as arrays of rank 0, strings of any kind as objects."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    array: Array = np.asarray(cast(Any, value))
    return array.astype(object) if array.dtype.kind in "US" else array
