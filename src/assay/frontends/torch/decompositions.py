"""Which aten ops AOTAutograd takes apart before Assay sees a graph."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from itertools import chain
from typing import Any

import torch

from assay.frontends.torch.private.ops import (
    AUTOGRAD,
    COMPOSITE,
    Kernels,
    changed_kernels,
    core_decompositions,
    each_once,
    in_wide_floats,
    known_decompositions,
    lstm_in_steps,
    memory_order,
    overload_name,
    overloads_of,
    run_below,
    run_composite,
    sampled_sizes,
    schema_of,
    suggest_memory_format,
)

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
    "select_scatter",
    "silu",
    "take",
    *RESAMPLING,
)
"""Ops that the core table takes apart and that have a core op of their own, which targets fuse, or a better rule."""

PLAIN = ("log_sigmoid_forward", "nll_loss2d_forward", "nll_loss_forward")
"""Ops whose first result lies plainly in memory in eager, and as some input does if they are taken apart."""

ELEMENTWISE = (
    "clamp",
    "clamp_max",
    "clamp_min",
    "complex",
    "copysign",
    "div",
    "floor_divide",
    "heaviside",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "native_dropout_backward",
    "polar",
    "special_xlog1py",
    "xlogy",
)
"""Ops of several tensors whose results torch's rules for tracing lay out otherwise than its kernels do."""

ELEMENTWISE_AFTER_PLAIN = (torch.ops.aten.pow.Scalar, torch.ops.aten.ldexp.Tensor)
"""The same, of which eager first makes a plain tensor of the last operand."""

PLAIN_RESULTS = (torch.ops.aten.rrelu.default,)
"""Elementwise ops that torch makes of others, whose results lie plainly in eager, whatever the order of their input."""

_Layout = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the first result of an op and its first argument to that result as it lies in eager."""


def _lies_plainly(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return result.contiguous()


def _lies_plainly_if_complex(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return result.contiguous() if x.is_complex() else result


def _has_channels_last_like(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return result.contiguous(memory_format=suggest_memory_format(x))


LAYOUTS: dict[_Layout, tuple[str, ...]] = {
    _lies_plainly: ("baddbmm", "im2col"),
    _lies_plainly_if_complex: ("angle",),
    _has_channels_last_like: (
        "channel_shuffle",
        "max_unpool2d",
        "native_batch_norm",
        "native_channel_shuffle",
    ),
}
"""Ops whose first result torch's rules for tracing lay out otherwise than its kernels do."""

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
    table, known = core_decompositions(), known_decompositions()
    table.update((op, known[op]) for op in _overloads(*EXTRA_DECOMPOSITIONS) if op in known)
    for op in _overloads(*RANDOM, *WHOLE):
        table.pop(op, None)
    table.update((op, _plainly_first(table[op])) for op in _overloads(*PLAIN) if op in table)
    table[torch.ops.aten.smooth_l1_loss_backward.default] = in_wide_floats(_smooth_l1_loss_backward)
    table[torch.ops.aten.roll.default] = _roll
    return table


def _roll(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """Two parts that change places, as in eager. torch's own rule picks elements, and its result lies plainly."""
    if not dims:
        return _roll(x.reshape(-1), shifts, (0,)).view(x.shape)
    if x.numel() == 0:
        return x.clone()
    for shift, dim in zip(shifts, dims, strict=True):
        start = (x.shape[dim] - shift) % x.shape[dim]
        x = torch.cat((x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)), dim)
    return x


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
    return chain.from_iterable(map(overloads_of, names))


@contextmanager
def rules_of_eager() -> Generator[None]:
    """Inside, graphs are traced so that what they compute, and where it lies, is what eager does."""
    with ExitStack() as inside:
        for rule in (kept_whole, wide_gradients, laid_out_batch_norms, laid_out_elementwise, undropped, drawn_once):
            inside.enter_context(rule())
        yield


