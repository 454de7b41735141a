"""PyTorch's op database as cases: its samples, fresh copies of them, and their tolerances."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from assay.errors import NotFound, hint_for
from assay.evidence.opinfo.private import DecorateInfo, op_db, precisionOverride, toleranceOverride, unseeded
from assay.evidence.opinfo.records import DTYPES, OpUnit
from assay.frontends.torch.private.ops import pytree

_TORCH_DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "bool": torch.bool,
}
_JUDGES = {None, "TestCommon", "TestEagerFusionOpInfo", "TestDecomp", "TestInductorOpInfo"}
_COMMON_TESTS = {None, "test_compare_cpu"}
_SEED = 20_000
_DATABASE: dict[str, Any] = {
    ".".join(part for part in (info.name, info.variant_test_name) if part): info for info in op_db
}


@dataclass(frozen=True)
class OpInfoSample:
    """One call of an op: `inputs` are (first, args, kwargs) as OpInfo made them; `processed` is what OpInfo puts
    before a gradient is taken."""

    index: int
    inputs: tuple[Any, ...]
    processed: Callable[[Any], Any]


def units(ops: Sequence[str], dtypes: Sequence[str], grad: bool) -> list[OpUnit]:
    """What the database has for these ops (all if none is named) and dtypes; with `grad` f32 is differentiated too."""
    names = [name for name in _DATABASE if not ops or name in ops or _DATABASE[name].name in ops]
    for wanted in ops:
        if not any(wanted in (name, _DATABASE[name].name) for name in names):
            raise NotFound(f"the op database has no '{wanted}'", hint=hint_for(wanted, list(_DATABASE)))
    return list(_units(names, dtypes, grad))


def _units(names: Sequence[str], dtypes: Sequence[str], grad: bool) -> Iterator[OpUnit]:
    for name in names:
        info = _DATABASE[name]
        yield from (OpUnit(name, dtype) for dtype in dtypes if _TORCH_DTYPES[dtype] in info.supported_dtypes("cpu"))
        f32 = torch.float32
        if grad and info.supports_autograd and f32 in info.supported_backward_dtypes("cpu"):
            yield OpUnit(name, "f32", True)


def function_of(unit: OpUnit) -> Callable[..., Any]:
    """The function that the unit's samples are given to.

    Some entries are an op behind a function that seeds first, into which dynamo does not look: it is made to do
    nothing, as every call is seeded anyway.
    """
    unseeded()
    return _DATABASE[unit.op].op


def samples(unit: OpUnit, limit: int | None = None) -> list[OpInfoSample]:
    """The unit's samples, the same ones each time; at most `limit`, evenly spaced."""
    cast(Any, torch).manual_seed(_SEED)
    np.random.seed(_SEED)
    random.seed(_SEED)
    found = list(_DATABASE[unit.op].sample_inputs("cpu", _TORCH_DTYPES[unit.dtype], requires_grad=unit.grad))
    count = len(found)
    chosen = range(count) if limit is None or limit >= count else [i * count // limit for i in range(limit)]
    return [OpInfoSample(i, _inputs(found[i]), found[i].output_process_fn_grad) for i in chosen]


def _inputs(sample: Any) -> tuple[Any, ...]:
    return (sample.input, tuple(sample.args), dict(sample.kwargs))


def fresh(inputs: Any) -> Any:
    """Inputs of the same content and strides that share nothing with the given ones; what was one tensor stays one."""
    copies: dict[int, torch.Tensor] = {}

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return copies.setdefault(id(tensor), _copied(tensor))

    return pytree.tree_map_only(torch.Tensor, copied, inputs)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach()
    if plain.layout is not torch.strided or plain.is_conj() or plain.is_neg() or plain.is_nested:
        return plain.clone().requires_grad_(tensor.requires_grad)
    extent = 1 + sum((size - 1) * step for size, step in zip(plain.shape, plain.stride(), strict=True))
    memory = plain.new_zeros(0 if 0 in plain.shape else extent)
    copy = memory.as_strided(plain.shape, plain.stride())
    overlaps = any(step == 0 and size > 1 for size, step in zip(plain.shape, plain.stride(), strict=True))
    if overlaps:
        memory.copy_(plain.as_strided(memory.shape, (1,)))
    else:
        copy.copy_(plain)
    return copy.requires_grad_(tensor.requires_grad)


def in_f64(inputs: Any) -> Any:
    """Fresh inputs in which every float is f64: the question that eager answers most exactly."""

    def widened(leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype):
            return torch.float64 if leaf.is_floating_point else leaf
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf.detach().double().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(widened, fresh(inputs))


def tolerance(unit: OpUnit) -> tuple[float, float]:
    """(relative, absolute): what the OpInfo allows beyond torch's defaults for a dtype; zeros if it says nothing.

    It says so for tests; those count that compare a second implementation with eager on the CPU.
    """
    dtype = _TORCH_DTYPES[unit.dtype]
    relative, absolute = 0.0, 0.0
    for decorator in _DATABASE[unit.op].decorators:
        for override in _overrides(decorator, dtype):
            if isinstance(override, toleranceOverride):
                given = cast(Any, override).d.get(dtype)
                pair = (given.rtol, given.atol) if given else (0.0, 0.0)
            else:
                pair = (0.0, override.d.get(dtype, 0.0))
            relative, absolute = max(relative, pair[0]), max(absolute, pair[1])
    return relative, absolute


def _overrides(decorator: Any, dtype: torch.dtype) -> list[Any]:
    kinds = (toleranceOverride, precisionOverride)
    if not isinstance(decorator, DecorateInfo):
        return [decorator] if isinstance(decorator, kinds) else []
    info: Any = decorator
    matching = (
        info.active_if
        and info.cls_name in _JUDGES
        and (info.cls_name != "TestCommon" or info.test_name in _COMMON_TESTS)
        and info.device_type in (None, "cpu")
        and (info.dtypes is None or dtype in info.dtypes)
    )
    return [each for each in info.decorators if isinstance(each, kinds)] if matching else []


def check_dtypes(names: Sequence[str]) -> None:
    """NotFound for a dtype that the command does not offer."""
    for name in names:
        if name not in DTYPES:
            raise NotFound(f"there is no dtype '{name}' here", hint=hint_for(name, list(DTYPES)))
