"""Division of u32 by multiplications, for devices whose lanes divide one after the other."""

from __future__ import annotations

from assay.targets.vulkan.code import ShaderValue

_NEARLY = 4294966784.0
"""2³² − 512: over a divisor, and rounded twice, it stays below 2³² over it."""


def reciprocal(b: ShaderValue) -> ShaderValue:
    """2³² / b or a little less, the better for a step of Newton's: what `quotient` needs to know of a divisor."""
    s = b.shader
    guess = s.cast(_NEARLY / s.cast(b, "f32"), "u32")
    return guess + s.high_product(guess, s.value(0, "u32") - guess * b)


def quotient(a: ShaderValue, b: ShaderValue, reciprocal_of_b: ShaderValue) -> ShaderValue:
    """The whole part of a / b. The product is at most 2 too small, which what is left over tells."""
    s = a.shader
    found = s.high_product(a, reciprocal_of_b)
    left = a - found * b
    for _ in range(2):
        more = left >= b
        found, left = s.select(more, found + 1, found), s.select(more, left - b, left)
    return found
