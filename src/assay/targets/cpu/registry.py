"""The kernels of this target. Each family of `kernels` enters its own."""

from __future__ import annotations

from assay.targets.cpu.pointwise import C_WRITER
from assay.targets.shared.kernels import KernelTable

KERNELS = KernelTable(C_WRITER)
emits = KERNELS.emits
