"""Ops of every family of kernels as on poorer devices; `make vulkanchecks` runs all of the suites so."""

from __future__ import annotations

from itertools import islice

import pytest
from ops.cases import OPS, samples
from ops.knowledge import views
from programs import placed_on
from suites.op_cases import LEVELS, complaints, given, single

from assay.ir.dtypes import f32
from assay.limits import DEFAULT
from assay.ops.registry import OpDef
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice

PROFILES = (
    "no-f64,no-i64,subgroup=32,groups=16,push=128",
    "no-8bit,no-16bit,no-subgroups,no-addresses",
    "staged,addresses,subgroup=64,push=16,groups=2",
)
FAMILIES = (
    "arg_max", "average_pool", "conv", "cum_sum", "gather", "layer_norm", "matmul", "pad", "pow", "reduce_sum",
    "resize", "scatter_elements", "sdpa", "softmax", "topk", "transpose",
)  # fmt: skip
MOST = 3
"""Samples of an op."""


@pytest.mark.parametrize("restricted", PROFILES, indirect=True)
@pytest.mark.parametrize("definition", [each for each in OPS if each.name in FAMILIES], ids=lambda each: each.name)
def test_results_are_right_on_poorer_devices(definition: OpDef, restricted: VulkanDevice) -> None:
    target = VulkanTarget("exact", DEFAULT)
    found = [each for each in samples(definition) if each[0] is f32]
    for dtype, sample, rng in islice(found, MOST):
        view = next(view for view in views(rng, definition, sample) if view.level == LEVELS[0])
        graph = single(definition, sample, view)
        program = placed_on(target, graph)
        assert restricted.profile.i64 is False or any(each.target == "vulkan" for each in program.plan.placements)
        wrong = complaints(target, definition, dtype, sample, graph, program.run(given(sample, graph)))
        assert not wrong, "\n".join(wrong)
