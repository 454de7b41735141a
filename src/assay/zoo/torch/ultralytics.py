"""Detectors of the ultralytics library."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from assay.zoo.torch._torchvision import declare_operators
from assay.zoo.torch.model import Inputs, Model

# The library looks for a network, prints, and writes a settings file into the user's folder when it is imported.
_QUIET = {"YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false", "YOLO_CONFIG_DIR": tempfile.gettempdir()}


def _detector(sizes: Mapping[str, Any]) -> Any:
    declare_operators()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    return importlib.import_module("ultralytics.nn.tasks").DetectionModel(sizes["cfg"], verbose=False)


def _image(module: Any, length: int, generator: torch.Generator) -> Inputs:
    return {"x": torch.rand(1, 3, length, length, generator=generator)}


MODELS = (Model("YOLOv5", "yolo", _detector, _image, {"cfg": "yolov5n.yaml"}, {"cfg": "yolov5s.yaml"}, (64, 96)),)
"""YOLOv5 in the library's present form, with an anchor-free head."""
