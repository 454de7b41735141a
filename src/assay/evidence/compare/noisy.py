"""torch's eager arithmetic with noise: what another correct run, which rounds elsewhere, might have given."""

from __future__ import annotations

import random
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

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


class Noise(TorchDispatchMode):
    """Moves every float that arithmetic gave by up to two units in the last place."""

    def __init__(self, seed: int) -> None:
        cast(Any, super()).__init__()
        self._rng = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._way = self._rng.choice((-1.0, 1.0, 0.0))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        schema = func._schema
        if func.overloadpacket.__name__ in _EXACT or _is_view(schema) or not _has_floats(args):
            return result
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel():
                self._move(leaf)
        return result

    def _move(self, tensor: torch.Tensor) -> None:
        if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            return
        steps = torch.rand(tensor.shape, generator=self._generator, dtype=torch.float64) * 2 - 1
        steps = steps if self._way == 0 else steps.abs() * self._way
        tensor.copy_((tensor.double() * (1 + steps * 2 * torch.finfo(tensor.dtype).eps)).to(tensor.dtype))


def _is_view(schema: Any) -> bool:
    return any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)


def _has_floats(args: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in pytree.tree_leaves(args))
