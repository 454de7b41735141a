"""Landmarks of a hand by blocks in the manner of BlazeFace (arXiv 1907.05047, 2006.10214)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class BlazeBlock(nn.Module):
    """A depthwise 5 × 5 and a pointwise convolution beside a shortcut, which grows by channels of zeros."""

    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.more = stride, outside - inside
        self.depthwise = nn.Conv2d(inside, inside, 5, stride, 0 if stride == 2 else 2, groups=inside)
        self.pointwise = nn.Conv2d(inside, outside, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Features, half as high and wide with a stride of 2."""
        inner = functional.pad(x, (1, 2, 1, 2)) if self.stride == 2 else x
        x = functional.max_pool2d(x, 2) if self.stride == 2 else x
        x = functional.pad(x, (0, 0, 0, 0, 0, self.more)) if self.more else x
        return torch.relu(self.pointwise(self.depthwise(inner)) + x)


class HandLandmarks(nn.Module):
    """For each cell: is there a hand, is it the right one, where are its 21 points."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        two, four, twelve = 2 * width, 4 * width, 12 * width
        self.stem = nn.Sequential(
            *(nn.Conv2d(3, width, 3, stride=2), nn.ReLU()),
            *(BlazeBlock(width, width), BlazeBlock(width, width), BlazeBlock(width, width)),
            BlazeBlock(width, two, 2),
        )
        self.quarter = BlazeBlock(two, four, 2)
        self.eighth = nn.Sequential(BlazeBlock(four, four), BlazeBlock(four, four, 2))
        self.sixteenth = BlazeBlock(four, four, 2)
        self.join_eighth, self.join_quarter = BlazeBlock(four, four), BlazeBlock(four, four)
        self.narrow = nn.Conv2d(four, two, 1)
        self.tail = nn.Sequential(
            *(BlazeBlock(two, four, 2), BlazeBlock(four, four), BlazeBlock(four, twelve, 2)),
            *(BlazeBlock(twelve, twelve), BlazeBlock(twelve, twelve, 2)),
            *(BlazeBlock(twelve, twelve), BlazeBlock(twelve, twelve)),
        )
        self.hand, self.right, self.points = (nn.Conv2d(twelve, count, 2, padding=1) for count in (1, 1, 63))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Probabilities of a hand and of a right one, and coordinates in parts of the image."""
        x = self.stem(functional.pad(x, (0, 1, 0, 1)))
        quarter = self.quarter(x)
        eighth = self.eighth(quarter)
        eighth = self.join_eighth(eighth + _twice(self.sixteenth(eighth)))
        quarter = self.join_quarter(quarter + _twice(eighth))
        x = self.tail(x + _twice(self.narrow(quarter)))
        return self.hand(x).flatten().sigmoid(), self.right(x).flatten(1).sigmoid(), self.points(x).flatten(1) / 256


def _twice(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2, mode="bilinear")
