"""torch's eager arithmetic with noise: what another correct run, which rounds elsewhere, might have given."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from assay.evidence.compare.edges import EDGES, undecided
from assay.evidence.compare.models import NOISE_FACTOR
from assay.frontends.torch.private.ops import TorchDispatchMode, pytree, schema_of
from assay.ir.dtypes import Array

_EXACT = frozenset(
    (
        *(
            "clone",
            "copy_",
            "cat",
            "stack",
            "index",
            "index_select",
            "gather",
            "scatter",
            "where",
            "maximum",
            "minimum",
        ),
        *(
            "amax",
            "amin",
            "max",
            "min",
            "sort",
            "topk",
            "flip",
            "roll",
            "repeat",
            "constant_pad_nd",
            "neg",
            "abs",
            "relu",
        ),
        *("clamp", "clamp_min", "clamp_max", "round", "floor", "ceil", "trunc", "sign", "sgn", "masked_fill", "fill_"),
        *("zeros", "ones", "full", "arange", "eye", "zeros_like", "ones_like", "full_like", "new_zeros", "new_full"),
        *("index_put", "index_put_", "embedding", "max_pool2d_with_indices", "nan_to_num", "scalar_tensor", "zero_"),
        *(
            "slice_scatter",
            "select_scatter",
            "masked_scatter",
            "tril",
            "triu",
            "median",
            "kthvalue",
            "cummax",
            "cummin",
        ),
        *("lift_fresh", "new_ones", "as_strided_scatter", "threshold", "threshold_backward", "upsample_nearest2d"),
        *("native_dropout", "bernoulli", "rand_like", "rand", "randn", "threshold_", "relu_", "masked_fill_"),
    )
)
"""Ops that move or choose numbers and never round."""

_SUMMING = frozenset(
    (
        *(
            "sum",
            "mean",
            "nansum",
            "cumsum",
            "logcumsumexp",
            "var",
            "std",
            "var_mean",
            "std_mean",
            "linalg_vector_norm",
        ),
        *("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "vdot", "convolution", "convolution_backward"),
        *("native_group_norm", "native_layer_norm", "native_batch_norm", "_native_batch_norm_legit"),
        *("native_group_norm_backward", "native_layer_norm_backward", "native_batch_norm_backward"),
        *("_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional", "_fused_rms_norm"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"),
    )
)
"""Ops that sum: their rounding is relative to the terms, not to what terms of both signs leave."""


class EdgeCall(NamedTuple):
    """A call of an op with an edge, with its arguments by name: tensors as f64 arrays, everything else as it is."""

    op: str
    arguments: Mapping[str, Any]

    def tensors(self) -> dict[str, Array]:
        """The arguments that are tensors."""
        return {name: each for name, each in self.arguments.items() if isinstance(each, np.ndarray)}


class Seeing(TorchDispatchMode):
    """Keeps the calls of ops with an edge."""

    def __init__(self) -> None:
        cast(Any, super()).__init__()
        self.calls: list[EdgeCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        op = func.overloadpacket.__name__.removesuffix("_")
        if op in EDGES and _has_floats(args):
            given = named_arguments(func, args, kwargs or {})
            self.calls.append(EdgeCall(op, {name: _kept(value) for name, value in given.items()}))
        return func(*args, **(kwargs or {}))


def _kept(value: Any) -> Any:
    return value.detach().double().numpy(force=True).copy() if isinstance(value, torch.Tensor) else value


def named_arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an op's call by the names in its schema, defaults too."""
    schema = schema_of(func).arguments
    given = {each.name: each.default_value for each in schema if each.has_default_value()}
    return {**given, **{each.name: value for each, value in zip(schema, args, strict=False)}, **kwargs}


def flips(plain: Sequence[EdgeCall], noisy: Sequence[Sequence[EdgeCall]]) -> list[str]:
    """For each noisy run the first op that chose otherwise than the plain run did, or that it alone ran; else empty."""
    return [_first_flip(plain, run, noisy) for run in noisy]


def _first_flip(plain: Sequence[EdgeCall], run: Sequence[EdgeCall], noisy: Sequence[Sequence[EdgeCall]]) -> str:
    for at, call in enumerate(plain):
        alike = [each[at] for each in noisy if len(each) > at and _comparable(each[at], call)]
        if at >= len(run) or not _comparable(run[at], call):
            return call.op
        mine = call.tensors()
        with np.errstate(all="ignore"):
            apart = {name: [np.abs(each.arguments[name] - x) for each in alike] for name, x in mine.items()}
            margin = {name: NOISE_FACTOR * np.nan_to_num(np.max(each, axis=0)) for name, each in apart.items()}
        if "self" in mine and undecided(call.op, call.arguments, margin, run[at].tensors()).flipped:
            return call.op
    return run[len(plain)].op if len(run) > len(plain) else ""


def _comparable(one: EdgeCall, two: EdgeCall) -> bool:
    return one.op == two.op and {k: x.shape for k, x in one.tensors().items()} == {
        k: x.shape for k, x in two.tensors().items()
    }


class NoisyArithmetic(TorchDispatchMode):
    """Moves every float that arithmetic gave, and every term of a sum, by up to two units in the last place: those of
    its own dtype, or of a `coarse` one that rounds to fewer digits."""

    def __init__(self, seed: int, coarse: torch.dtype | None = None) -> None:
        cast(Any, super()).__init__()
        self._least = 0.0 if coarse is None else torch.finfo(coarse).eps
        self._rng = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._way = self._rng.choice((-1.0, 1.0, 0.0))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = schema_of(func)
        result = func(*self._terms(func.overloadpacket.__name__, schema, args), **(kwargs or {}))
        if func.overloadpacket.__name__ in _EXACT or _is_view(schema) or not _has_floats(args):
            return result
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel():
                self._move(leaf)
        return result

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of the tensor with noise; what holds no floats as it is."""
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        copy = tensor.clone()
        self._move(copy)
        return copy

    def _terms(self, op: str, schema: Any, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments of an op, moved if it adds them up; what it writes to stays in its place."""
        if op not in _SUMMING:
            return args
        return [
            arg if each.alias_info is not None else pytree.tree_map_only(torch.Tensor, self.moved, arg)
            for each, arg in zip(schema.arguments, args, strict=False)
        ]

    def _move(self, tensor: torch.Tensor) -> None:
        if is_spread(tensor):
            return
        steps = torch.rand(tensor.shape, generator=self._generator, dtype=torch.float64) * 2 - 1
        steps = steps if self._way == 0 else steps.abs() * self._way
        unit = max(torch.finfo(tensor.dtype).eps, self._least)
        tensor.copy_((tensor.double() * (1 + steps * 2 * unit)).to(tensor.dtype))


def is_spread(tensor: torch.Tensor) -> bool:
    """Whether an element stands for several, so that it cannot be written."""
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _is_view(schema: Any) -> bool:
    return any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)


def _has_floats(args: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in pytree.tree_leaves(args))
