"""Ops whose results are views, or copies."""

from __future__ import annotations

from assay.targets.cpu.kernels.elements import MOVABLE
from assay.targets.cpu.kernels.movement_copies import slice_by_data
from assay.targets.cpu.registry import KERNELS
from assay.targets.shared.movement import enter_copies, enter_views

enter_views(KERNELS, slice_by_data)
enter_copies(KERNELS, MOVABLE)
