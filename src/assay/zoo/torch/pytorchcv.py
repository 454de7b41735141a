"""Networks of the pytorchcv library."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from assay.zoo.torch.model import Model, image


def _openpose(settings: Mapping[str, Any]) -> Any:
    return importlib.import_module("pytorchcv.models.lwopenpose_cmupan").LwOpenPose(**settings)


MODELS = (
    Model(
        name="OpenPose V2",
        library="pytorchcv",
        family="openpose",
        constructor="lwopenpose2d_mobilenet_cmupan_coco",
        make=_openpose,
        small={
            "encoder_channels": [[8], [16, 16], [24, 32]],
            "encoder_paddings": [[1], [1, 1], [1, 2]],
            "encoder_init_block_channels": 8,
            "encoder_final_block_channels": 16,
            "refinement_units": 1,
            "calc_3d_features": False,
            "keypoints": 3,
        },
        full={
            "encoder_channels": [[64], [128, 128], [256, 256, 512, 512, 512, 512, 512, 512]],
            "encoder_paddings": [[1], [1, 1], [1, 1, 1, 2, 1, 1, 1, 1]],
            "encoder_init_block_channels": 32,
            "encoder_final_block_channels": 128,
            "refinement_units": 1,
            "calc_3d_features": False,
            "keypoints": 19,
        },
        inputs={"x": image(224)},
        lengths=(32, 48),
        count=4091698,
    ),
)
