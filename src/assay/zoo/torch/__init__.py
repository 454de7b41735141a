"""PyTorch models with seeded random weights, each small enough for a test and in the size that it is known by."""

from assay.zoo.torch.model import Model as Model
from assay.zoo.torch.transformers import MODELS as TRANSFORMERS
from assay.zoo.torch.ultralytics import MODELS as ULTRALYTICS

MODELS: dict[str, Model] = {model.name: model for model in (*TRANSFORMERS, *ULTRALYTICS)}
"""Every model by its name."""
