"""Detectors of the ultralytics library."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from assay.zoo.torch.model import Model, image, pixels

# The library looks for a network, prints, and writes a settings file into the user's folder when it is imported.
_QUIET = {"YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false", "YOLO_CONFIG_DIR": tempfile.gettempdir()}


def _make(settings: Mapping[str, Any]) -> Any:
    """The network of a file of the library, with other multiples of its depth and width if these are given."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    found = importlib.import_module("ultralytics.nn.tasks")
    file = settings["cfg"]
    more = {key: value for key, value in settings.items() if key != "cfg"}
    return found.DetectionModel({**found.yaml_model_load(file), **more}, verbose=False)


def _yolo(name: str, file: str, count: int, small: Mapping[str, Any]) -> Model:
    return Model(
        name=name,
        library="ultralytics",
        family="yolo",
        constructor=f"DetectionModel('{file}')",
        make=_make,
        small=small,
        full={"cfg": file},
        inputs={"x": image(640, pixels, small=1)},
        lengths=(64, 96),
        count=count,
        note="in the library's present form, with an anchor-free head",
    )


MODELS = (
    _yolo(
        "YOLOv3",
        "yolov3.yaml",
        103754144,
        {"cfg": "yolov3.yaml", "depth_multiple": 0.33, "width_multiple": 0.125},
    ),
    _yolo("YOLOv5", "yolov5s.yaml", 9153152, {"cfg": "yolov5n.yaml"}),
)
