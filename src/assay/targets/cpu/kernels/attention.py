"""Attention: one call for the whole of it."""

from __future__ import annotations

import math

from assay.ir.dims import Dim, ceildiv, eq, floordiv, product
from assay.ir.dtypes import FLOATS, boolean
from assay.ir.graph import Node
from assay.targets.cpu.kernels.lines import numbers, wide_bytes
from assay.targets.cpu.kernels.normalization import unmet_precision
from assay.targets.cpu.kernels.views import shape_of
from assay.targets.cpu.planner import Planner
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.cpu.views import View

_QUERIES, _KEYS = 64, 96
"""How many of them c/attention.h takes at a time."""


def _refusal(node: Node) -> str:
    q, k, v = (shape_of(value) for value in node.inputs[:3])
    wanted = [(k[:-3], q[:-3]), (v[:-3], q[:-3])]
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        mask, scores = shape_of(node.inputs[3]), (*q[:-1], k[-2])
        wanted.append((mask, scores[len(scores) - len(mask) :]))
    if any(old != 1 and not eq(old, new) for olds, news in wanted for old, new in zip(olds, news, strict=True)):
        return "only a run tells whether an axis is broadcast"
    return unmet_precision(node, "precision", "softmax_precision", "accumulate")


@emits("sdpa", FLOATS, unless=_refusal)
def sdpa(p: Planner, node: Node) -> None:
    """The result lies with its heads next to their elements, where a model merges them."""
    q, k, v = (p.view(value) for value in node.inputs[:3])
    q, k, v = (_by_head(p, each.expanded((*q.shape[:-3], *each.shape[-3:]))) for each in (q, k, v))
    given = node.inputs[3] if len(node.inputs) > 3 else None
    mask = None if given is None else _by_head(p, p.view(given).expanded((*q.shape[:-1], k.shape[-2])), even=False)
    rank = q.rank
    result = p.result(node.outputs[0], (*range(rank - 3), rank - 2, rank - 3, rank - 1))
    heads, queries, size = q.shape[-3:]
    keys, out_size = v.shape[-2:]
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
        rows=product(q.shape[:-2]) * ceildiv(queries, _QUERIES),
        work=2 * _QUERIES * keys * both,
        floats=[math.nan if node.attrs["scale"] is None else node.attrs["scale"], node.attrs["softcap"]],
        scratch=wide_bytes(q.dtype) * (_KEYS * (both + _QUERIES) + _QUERIES * (both + 32)),
    )


def _by_head(p: Planner, view: View, *, even: bool = True) -> View:
    """A view with at most one axis of batches (or several as even steps), and if `even` with a last stride of 1."""
    fits = view.rank <= 4 and (not even or view.strides[-1] == 1 or view.shape[-1] == 1)
    return view if fits or view.is_dense else p.copied(view)


def _strides(view: View) -> list[Dim]:
    """From batch to batch, from head to head, and along the length."""
    return [view.strides[-4] if view.rank > 3 else 0, view.strides[-3], view.strides[-2]]


def _mask_kind(mask: View | None) -> dict[str, str]:
    if mask is None:
        return {}
    kinds = numbers(mask.dtype)
    return {"MASK": kinds["T"], "BIAS(x)": "((x) ? 0 : -INFINITY)" if mask.dtype is boolean else kinds["LOAD(x)"]}
