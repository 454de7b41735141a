"""A model of the zoo, or an op, as a sweep runs it: one call, or one step of training up to the gradients."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from assay.errors import NotFound
from assay.evidence.records import Case, Configuration
from assay.evidence.records.schema import Mode
from assay.evidence.sweep.jobs import Job
from assay.evidence.sweep.operators import Operator, example
from assay.frontends.torch.private.ops import pytree
from assay.frontends.torch.types import default_dtype, dtype_of, to_array
from assay.ir.dtypes import Array
from assay.zoo.torch import Model, find
from assay.zoo.torch.model import Task

_FULL = 4
"""Bytes of a number from which on a model is compared with f64."""
_MOST = 16 << 30
"""Bytes of widened weights that are there at once."""
SEED = 1
"""Of the random numbers that a model draws while it runs."""


@dataclass(frozen=True, slots=True)
class Results:
    """What one run gives, by name: outputs, and of a training step the gradients of the parameters."""

    outputs: Mapping[str, Array]
    gradients: Mapping[str, Array]


class Trainee(nn.Module):
    """A model and its loss as one module."""

    def __init__(self, model: nn.Module, loss: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, *args: Any, **inputs: Any) -> Tensor:
        """The loss."""
        return self.loss(self.model(*args, **inputs))


@dataclass(frozen=True, slots=True)
class Subject:
    """A module in the mode that is asked for, and what one call of it gets: keyword inputs, and others before them."""

    module: nn.Module
    inputs: Mapping[str, Any]
    mode: Mode = "eval"
    args: tuple[Any, ...] = ()
    inner: nn.Module | None = None
    """A part that is called again and again with ever other sizes: it alone is compiled, the rest stays eager."""
    task: Task | None = None
    """What the module can be asked, if its weights are real."""
    comparable: Callable[[Any], Any] = lambda outputs: outputs
    """From outputs to the same in a form in which rounding does not decide the order of anything."""

    @property
    def trains(self) -> bool:
        """True if one call is a step of training."""
        return self.mode == "train"

    @property
    def compiled(self) -> Callable[..., Any]:
        """What is to be compiled."""
        return self.module if self.inner is None else self.inner.forward

    def through(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """The module's call with `compiled` in the place of what was compiled."""
        inner = self.inner
        if inner is None:
            return compiled

        @wraps(inner.forward)  # libraries look at what a forward takes
        def forward(*args: Any, **inputs: Any) -> Any:
            return compiled(*args, **inputs)

        def call(*args: Any, **inputs: Any) -> Any:
            with patch.object(inner, "forward", forward):
                return self.module(*args, **inputs)

        return call

    def step(self, call: Callable[..., Any]) -> Any:
        """What `call` gives, which is the module or something that stands for it; a step of training goes backward too.

        Each time the same random numbers are drawn.
        """
        torch.default_generator.manual_seed(SEED)
        self.module.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(self.trains):
            outcome = call(*self.args, **self.inputs)
            if self.trains and outcome.requires_grad:  # a call that has gone backward by itself gives a plain number
                outcome.backward()
        return outcome

    def run(self, call: Callable[..., Any]) -> Results:
        """The results of one step."""
        outcome = self.step(call)
        if not self.trains:
            return Results(named_arrays(self.comparable(outcome)), {})
        return Results({"loss": to_array(outcome.detach().clone())}, self.gradients())

    def metrics(self, call: Callable[..., Any]) -> dict[str, float]:
        """How right the answers are that `call` gives, which is the module or something that stands for it."""
        if self.task is None:
            return {}
        with torch.no_grad():
            return self.task.score([call(**question) for question in self.task.questions()])

    def gradients(self) -> dict[str, Array]:
        """The gradients of the parameters, copied."""
        named = self.module.named_parameters()
        return {name: to_array(each.grad.clone()) for name, each in named if each.grad is not None}

    def exact(self) -> Results:
        """The results in f64; of a model with weights of 16 bits in f32. The module is afterwards what it was: widening
        loses nothing."""
        narrow = any(each.dtype.itemsize < _FULL for each in self.module.parameters())
        wide = torch.float32 if narrow else torch.float64
        taken = sum(each.numel() for each in self.module.parameters()) * wide.itemsize
        with (widened if taken <= _MOST else widened_by_part)(self.module, wide):
            inputs, args = pytree.tree_map(floats_as(wide), (self.inputs, self.args))
            widest = replace(self, inputs=inputs, args=args)
            try:
                return widest.run(self.module)
            except RuntimeError:  # some modules make constants for f64 in torch's default dtype
                with default_dtype(wide):
                    return widest.run(self.module)

    def narrowed(self, dtype: torch.dtype) -> Results:
        """The results with all floats of a narrower dtype: torch rounds to it after every op. The module stays as it
        is."""
        module, inner = deepcopy((self.module, self.inner))
        inputs, args = pytree.tree_map(floats_as(dtype), (self.inputs, self.args))
        narrow = replace(self, module=module.to(dtype), inner=inner, inputs=inputs, args=args)
        return narrow.run(narrow.module)

    def types(self) -> dict[str, str]:
        """The inputs by name, as text."""
        given = [*named_tensors(self.args), *named_tensors(self.inputs)]
        return {name: f"{dtype_of(each.dtype)}{list(each.shape)}" for name, each in given}


