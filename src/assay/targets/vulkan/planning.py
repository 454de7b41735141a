"""The planner of this target: the shared one, for a device."""

from __future__ import annotations

from collections.abc import Mapping

from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Value
from assay.limits import Limits
from assay.ops.conditions import Condition
from assay.targets.shared.fusion import Unit
from assay.targets.shared.planner import Planner
from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.registry import KERNELS
from assay.targets.vulkan.rounds import rounds


class VulkanPlanner(Planner):
    """Plans calls of kernels that suit a device."""

    def __init__(
        self, graph: Graph, constants: Mapping[Value, Array], limits: Limits, profile: Profile, *, fused: bool
    ) -> None:
        self.profile = profile
        super().__init__(graph, constants, limits, KERNELS, fused=fused, row_major=True)

    def _plan(self, unit: Unit) -> None:
        """Plan a unit; runs in which a loop would go round too often end with an error."""
        super()._plan(unit)
        most = self.profile.most_rounds
        for node in unit.nodes:
            text = f"the driver ends loops after {most} rounds; run it on another target"
            self.require(node, Condition(most - rounds(node, self.profile), 0, text))


def profile_of(planner: Planner) -> Profile:
    """The device that a planner plans for."""
    assert isinstance(planner, VulkanPlanner)
    return planner.profile
