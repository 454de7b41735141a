"""torch's op registry, decompositions, trees and fake tensors, and what a trace knows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import _decomp, _prims_common
from torch._C import DispatchKey
from torch._decomp import decompositions as _rules
from torch._functorch import config as _functorch
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput, TangentAOTInput
from torch._guards import TracingContext
from torch._guards import detect_fake_mode as detect_fake_mode
from torch._ops import HigherOrderOperator as HigherOrderOperator
from torch._ops import OpOverload as OpOverload
from torch._prims.rng_prims import run_and_save_rng_state as run_and_save_rng_state
from torch._prims.rng_prims import run_with_rng_state as run_with_rng_state
from torch._prims_common import suggest_memory_format as suggest_memory_format
from torch._subclasses.fake_tensor import unset_fake_temporarily as unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_wrapper_subclass

__all__ = [
    "AUTOGRAD",
    "COMPOSITE",
    "HigherOrderOperator",
    "Kernels",
    "OpOverload",
    "TorchDispatchMode",
    "changed_kernels",
    "compiling",
    "core_decompositions",
    "detect_fake_mode",
    "each_once",
    "forward_results",
    "has_kernel",
    "in_wide_floats",
    "is_composite",
    "is_idle_gradient",
    "is_wrapper_subclass",
    "known_decompositions",
    "lstm_in_steps",
    "memory_order",
    "overload_name",
    "overloads_of",
    "pytree",
    "run_and_save_rng_state",
    "run_below",
    "run_composite",
    "run_with_rng_state",
    "sampled_sizes",
    "schema_of",
    "static_inputs",
    "storage_id",
    "suggest_memory_format",
    "tree_context",
    "unset_fake_temporarily",
    "version_of",
]

Kernels: TypeAlias = Mapping[Any, Callable[..., Any]]
"""The Python functions of an overload by dispatch key."""

AUTOGRAD, COMPOSITE = DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd

_TABLES, _RULES, _TREES, _DISPATCHER = cast(Any, _decomp), cast(Any, _rules), cast(Any, pytree), cast(Any, torch)._C


# --- overloads


def overloads_of(name: str) -> Iterator[Any]:
    """The overloads of the aten op `name`."""
    packet = getattr(torch.ops.aten, name)
    yield from (getattr(packet, overload) for overload in packet.overloads())


def memory_order(*operands: torch.Tensor) -> list[int]:
    """The axes of an elementwise op's result from the outermost in memory to the innermost, as torch's kernels choose
    them for operands of its shape."""
    order, _ = cast("Any", _prims_common).compute_elementwise_output_logical_to_physical_perm(*operands)
    return order


def schema_of(op: Any) -> Any:
    """The schema of an overload: `name`, `arguments` and `returns`, `is_mutable`. None for what is no overload."""
    return getattr(op, "_schema", None)


def overload_name(op: Any) -> str:
    """`vec` for `aten.upsample_nearest2d.vec`, `default` where the schema has no such name."""
    return op._overloadname


def has_kernel(op: Any) -> bool:
    """Whether the dispatcher can run an overload."""
    return _DISPATCHER._dispatch_has_kernel(op.name())


def is_composite(op: Any) -> bool:
    """Whether torch itself runs an overload as a composition of others, whose gradients are its gradient."""
    return _DISPATCHER._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def run_below(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an overload with torch's own kernel for gradients, not with a Python function in its place."""
    return op._op_dk(AUTOGRAD, *args, **kwargs)


