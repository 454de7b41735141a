"""Which aten ops AOTAutograd takes apart before Assay sees a graph."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch import _decomp
from torch._C import DispatchKey
from torch._decomp import decompositions as _rules
from torch._functorch import config as functorch_config
from torch._prims_common import suggest_memory_format

_TABLES, _RULES = cast(Any, _decomp), cast(Any, _rules)

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

RESAMPLING = (
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "upsample_trilinear3d",
)
"""Ops that torch also takes apart outside of the table, see `kept_whole`."""

WHOLE = (
    "_euclidean_dist",
    "_fused_rms_norm",
    "_scaled_dot_product_flash_attention_for_cpu",
    "channel_shuffle",
    "col2im",
    "im2col",
    "index_add",
    "index_copy",
    "index_fill",
    "linspace",
    "mish",
    "native_channel_shuffle",
    "nll_loss2d_backward",
    "nll_loss_backward",
    "silu",
    "take",
    *RESAMPLING,
)
"""Ops that the core table takes apart and that have a core op of their own, which targets fuse, or a better rule."""

PLAIN = ("nll_loss2d_forward", "nll_loss_forward")
"""Ops whose first result lies plainly in memory in eager, and as some input does if they are taken apart."""

MAGNIFYING = (
    "_euclidean_dist",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "linalg_householder_product",
    "ormqr",
)
"""Ops whose gradients magnify the rounding of every step: of near rows' distances large terms cancel, reflections are
undone one by one, of the pixels around a point large differences are taken. See `wide_gradients`."""

_WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}


@cache
def decompositions() -> Decompositions:
    """torch's core decompositions and some more, less those of ops that must or should stay whole."""
    table: Decompositions = dict(_TABLES.core_aten_decompositions().items())
    known: Decompositions = dict(_TABLES.decomposition_table)
    table.update((op, known[op]) for op in _overloads(*EXTRA_DECOMPOSITIONS) if op in known)
    for op in _overloads(*RANDOM, *WHOLE):
        table.pop(op, None)
    table.update((op, _plainly_first(table[op])) for op in _overloads(*PLAIN) if op in table)
    table[torch.ops.aten.smooth_l1_loss_backward.default] = _RULES.pw_cast_for_opmath(_smooth_l1_loss_backward)
    return table


def _smooth_l1_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, beta: float
) -> torch.Tensor:
    """As in eager: where the distance is NaN, so is the gradient. torch's own rule has 0 there."""
    share = 1.0 / x.numel() if reduction == 1 else 1.0
    return grad * share * ((x - target) / beta).clamp(-1, 1)


