"""Two autoencoders."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn


class ConvolutionalAutoencoder(nn.Module):
    """An image of three channels, folded twice and unfolded."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.decoder = nn.Sequential(
            *(nn.ConvTranspose2d(4, 16, 2, stride=2), nn.ReLU()),
            *(nn.ConvTranspose2d(16, 3, 2, stride=2), nn.Sigmoid()),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The image as it is remembered."""
        return self.decoder(self.encoder(x))


class LinearAutoencoder(nn.Module):
    """A flat image of 784 pixels through three numbers and back."""

    def __init__(self, sizes: tuple[int, ...] = (784, 128, 64, 12, 3)) -> None:
        super().__init__()
        self.encoder, self.decoder = _funnel(sizes), _funnel(sizes[::-1])

    def forward(self, x: Tensor) -> Tensor:
        """The image as it is remembered."""
        return self.decoder(self.encoder(x)).tanh()


def _funnel(sizes: tuple[int, ...]) -> nn.Sequential:
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])
