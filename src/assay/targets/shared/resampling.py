"""Resampling, axis by axis: what no kernel of it takes, and how far its filters reach."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from assay.ir.dims import Dim
from assay.ir.dtypes import FLOATS
from assay.ir.graph import Node
from assay.targets.base import limitation
from assay.targets.shared.tensors import dtype_of, shape_of

_REACH = {"linear": 1, "cubic": 2}


@limitation("there is no kernel that resizes a part of a tensor")
def crops(node: Node) -> bool:
    """Nodes that look at a part of each axis."""
    return node.attrs["transform"] == "crop"


@limitation("there is no kernel that interpolates other numbers than floats")
def interpolates_others(node: Node) -> bool:
    """Nodes whose sums would have to be rounded to integers."""
    return node.attrs["mode"] != "nearest" and dtype_of(node.inputs[0]) not in FLOATS


@limitation("how many elements a filter covers is known only when the program runs")
def unclear_filter(node: Node) -> bool:
    """Nodes whose filters are stretched by sizes."""
    attrs, shapes = node.attrs, (shape_of(node.inputs[0]), shape_of(node.outputs[0]))
    axes: Sequence[int] = attrs["axes"]
    known = all(isinstance(shape[axis], int) for shape in shapes for axis in axes)
    return attrs["antialias"] and not attrs["scales"] and not known


class Filter(NamedTuple):
    """What a new element is made of along an axis: `taps` old ones, of which `first` is the first one's distance from
    the one before its place; distances are multiplied by `shrink`."""

    shrink: float
    first: int
    taps: int


def filter_of(attrs: Mapping[str, Any], scale: float, old: Dim, new: Dim) -> Filter:
    """The filter along an axis of the sizes `old` and `new`; a `scale` of 0 stands for their ratio."""
    shrink = 1.0
    if attrs["antialias"]:
        shrink = min(scale or cast(int, new) / max(cast(int, old), 1), 1.0)
    first = math.floor(-_REACH[attrs["mode"]] / shrink) + 1
    return Filter(shrink, first, 2 - 2 * first)
