"""How a sample's outcome on a backend is judged: against eager's, at OpInfo's tolerances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing import assert_close

from assay.evidence.opinfo.private import default_tolerances

Tolerance = tuple[float, float]
"""(relative, absolute): the least that is allowed, beside torch's own defaults for a dtype."""


@dataclass(frozen=True)
class CallOutcome:
    """What a call gave: its outputs as leaves, the tensors of its inputs after the call, their gradients."""

    outputs: Sequence[Any]
    structure: Any
    inputs: Sequence[Any]
    gradients: Sequence[Any]

    def parts(self) -> list[tuple[str, Any]]:
        """Everything that is compared, with what to call it."""
        groups = {"output": self.outputs, "input after the call": self.inputs, "gradient": self.gradients}
        return [(f"{name} {i}", leaf) for name, leaves in groups.items() for i, leaf in enumerate(leaves)]


def difference(actual: CallOutcome, expected: CallOutcome, least: Tolerance, *, values: bool = True) -> str | None:
    """None if the outcomes agree, else how they differ. Without `values` shapes and dtypes alone are compared."""
    if actual.structure != expected.structure:
        return f"the outputs are {actual.structure} instead of {expected.structure}"
    mine, theirs = actual.parts(), expected.parts()
    if [name for name, _ in mine] != [name for name, _ in theirs]:
        return f"{len(mine)} results instead of {len(theirs)}"
    for (name, first), (_, second) in zip(mine, theirs, strict=True):
        reason = _unlike(first, second) or (_apart(first, second, least) if values else None)
        if reason is not None:
            return f"{name}: {reason}"
    return None


_FACETS: dict[str, Callable[[torch.Tensor], Any]] = {
    "dtype": lambda tensor: tensor.dtype,
    "shape": lambda tensor: list(tensor.shape),
    "layout": lambda tensor: tensor.layout,
    "requires_grad": lambda tensor: tensor.requires_grad,
}


def _unlike(actual: Any, expected: Any) -> str | None:
    if not (isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)):
        return None if type(actual) is type(expected) else f"{_kind(actual)} instead of {_kind(expected)}"
    for name, facet in _FACETS.items():
        if facet(actual) != facet(expected):
            return f"{name} {facet(actual)} instead of {facet(expected)}"
    return None


def _kind(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)[:80]


def _apart(actual: Any, expected: Any, least: Tolerance) -> str | None:
    if not isinstance(expected, torch.Tensor):
        same = actual == expected or (actual != actual and expected != expected)
        return None if same or _near(actual, expected, least) else f"{_kind(actual)} instead of {_kind(expected)}"
    plain = expected.layout is torch.strided and not expected.is_nested
    if plain and torch.equal(actual, expected):
        return None
    relative, absolute = allowed(expected, least)
    try:
        assert_close(actual, expected, rtol=relative, atol=absolute, equal_nan=True)
    except AssertionError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "; ".join(lines[1:] or lines)
    return None


def _near(actual: Any, expected: Any, least: Tolerance) -> bool:
    """Whether two numbers of Python's are close."""
    if not isinstance(expected, float | complex):
        return False
    return _apart(torch.tensor(actual), torch.tensor(expected), least) is None


def allowed(tensor: torch.Tensor, least: Tolerance) -> Tolerance:
    """The tolerances for a tensor like this one: torch's for its dtype, raised to `least`, as torch's tests do."""
    relative, absolute = default_tolerances(tensor)
    return max(relative, least[0]), max(absolute, least[1])


def no_farther(actual: CallOutcome, expected: CallOutcome, exact: CallOutcome, least: Tolerance) -> bool:
    """Whether every part that differs lies as near to the `exact` (float64) one as `expected` does, or near enough."""
    parts = list(zip(actual.parts(), expected.parts(), exact.parts(), strict=False))
    if len(parts) != len(exact.parts()):
        return False
    return all(_part_no_farther(a, b, c, least) for (_, a), (_, b), (_, c) in parts)


def _part_no_farther(actual: Any, expected: Any, exact: Any, least: Tolerance) -> bool:
    if _unlike(actual, expected) is not None:
        return False
    if _apart(actual, expected, least) is None:
        return True
    floats = isinstance(exact, torch.Tensor) and exact.is_floating_point() and exact.shape == expected.shape
    if not floats:
        return False
    relative, absolute = allowed(expected, least)
    mine, theirs = _errors(actual, exact), _errors(expected, exact)
    size = exact.detach().abs().nan_to_num(nan=0.0, posinf=0.0)
    worst = float(torch.where(theirs.isfinite(), theirs, 0.0).max()) if theirs.numel() else 0.0
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    return bool((same | (mine <= torch.clamp(absolute + relative * size, min=worst))).all())


def _errors(tensor: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The distance of each element; infinite where only one is NaN or they are not the same infinity."""
    x, y = tensor.detach().double(), exact.detach().double()
    same = (x == y) | (x.isnan() & y.isnan())
    return torch.where(same, 0.0, (x - y).abs()).nan_to_num(nan=float("inf"), posinf=float("inf"))