def _plainly_first(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule whose first result lies plainly in memory."""

    def plain(*args: Any, **kwargs: Any) -> Any:
        first, *rest = rule(*args, **kwargs)
        return first.contiguous(), *rest

    return plain


def _overloads(*names: str) -> Iterator[Any]:
    for name in names:
        packet = getattr(torch.ops.aten, name)
        yield from (getattr(packet, overload) for overload in packet.overloads())


@contextmanager
def kept_whole() -> Generator[None]:
    """Inside, graphs are traced with the ops in `RESAMPLING` whole.

    torch has Python functions for them that take part in tracing whatever the table says. They are set aside here and
    put back afterwards, as `torch.export` does it with ops that it preserves. Where sizes are symbolic and a gradient
    is wanted, torch takes the ops apart all the same: its gradients know numbers only. So it does with empty tensors,
    of which it cannot tell what the whole ops give. An LSTM layer is whole where no
    gradient is wanted, else it comes step by step: the whole layer has a gradient of oneDNN's own.
    """
    aten = torch.ops.aten
    changes = [(overload, _sized(overload)) for overload in _overloads(*RESAMPLING)]
    changes += [(overload, _in_steps) for overload in (aten.lstm.input, aten.lstm.data)]
    with _kernels({overload: _changed(overload.py_kernels, change) for overload, change in changes}):
        yield


def _changed(kernels: dict[Any, Any], change: Callable[..., Any] | None) -> dict[Any, Any]:
    return {key: change(kernel) for key, kernel in kernels.items()} if change else {}


@contextmanager
def drawn_once() -> Generator[None]:
    """Inside, a graph that is not split into forward and backward computes nothing twice.

    What `checkpoint` marks would else be computed again to save memory, which torch refuses for ops that draw random
    numbers, also where no gradient is wanted at all.
    """
    with cast(Any, functorch_config).patch(remat_using_tags_for_fwd_loss_bwd_graph=False):
        yield


@contextmanager
def wide_gradients() -> Generator[None]:
    """Inside, the ops in `MAGNIFYING` are traced in f64, there and back, where a gradient is wanted."""
    aten = torch.ops.aten
    overloads = [getattr(aten, name).default for name in MAGNIFYING]
    with _kernels({each: {**each.py_kernels, DispatchKey.Autograd: _widened(each)} for each in overloads}):
        yield


@contextmanager
def laid_out_batch_norms() -> Generator[None]:
    """Inside, the result of a batch norm lies in memory as eager's does: with channels last where the input has them,
    else plainly. torch's rule for its strides follows the input's, whatever they are."""
    overload: Any = torch.ops.aten.batch_norm.default

    def batch_norm(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result = overload._op_dk(DispatchKey.CompositeImplicitAutograd, x, *args, **kwargs)
        return result.contiguous(memory_format=suggest_memory_format(x))

    with _kernels({overload: {DispatchKey.Autograd: batch_norm, DispatchKey.CompositeImplicitAutograd: batch_norm}}):
        yield


def _widened(overload: Any) -> Callable[..., Any]:
    def widened(*args: Any, **kwargs: Any) -> Any:
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if not torch.is_grad_enabled() or not any(each.requires_grad for each in tensors):
            return overload._op_dk(DispatchKey.Autograd, *args, **kwargs)
        dtype = tensors[0].dtype
        wide = [value.to(_WIDE.get(dtype, dtype)) if isinstance(value, torch.Tensor) else value for value in args]
        return overload._op_dk(DispatchKey.Autograd, *wide, **kwargs).to(dtype)

    return widened


@contextmanager
def _kernels(chosen: dict[Any, dict[Any, Any]]) -> Generator[None]:
    """Inside, these overloads have these Python functions and no others."""
    before: list[tuple[Any, dict[Any, Any]]] = [(overload, dict(overload.py_kernels)) for overload in chosen]
    for overload, kernels in chosen.items():
        _set_kernels(overload, kernels)
    try:
        yield
    finally:
        for overload, kernels in before:
            _set_kernels(overload, kernels)


def _set_kernels(overload: Any, kernels: dict[Any, Any]) -> None:
    overload.py_kernels.clear()
    overload.py_kernels.update(kernels)
    overload._dispatch_cache.clear()


def _sized(overload: Any) -> Callable[..., Any] | None:
    """How the function of an overload with scales changes: it works out the sizes, which may be symbolic, and calls
    the overload with sizes. That one needs no function."""
    if overload._overloadname != "vec":
        return None
    sized = getattr(torch.ops.aten, overload._schema.name.partition("::")[2]).default

    def changed(apart: Callable[..., Any]) -> Callable[..., Any]:
        def resample(x: torch.Tensor, output: Any, *flags_and_scales: Any) -> Any:
            *flags, scales = flags_and_scales
            sizes = _RULES.upsample_compute_output_size(x.size(), output, scales)
            symbolic = any(isinstance(size, torch.SymInt) for size in (*x.shape, *sizes))
            if (symbolic and x.requires_grad and torch.is_grad_enabled()) or 0 in _numbers(x.shape):
                return apart(x, output, *flags_and_scales)
            return sized(x, sizes, *flags, *(scales or [None] * len(sizes)))

        return resample

    return changed


def _numbers(sizes: Sequence[Any]) -> list[int]:
    """The sizes that are no symbols."""
    return [size for size in sizes if isinstance(size, int)]


def _in_steps(layers: Callable[..., Any]) -> Callable[..., Any]:
    def stepped(*args: Any) -> Any:
        before = torch._C._get_mkldnn_enabled()  # pyright: ignore[reportPrivateUsage]
        torch._C._set_mkldnn_enabled(before and not torch.is_grad_enabled())  # pyright: ignore[reportPrivateUsage]
        try:
            return layers(*args)
        finally:
            torch._C._set_mkldnn_enabled(before)  # pyright: ignore[reportPrivateUsage]

    return stepped
