"""What encoders of images share."""

from __future__ import annotations

from assay.frontends.checkpoint.recipes.network import Network
from assay.ir.graph import Value


def patches(m: Network, image: Value, edge: int, width: int, *, bias: bool) -> Value:
    """The patches of images (batch, channels, height, width), each as a vector: (batch, patches, width)."""
    with m.op("patches") as b:
        weight = m.weight("weight", width, m.size(image, 1), edge, edge)
        shift = m.weight("bias", width) if bias else None
        found = b.conv(image, weight, shift, strides=(edge, edge), pads=(0,) * 4, dilations=(1, 1))
        count = m.size(found, 2) * m.size(found, 3)
        flat = b.reshape(found, b.vector(b.size(found, 0), width, count))
        return m.named(b.transpose(flat, perm=(0, 2, 1)))


def with_first(m: Network, first: Value, x: Value) -> Value:
    """x (batch, patches, width) with one more vector (1, 1, width) in front, which comes to stand for the whole."""
    with m.op("first") as b:
        return b.concat(b.expand(first, b.vector(b.size(x, 0), 1, m.size(x))), x, axis=1)
