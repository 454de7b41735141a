"""Windows of convolutions: where their elements lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.shader import Shader


class Window(NamedTuple):
    """The window along one axis."""

    kernel: int
    stride: int
    before: int
    dilation: int


def tap_of(
    s: Shader,
    windows: Sequence[Window],
    pixel: Sequence[ShaderValue],
    taps: Sequence[Any],
    old: Sequence[ShaderValue],
    strides: Sequence[ShaderValue],
) -> tuple[ShaderValue, ShaderValue]:
    """Whether a tap of a pixel lies in x, and where within a channel."""
    inside, at = s.value(True, "bool"), s.value(0, "u32")
    for window, index, tap, size, stride in zip(windows, pixel, taps, old, strides, strict=False):
        shift = tap * window.dilation - window.before
        place = index * window.stride + (shift & 0xFFFFFFFF if isinstance(shift, int) else shift)
        inside, at = inside & (place < size), at + place * stride
    return inside, at
