"""How often loops of kernels go round. Lavapipe ends all loops of an invocation after 65,535 rounds without a word, so
what takes more of them goes to the next target, or ends the run where only that tells the sizes.
"""

from __future__ import annotations

from collections.abc import Callable

from assay.ir.dims import Dim, ceildiv, product
from assay.ir.dtypes import f32
from assay.ir.graph import Node
from assay.ops.shapes import axis_of
from assay.targets.base import Limitation
from assay.targets.shared.tensors import dtype_of, shape_of
from assay.targets.vulkan.profile import Profile

_TILE = 4
"""Elements of the depth that tiles take at a time."""
Count = Callable[[Node, Profile], Dim]


def rounds(node: Node, profile: Profile) -> Dim:
    """The rounds that the largest item of a node takes at most; 0 if they are few for any size in use."""
    count = _ROUNDS.get(node.op)
    return 0 if count is None else count(node, profile)


def too_many_rounds(profile: Profile) -> Limitation:
    """What takes more rounds than a device goes."""
    most = profile.most_rounds

    def applies(node: Node) -> bool:
        count = rounds(node, profile)
        return isinstance(count, int) and count > most

    return Limitation(f"the driver ends loops after {most} rounds", applies, ops=tuple(_ROUNDS))


def _along(node: Node, profile: Profile) -> Dim:
    """Once along the axis."""
    shape = shape_of(node.inputs[0])
    return shape[axis_of(node.attrs["axis"], len(shape))] if shape else 1


def _line(sweeps: int) -> Count:
    """So many times along the axis; lanes share it if it is the innermost."""

    def count(node: Node, profile: Profile) -> Dim:
        shape = shape_of(node.inputs[0])
        innermost = bool(shape) and product(shape[axis_of(node.attrs["axis"], len(shape)) + 1 :]) == 1
        length = _along(node, profile)
        return sweeps * (ceildiv(length, profile.subgroup) if innermost else length)

    return count


def _normal(first: Callable[[Node], int], groups: Callable[[Node], Dim] = lambda node: 1) -> Count:
    """Some times over the axes from the first on, or a part of these; lanes share them."""

    def count(node: Node, profile: Profile) -> Dim:
        sizes = product(shape_of(node.inputs[0])[first(node) :])
        return _SWEEPS * ceildiv(sizes, profile.subgroup * groups(node))

    return count


def _trailing(node: Node) -> int:
    return axis_of(node.attrs["axis"], len(shape_of(node.inputs[0])))


def _depth(node: Node, profile: Profile) -> Dim:
    """Along the depth of a product, perhaps some at a time."""
    depth = (shape_of(node.inputs[0]) or (1,))[-1]
    return ceildiv(depth, _TILE) if profile.tiles and dtype_of(node.inputs[1]) is f32 else depth


def _updates(node: Node, profile: Profile) -> Dim:
    """Updates along an axis, one after the other."""
    shape = shape_of(node.inputs[1])
    return shape[axis_of(node.attrs["axis"], len(shape))]


_SWEEPS = 4
"""How often norms and softmax go over a line: for sums, which are sums of sums, and for results."""
_ROUNDS: dict[str, Count] = {
    **dict.fromkeys(("cum_sum", "cum_prod", "sort", "topk"), _along),
    **dict.fromkeys(("arg_max", "arg_min"), _line(1)),
    **dict.fromkeys(("softmax", "log_softmax"), _line(_SWEEPS)),
    **dict.fromkeys(("layer_norm", "rms_norm"), _normal(_trailing)),
    "group_norm": _normal(lambda _: 1, lambda node: node.attrs["groups"]),
    "instance_norm": _normal(lambda _: 2),
    **dict.fromkeys(("matmul", "vulkan.matmul_bytes"), _depth),
    "conv": lambda node, _: product(shape_of(node.inputs[1])[1:]),
    "scatter_nd": lambda node, _: product(shape_of(node.inputs[1])[:-1]),
    "scatter_elements": _updates,
}
