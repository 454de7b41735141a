"""Kinks: where rounding decides a choice the record says so, and a fault of the same size is still found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from assay.evidence.records import Case, Cause, Environment, Record
from assay.evidence.records.files import inconsistency
from assay.evidence.records.schema import Output
from assay.evidence.sweep.faults import injected
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.kinks import is_coarse, reconsidered, verdicts
from assay.evidence.sweep.lab import Lab
from assay.evidence.sweep.measure import measure
from assay.evidence.sweep.subjects import Results, Subject, Trainee

SIZE = 48


def total(outputs: Tensor) -> Tensor:
    return outputs.square().mean()


class Edgy(nn.Module):
    """Two layers; what the first gives `chosen` is zero within rounding at `near` places, and clear elsewhere."""

    def __init__(self, chosen: Callable[[Tensor], Tensor], x: Tensor, near: int = 8) -> None:
        super().__init__()
        self.first, self.second, self.chosen = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, 4), chosen
        with torch.no_grad():
            wide = x.double() @ self.first.weight.double().T
            self.first.bias.copy_(1.0 + torch.arange(SIZE) / SIZE)
            self.first.bias[:near] = -wide[0, :near]

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.chosen(self.first(x)))


def edgy(chosen: Callable[[Tensor], Tensor] = torch.relu, near: int = 8, seed: int = 0) -> Subject:
    torch.default_generator.manual_seed(seed)
    x = torch.randn(1, SIZE)
    return Subject(Trainee(Edgy(chosen, x, near), total).train(), {"x": x}, "train")


def recorded(subject: Subject) -> Record:
    job = Job(Case("model", "edgy", "cpu", "train", "small"), Environment("now"), rounds=0)
    return measure(job, lambda _: None, lambda _: subject)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that were lowered without a fault must not hide it, nor the faulty ones spoil what follows."""
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path))


CHOICES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "relu": ("aten.relu.default", torch.relu),
    "abs": ("aten.abs.default", torch.abs),
    "maximum": ("aten.maximum.default", lambda x: torch.maximum(x, 0.5 * x)),
    "comparison": ("aten.gt.Scalar", lambda x: torch.where(x > 0, x, 0.1 * x)),
    "jump": ("aten.gt.Scalar", lambda x: torch.where(x > 0, x + 1, x)),
    "clamp": ("aten.clamp.default", lambda x: x.clamp(0.0, 9.0)),
    "pool": (
        "aten.max_pool2d_with_indices.default",
        lambda x: nn.functional.max_pool1d(torch.stack([x, 0 * x], 2), 2)[:, :, 0],
    ),
}
"""What is named, and a function that chooses at zero."""


@pytest.mark.parametrize("choice", CHOICES)
def test_a_kink_is_a_pass_with_words(choice: str) -> None:
    op, chosen = CHOICES[choice]
    record = recorded(edgy(chosen))
    assert record.status == "pass", record.cause
    assert record.verdict.startswith(f"kink at {op} ")
    assert "model" in record.verdict
    assert "test_kinks.py:" in record.verdict
    assert record.words == "pass (kink)"
    assert all(each.ok for each in record.gradients)


def test_a_plain_pass_has_no_words() -> None:
    record = recorded(edgy(near=0))
    assert (record.status, record.verdict, record.words) == ("pass", "", "pass")


def runs(subject: Subject) -> tuple[Results, Results, Results]:
    """What the target gives, eager, and eager in f64."""
    return Lab(subject, "cpu").on_target()[0], subject.run(subject.module), subject.exact()


def test_a_wrong_gradient_of_the_size_of_the_jump_is_found() -> None:
    subject = edgy()
    found, plain, exact = runs(subject)
    name, jump = max(
        ((name, float(np.abs(found.gradients[name] - exact.gradients[name]).max())) for name in exact.gradients),
        key=lambda pair: pair[1],
    )
    assert jump > 0.01
    assert reconsidered(subject, "cpu", found, plain, exact).words.startswith("kink at ")
    for at in (0, SIZE - 1):  # at an edge, and far from every edge
        faulty = found.gradients[name].copy()
        faulty[at] += np.float32(jump)
        again = reconsidered(subject, "cpu", Results(found.outputs, {**found.gradients, name: faulty}), plain, exact)
        assert [each.name for each in again.verdicts.wrong] == [name]
        assert again.words == ""


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("fault", ["lowering", "lowering:aten.mm.default", "lowering:aten.where.self"])
def test_a_broken_op_is_found_beside_a_kink(fault: str) -> None:
    with injected(fault):
        record = recorded(edgy())
    assert record.status == "fail_accuracy"
    assert record.verdict == ""


def test_only_what_is_within_noise_is_taken_from_the_target() -> None:
    """An operand that is clearly on the other side is no kink: the target is wrong."""
    subject = edgy(near=0)
    found, plain, exact = runs(subject)
    with torch.no_grad():
        first = subject.module.get_submodule("model.first")
        assert isinstance(first, nn.Linear)
        first.bias[0] -= 100.0  # the target's run is of other weights
        other = subject.run(subject.module)
        first.bias[0] += 100.0
    assert verdicts(other, plain, exact).wrong
    assert reconsidered(subject, "cpu", other, plain, exact).verdicts.wrong
    assert not verdicts(found, plain, exact).wrong


class Normalised(nn.Module):
    """Normalises pairs that are equal but for rounding, as batch norm does in training with two values a channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE, eps=1e-20), nn.Linear(SIZE, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.norm(self.first(x))))


def test_noise_as_large_as_the_value_is_ill_conditioned() -> None:
    torch.default_generator.manual_seed(0)
    row = torch.randn(1, SIZE)
    x = torch.cat([row, row * (1 + 1e-7)])
    record = recorded(Subject(Trainee(Normalised(), total).train(), {"x": x}, "train"))
    assert record.green, record.cause
    assert record.verdict.startswith("ill-conditioned at aten._native_batch_norm_legit_functional.default ")
    assert "in model.norm at " in record.verdict
    assert "noise grows from" in record.verdict
    assert record.words.endswith("(ill-conditioned)")


def test_a_floor_that_could_hide_a_fault_is_looked_into() -> None:
    plain = Results({}, {"weight": np.ones(4, np.float32)})
    fine = Output("weight", "f32[4]", True, noise=1e-6)
    coarse = Output("weight", "f32[4]", True, noise=1e-3)
    for output, expected in ((fine, False), (coarse, True)):
        assert is_coarse(verdicts(plain, plain, None)._replace(gradients=(output,)), plain) is expected


def test_a_failure_has_no_verdict() -> None:
    record = Record(
        case=Case("model", "edgy", "cpu"),
        environment=Environment("now"),
        status="fail_accuracy",
        stage="accuracy",
        cause=Cause("accuracy"),
    )
    assert not inconsistency(record)
    assert "verdict" in inconsistency(replace(record, verdict="kink at aten.relu.default"))
