"""What every process of a sweep imports; loaded once by the process that the others are forked from."""

import os

# oneDNN's AMX kernels end eager's bf16 products with an illegal instruction where the kernel denies the tile state.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

from assay.evidence.sweep import measure as _measure
from assay.frontends.torch.private import dynamo as _dynamo
from assay.targets import reference as _reference
from assay.targets.cpu import target as _cpu

__all__ = ["_cpu", "_dynamo", "_measure", "_reference"]
