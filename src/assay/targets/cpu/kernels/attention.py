"""Attention, one call for the whole of it, and rotary embeddings."""

from __future__ import annotations

import math

from assay.ir.dims import Dim, ceildiv, floordiv, product
from assay.ir.dtypes import FLOATS, boolean, f32
from assay.ir.graph import Node
from assay.targets.cpu.kernels.lines import numbers, wide_bytes
from assay.targets.cpu.kernels.normalization import other_roundings
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.limitations import Broadcasts, unclear_broadcast
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of
from assay.targets.shared.views import View, dense_strides

_QUERIES, _KEYS = 64, 96
"""How many of them c/attention.h takes at a time."""


# --- attention


@unclear_broadcast
def _unclear_heads(node: Node) -> Broadcasts:
    q, k, v = (shape_of(value) for value in node.inputs[:3])
    mask = () if len(node.inputs) < 4 or node.inputs[3] is None else shape_of(node.inputs[3])
    return [(k[:-3], q[:-3]), (v[:-3], q[:-3]), (mask, (*q[:-1], k[-2]))]


@emits("sdpa", FLOATS, unless=(_unclear_heads, other_roundings("precision", "softmax_precision", "accumulate")))
def sdpa(p: Planner, node: Node) -> None:
    """The result lies with its heads next to their elements, where a model merges them."""
    *batch, heads, queries, size = shape_of(node.inputs[0])
    rank = len(batch) + 3
    views = [p.view(value) for value in node.inputs[:3]]
    q, k, v = (_by_head(p, view.expanded((*batch, *view.shape[-3:]))) for view in views)
    keys, out_size = v.shape[-2:]
    given = node.inputs[3] if len(node.inputs) > 3 else None
    scores = (*batch, heads, queries, keys)
    mask = None if given is None else _by_head(p, p.view(given).expanded(scores), even=False)
    result = p.result(node.outputs[0], (*range(rank - 3), rank - 2, rank - 3, rank - 1))
    sizes = [heads, floordiv(heads, k.shape[-3]), queries, keys, size, out_size]
    for view in (q, k, v, result, mask):
        sizes += [0, 0, 0] if view is None else _strides(view)
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


def _by_head(p: Planner, view: View, *, even: bool = True) -> View:
    """A view with one axis of batches at most, and if `even` with a last stride of 1."""
    if view.rank > 4:
        dense = view if view.is_dense else p.copied(view)
        shape = (product(view.shape[:-3]), *view.shape[-3:])
        return View(dense.storage, dense.dtype, shape, dense_strides(shape), dense.offset)
    return _inner(p, view) if even else view


def _strides(view: View) -> list[Dim]:
    """From batch to batch, from head to head, and along the length."""
    return [view.strides[-4] if view.rank > 3 else 0, view.strides[-3], view.strides[-2]]


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
    angles = [_inner(p, p.view(value).expanded((*x.shape[:-1], pairs))) for value in node.inputs[1:]]
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


def _inner(p: Planner, view: View) -> View:
    """A view whose last axis has the stride 1."""
    return view if view.strides[-1] == 1 or view.shape[-1] == 1 else p.copied(view)
