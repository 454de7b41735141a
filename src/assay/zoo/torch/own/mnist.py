"""The convolutional network of PyTorch's MNIST example."""

from __future__ import annotations

from torch import Tensor, nn


class Mnist(nn.Module):
    """Which digit an image of 28 × 28 shows."""

    def __init__(self, channels: tuple[int, int] = (32, 64), hidden: int = 128) -> None:
        super().__init__()
        first, second = channels
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, first, 3), nn.ReLU(), nn.Conv2d(first, second, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Dropout(0.25), nn.Flatten(), nn.Linear(144 * second, hidden), nn.ReLU(), nn.Dropout(0.5)),
            *(nn.Linear(hidden, 10), nn.LogSoftmax(1)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The logarithm of each digit's probability."""
        return self.layers(x)
