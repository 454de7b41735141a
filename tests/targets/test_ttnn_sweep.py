"""A sweep's case on the Tenstorrent target: judged by the noise of bf16, without a time, and still able to be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.evidence.records import Case, Environment, Record
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.measure import measure
from assay.targets.ttnn.device_model import ModelledBuffer, ModelledExecutable
from assay.targets.ttnn.library import Library


def measured() -> Record:
    job = Job(Case("model", "Mnist", "ttnn,cpu", "eval", "small"), Environment("now"), rounds=3)
    return measure(job, lambda _: None)


def test_a_record_says_device_model_and_tells_no_time_of_a_run(library: Library) -> None:
    record = measured()
    assert (record.status, record.cause) == ("pass", None)
    assert any(note.startswith("device model") for note in record.notes)
    assert record.speed.compiling is not None
    assert (record.speed.first_run, record.speed.median, record.speed.runs) == (None, None, 0)
    assert record.transfers is not None
    assert record.transfers.count == 0
    (output,) = record.outputs
    assert output.noise is not None
    assert output.noise > 1e-3, "the floor is that of bf16"
    assert output.pcc is not None
    assert output.pcc > 0.9999


def test_what_bf16_does_not_explain_is_wrong(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ModelledExecutable.submit

    def off(self: ModelledExecutable, *given: Any, **options: Any) -> Any:
        results, run = right(self, *given, **options)
        return tuple(ModelledBuffer(each.content * np.float32(1.1)) for each in results), run

    monkeypatch.setattr(ModelledExecutable, "submit", off)
    assert measured().status == "fail_accuracy"
