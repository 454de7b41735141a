"""Classifiers and detectors of torchvision.

A full variant is what torchvision builds by that name. The small ones come from the same classes with fewer layers and
channels; where a class fixes its widths, what it is made of gets narrower.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.zoo.torch.model import Model, image, pixels
from assay.zoo.torch.weights import MOBILENET_V2

_CLASSES = 10
"""What the small classifiers tell apart; the full ones 1,000."""
_THIN = 8
"""What the widths of small variants are divided by, where a class fixes them."""


def _of(module: str) -> Any:
    return importlib.import_module(f"torchvision.models.{module}")


# --- small variants where names take no sizes


def _resnet(block: str, layers: list[int], **more: Any) -> Any:
    found = _of("resnet")

    class Thin(found.ResNet):
        def _make_layer(self, block: Any, planes: int, *args: Any, **kwargs: Any) -> nn.Sequential:
            thin = planes // _THIN
            return super()._make_layer(block, thin, *args, **kwargs)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    module = Thin(getattr(found, block), layers, **more)
    module.fc = nn.Linear(module.inplanes, _CLASSES)
    return module


def _googlenet() -> Any:
    found = _of("googlenet")

    def convolution(inside: int, outside: int, **more: Any) -> nn.Module:
        return found.BasicConv2d(inside // _THIN or inside, outside // _THIN, **more)

    def inception(*channels: int) -> nn.Module:
        return found.Inception(*(each // _THIN for each in channels))

    blocks = [convolution, inception, found.InceptionAux]
    module = found.GoogLeNet(_CLASSES, aux_logits=False, init_weights=False, blocks=blocks)
    module.fc = nn.Linear(1024 // _THIN, _CLASSES)
    return module


def _vgg(layers: str, batch_norm: bool) -> Any:
    found = _of("vgg")
    sizes = [each if each == "M" else each // _THIN for each in found.cfgs[layers]]
    module = found.VGG(found.make_layers(sizes, batch_norm), init_weights=False)
    for index, size in {0: (512 // _THIN * 49, 64), 3: (64, 64), 6: (64, _CLASSES)}.items():
        module.classifier[index] = nn.Linear(*size)
    return module


def _regnet(widths: list[int], depths: list[int], group: int, se_ratio: float | None) -> Any:
    found, stages = _of("regnet"), len(widths)
    sizes = found.BlockParams(depths, widths, [group] * stages, [1.0] * stages, [2] * stages, se_ratio)
    return found.RegNet(sizes, _CLASSES, norm_layer=nn.BatchNorm2d)


def _swin(second: bool, **sizes: Any) -> Any:
    found = _of("swin_transformer")
    more = {"block": found.SwinTransformerBlockV2, "downsample_layer": found.PatchMergingV2} if second else {}
    return found.SwinTransformer([4, 4], window_size=[4, 4], num_classes=_CLASSES, **sizes, **more)


def _retinanet(second: bool, **more: Any) -> Any:
    utilities, found, parts = _of("detection.backbone_utils"), _of("detection.retinanet"), _of("resnet")
    body = _resnet("Bottleneck", [1, 1, 1, 1])
    widths = [64 * parts.Bottleneck.expansion // _THIN * 2**stage for stage in (1, 2, 3)]
    extra = found.LastLevelP6P7(widths[-1] if second else 32, 32)
    layers = {"layer2": "0", "layer3": "1", "layer4": "2"}
    backbone = utilities.BackboneWithFPN(body, layers, widths, 32, extra)
    if not second:
        return found.RetinaNet(backbone, _CLASSES, **more)
    anchors = found._default_anchorgen()
    norm = partial(nn.GroupNorm, 8)
    head = found.RetinaNetHead(32, anchors.num_anchors_per_location()[0], _CLASSES, norm_layer=norm)
    return found.RetinaNet(backbone, _CLASSES, anchor_generator=anchors, head=head, **more)


def _ssd(**more: Any) -> Any:
    found, vgg = _of("detection.ssd"), _of("vgg")
    features = vgg.make_layers([8, "M", 16, "M", 32, "M", 512, "M", 512, "M"])
    ratios = [[2], [2, 3], [2, 3], [2, 3], [2], [2]]
    scales = [0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05]
    anchors = found.DefaultBoxGenerator(ratios, scales=scales, steps=[8, 16, 32, 64, 100, 300])
    return found.SSD(found.SSDFeatureExtractorVGG(features, False), anchors, (300, 300), _CLASSES, **more)


def _densenet(**sizes: Any) -> Any:
    return _of("densenet").DenseNet(num_classes=_CLASSES, **sizes)


def _vit(**sizes: Any) -> Any:
    return _of("vision_transformer").VisionTransformer(num_classes=_CLASSES, **sizes)


_SMALL: dict[str, Callable[..., Any]] = {
    "DenseNet": _densenet,
    "GoogLeNet": _googlenet,
    "RegNet": _regnet,
    "ResNet": _resnet,
    "RetinaNet": _retinanet,
    "SSD": _ssd,
    "SwinTransformer": _swin,
    "VGG": _vgg,
    "VisionTransformer": _vit,
}


def _make(settings: Mapping[str, Any]) -> Any:
    """By `name` what torchvision builds so, by `kind` a small variant."""
    more = {key: value for key, value in settings.items() if key not in ("name", "kind")}
    if "name" in settings:
        return _of("_api").get_model(settings["name"], weights=None, **more)
    return _SMALL[settings["kind"]](**more)


# --- classifiers


def _classifier(family: str, name: str, count: int, small: Mapping[str, Any], side: int = 64, **more: Any) -> Model:
    return Model(
        name=name,
        library="torchvision",
        family=family,
        constructor=name,
        make=_make,
        small=small,
        full={"name": name, **more.pop("full", {})},
        inputs={"x": image(224)},
        lengths=(side,),
        count=count,
        **more,
    )


def _by_name(name: str) -> dict[str, Any]:
    """Where a quarter of the width is all that the small variant needs."""
    return {"name": name, "width_mult": 0.25, "num_classes": _CLASSES}


_DENSENET = {
    "densenet121": (7978856, (2, 2, 2, 2)),
    "densenet161": (28681000, (2, 2, 3, 2)),
    "densenet169": (14149480, (2, 2, 3, 3)),
    "densenet201": (20013928, (2, 2, 4, 3)),
}
_MOBILENET = {"mobilenet_v2": 3504872, "mobilenet_v3_large": 5483032, "mobilenet_v3_small": 2542856}
_REGNET_X = {
    "regnet_x_400mf": 5495976,
    "regnet_x_800mf": 7259656,
    "regnet_x_1_6gf": 9190136,
    "regnet_x_3_2gf": 15296552,
    "regnet_x_8gf": 39572648,
    "regnet_x_16gf": 54278536,
    "regnet_x_32gf": 107811560,
}
_REGNET_Y = {
    "regnet_y_400mf": 4344144,
    "regnet_y_800mf": 6432512,
    "regnet_y_1_6gf": 11202430,
    "regnet_y_3_2gf": 19436338,
    "regnet_y_8gf": 39381472,
    "regnet_y_16gf": 83590140,
    "regnet_y_32gf": 145046770,
    "regnet_y_128gf": 644812894,
}
_RESNET: dict[str, tuple[int, str, list[int], dict[str, int]]] = {
    "resnet18": (11689512, "BasicBlock", [1, 1, 1, 1], {}),
    "resnet34": (21797672, "BasicBlock", [1, 2, 2, 1], {}),
    "resnet50": (25557032, "Bottleneck", [1, 1, 1, 1], {}),
    "resnet101": (44549160, "Bottleneck", [1, 1, 2, 1], {}),
    "resnet152": (60192808, "Bottleneck", [1, 2, 2, 1], {}),
    "resnext50_32x4d": (25028904, "Bottleneck", [1, 1, 1, 1], {"groups": 4, "width_per_group": 16}),
    "resnext101_32x8d": (88791336, "Bottleneck", [1, 1, 2, 1], {"groups": 4, "width_per_group": 32}),
    "resnext101_64x4d": (83455272, "Bottleneck", [1, 1, 2, 1], {"groups": 8, "width_per_group": 16}),
    "wide_resnet50_2": (68883240, "Bottleneck", [1, 1, 1, 1], {"width_per_group": 128}),
    "wide_resnet101_2": (126886696, "Bottleneck", [1, 1, 2, 1], {"width_per_group": 128}),
}
_SWIN: dict[str, tuple[int, list[int], int]] = {
    "swin_t": (28288354, [2, 2, 2, 2], 24),
    "swin_s": (49606258, [2, 2, 4, 2], 24),
    "swin_b": (87768224, [2, 2, 4, 2], 32),
    "swin_v2_t": (28351570, [2, 2, 2, 2], 24),
    "swin_v2_s": (49737442, [2, 2, 4, 2], 24),
    "swin_v2_b": (87930848, [2, 2, 4, 2], 32),
}
_VGG = {
    "vgg11": (132863336, "A"),
    "vgg11_bn": (132868840, "A"),
    "vgg13": (133047848, "B"),
    "vgg13_bn": (133053736, "B"),
    "vgg16": (138357544, "D"),
    "vgg16_bn": (138365992, "D"),
    "vgg19": (143667240, "E"),
    "vgg19_bn": (143678248, "E"),
}
_VIT = {
    "vit_b_16": (86567656, 16, 2, 32),
    "vit_b_32": (88224232, 32, 2, 32),
    "vit_l_16": (304326632, 16, 3, 48),
    "vit_l_32": (306535400, 32, 3, 48),
    "vit_h_14": (632045800, 14, 3, 64),
}
_ALIASES = {"resnet18": ("ResNet18",), "resnet50": ("ResNet50",), "mobilenet_v2": ("MobileNetV2",)}


def _classifiers() -> list[Model]:
    found = [
        _classifier(
            "googlenet",
            "googlenet",
            6624904,
            {"kind": "GoogLeNet"},
            full={"aux_logits": False, "init_weights": False},
            note="without the two auxiliary classifiers, which count in training alone",
        )
    ]
    for name, (count, depths) in _DENSENET.items():
        small = {"kind": "DenseNet", "growth_rate": 8, "block_config": depths, "num_init_features": 16}
        found.append(_classifier("densenet", name, count, small))
    for name, count in _MOBILENET.items():
        weights = MOBILENET_V2 if name == "mobilenet_v2" else None
        aliases = _ALIASES.get(name, ())
        found.append(_classifier("mobilenet", name, count, _by_name(name), aliases=aliases, weights=weights))
    for name, count in {**_REGNET_X, **_REGNET_Y}.items():
        small = {"kind": "RegNet", "widths": [16, 24, 40, 64], "depths": [1, 1, 2, 1], "group": 8}
        found.append(_classifier("regnet", name, count, {**small, "se_ratio": 0.25 if name in _REGNET_Y else None}))
    for name, (count, block, layers, more) in _RESNET.items():
        small = {"kind": "ResNet", "block": block, "layers": layers, **more}
        found.append(_classifier("resnet", name, count, small, aliases=_ALIASES.get(name, ())))
    for name, (count, depths, width) in _SWIN.items():
        small = {"kind": "SwinTransformer", "second": "_v2_" in name, "depths": depths, "embed_dim": width}
        found.append(_classifier("swin", name, count, {**small, "num_heads": [2, 2, 4, 8]}))
    for name, (count, layers) in _VGG.items():
        small = {"kind": "VGG", "layers": layers, "batch_norm": name.endswith("_bn")}
        found.append(_classifier("vgg", name, count, small))
    for name, (count, patch, layers, width) in _VIT.items():
        small = {"kind": "VisionTransformer", "image_size": 4 * patch, "patch_size": patch, "num_layers": layers}
        small |= {"num_heads": 4, "hidden_dim": width, "mlp_dim": 4 * width}
        found.append(_classifier("vit", name, count, small, 4 * patch))
    return found


# --- detectors


def by_place(detections: Any) -> Any:
    """Detections in the order of their labels and places; rounding decides which of nearly equal scores comes first.

    The scores are there in both orders, so nothing is hidden.
    """
    return [_by_place(each) for each in detections]


def _by_place(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    columns = (*found["boxes"].T.flip(0), found["labels"])
    order = torch.tensor(np.lexsort([column.numpy(force=True) for column in columns]))
    return {"ranked_scores": found["scores"], **{name: each[order] for name, each in found.items()}}


def _detector(name: str, builder: str, count: int, small: Mapping[str, Any], side: int = 224) -> Model:
    return Model(
        name=name,
        library="torchvision",
        family=builder.partition("_")[0],
        constructor=f"detection.{builder}",
        make=_make,
        small=small,
        full={"name": builder, "weights_backbone": None},
        inputs={"images": image(side, pixels, small=1)},
        lengths=(96,),
        count=count,
        modes=("eval",),
        comparable=by_place,
        note="eval alone: its training needs boxes beside the images",
    )


_FEW = {"topk_candidates": 40, "detections_per_img": 20}
_SSDLITE = {**_by_name("ssdlite320_mobilenet_v3_large"), "weights_backbone": None, **_FEW}

_DETECTORS = (
    _detector(
        "retinanet_resnet50_fpn",
        "retinanet_resnet50_fpn",
        34068119,
        {"kind": "RetinaNet", "second": False, "min_size": 96, "max_size": 128, **_FEW},
    ),
    _detector(
        "retinanet_resnet50_fpn_v2",
        "retinanet_resnet50_fpn_v2",
        38198935,
        {"kind": "RetinaNet", "second": True, "min_size": 96, "max_size": 128, **_FEW},
    ),
    _detector("ssd300_vgg16", "ssd300_vgg16", 35641826, {"kind": "SSD", **_FEW}),
    _detector("ssdlite320_mobilenet_v3_large", "ssdlite320_mobilenet_v3_large", 3440060, _SSDLITE),
    _detector("MobileNetSSD", "ssdlite320_mobilenet_v3_large", 3440060, _SSDLITE, 320),
)

MODELS = (*_classifiers(), *_DETECTORS)
"""The classifiers by family, then the detectors."""