def run_composite(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an overload as torch's own composition of others."""
    return op._op_dk(COMPOSITE, *args, **kwargs)


# --- tensors

version_of: Callable[[torch.Tensor], int] = attrgetter("_version")
"""How often torch has changed a tensor in place. A C function: every call asks it of hundreds of tensors."""


def storage_id(tensor: torch.Tensor) -> int:
    """What tells the memory of one strided tensor from that of another; fake tensors have it too."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


# --- trees


def tree_context(kind: Any) -> Literal["json", "own"] | None:
    """How torch reads back the context of a tree's node whose type is written as `kind`.

    By JSON, by a function of the type's own, or not at all, as the type is not registered.
    """
    python = _TREES.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(kind)
    if python is None:
        return None
    return "json" if _TREES.SUPPORTED_SERIALIZED_TYPES[python].from_dumpable_context is None else "own"


# --- decompositions


def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's rules that leave core aten ops alone."""
    return dict(_TABLES.core_aten_decompositions().items())


def known_decompositions() -> dict[Any, Callable[..., Any]]:
    """Every rule that torch has."""
    return dict(_TABLES.decomposition_table)


def sampled_sizes(sizes: Sequence[Any], output: Any, scales: Any) -> Sequence[Any]:
    """The spatial sizes that resampling gives, out of output sizes or scales, one of which is None."""
    return _RULES.upsample_compute_output_size(sizes, output, scales)


def in_wide_floats(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that computes in f32 what it is given in narrower floats, and rounds its result."""
    return _RULES.pw_cast_for_opmath(rule)


# --- what a trace knows


def forward_results() -> int | None:
    """How many results of the forward graph that is compiled now come before those kept for the backward graph; None
    outside of AOTAutograd. First come tokens of effects, then what the caller sees."""
    metadata = _metadata()
    return None if metadata is None else len(metadata.tokens) + metadata.num_forward_returns


def static_inputs() -> Sequence[int]:
    """Which inputs of the graph that is compiled now are parameters and buffers that it does not write itself; none
    outside of AOTAutograd."""
    metadata = _metadata()
    if metadata is None:
        return ()
    written = {len(metadata.tokens) + at for at, info in enumerate(metadata.input_info) if info.mutates_data}
    return [at for at in metadata.static_input_indices if at not in written]


def is_idle_gradient(item: Any) -> bool:
    """Whether an entry that the backward graph compiled now returns is the gradient of what a call wrote to a leaf.

    A leaf that wants a gradient can be written under `no_grad` or through a detached view only. The caller's tensor
    takes the new content without its history, so nothing ever flows back along that way.
    """
    told, metadata = getattr(item, "meta", {}).get("desc"), _metadata()
    if metadata is None or not isinstance(told, TangentAOTInput) or not isinstance(told.output, InputMutationAOTOutput):
        return False
    outputs = [each.output for each in metadata.traced_tangents_descs]
    written = [each.mutated_input for each in outputs if isinstance(each, InputMutationAOTOutput)]
    leaves = [info.is_leaf for info in metadata.input_info if info.mutates_data and info.requires_grad]
    return dict(zip(written, leaves, strict=True)).get(told.output.mutated_input, False)


def _metadata() -> Any:
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


# --- state of the process


@contextmanager
def compiling() -> Generator[None]:
    """Inside, no other thread compiles: dynamo holds the same lock whenever it does. It may be taken again inside."""
    from torch._dynamo.convert_frame import compile_lock

    with compile_lock:
        yield


@contextmanager
def changed_kernels(changes: Mapping[Any, Callable[[Kernels], Kernels]]) -> Generator[None]:
    """Inside, graphs are traced with other Python functions for these overloads: what the change makes of theirs.

    Tracing calls `py_kernels` and keeps what it found in `_dispatch_cache`. Eager code, of any thread, calls neither.
    """
    with compiling():
        before = {overload: dict(overload.py_kernels) for overload in changes}
        try:
            for overload, change in changes.items():
                _set_kernels(overload, change(before[overload]))
            yield
        finally:
            for overload, kernels in before.items():
                _set_kernels(overload, kernels)


def _set_kernels(overload: Any, kernels: Kernels) -> None:
    overload.py_kernels.clear()
    overload.py_kernels.update(kernels)
    overload._dispatch_cache.clear()


@contextmanager
def lstm_in_steps() -> Generator[None]:
    """Inside, an LSTM layer is traced step by step wherever gradients are on.

    torch's rule for an LSTM asks `select_one_layer_lstm_function` of its own module for each layer, which else takes
    oneDNN's whole layer, also where only weights require gradients.
    """
    with compiling():
        chosen = _RULES.select_one_layer_lstm_function

        def select(*args: Any) -> Callable[..., Any]:
            return _RULES.one_layer_lstm if torch.is_grad_enabled() else chosen(*args)

        _RULES.select_one_layer_lstm_function = select
        try:
            yield
        finally:
            _RULES.select_one_layer_lstm_function = chosen


@contextmanager
def each_once() -> Generator[None]:
    """Inside, AOTAutograd computes nothing twice in a graph that is not split into forward and backward.

    A setting of functorch, which torch keeps for each thread.
    """
    with cast(Any, _functorch).patch(remat_using_tags_for_fwd_loss_bwd_graph=False):
        yield
