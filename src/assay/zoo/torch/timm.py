"""Classifiers of the timm library."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from assay.zoo.torch.model import Model, image
from assay.zoo.torch.weights import EFFICIENTNET_LITE0

_CLASSES = 10
"""What the small classifiers tell apart; the full ones 1,000."""


def _make(settings: Mapping[str, Any]) -> Any:
    """By `name` what timm creates so; with `of` and `kind` what that function or class of its models makes."""
    more = {key: value for key, value in settings.items() if key not in ("name", "of", "kind")}
    if "thin" in settings:
        return _inception(**more)
    if "kind" in settings:
        return getattr(importlib.import_module(f"timm.models.{settings['of']}"), settings["kind"])(**more)
    return importlib.import_module("timm").create_model(settings["name"], **more)


def _inception(thin: int, num_classes: int) -> Any:
    """Inception-v4, whose class fixes the widths, with convolutions that divide them."""
    found = importlib.import_module("timm.models.inception_v4")

    def convolution(inside: int, outside: int, padding: Any = 0, **more: Any) -> nn.Module:
        return found.ConvNormAct(inside // thin or inside, outside // thin, padding=padding, **more)

    module = found.InceptionV4(num_classes)
    stem = (
        convolution(3, 32, kernel_size=3, stride=2),
        convolution(32, 32, kernel_size=3),
        convolution(32, 64, padding=1, kernel_size=3),
    )
    module.features = nn.Sequential(*stem, *(type(part)(convolution) for part in module.features[len(stem) :]))
    module.last_linear = nn.Linear(module.num_features // thin, num_classes)
    return module


def _model(name: str, count: int, small: Mapping[str, Any], side: int = 224, length: int = 64, **more: Any) -> Model:
    """`name` is timm's with the weights' name behind a dot; the small variant is the same architecture."""
    architecture = name.partition(".")[0]
    if not {"kind", "thin"} & small.keys():
        small = {"name": architecture, **small}
    return Model(
        name=name,
        library="timm",
        family=architecture.removeprefix("tf_").partition("_")[0],
        constructor=architecture,
        make=_make,
        small={"num_classes": _CLASSES, **small},
        full={"name": architecture},
        inputs={"x": image(side)},
        lengths=(length,),
        count=count,
        **more,
    )


def _lite(name: str, count: int, side: int, depth: float, **more: Any) -> Model:
    """EfficientNet-Lite; the small ones are a quarter as wide."""
    small = {"of": "efficientnet", "kind": "_gen_efficientnet_lite", "variant": name.partition(".")[0]}
    small |= {"channel_multiplier": 0.25, "depth_multiplier": depth, "bn_eps": 1e-3, "pad_type": "same"}
    return _model(name, count, small, side, **more)


def _ghost(name: str, count: int, version: str) -> Model:
    small = {"of": "ghostnet", "kind": "_create_ghostnet", "variant": name.partition(".")[0], "width": 0.25}
    return _model(name, count, {**small, "version": version})


def _stage(block: str, blocks: int, *widths: int) -> dict[str, Any]:
    """A stage of HRNet: one module with a branch for each width."""
    sizes = {"num_modules": 1, "num_branches": len(widths), "num_blocks": (blocks,) * len(widths)}
    return {**sizes, "block_type": block, "num_channels": widths, "fuse_method": "SUM"}


MODELS = (
    _model("dla34.in1k", 15742104, {"channels": [4, 8, 16, 24, 32, 48]}),
    _model(
        "ese_vovnet19b_dw.ra_in1k",
        6543080,
        {"stem_chs": [8, 8, 16], "stage_conv_chs": [16, 24, 32, 40], "stage_out_chs": [24, 32, 48, 64]},
    ),
    _ghost("ghostnet_100.in1k", 5182508, "v1"),
    _ghost("ghostnetv2_100.in1k", 6156908, "v2"),
    _model(
        "hrnet_w18.ms_aug_in1k",
        21299004,
        {
            "of": "hrnet",
            "kind": "HighResolutionNet",  # create_model would write these sizes into timm's own table
            "cfg": {
                "stem_width": 16,
                "stage1": _stage("BOTTLENECK", 1, 8),
                "stage2": _stage("BASIC", 1, 4, 8),
                "stage3": _stage("BASIC", 1, 4, 8, 12),
                "stage4": _stage("BASIC", 1, 4, 8, 12, 16),
            },
        },
    ),
    _model("inception_v4.tf_in1k", 42679816, {"thin": 8}, 299, 96),
    _model(
        "mixer_b16_224.goog_in21k",
        59880472,
        {
            "of": "mlp_mixer",
            "kind": "MlpMixer",
            "img_size": 32,
            "patch_size": 8,
            "num_blocks": 2,
            "embed_dim": 32,
        },
        length=32,
    ),
    _model(
        "mobilenetv1_100.ra4_e3600_r224_in1k",
        4231976,
        {"of": "efficientnet", "kind": "_gen_mobilenet_v1", "variant": "mobilenetv1_100", "channel_multiplier": 0.25},
    ),
    _lite("tf_efficientnet_lite0.in1k", 4652008, 224, 0.3, weights=EFFICIENTNET_LITE0),
    _lite("tf_efficientnet_lite1.in1k", 5416680, 240, 0.4),
    _lite("tf_efficientnet_lite2.in1k", 6092072, 260, 0.4),
    _lite("tf_efficientnet_lite3.in1k", 8197096, 300, 0.5),
    _lite("tf_efficientnet_lite4.in1k", 13006568, 380, 0.6),
    _model(
        "xception71.tf_in1k",
        42338736,
        {
            "of": "xception_aligned",
            "kind": "XceptionAligned",
            "block_cfg": [
                {"in_chs": 64, "out_chs": 16, "stride": 2},
                {"in_chs": 16, "out_chs": 24, "stride": 1},
                {"in_chs": 24, "out_chs": 24, "stride": 2},
                {"in_chs": 24, "out_chs": 24, "stride": 1},
                {"in_chs": 24, "out_chs": (24, 32, 32), "stride": 2},
                {"in_chs": 32, "out_chs": (48, 48, 64), "stride": 1, "no_skip": True, "start_with_relu": False},
            ],
        },
        299,
    ),
)
"""By name."""
