"""Attention: how queries, keys, values and masks lie for kernels that take it as a whole."""

from __future__ import annotations

from typing import NamedTuple

from assay.ir.dims import Dim, product
from assay.ir.graph import Node
from assay.targets.shared.limitations import Broadcasts, unclear_broadcast
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of
from assay.targets.shared.views import View, dense_strides


@unclear_broadcast
def unclear_heads(node: Node) -> Broadcasts:
    """Attentions whose keys, values or mask may be broadcast."""
    q, k, v = (shape_of(value) for value in node.inputs[:3])
    mask = () if len(node.inputs) < 4 or node.inputs[3] is None else shape_of(node.inputs[3])
    return [(k[:-3], q[:-3]), (v[:-3], q[:-3]), (mask, (*q[:-1], k[-2]))]


class HeadViews(NamedTuple):
    """What an attention works on, each with one axis of batches at most; the last stride of all but the mask is 1."""

    q: View
    k: View
    v: View
    mask: View | None
    result: View


def heads_of(p: Planner, node: Node) -> HeadViews:
    """Views for a kernel. The result lies with its heads next to their elements, where a model merges them."""
    *batch, heads, queries, _ = shape_of(node.inputs[0])
    rank = len(batch) + 3
    views = [p.view(value) for value in node.inputs[:3]]
    q, k, v = (_by_head(p, view.expanded((*batch, *view.shape[-3:]))) for view in views)
    given = node.inputs[3] if len(node.inputs) > 3 else None
    scores = (*batch, heads, queries, v.shape[-2])
    mask = None if given is None else _by_head(p, p.view(given).expanded(scores), even=False)
    return HeadViews(q, k, v, mask, p.result(node.outputs[0], (*range(rank - 3), rank - 2, rank - 3, rank - 1)))


def _by_head(p: Planner, view: View, *, even: bool = True) -> View:
    """A view with one axis of batches at most, and if `even` with a last stride of 1."""
    if view.rank > 4:
        dense = view if view.is_dense else p.copied(view)
        shape = (product(view.shape[:-3]), *view.shape[-3:])
        return View(dense.storage, dense.dtype, shape, dense_strides(shape), dense.offset)
    return inner(p, view) if even else view


def inner(p: Planner, view: View) -> View:
    """A view whose last axis has the stride 1."""
    return view if view.strides[-1] == 1 or view.shape[-1] == 1 else p.copied(view)


def head_strides(view: View) -> list[Dim]:
    """From batch to batch, from head to head, and along the length."""
    return [view.strides[-4] if view.rank > 3 else 0, view.strides[-3], view.strides[-2]]