@contextmanager
def kept_whole() -> Generator[None]:
    """Inside, graphs are traced with the ops in `RESAMPLING` whole.

    torch has Python functions for them that take part in tracing whatever the table says. They are set aside here and
    put back afterwards, as `torch.export` does it with ops that it preserves. Where sizes are symbolic and a gradient
    is wanted, torch takes the ops apart all the same: its gradients know numbers only. So it does with empty tensors,
    of which it cannot tell what the whole ops give. An LSTM layer is whole where no
    gradient is wanted, else it comes step by step: the whole layer has a gradient of oneDNN's own.
    """
    changes = {overload: partial(_changed, _sized(overload)) for overload in _overloads(*RESAMPLING)}
    with changed_kernels(changes), lstm_in_steps():
        yield


def _changed(change: Callable[..., Any] | None, kernels: Kernels) -> Kernels:
    return {key: change(kernel) for key, kernel in kernels.items()} if change else {}


@contextmanager
def undropped() -> Generator[None]:
    """Inside, a dropout that drops nothing gives its input itself, as in eager, so that what is written to the one is
    seen in the other. torch's rule for tracing gives a copy."""

    def dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        if not train or p == 0 or 0 in _numbers(x.shape):
            return x
        return torch.ops.aten.native_dropout(x, p, train)[0]

    with changed_kernels({torch.ops.aten.dropout.default: partial(_as_composite, dropout)}):
        yield


@contextmanager
def drawn_once() -> Generator[None]:
    """Inside, a graph that is not split into forward and backward computes nothing twice.

    What `checkpoint` marks would else be computed again to save memory, which torch refuses for ops that draw random
    numbers, also where no gradient is wanted at all.
    """
    with each_once():
        yield


@contextmanager
def wide_gradients() -> Generator[None]:
    """Inside, the ops in `MAGNIFYING` are traced in f64, there and back, where a gradient is wanted."""
    overloads = [getattr(torch.ops.aten, name).default for name in MAGNIFYING]
    with changed_kernels({each: partial(_with_rule, _widened(each)) for each in overloads}):
        yield


def _with_rule(rule: Callable[..., Any], kernels: Kernels) -> Kernels:
    return {**kernels, AUTOGRAD: rule}


