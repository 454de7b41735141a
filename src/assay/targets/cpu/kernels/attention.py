"""Attention, one call for the whole of it, and rotary embeddings."""

from __future__ import annotations

import math

from assay.ir.dims import ceildiv, floordiv, product
from assay.ir.dtypes import FLOATS, boolean, f32
from assay.ir.graph import Node
from assay.targets.cpu.kernels.lines import numbers, wide_bytes
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.attention import head_strides, heads_of, inner, unclear_heads
from assay.targets.shared.limitations import Broadcasts, other_roundings, unclear_broadcast
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of
from assay.targets.shared.views import View

_QUERIES, _KEYS = 64, 96
"""How many of them c/attention.h takes at a time."""


# --- attention


@emits("sdpa", FLOATS, unless=(unclear_heads, other_roundings("precision", "softmax_precision", "accumulate")))
def sdpa(p: Planner, node: Node) -> None:
    """A block of queries of a head at a time."""
    *batch, heads, queries, size = shape_of(node.inputs[0])
    q, k, v, mask, result = heads_of(p, node)
    keys, out_size = v.shape[-2:]
    sizes = [heads, floordiv(heads, k.shape[-3]), queries, keys, size, out_size]
    for view in (q, k, v, result, mask):
        sizes += [0, 0, 0] if view is None else head_strides(view)
    both = size + out_size
    p.step(
        template(
            "attention.h",
            QUERIES=_QUERIES,
            KEYS=_KEYS,
            CAUSAL=int(node.attrs["causal"]),
            CAPPED=int(bool(node.attrs["softcap"])),
            **numbers(q.dtype),
            **_mask_kind(mask),
        ),
        [view for view in (q, k, v, mask, result) if view is not None],
        [*sizes, 0 if mask is None else mask.strides[-1]],
        rows=product((*batch, heads)) * ceildiv(queries, _QUERIES),
        work=2 * _QUERIES * keys * both,
        floats=[math.nan if node.attrs["scale"] is None else node.attrs["scale"], node.attrs["softcap"]],
        scratch=wide_bytes(q.dtype) * (_KEYS * (both + _QUERIES) + _QUERIES * (both + 32)),
    )


def _mask_kind(mask: View | None) -> dict[str, str]:
    if mask is None:
        return {}
    kinds = numbers(mask.dtype)
    return {"MASK": kinds["T"], "BIAS(x)": "((x) ? 0 : -INFINITY)" if mask.dtype is boolean else kinds["LOAD(x)"]}


# --- rotary embeddings


@unclear_broadcast
def _unclear_angles(node: Node) -> Broadcasts:
    x, cosines, sines = (shape_of(value) for value in node.inputs)
    wanted = (*x[:-1], cosines[-1])
    return [(cosines, wanted), (sines, wanted)]


@emits("rotary_embedding", FLOATS, unless=(_unclear_angles,))
def rotary_embedding(p: Planner, node: Node) -> None:
    """Row by row, f32 by way of f64: differences of products lose digits."""
    x = p.inner(node.inputs[0])
    pairs = shape_of(node.inputs[1])[-1]
    angles = [inner(p, p.view(value).expanded((*x.shape[:-1], pairs))) for value in node.inputs[1:]]
    result = p.result(node.outputs[0], x.order if x.is_dense_in(x.order) else None)
    kinds = numbers(x.dtype, "double" if x.dtype is f32 else "")
    strides = [stride for view in (x, *angles, result) for stride in view.strides[:-1]]
    p.step(
        template("rotary.h", INTERLEAVED=int(node.attrs["interleaved"]), **kinds),
        [x, *angles, result],
        [x.rank - 1, x.shape[-1], pairs, *x.shape[:-1], *strides],
        rows=product(x.shape[:-1]),
        work=4 * x.shape[-1],
    )
