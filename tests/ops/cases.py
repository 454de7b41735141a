"""The ops' own samples as test cases: what the reference gives for them, and how far off a right result may be."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from ops.knowledge import views

from assay.evidence.compare.arrays import bounds
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.ops import CORE
from assay.ops.registry import Effect, OpDef, Sample, carrier, complete_attrs, evaluate
from assay.targets.cpu.ops import CPU_OPS
from assay.targets.vulkan.ops import VULKAN_OPS

_ALL = (*CORE, *CPU_OPS, *VULKAN_OPS)
OPS = [definition for definition in _ALL if not definition.regions and definition.effect is Effect.PURE]
"""Core ops, and those that targets own."""


def samples(definition: OpDef) -> Iterator[tuple[DType, Sample, np.random.Generator]]:
    """Every sample of every dtype, the same in each run."""
    for dtype in definition.main_dtypes:
        rng = np.random.default_rng(zlib.crc32(f"{definition.name} {dtype}".encode()))
        for sample in definition.samples(rng, dtype):
            yield dtype, sample, rng


def spread_samples(definition: OpDef, *, rest: bool = False) -> Iterator[tuple[DType, Sample, np.random.Generator]]:
    """A good third of the samples: each in several dtypes, all in the first one, and the first in every dtype; or the
    rest of them."""
    for dtype, group in groupby(samples(definition), key=itemgetter(0)):
        turn = definition.main_dtypes.index(dtype)
        for at, found in enumerate(group):
            if (turn > 0 and at > 0 and (turn + at) % _SPREAD > 0) is rest:
                yield found


_SPREAD = 3


def outcome(definition: OpDef, sample: Sample) -> tuple[Any, ...]:
    """What the reference gives."""
    attrs = complete_attrs(definition, sample.attrs)
    facts = next(views(np.random.default_rng(0), definition, sample)).facts
    carriers = [carrier(kind) for kind in definition.infer(facts, attrs)]
    with np.errstate(all="ignore"):
        return evaluate(definition, sample.inputs, attrs, carriers)


def told(definition: OpDef, dtype: DType, sample: Sample) -> str:
    """A sample in a few words, for messages."""
    shapes = [list(x.shape) if isinstance(x, np.ndarray) else type(x).__name__ for x in sample.inputs]
    return f"{definition.name} {dtype} {shapes} {dict(sample.attrs)}"


def allowed(definition: OpDef, sample: Sample, wanted: Any, dtype: DType | None = None) -> dict[str, Any]:
    """The op's tolerance for this result, in units of its own or another dtype."""
    if not isinstance(wanted, np.ndarray):
        return {}
    arrays = [x for x in sample.inputs if isinstance(x, np.ndarray)]
    terms = max((x.size for x in arrays), default=1) / max(wanted.size, 1)
    scale = max((magnitude(x) for x in (*arrays, wanted)), default=1.0)
    relative, absolute = bounds(definition.tolerance, dtype or dtypes.of(wanted), terms=terms, scale=scale)
    return {"relative": relative, "absolute": absolute}


def magnitude(x: Any) -> float:
    """The size of the largest finite element of a float or complex array."""
    kind = dtypes.of(x).kind
    if kind not in ("float", "complex"):
        return 0.0
    wide = np.abs(x.astype(np.float64 if kind == "float" else np.complex128))
    return float(wide.max(initial=0.0, where=np.isfinite(wide)))