@contextmanager
def laid_out_batch_norms() -> Generator[None]:
    """Inside, the result of a batch norm lies in memory as eager's does: with channels last where the input has them,
    else plainly. torch's rule for its strides follows the input's, whatever they are."""
    overload = torch.ops.aten.batch_norm.default

    def batch_norm(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result = run_composite(overload, x, *args, **kwargs)
        return result.contiguous(memory_format=suggest_memory_format(x))

    with changed_kernels({overload: partial(_as_composite, batch_norm)}):
        yield


@contextmanager
def laid_out_elementwise() -> Generator[None]:
    """Inside, results of the ops in `ELEMENTWISE` and `ELEMENTWISE_AFTER_PLAIN` lie in memory as eager's do: in the
    order of their operands. So do those in `LAYOUTS` and `PLAIN_RESULTS`, and what becomes of expanded tensors."""
    rules = {each: _laid_out(each) for each in _overloads(*ELEMENTWISE) if not schema_of(each).is_mutable}
    rules |= {each: _laid_out(each, after_plain=True) for each in ELEMENTWISE_AFTER_PLAIN}
    for layout, names in LAYOUTS.items():
        rules |= {each: _relaid(each, layout) for each in _overloads(*names) if not schema_of(each).is_mutable}
    rules[torch.ops.aten.expand.default] = _expanded
    changes = {each: partial(_with_rule, rule) for each, rule in rules.items()}
    changes |= {each: partial(_as_composite, _plain(each)) for each in PLAIN_RESULTS}
    with changed_kernels(changes):
        yield


def _expanded(x: torch.Tensor, sizes: Sequence[int | torch.SymInt], **kwargs: Any) -> torch.Tensor:
    """The view with the strides of eager's kernel: a new axis of size 1 has that of the axis behind it times its size.
    torch's rule for tracing gives it 1, and the order of results along the other axes follows from that."""
    overload, new = torch.ops.aten.expand.default, len(sizes) - x.dim()
    if not any(isinstance(size, int) and size == 1 for size in sizes[:new]):
        return run_below(overload, x, sizes, **kwargs)
    view = run_below(overload, x, sizes[new:], **kwargs)
    for size in reversed(sizes[:new]):
        view = view.unsqueeze(0)
        if not isinstance(size, int) or size != 1:
            view = run_below(overload, view, [size, *view.shape[1:]], **kwargs)
    return view


def _as_composite(rule: Callable[..., Any], kernels: Kernels) -> Kernels:
    return {**kernels, AUTOGRAD: rule, COMPOSITE: rule}


def _plain(overload: Any) -> Callable[..., Any]:
    def plain(*args: Any, **kwargs: Any) -> torch.Tensor:
        return run_composite(overload, *args, **kwargs).contiguous()

    return plain


def _laid_out(overload: Any, *, after_plain: bool = False) -> Callable[..., Any]:
    def laid_out(*args: Any, **kwargs: Any) -> Any:
        result = run_below(overload, *args, **kwargs)
        operands = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if all(each.is_contiguous() for each in operands) or 0 in result.shape:
            return result
        if after_plain:
            operands[-1] = torch.empty_like(operands[-1], memory_format=torch.contiguous_format)
        order = memory_order(*(each.expand(result.shape) for each in operands))
        back = sorted(range(len(order)), key=order.__getitem__)
        return result.permute(order).contiguous().permute(back)

    return laid_out


def _relaid(overload: Any, layout: _Layout) -> Callable[..., Any]:
    def relaid(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        found: torch.Tensor | tuple[torch.Tensor, ...] = run_below(overload, x, *args, **kwargs)
        return (layout(found[0], x), *found[1:]) if isinstance(found, tuple) else layout(found, x)

    return relaid


def _widened(overload: Any) -> Callable[..., Any]:
    def widened(*args: Any, **kwargs: Any) -> Any:
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if not torch.is_grad_enabled() or not any(each.requires_grad for each in tensors):
            return run_below(overload, *args, **kwargs)
        dtype = tensors[0].dtype
        wide = [value.to(_WIDE.get(dtype, dtype)) if isinstance(value, torch.Tensor) else value for value in args]
        return run_below(overload, *wide, **kwargs).to(dtype)

    return widened


def _sized(overload: Any) -> Callable[..., Any] | None:
    """How the function of an overload with scales changes: it works out the sizes, which may be symbolic, and calls
    the overload with sizes. That one needs no function."""
    if overload_name(overload) != "vec":
        return None
    sized = getattr(torch.ops.aten, schema_of(overload).name.partition("::")[2]).default

    def changed(apart: Callable[..., Any]) -> Callable[..., Any]:
        def resample(x: torch.Tensor, output: Any, *flags_and_scales: Any) -> Any:
            *flags, scales = flags_and_scales
            sizes = sampled_sizes(x.size(), output, scales)
            symbolic = any(isinstance(size, torch.SymInt) for size in (*x.shape, *sizes))
            if (symbolic and x.requires_grad and torch.is_grad_enabled()) or 0 in _numbers(x.shape):
                return apart(x, output, *flags, _copying(sized, x.shape[2:], sizes, scales))
            return sized(x, sizes, *flags, *(scales or [None] * len(sizes)))

        return resample

    return changed


def _copying(op: Any, old: Sequence[Any], new: Sequence[Any], scales: Sequence[float] | None) -> list[float] | None:
    """The scales with those of axes that keep their sizes at 1, if linear interpolation copies these, as in eager."""
    if scales is None or "linear" not in schema_of(op).name:
        return scales if scales is None else list(scales)
    return [1.0 if before == after else scale for before, after, scale in zip(old, new, scales, strict=True)]


def _numbers(sizes: Sequence[Any]) -> list[int]:
    """The sizes that are no symbols."""
    return [size for size in sizes if isinstance(size, int)]
