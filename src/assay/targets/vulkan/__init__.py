"""The Vulkan target: segments become recordings of compute kernels, for any device with Vulkan 1.3."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache

from assay.errors import AssayError
from assay.ir.dtypes import DType
from assay.ir.graph import Graph, Node, Value
from assay.limits import Limits
from assay.passes.decompose import decompose
from assay.store import open_store
from assay.targets.base import (
    Bodies,
    Device,
    Executable,
    Limitation,
    Limitations,
    NamedPass,
    Probe,
    Support,
    Traits,
    TransferCost,
)
from assay.targets.shared.limitations import UNTYPED, other_mode
from assay.targets.shared.norms import fold_norms, kept_for_folding
from assay.targets.shared.tensors import dtype_of
from assay.targets.threads import Threads, available_threads
from assay.targets.vulkan import kernels, ops
from assay.targets.vulkan.device import VulkanDevice, chosen_profile, open_device
from assay.targets.vulkan.executable import VulkanExecutable
from assay.targets.vulkan.instance import DEVICE, open_instance
from assay.targets.vulkan.packing import added_biases, block_products, byte_products, integer_products
from assay.targets.vulkan.pipelines import Pipelines
from assay.targets.vulkan.profile import Profile, restriction
from assay.targets.vulkan.registry import KERNELS
from assay.targets.vulkan.rounds import too_many_rounds

__all__ = ["VulkanTarget", "kernels", "ops"]

_COSTS = {"cpu": TransferCost(2e-5, 4e9), "integrated": TransferCost(3e-5, 8e9)}
_SPEEDS = {"cpu": 1e10, "integrated": 2e11}
"""Rough figures: what a transfer costs and how much is computed in a second, by the kind of device."""
_WIDEST = 8
"""Bytes of the largest elements."""


class VulkanTarget:
    """Compute kernels on the device that `$ASSAY_VULKAN_DEVICE` chooses, else on the best one."""

    name = "vulkan"

    def __init__(self, mode: str, limits: Limits, threads: Threads = available_threads) -> None:
        self.mode, self.limits = mode, limits

    def probe(self) -> Probe:
        """The devices that are here, or what is missing."""
        try:
            profile = chosen_profile()
        except AssayError as error:
            hint = f"; {error.hint}" if error.hint else ""
            return Probe(False, f"{error.message}{hint}")
        others = [each.profile.name for each in open_instance().devices if each.profile.name != profile.name]
        details = {"device": profile.name, "driver": profile.driver, "kind": profile.kind}
        if restriction():
            details["restricted"] = restriction()
        if others:
            details["others"] = f"{', '.join(others)} ({DEVICE})"
        return Probe(True, details=details)

    @property
    def traits(self) -> Traits:
        """Memory of its own, any size."""
        kind = chosen_profile().kind
        cost = _COSTS.get(kind, TransferCost(5e-5, 6e9))
        return Traits(transfers=cost, operations_per_second=_SPEEDS.get(kind, 1e12))

    def limitations(self) -> Limitations:
        """What has no kernel, and what the device has not; everything, if the mode is another than `exact`."""
        if self.mode != "exact":
            return other_mode(self.mode)
        return _limitations(chosen_profile())

    def support(self, node: Node) -> Support:
        """Whether this node has a kernel that the device can run, and if not why."""
        return self.limitations().support(node)

    def passes(self) -> Sequence[NamedPass]:
        """Norms go into weights, weights stay packed; what has no kernel becomes what has."""
        return (
            NamedPass("fold_norms", fold_norms),
            NamedPass("added_biases", self._with_added_biases),
            NamedPass("block_products", block_products),
            NamedPass("integer_products", integer_products),
            NamedPass("byte_products", self._with_bytes),
            NamedPass("decompose", self._decomposed, required=True),
            NamedPass("fusion"),
        )

    def _with_added_biases(self, segment: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
        """Biases become additions, but where a device is best at tiles, which take a bias."""
        return segment if chosen_profile().tiles else added_biases(segment, static, numbers)

    def _with_bytes(self, segment: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
        """Weights of bytes stay such in products of f32, but where a device is best at tiles, which are of f32."""
        return segment if chosen_profile().tiles else byte_products(segment, static, numbers)

    def _decomposed(self, segment: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
        table = _limitations(chosen_profile(), folding=False)
        return decompose(segment, lambda node: table.support(node).ok, numbers, self.limits)

    def open(self) -> Device:
        """The device's memory."""
        return open_device()

    def compile(
        self, segment: Graph, bodies: Bodies, disabled: Collection[str] = (), device: Device | None = None
    ) -> Executable:
        """The segment as pipelines; CompileFailed if the driver does not take one."""
        opened = open_device()
        pipelines = _pipelines(opened, os.getpid())
        upload = (opened if device is None else device).upload
        made = VulkanExecutable(segment, opened, pipelines, self.limits, upload, fused="fusion" not in disabled)
        pipelines.save()
        return made


@cache
def _limitations(profile: Profile, *, folding: bool = True) -> Limitations:
    """What a device does not take: what no kernel takes, and elements that it cannot store or compute with. If
    `folding` is yet to come, norms that go into weights need no kernel."""
    rows = KERNELS.limitations().rows
    rows = tuple(map(kept_for_folding, rows)) if folding else rows
    typed, others = rows[: len(UNTYPED)], rows[len(UNTYPED) :]
    longer = Limitation(f"elements of more than {_WIDEST} bytes are not moved", _has(_is_long))
    missing = [Limitation(reason, _has(lacks)) for reason, lacks in profile.lacks()]
    return Limitations((*typed, longer, *missing, *others, too_many_rounds(profile)))


def _is_long(dtype: DType) -> bool:
    return dtype.numpy.itemsize > _WIDEST


def _has(kind: Callable[[DType], bool]) -> Callable[[Node], bool]:
    """Whether a node reads or makes a tensor of some dtypes."""
    return lambda node: any(kind(dtype_of(value)) for value in (*node.inputs, *node.outputs) if value is not None)


@cache
def _pipelines(device: VulkanDevice, process: int) -> Pipelines:
    """The pipelines of a device, kept for all programs of a process."""
    return Pipelines(device, open_store())
