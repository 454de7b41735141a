"""The kernels of this target. Each family of `kernels` enters its own."""

from __future__ import annotations

from assay.targets.shared.kernels import KernelTable
from assay.targets.vulkan.pointwise import WRITER

KERNELS = KernelTable(WRITER)
emits = KERNELS.emits
