"""Kinks: where rounding decides a choice the record says so, and a fault of the same size is still found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.evidence.records import Case, Environment, Record
from assay.evidence.records.files import inconsistency
from assay.evidence.sweep.faults import injected
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.kinks import reconsidered, verdicts
from assay.evidence.sweep.lab import Lab, Way
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


def recorded(subject: Subject, target: str = "cpu", fault: str = "") -> Record:
    job = Job(Case("model", "edgy", target, "train", "small", fault=fault), Environment("now"), rounds=0)
    return measure(job, lambda _: None, lambda _: subject)
