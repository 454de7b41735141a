"""Ops with an edge: where torch's results or gradients jump, and only there, the table says that rounding decides."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.evidence.compare.edges import EDGES, undecided
from assay.ir.dtypes import Array

NEAR = 1e-9
MARGIN = 1e-8
CLEAR = (0.7, -1.3, 2.2, -0.4, 1.6, -2.6)
"""Numbers that are far from each other and from every edge below."""
WITHOUT_GRADIENT = ("heaviside", "floor_divide", "hardsigmoid_backward")
POOLS = {"max_pool1d_with_indices": 1, "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3}


class At(NamedTuple):
    """An overload of an op, where its edge is, and the arguments behind the first tensor by name."""

    overload: str
    edge: float
    more: Mapping[str, Any] = MappingProxyType({})


def number(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


CASES = {
    **dict.fromkeys(("relu", "abs", "sign", "sgn", "nonzero"), At("default", 0.0)),
    "heaviside": At("default", 0.0, {"values": number(0.5)}),
    "leaky_relu": At("default", 0.0, {"negative_slope": 0.1}),
    "leaky_relu_backward": At("default", 0.0, {"negative_slope": 0.1, "self_is_result": False}),
    "elu": At("default", 0.0, {"alpha": 2.0}),
    "_prelu_kernel": At("default", 0.0, {"weight": number(0.1)}),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), At("Scalar", 0.5, {"other": 0.5})),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), At("default", 0.5, {"other": number(0.5)})),
    **dict.fromkeys(("max", "cummax", "argmax"), At("default", 2.2, {"dim": 0})),
    **dict.fromkeys(("min", "cummin", "argmin"), At("default", -2.6, {"dim": 0})),
    "max": At("dim", 2.2, {"dim": 0}),
    "min": At("dim", -2.6, {"dim": -1}),
    "amax": At("default", 2.2, {"dim": [0]}),
    "amin": At("default", -2.6),
    **dict.fromkeys(("sort", "argsort"), At("default", 1.6)),
    "topk": At("default", 1.6, {"k": 2}),
    **dict.fromkeys(("median", "nanmedian"), At("dim", -0.4, {"dim": 0})),
    "kthvalue": At("default", -1.3, {"k": 2}),
    **dict.fromkeys(("floor", "ceil", "trunc", "frac"), At("default", 3.0)),
    "round": At("default", 2.5),
    **dict.fromkeys(("remainder", "fmod", "floor_divide"), At("Scalar", 6.0, {"other": 3.0})),
    "threshold": At("default", 0.5, {"threshold": 0.5, "value": 9.0}),
    "threshold_backward": At("default", 0.5, {"threshold": 0.5}),
    "clamp": At("default", 1.0, {"min": -2.0, "max": 1.0}),
    "clamp_min": At("default", -1.0, {"min": -1.0}),
    "clamp_max": At("Tensor", 1.0, {"max": number(1.0)}),
    "hardtanh": At("default", 1.0, {"min_val": -1.0, "max_val": 1.0}),
    "hardtanh_backward": At("default", 1.0, {"min_val": -1.0, "max_val": 1.0}),
    **dict.fromkeys(("hardswish", "hardsigmoid", "hardswish_backward", "hardsigmoid_backward"), At("default", -3.0)),
    **{name: At("default", 2.2, {"kernel_size": [1] * (rank - 1) + [2]}) for name, rank in POOLS.items()},
}


def answer(name: str, x: Array) -> list[Array]:
    """What torch gives for `x`, and the gradient of a sum of it."""
    case, shape = CASES[name], (1,) * (POOLS.get(name, -1) + 1) + x.shape
    given = torch.tensor(x.reshape(shape), requires_grad=name not in WITHOUT_GRADIENT)
    call = getattr(getattr(torch.ops.aten, name), case.overload)
    first = (torch.ones_like(given), given) if name.endswith("_backward") else (given,)
    results: Any = call(*first, **case.more)
    leaves: list[Tensor] = [results] if isinstance(results, Tensor) else list(results)
    grown = [each for each in leaves if each.requires_grad]
    if grown:
        leaves += torch.autograd.grad(grown, given, [torch.ones_like(each) for each in grown])
    return [each.detach().double().numpy(force=True) for each in leaves]


def jumps(name: str, before: Array, after: Array) -> bool:
    pairs = zip(answer(name, before), answer(name, after), strict=True)
    return any(a.shape != b.shape or bool(np.any(np.abs(a - b) > 1e-3)) for a, b in pairs)


def told(name: str, before: Array, after: Array) -> tuple[list[int], int]:
    """Which elements the table takes for undecided, and how many comparisons it sees flipped."""
    shape = (1,) * (POOLS.get(name, -1) + 1) + before.shape
    more = {key: value.numpy() if isinstance(value, Tensor) else value for key, value in CASES[name].more.items()}
    one, two = before.reshape(shape), after.reshape(shape)
    found = undecided(name, {**more, "self": one}, {"self": np.full(shape, MARGIN)}, {"self": two})
    return [int(each) for each in np.flatnonzero(found.near["self"])], found.flipped


def planted(edge: float, off: float) -> tuple[Array, int]:
    """Clear numbers with one near the edge among them, in front of the one that is the edge if there is."""
    at = CLEAR.index(edge) if edge in CLEAR else 0
    return np.array([*CLEAR[:at], edge + off, *CLEAR[at:]]), at


def test_every_op_of_the_table_has_a_case() -> None:
    assert CASES.keys() == EDGES.keys()


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_is_where_torch_jumps(name: str) -> None:
    edge = CASES[name].edge
    equal = name in ("eq", "ne", "nonzero")
    before, at = planted(edge, 0.0 if equal else NEAR)
    after, _ = planted(edge, -NEAR)
    assert jumps(name, before, after)
    assert told(name, before, after) == ([at, at + 1] if edge in CLEAR else [at], 1)


@pytest.mark.parametrize("name", EDGES)
def test_nothing_is_undecided_elsewhere(name: str) -> None:
    before = np.array(CLEAR)
    after = before + NEAR * np.array([1, -1, 1, 1, -1, -1])
    assert not jumps(name, before, after)
    assert told(name, before, after) == ([], 0)


def test_what_is_equal_without_noise_is_decided() -> None:
    x = np.zeros(4)
    found = undecided("relu", {"self": x}, {"self": np.zeros(4)}, {"self": x})
    assert not found.near["self"].any()


def test_both_sides_of_a_comparison_carry_noise() -> None:
    x, y = np.array([[1.0], [2.0]]), np.array([1.0 + NEAR, 3.0])
    given = {"self": x, "other": y}
    margin = {"self": np.zeros(x.shape), "other": np.full(2, MARGIN)}
    found = undecided("gt", given, margin, {"self": x, "other": y - 2 * NEAR})
    assert found.near["self"].tolist() == [[True], [False]]
    assert found.near["other"].tolist() == [True, False]
    assert found.flipped == 1


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_of_nothing_nothing_is_undecided(shape: tuple[int, ...]) -> None:
    empty = np.zeros(shape)
    assert undecided("sort", {"self": empty, "dim": 0}, {"self": empty}, {"self": empty}).flipped == 0
