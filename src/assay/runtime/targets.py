"""The targets by name, and chains of them. Each is imported when it is asked for.

Other packages add targets under the entry point group `assay.targets`: the name is the target's, the object a function
of (mode, limits, threads) that gives it. docs/writing-a-target.md shows how.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias, cast, get_args

from assay.errors import NotFound, hint_for
from assay.limits import DEFAULT, Limits
from assay.targets.base import Probe, Target
from assay.targets.reference.interpreter import Mode
from assay.targets.threads import Threads, available_threads

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ORACLE = "reference"
"""The target that every chain ends at."""
ENVIRONMENT = "ASSAY_TARGET"
"""The variable with the chain of those who name none."""
_GROUP = "assay.targets"

Maker: TypeAlias = Callable[[str, Limits, Threads], Target]
Chain: TypeAlias = tuple[Target, ...]
"""Targets in the order in which they are asked; the last one is the oracle."""


def _reference(mode: str, limits: Limits, threads: Threads) -> Target:
    from assay.targets.reference import ReferenceTarget

    return ReferenceTarget(cast(Mode, mode), limits)


def _cpu(mode: str, limits: Limits, threads: Threads) -> Target:
    from assay.targets.cpu import CpuTarget

    return CpuTarget(mode, limits, threads)


def _vulkan(mode: str, limits: Limits, threads: Threads) -> Target:
    from assay.targets.vulkan import VulkanTarget

    return VulkanTarget(mode, limits, threads)


def _ttnn(mode: str, limits: Limits, threads: Threads) -> Target:
    from assay.targets.ttnn import TtnnTarget

    return TtnnTarget(mode, limits, threads)


_OWN: dict[str, Maker] = {ORACLE: _reference, "cpu": _cpu, "vulkan": _vulkan, "ttnn": _ttnn}


@cache
def _of_packages() -> Mapping[str, Maker]:
    """The targets of other packages."""
    from importlib.metadata import entry_points

    return {each.name: partial(_from_package, each) for each in entry_points(group=_GROUP)}


def _from_package(entry: EntryPoint, mode: str, limits: Limits, threads: Threads) -> Target:
    """A target of another package; NotFound if that package cannot be imported."""
    try:
        make: Maker = entry.load()
    except Exception as error:
        package = entry.dist.name if entry.dist is not None else entry.value
        raise NotFound(f"the target '{entry.name}' of {package} cannot be loaded: {error}") from error
    return make(mode, limits, threads)


def default_target(environment: Mapping[str, str] = os.environ) -> str:
    """The chain of those who name none: `$ASSAY_TARGET`, else the native target."""
    return environment.get(ENVIRONMENT, "") or "cpu"


def target_names() -> list[str]:
    """The targets that exist; whether one can be used here, its probe says."""
    return list({**_OWN, **_of_packages()})


def own_target_names() -> list[str]:
    """The targets that Assay itself has."""
    return list(_OWN)


def chain_names(text: str) -> list[str]:
    """The targets of a chain such as `vulkan,cpu`, in order and without the oracle at its end.

    NotFound if one does not exist.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        _maker(name)
    return list(dict.fromkeys(name for name in names[: _end(names)] if name != ORACLE))


def first_target(text: str) -> str:
    """The target that a chain asks first; what runs on another has fallen back."""
    return next(iter(chain_names(text)), ORACLE)


def _end(names: list[str]) -> int:
    """Where the oracle stands: what is named after it never gets a node."""
    return names.index(ORACLE) if ORACLE in names else len(names)


def probe_target(name: str) -> Probe:
    """What the target called `name` finds here; NotFound if there is none of that name."""
    return _maker(name)("exact", DEFAULT, available_threads).probe()


def check_target(text: str) -> None:
    """NotFound if a target of the chain does not exist or cannot be used here."""
    make_chain(text, "exact", DEFAULT)


def is_modelled(text: str) -> bool:
    """Whether results of a chain come from a model of a device that is not here, so that times of runs mean nothing.

    NotFound if a target of the chain does not exist or cannot be used here.
    """
    return any(target.traits.modelled for target in make_chain(text, "exact", DEFAULT))


def make_target(name: str, mode: str, limits: Limits, threads: Threads = available_threads) -> Target:
    """The target called `name`, whose runs use `threads`; NotFound if there is none or it cannot be used here."""
    make = _maker(name)
    if mode not in get_args(Mode):
        raise NotFound(f"there is no mode '{mode}'", hint=f"there are {', '.join(get_args(Mode))}")
    target = make(mode, limits, threads)
    probe = target.probe()
    if not probe.present:
        raise NotFound(f"the target '{name}' cannot be used here: {probe.reason}")
    return target


def make_chain(text: str, mode: str, limits: Limits, threads: Threads = available_threads) -> Chain:
    """The targets of a chain such as `vulkan,cpu`, the oracle last."""
    return tuple(_chain(text, mode, limits, threads))


def _chain(text: str, mode: str, limits: Limits, threads: Threads) -> Iterator[Target]:
    for name in (*chain_names(text), ORACLE):
        yield make_target(name, mode, limits, threads)


def _maker(name: str) -> Maker:
    make = _OWN.get(name) or _of_packages().get(name)
    if make is None:
        raise NotFound(f"there is no target '{name}'", hint=hint_for(name, target_names()))
    return make
