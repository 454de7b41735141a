"""A model that a test recorded: its inputs as it gives them, measured in the same way as the sweep does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import nn

from assay.evidence.records import Case, Record
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.machine import environment
from assay.evidence.sweep.measure import measure
from assay.evidence.sweep.subjects import Subject, Trainee
from assay.frontends.torch.private.ops import pytree
from assay.frontends.torch.types import dtype_of
from assay.zoo.torch.model import mean_square

_ROUNDS = 10


class Method(nn.Module):
    """A model whose call is one of its methods, such as `generate`."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, *args: Any, **inputs: Any) -> Any:
        """What the method gives."""
        return getattr(self.model, self.name)(*args, **inputs)


def measure_recorded(name: str, model: Any, inputs: Any, outputs: Any, *, target: str, iteration: int = 0) -> Record:
    """The record of a model, or of its `generate`, with the inputs of a test: one argument, a tuple or list of them, or
    a mapping. A module in training mode whose outputs require a gradient is a step of training. `iteration` is the
    run whose time counts, 0 for the median."""
    training = isinstance(model, nn.Module) and model.training and _differentiable(outputs)
    case = Case("model", name, target, "train" if training else "eval", dtype=_dtype(model))
    job = Job(
        case, environment("pytest", torch.get_num_threads(), 1), rounds=iteration or _ROUNDS, last=bool(iteration)
    )
    return measure(job, lambda _: None, lambda _: subject_of(model, inputs, training))


def _dtype(model: Any) -> str:
    """The dtype of a model's first floating parameter; f32 if it has none."""
    owner = getattr(model, "__self__", model)
    parameters = owner.parameters() if isinstance(owner, nn.Module) else ()
    return next((dtype_of(each.dtype).name for each in parameters if each.is_floating_point()), "f32")


def subject_of(model: Any, inputs: Any, training: bool) -> Subject:
    """What a recorded model and its inputs are to a sweep."""
    args, kwargs = _arguments(inputs)
    owner = getattr(model, "__self__", None)
    if isinstance(owner, nn.Module):
        return Subject(Method(owner, model.__name__), kwargs, args=args, inner=owner)
    if training:
        return Subject(Trainee(model, mean_square), kwargs, "train", args)
    return Subject(model, kwargs, args=args)


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(cast("Mapping[str, Any]", inputs))
    return (tuple(cast("list[Any]", inputs)) if isinstance(inputs, list | tuple) else (inputs,)), {}


def _differentiable(outputs: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(outputs))
