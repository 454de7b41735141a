"""Which aten ops AOTAutograd takes apart before Assay sees a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

Decompositions = dict[Any, Callable[..., Any]]

EXTRA_DECOMPOSITIONS = (
    "_addmm_activation",
    "batch_norm_backward",
    "rrelu_with_noise_backward",
)
"""Ops that the core table leaves whole and that torch itself can take apart without a loss of accuracy."""

RANDOM = (
    "_fused_dropout",
    "alpha_dropout",
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "native_dropout",
    "normal",
    "normal_functional",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "rrelu_with_noise",
    "rrelu_with_noise_functional",
    "uniform",
)
"""Ops that draw from torch's generator; only whole do they draw what eager draws."""

WHOLE = (
    "_fused_rms_norm",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "col2im",
    "im2col",
    "mish",
    "silu",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "upsample_trilinear3d",
)
"""Ops that the core table takes apart and that have a core op of their own, which targets fuse."""


@cache
def decompositions() -> Decompositions:
    """torch's core decompositions and some more, less those of ops that must or should stay whole."""
    table: Decompositions = dict(core_aten_decompositions().items())
    known: Decompositions = dict(decomposition_table)
    table.update((op, known[op]) for op in _overloads(*EXTRA_DECOMPOSITIONS) if op in known)
    for op in _overloads(*RANDOM, *WHOLE):
        table.pop(op, None)
    return table


def _overloads(*names: str) -> Iterator[Any]:
    for name in names:
        packet = getattr(torch.ops.aten, name)
        yield from (getattr(packet, overload) for overload in packet.overloads())
