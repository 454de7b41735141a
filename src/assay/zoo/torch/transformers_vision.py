"""Models of the transformers library that see, some of which read a text beside the image."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.zoo.torch.model import Input, Model, Shape, image, noise, ones, zeros
from assay.zoo.torch.transformers import builder_of, model, tokens

_ENCODER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_PYRAMID: dict[str, Any] = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 16, 24, 32],
    "num_attention_heads": [1, 2, 3, 4],
}
"""Small stages in the manner of SegFormer."""
_ENDS = {"bos_token_id": 1, "eos_token_id": 96}
_BEIT: dict[str, Any] = {
    "num_labels": 1000,
    "use_relative_position_bias": True,
    "use_absolute_position_embeddings": False,
    "use_mask_token": False,
    "layer_scale_init_value": 0.1,
}
_BEIT_SMALL = {**_BEIT, **_ENCODER, "num_labels": 10, "image_size": 32, "patch_size": 8}


def _seeing(name: str, family: str, constructor: str, count: int, side: int, length: int, **more: Any) -> Model:
    """A model whose only input is a square image, unless `inputs` says otherwise."""
    inputs = more.pop("inputs", {"pixel_values": image(side)})
    return model(name, family, constructor, inputs=inputs, lengths=(length,), count=count, **more)


def _captions(module: Any, shape: Shape, generator: torch.Generator) -> Tensor:
    """Tokens of which the last is the largest, as CLIP takes what it stands for."""
    most = module.config.text_config.vocab_size
    return torch.cat(
        [
            torch.randint(3, most - 1, (shape[0], shape[1] - 1), generator=generator),
            torch.full((shape[0], 1), most - 1),
        ],
        1,
    )


MODELS = (
    _seeing(
        "facebook/deit-base-patch16-224",
        "vit",
        "ViTForImageClassification",
        86567656,
        224,
        32,
        small={**_ENCODER, "num_labels": 10, "image_size": 32, "patch_size": 8},
        full={"num_labels": 1000},
    ),
    _seeing(
        "microsoft/beit-base-patch16-224",
        "beit",
        "BeitForImageClassification",
        86530984,
        224,
        32,
        small=_BEIT_SMALL,
        full=_BEIT,
    ),
    _seeing(
        "microsoft/beit-large-patch16-224",
        "beit",
        "BeitForImageClassification",
        304430568,
        224,
        32,
        small={**_BEIT_SMALL, "hidden_size": 48, "num_hidden_layers": 3},
        full={
            **_BEIT,
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    ),
    _seeing(
        "SegFormer",
        "segformer",
        "SegformerForSemanticSegmentation",
        3752694,
        512,
        64,
        small={**_PYRAMID, "decoder_hidden_size": 16, "num_labels": 10},
        full={"num_labels": 150},
    ),
    _seeing(
        "GLPN-KITTI",
        "glpn",
        "GLPNForDepthEstimation",
        61220903,
        352,
        64,
        small={**_PYRAMID, "decoder_hidden_size": 16},
        full={"depths": [3, 8, 27, 3], "hidden_sizes": [64, 128, 320, 512], "num_attention_heads": [1, 2, 5, 8]},
        inputs={"pixel_values": Input(noise, (1, 3, 352, 1216), lambda length: (2, 3, length, 2 * length))},
    ),
    _seeing(
        "DETR",
        "detr",
        "DetrForObjectDetection",
        41524768,
        800,
        96,
        make=builder_of("DetrForObjectDetection", backbone_config="ResNetConfig"),
        small={
            "backbone_config": {
                "out_features": ["stage4"],
                "embedding_size": 8,
                "hidden_sizes": [16, 24, 32, 48],
                "depths": [1, 1, 1, 1],
            },
            "num_labels": 10,
            "num_queries": 12,
            "d_model": 32,
            **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
        },
        full={"backbone_config": {"out_features": ["stage4"]}, "num_labels": 91},
    ),
    _seeing(
        "YOLOS",
        "yolos",
        "YolosForObjectDetection",
        6488736,
        512,
        64,
        small={
            **_ENCODER,
            "image_size": [80, 96],
            "num_detection_tokens": 12,
            "num_labels": 10,
            "use_mid_position_embeddings": False,
        },
        full={
            "hidden_size": 192,
            "num_hidden_layers": 12,
            "num_attention_heads": 3,
            "intermediate_size": 768,
            "image_size": [800, 1333],
            "num_labels": 91,
            "use_mid_position_embeddings": False,
        },
    ),
    model(
        "CLIP",
        "clip",
        "CLIPModel",
        small={
            "projection_dim": 16,
            "text_config": {**_ENCODER, "vocab_size": 97, "max_position_embeddings": 20, **_ENDS},
            "vision_config": {**_ENCODER, "image_size": 32, "patch_size": 8},
        },
        full={},
        inputs={
            "input_ids": Input(_captions, (2, 7), lambda length: (3, length)),
            "pixel_values": Input(noise, (1, 3, 224, 224), lambda length: (2, 3, 32, 32)),
            "attention_mask": Input(ones, (2, 7), lambda length: (3, length)),
        },
        lengths=(6, 11),
        count=151277313,
    ),
    model(
        "ViLT",
        "vilt",
        "ViltForQuestionAnswering",
        small={
            **_ENCODER,
            "vocab_size": 97,
            "image_size": 32,
            "patch_size": 8,
            "max_position_embeddings": 20,
            "num_labels": 10,
        },
        full={"num_labels": 3129},
        inputs={
            "input_ids": Input(tokens, (1, 10), lambda length: (2, length)),
            "attention_mask": Input(ones, (1, 10), lambda length: (2, length)),
            "token_type_ids": Input(zeros, (1, 10), lambda length: (2, length)),
            "pixel_values": Input(noise, (1, 3, 384, 512), lambda length: (2, 3, 32, 48)),
            "pixel_mask": Input(ones, (1, 384, 512), lambda length: (2, 32, 48)),
        },
        lengths=(6, 11),
        count=117588537,
    ),
)
"""Those that see an image, then those that read beside it."""
