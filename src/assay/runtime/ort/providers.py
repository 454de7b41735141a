"""Execution providers: ONNX Runtime's names for the hardware, and the targets that they are here."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

from assay.errors import BadArgument, NotFound, hint_for
from assay.runtime.targets import default_target, probe_target, target_names

CPU_PROVIDER = "CPUExecutionProvider"
_TARGETS = {CPU_PROVIDER: "cpu"}
_ELSEWHERE = (
    "NvTensorRTRTXExecutionProvider",
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "MIGraphXExecutionProvider",
    "ROCMExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "VSINPUExecutionProvider",
    "JsExecutionProvider",
    "CoreMLExecutionProvider",
    "ACLExecutionProvider",
    "DmlExecutionProvider",
    "RknpuExecutionProvider",
    "WebNNExecutionProvider",
    "WebGpuExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
)
"""Providers of ONNX Runtime's that are no targets here."""


def get_available_providers() -> list[str]:
    """The providers that can be asked for: ONNX Runtime's name of the CPU first, then targets without such a name."""
    others = (name for name in target_names() if name not in _TARGETS.values())
    return [*_TARGETS, *(name for name in others if probe_target(name).present)]


def get_all_providers() -> list[str]:
    """Every provider whose name is understood."""
    return [*_ELSEWHERE, *get_available_providers()]


def provider_of(target: str) -> str:
    """What ONNX Runtime calls a target, else its own name."""
    return next((name for name, known in _TARGETS.items() if known == target), target)


def provider_names(providers: Sequence[str | tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The names alone of providers that may come with options."""
    if isinstance(providers, str):
        raise BadArgument(f"providers is a list, got {providers!r}", hint=f"write [{providers!r}]")
    return [_name(provider) for provider in providers]


def _name(provider: Any) -> str:
    name = cast("Any", provider[0] if isinstance(provider, tuple | list) and provider else provider)
    if not isinstance(name, str):
        raise BadArgument(f"a provider is a name, or a name and its options, got {provider!r}")
    return name


def target_of(names: Sequence[str], *, missing_is_error: bool = False) -> str:
    """The target of the first provider that there is here. Those of other hardware are passed over with a warning;
    if no other is named the default target serves, unless `missing_is_error`. An unknown name raises."""
    known = {**_TARGETS, **{name: name for name in target_names()}}
    for name in names:
        if name not in known and name not in _ELSEWHERE:
            hint = hint_for(name, [*known, *_ELSEWHERE])
            raise NotFound(f"'{name}' is no provider", hint=hint)
    absent = [name for name in names if name not in known]
    if absent and missing_is_error:
        raise NotFound(f"there is no {absent[0]} here", hint=f"there is {', '.join(get_available_providers())}")
    chosen = next((known[name] for name in names if name in known), default_target())
    if absent:
        warnings.warn(f"there is no {', '.join(absent)} here: the target '{chosen}' runs instead", stacklevel=3)
    return chosen