def floats_as(dtype: torch.dtype) -> Callable[[Any], Any]:
    """What turns floating tensors into ones of a dtype and leaves everything else alone."""
    return lambda leaf: leaf.to(dtype) if torch.is_tensor(leaf) and leaf.is_floating_point() else leaf


@contextmanager
def widened(module: nn.Module, dtype: torch.dtype, deep: bool = True) -> Generator[None]:
    """Inside, the parameters and buffers of a module (with `deep`, of its parts too) that are narrower floats are of a
    wider dtype."""
    tensors = [*module.parameters(deep), *module.buffers(deep)]
    kept = {each: each.dtype for each in tensors if each.is_floating_point() and each.dtype.itemsize < dtype.itemsize}
    for each in kept:
        each.data = each.data.to(dtype)
    try:
        yield
    finally:
        for each, before in kept.items():
            each.data = each.data.to(before)


@contextmanager
def widened_by_part(module: nn.Module, dtype: torch.dtype) -> Generator[None]:
    """Inside, every part of a module computes with wider weights, which it has only while it is called: the memory of
    the largest part is enough, where that of all is not there."""
    under_way: dict[nn.Module, ExitStack] = {}

    def before(part: nn.Module, *_: Any) -> None:
        under_way[part] = ExitStack()
        under_way[part].enter_context(widened(part, dtype, deep=False))

    def after(part: nn.Module, *_: Any) -> None:
        under_way.pop(part).close()

    with ExitStack() as hooks:
        for part in module.modules():
            hooks.callback(part.register_forward_pre_hook(before).remove)
            hooks.callback(part.register_forward_hook(after, always_call=True).remove)
        yield


def make_subject(job: Job) -> Subject:
    """What a job runs; NotFound if there is no such model or op."""
    return _of_model(job.case) if job.configuration is None else _of_op(job.configuration)


def _of_model(case: Case) -> Subject:
    model = find(case.name)
    if case.size == "full" and case.mode == "eval" and model.weights is not None:
        with suppress(NotFound):  # without the packages random weights must do; `metrics` are missing then
            return _of_trained(model, model.weights.task)
    module = model.build(case.size)
    inputs = model.example(module, size=case.size, mode=case.mode)
    if case.mode == "eval":
        return Subject(module.requires_grad_(False), inputs, comparable=model.comparable)
    return Subject(Trainee(module, model.loss).train(), inputs, case.mode)


def _of_trained(model: Model, task: Task) -> Subject:
    return Subject(model.trained().requires_grad_(False), task.questions()[0], task=task, comparable=model.comparable)


def _of_op(configuration: Configuration) -> Subject:
    return Subject(Operator(configuration), example(configuration))


def named_tensors(nested: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors among the leaves of something nested, each with the path to it, or else with its number."""
    try:
        leaves = [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(nested)[0]]
    except ValueError:  # a library's class whose fields torch was told without their names
        leaves = [(str(index), leaf) for index, leaf in enumerate(pytree.tree_leaves(nested))]
    for path, leaf in leaves:
        if isinstance(leaf, Tensor):
            yield ".".join(re.findall(r"[^\[\]'.]+", path)), leaf


def named_arrays(nested: Any) -> dict[str, Array]:
    """The same as arrays of their own."""
    return {name or "output": to_array(leaf.detach().clone()) for name, leaf in named_tensors(nested)}
