"""What is broken on purpose is reported under the right stage, op and cause."""

from __future__ import annotations

import pytest

from assay.evidence.records import Case, Environment, Record
from assay.evidence.records.files import inconsistency
from assay.evidence.sweep.faults import FAULTS, injected, op_of
from assay.evidence.sweep.jobs import CaseLimits, Job
from assay.evidence.sweep.supervise import supervise
from assay.evidence.sweep.worker import run

DEADLY = {"kill": "SIGKILL", "segfault": "SIGSEGV", "hang": "timeout", "memory": "out of memory"}
"""Faults that end the process, and what the cause is then."""
TARGETS = ("cpu", "reference")
REFUSABLE = ("refused", "no compiler")
"""Faults that only a target has that is not the oracle, which takes every op and has nothing to fall back to."""


def job(fault: str, target: str) -> Job:
    limits = CaseLimits(25.0 if fault == "hang" else 200.0, 2 << 30)
    only = FAULTS[fault].only if fault else None
    name = "Mnist" if only is None else only.model
    return Job(Case("model", name, target, size="small", fault=fault), Environment("now"), limits, 1, 1)


def check(record: Record, fault: str) -> None:
    assert not inconsistency(record)
    assert FAULTS[fault].misreported(record, op_of(fault)) == "", record.cause


HARMLESS = [
    (fault, target)
    for target in TARGETS
    for fault in FAULTS
    if fault not in DEADLY and not (target == "reference" and (fault in REFUSABLE or FAULTS[fault].only is not None))
]


@pytest.mark.parametrize(("fault", "target"), HARMLESS)
def test_a_fault_is_told(fault: str, target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path))
    check(run(job(fault, target), lambda _: None), fault)


@pytest.mark.parametrize("fault", DEADLY)
def test_what_ends_a_process_is_told(fault: str) -> None:
    record = supervise(job(fault, "cpu"))
    check(record, fault)
    cause = record.cause
    assert cause is not None
    assert cause.error == DEADLY[fault]
    if fault != "kill":  # nobody can write down where it is when that comes
        assert cause.component == "frontends.torch"
        assert cause.frame == "frontends/torch/dialect.py:run_opaque"
    assert record.inputs, "what was known before is lost"
    assert record.parameters


def test_nothing_is_broken_without_a_fault() -> None:
    with injected(""):
        record = run(job("", "cpu"), lambda _: None)
    assert record.status == "pass"
    assert all(fault.misreported(record, op_of(kind)) for kind, fault in FAULTS.items())


def test_there_are_enough_kinds() -> None:
    assert len(FAULTS) >= 12
