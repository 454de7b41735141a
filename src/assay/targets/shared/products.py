"""Matrix products as kernels take them: both operands with two batch axes before rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

from assay.ir.dims import Dim, eq, product
from assay.ir.graph import Node
from assay.targets.shared.planner import Planner
from assay.targets.shared.views import View


def matrices(p: Planner, node: Node) -> tuple[View, View, View]:
    """The operands of a `matmul` with two batch axes each, and memory for its result."""
    x, y = p.view(node.inputs[0]), p.view(node.inputs[1])
    x = x if x.rank > 1 else View(x.storage, x.dtype, (1, *x.shape), (0, *x.strides), x.offset)
    y = y if y.rank > 1 else View(y.storage, y.dtype, (*y.shape, 1), (*y.strides, 0), y.offset)
    out = p.result(node.outputs[0])
    batch = out.shape[: max(x.rank, y.rank) - 2]
    if y.rank == 2 and x.is_dense:
        batch, depth = (), x.shape[-1]
        x = View(x.storage, x.dtype, (product(x.shape[:-1]), depth), (depth, 1), x.offset)
    return (*_two_batch_axes(p, x, y, batch), out)


def _two_batch_axes(p: Planner, x: View, y: View, batch: Sequence[Dim]) -> tuple[View, View]:
    """Both operands with two batch axes; copies where the axes cannot be joined to two."""
    x, y = (view.expanded((*batch, *view.shape[-2:])) for view in (x, y))
    blocks: list[list[int]] = []
    for axis, size in enumerate(batch):
        if size == 1:
            continue
        joins = blocks and all(eq(v.strides[blocks[-1][-1]], v.strides[axis] * size) for v in (x, y))
        if joins:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    if len(blocks) > 2:
        return _two_batch_axes(p, p.copied(x), p.copied(y), batch)
    axes = [list[int](), list[int]()][len(blocks) :] + blocks
    sizes = tuple(product(batch[axis] for axis in block) for block in axes)

    def joined(view: View) -> View:
        strides = tuple(view.strides[block[-1]] if block else 0 for block in axes)
        return View(view.storage, view.dtype, (*sizes, *view.shape[-2:]), (*strides, *view.strides[-2:]), view.offset)

    return joined(x), joined(y)
