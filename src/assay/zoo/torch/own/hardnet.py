"""HarDNet-68 (arXiv 1909.00948): dense blocks whose layers see those a power of two before them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_MULTIPLE = 1.7
"""How much wider a layer is for each further link it has."""


class HarmonicBlock(nn.Module):
    """Layers of which each takes the outputs of those 1, 2, 4, … before it, as far as its number divides by these."""

    def __init__(self, inside: int, growth: int, layers: int) -> None:
        super().__init__()
        self.links = [_links(layer) for layer in range(1, layers + 1)]
        widths = [inside, *(_width(growth, len(links)) for links in self.links)]
        self.layers = nn.ModuleList(
            _convolution(sum(widths[link] for link in links), widths[layer], 3)
            for layer, links in enumerate(self.links, 1)
        )
        self.kept = [layer for layer in range(1, layers + 1) if layer % 2 == 1 or layer == layers]
        self.width = sum(widths[layer] for layer in self.kept)

    def forward(self, x: Tensor) -> Tensor:
        """The odd layers' outputs and the last one's, beside each other."""
        made = [x]
        for links, layer in zip(self.links, self.layers, strict=True):
            made.append(layer(torch.cat([made[link] for link in links], 1) if len(links) > 1 else made[links[0]]))
        return torch.cat([made[layer] for layer in self.kept], 1)


class HardNet(nn.Module):
    """A classifier of images; the sizes are those of HarDNet-68."""

    def __init__(
        self,
        stem: tuple[int, int] = (32, 64),
        widths: Sequence[int] = (128, 256, 320, 640, 1024),
        growth: Sequence[int] = (14, 16, 20, 40, 160),
        layers: Sequence[int] = (8, 16, 16, 16, 4),
        halved: Sequence[bool] = (True, False, True, True, False),
        classes: int = 1000,
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = [_convolution(3, stem[0], 3, 2), _convolution(*stem, 3), nn.MaxPool2d(3, 2, 1)]
        inside = stem[1]
        for width, more, count, half in zip(widths, growth, layers, halved, strict=True):
            block = HarmonicBlock(inside, more, count)
            parts += [block, _convolution(block.width, width, 1)]
            parts += [nn.MaxPool2d(2)] if half else []
            inside = width
        self.features = nn.Sequential(*parts)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(inside, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.head(self.features(x))


def _links(layer: int) -> list[int]:
    """The layers (0 is the block's input) that a layer takes."""
    return [layer - (1 << power) for power in range(layer.bit_length()) if layer % (1 << power) == 0]


def _width(growth: int, links: int) -> int:
    """How many channels a layer of so many links has: an even number."""
    wide = float(growth)
    for _ in range(links - 1):
        wide *= _MULTIPLE
    return int(int(wide + 1) / 2) * 2


def _convolution(inside: int, outside: int, kernel: int, stride: int = 1) -> nn.Module:
    convolution = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outside), nn.ReLU6())
