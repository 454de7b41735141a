"""Gradients of losses over classes: only the classes that are targets have any, whatever becomes of the others."""

from __future__ import annotations

import numpy as np

from assay.frontends.torch.ops.common import tensor
from assay.frontends.torch.ops.normalization import widened
from assay.frontends.torch.registry import Builder, Call, Results, aten
from assay.ir.graph import Value
from assay.ops.parts import scalar_size

_MEAN = 1


@aten("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(
    b: Builder,
    n: Call,
    grad: Value,
    x: Value,
    target: Value,
    weight: Value | None,
    mode: int,
    ignored: int,
    total: Value,
) -> Results:
    """−w ∙ grad at the class that is the target, zero elsewhere and for targets that are ignored."""
    axis = min(b.rank(x) - 1, 1)
    classes = b.reshape(b.iota(scalar_size(b, x, axis)), [-1 if i == axis else 1 for i in range(b.rank(x))])
    wanted = b.unsqueeze(target, axes=(axis,)) if b.rank(x) > b.rank(target) else target
    hit = b.bit_and(b.eq(classes, wanted), b.ne(wanted, ignored))
    slope = b.neg(widened(b, grad))
    if b.rank(grad):
        slope = b.unsqueeze(slope, axes=(axis,))
    if mode == _MEAN:
        slope = b.div(slope, tensor(b, total, b.dtype(slope)))
    if weight is not None:
        shape = np.where(np.arange(b.rank(x)) == axis, -1, 1)
        slope = b.mul(slope, b.reshape(tensor(b, weight, b.dtype(slope)), shape))
    return tensor(b, b.where(hit, b.expand(slope, b.shape_of(x)), 0), n.dtype)
