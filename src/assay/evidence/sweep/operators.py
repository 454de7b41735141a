"""One configuration of an op by itself: the real shapes, dtypes and attributes, with content that is drawn here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from assay.errors import NotFound
from assay.evidence.records import Configuration
from assay.frontends.torch.dialect import function_of
from assay.frontends.torch.private.ops import pytree
from assay.frontends.torch.types import torch_dtype
from assay.ir import dtypes

_SEED = 7
_SMALL = 10
"""Integers are drawn below this where nothing bounds them."""


class Operator(nn.Module):
    """An op with everything but its tensors; those are keyword inputs in the order in which they occur."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__()
        self.op = find_operator(configuration.op)
        self.configuration = configuration

    def forward(self, **tensors: Tensor) -> Any:
        """What the op gives."""
        given = iter(tensors.values())
        args = [_filled(each, given) for each in self.configuration.args]
        kwargs = {name: _filled(each, given) for name, each in self.configuration.kwargs.items()}
        return self.op(*args, **kwargs)


def find_operator(name: str) -> Any:
    """torch's operator called `aten.add.Tensor`; NotFound if it has none."""
    try:
        return function_of(name)
    except AttributeError as error:
        raise NotFound(f"torch has no operator '{name}'") from error


def example(configuration: Configuration) -> dict[str, Tensor]:
    """Tensors of the configuration's shapes and dtypes, the same ones each time.

    Integers are small enough to be an index into any axis of the other tensors. Floats are normal numbers; where the
    op makes NaN of those, they are positive.
    """
    drawn = _drawn(configuration, positive=False)
    try:
        outcome = Operator(configuration)(**drawn)
    except (RuntimeError, IndexError):
        return drawn
    made = [leaf for leaf in pytree.tree_leaves(outcome) if isinstance(leaf, Tensor)]
    hidden = any(bool(leaf.isnan().any()) for leaf in made if leaf.is_floating_point())
    return _drawn(configuration, positive=True) if hidden else drawn


def _drawn(configuration: Configuration, *, positive: bool) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(_SEED)
    specs = list(configuration.tensors())
    bound = min((size for spec in specs if _is_float(spec) for size in spec["shape"]), default=_SMALL)
    return {f"t{index}": _tensor(spec, max(bound, 1), positive, generator) for index, spec in enumerate(specs)}


def _is_float(spec: Mapping[str, Any]) -> bool:
    return dtypes.by_name(spec["dtype"]).is_float


def _tensor(spec: Mapping[str, Any], bound: int, positive: bool, generator: torch.Generator) -> Tensor:
    kind, shape = torch_dtype(dtypes.by_name(spec["dtype"])), spec["shape"]
    if kind.is_floating_point or kind.is_complex:
        wide = torch.complex64 if kind.is_complex else torch.float32
        drawn = torch.randn(shape, generator=generator, dtype=wide)
        return (drawn.abs() + 0.1 if positive and not kind.is_complex else drawn).to(kind)
    return torch.randint(0, 2 if kind is torch.bool else bound, shape, generator=generator).to(kind)


def _filled(value: Any, tensors: Iterator[Tensor]) -> Any:
    """An argument of the op: tensors in place of their descriptions, torch's objects in place of their names."""
    if isinstance(value, list | tuple):
        return [_filled(part, tensors) for part in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    described = cast("Mapping[str, Any]", value)
    return next(tensors) if "shape" in described else torch_word(described["torch"])


def torch_word(text: str) -> Any:
    """The object of torch's that is written so: `torch.float32`, `cpu`, `inf`."""
    if text.startswith("torch."):
        return getattr(torch, text.removeprefix("torch."))
    if text in ("inf", "-inf", "nan"):
        return math.inf if text == "inf" else -math.inf if text == "-inf" else math.nan
    return torch.device(text)
