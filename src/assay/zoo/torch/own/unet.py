"""U-Nets (arXiv 1505.04597): one that finds tumours in brains, one that finds cars."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 4


class Unet(nn.Module):
    """Four times down, four times up, each level's features handed across."""

    def __init__(self, inside: int, outside: int, width: int) -> None:
        super().__init__()
        widths = [width << level for level in range(_LEVELS + 1)]
        before = [inside, *widths[:-1]]
        self.down = nn.ModuleList(_two_convolutions(*each) for each in zip(before, widths, strict=True))
        pairs = [(widths[level + 1], widths[level]) for level in reversed(range(_LEVELS))]
        self.widen = nn.ModuleList(nn.ConvTranspose2d(low, high, 2, stride=2) for low, high in pairs)
        self.up = nn.ModuleList(_two_convolutions(2 * high, high) for _, high in pairs)
        self.head = nn.Conv2d(width, outside, 1)

    def forward(self, x: Tensor) -> Tensor:
        """A score for each pixel and class."""
        seen: list[Tensor] = []
        for index, part in enumerate(self.down):
            x = part(functional.max_pool2d(x, 2) if index else x)
            seen.append(x)
        for widen, part, across in zip(self.widen, self.up, seen[-2::-1], strict=True):
            x = part(self.joined(widen(x), across))
        return self.head(x)

    def joined(self, x: Tensor, across: Tensor) -> Tensor:
        """What comes up beside what was handed across."""
        return torch.cat([x, across], 1)


class BrainUnet(Unet):
    """How likely each pixel of a brain shows a tumour."""

    def __init__(self, width: int = 32) -> None:
        super().__init__(3, 1, width)

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities."""
        return super().forward(x).sigmoid()


class CarvanaUnet(Unet):
    """Scores of background and car; images of any size."""

    def __init__(self, width: int = 64) -> None:
        super().__init__(3, 2, width)

    def joined(self, x: Tensor, across: Tensor) -> Tensor:
        """What was handed across beside what comes up, which is padded to the same size."""
        high, wide = across.shape[2] - x.shape[2], across.shape[3] - x.shape[3]
        x = functional.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return torch.cat([across, x], 1)


def _two_convolutions(inside: int, outside: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()),
        *(nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()),
    )
