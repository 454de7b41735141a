"""Ops whose results are views, or copies."""

from __future__ import annotations

from assay.targets.shared.movement import enter_copies, enter_views
from assay.targets.vulkan.kernels.elements import MOVABLE
from assay.targets.vulkan.kernels.movement import slice_by_data
from assay.targets.vulkan.registry import KERNELS

enter_views(KERNELS, slice_by_data)
enter_copies(KERNELS, MOVABLE)
