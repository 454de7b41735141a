"""PyTorch models with seeded random weights, each small enough for a test and in the size that it is known by."""

from assay.errors import NotFound, hint_for
from assay.zoo.torch.diffusers import MODELS as DIFFUSERS
from assay.zoo.torch.model import Model as Model
from assay.zoo.torch.own import MODELS as OWN
from assay.zoo.torch.pytorchcv import MODELS as PYTORCHCV
from assay.zoo.torch.timm import MODELS as TIMM
from assay.zoo.torch.torchvision import MODELS as TORCHVISION
from assay.zoo.torch.transformers_sound import MODELS as SOUND
from assay.zoo.torch.transformers_text import MODELS as TEXT
from assay.zoo.torch.transformers_vision import MODELS as VISION
from assay.zoo.torch.ultralytics import MODELS as ULTRALYTICS

_ALL = (*OWN, *PYTORCHCV, *TORCHVISION, *TIMM, *ULTRALYTICS, *TEXT, *VISION, *SOUND, *DIFFUSERS)

MODELS: dict[str, Model] = {model.name: model for model in _ALL}
"""Every model by its name."""

NAMES: dict[str, Model] = {name: model for model in _ALL for name in (model.name, *model.aliases)}
"""Every model by each of its names."""


def find(name: str) -> Model:
    """The model of that name, or of that further name; NotFound if there is none."""
    if name not in NAMES:
        raise NotFound(f"the zoo has no model '{name}'", hint=hint_for(name, NAMES))
    return NAMES[name]
