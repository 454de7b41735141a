"""The targets by name. Each is imported when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from assay.errors import NotFound, hint_for
from assay.limits import DEFAULT, Limits
from assay.targets.base import Probe, Target
from assay.targets.reference.interpreter import Mode
from assay.targets.threads import Threads, available_threads


def _reference(mode: str, limits: Limits, threads: Threads) -> Target:
    from assay.targets.reference import ReferenceTarget

    return ReferenceTarget(cast(Mode, mode), limits)


def _cpu(mode: str, limits: Limits, threads: Threads) -> Target:
    from assay.targets.cpu import CpuTarget

    return CpuTarget(mode, limits, threads)


Maker: TypeAlias = Callable[[str, Limits, Threads], Target]
_TARGETS: dict[str, Maker] = {"reference": _reference, "cpu": _cpu}


def default_target(environment: Mapping[str, str] = os.environ) -> str:
    """The target of those who name none: `$ASSAY_TARGET`, else the native one."""
    return environment.get("ASSAY_TARGET", "") or "cpu"


def target_names() -> list[str]:
    """The targets that exist; whether one can be used here, its probe says."""
    return list(_TARGETS)


def probe_target(name: str) -> Probe:
    """What the target called `name` finds here; NotFound if there is none of that name."""
    return _maker(name)("exact", DEFAULT, available_threads).probe()


def check_target(name: str) -> None:
    """NotFound if there is no target called `name`, or it cannot be used here."""
    make_target(name, "exact", DEFAULT)


def make_target(name: str, mode: str, limits: Limits, threads: Threads = available_threads) -> Target:
    """The target called `name`, whose runs use `threads`; NotFound if there is none or it cannot be used here."""
    make = _maker(name)
    if mode not in ("exact", "precise"):
        raise NotFound(f"there is no mode '{mode}'", hint="there is exact and precise")
    target = make(mode, limits, threads)
    probe = target.probe()
    if not probe.present:
        raise NotFound(f"the target '{name}' cannot be used here: {probe.reason}")
    return target


def _maker(name: str) -> Maker:
    make = _TARGETS.get(name)
    if make is None:
        raise NotFound(f"there is no target '{name}'", hint=hint_for(name, _TARGETS))
    return make
