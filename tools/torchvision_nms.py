"""The operators that `import torchvision` demands, without its compiled part. See torchvision_operators.py."""

import numpy as np
import torch
from torch import Tensor

LIBRARY = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The indices of the boxes (x1, y1, x2, y2) that no better one overlaps by more than the threshold, best first."""
    order = scores.argsort(descending=True, stable=True)
    low, high = np.split(dets.detach()[order].numpy(), 2, 1)
    areas = (high - low).prod(1)
    kept: list[int] = []
    alive = np.ones(len(order), bool)
    for index in range(len(order)):
        if alive[index]:
            kept.append(index)
            sides = np.minimum(high[index], high) - np.maximum(low[index], low)
            shared = np.maximum(sides, 0).prod(1)
            alive &= shared <= iou_threshold * (areas[index] + areas - shared)
    return order[torch.tensor(kept, dtype=torch.long)]


LIBRARY.impl("nms", nms, "CPU")
