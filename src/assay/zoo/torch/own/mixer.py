"""MLP-Mixer (arXiv 2105.01601): products over patches and over channels in turns."""

from __future__ import annotations

from torch import Tensor, nn


class Mixed(nn.Module):
    """A network behind a norm and beside a shortcut."""

    def __init__(self, width: int, network: nn.Module) -> None:
        super().__init__()
        self.norm, self.network = nn.LayerNorm(width), network

    def forward(self, x: Tensor) -> Tensor:
        """`x` and what the network adds to it."""
        return x + self.network(self.norm(x))


class MlpMixer(nn.Module):
    """A classifier of square images that are cut into patches."""

    def __init__(
        self, side: int = 256, patch: int = 16, width: int = 512, depth: int = 12, classes: int = 1000
    ) -> None:
        super().__init__()
        patches = (side // patch) ** 2
        self.cut = nn.Unfold(patch, stride=patch)
        self.embedding = nn.Linear(3 * patch * patch, width)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(
                    Mixed(width, _over_patches(patches, 4 * patches)), Mixed(width, _over_channels(width, width // 2))
                )
                for _ in range(depth)
            )
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.embedding(self.cut(x).transpose(1, 2))
        return self.head(self.norm(self.layers(x)).mean(1))


def _over_patches(size: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Conv1d(size, hidden, 1), nn.GELU(), nn.Dropout(0.0), nn.Conv1d(hidden, size, 1))


def _over_channels(size: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Dropout(0.0), nn.Linear(hidden, size))
