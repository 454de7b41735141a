"""What chips exchange. These rows are no part of the op table: no model has such ops, and one chip takes none."""

from __future__ import annotations

from assay.ir.graph import Node
from assay.targets.ttnn.plan import CallPlanner
from assay.targets.ttnn.table import OpTable

COLLECTIVES = OpTable()


@COLLECTIVES.lowers("ttnn.all_reduce", calls=("all_reduce",))
def _all_reduce(p: CallPlanner, node: Node) -> None:
    found = p.call("all_reduce", p.take(node.inputs[0]), cluster_axis=node.attrs["axis"])
    p.give(node.outputs[0], found)


@COLLECTIVES.lowers("ttnn.all_gather", calls=("all_gather",))
def _all_gather(p: CallPlanner, node: Node) -> None:
    found = p.call("all_gather", p.take(node.inputs[0]), dim=-1, cluster_axis=node.attrs["axis"])
    p.give(node.outputs[0], found)
