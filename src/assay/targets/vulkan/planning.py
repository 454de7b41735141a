"""The planner of this target: the shared one, for a device."""

from __future__ import annotations

from collections.abc import Mapping

from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Value
from assay.limits import Limits
from assay.targets.shared.planner import Planner
from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.registry import KERNELS


class VulkanPlanner(Planner):
    """Plans calls of kernels that suit a device."""

    def __init__(
        self, graph: Graph, constants: Mapping[Value, Array], limits: Limits, profile: Profile, *, fused: bool
    ) -> None:
        self.profile = profile
        super().__init__(graph, constants, limits, KERNELS, fused=fused, row_major=True)


def profile_of(planner: Planner) -> Profile:
    """The device that a planner plans for."""
    assert isinstance(planner, VulkanPlanner)
    return planner.profile
