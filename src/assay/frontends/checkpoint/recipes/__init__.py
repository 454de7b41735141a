"""Recipes: families of models whose graphs are made of their weights and a configuration. One file a family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.frontends.checkpoint.recipes.bert import BERT, BertConfiguration
from assay.frontends.checkpoint.recipes.clip import CLIP, ClipConfiguration, ClipSide
from assay.frontends.checkpoint.recipes.family import Family
from assay.frontends.checkpoint.recipes.gemma import GEMMA, GemmaConfiguration
from assay.frontends.checkpoint.recipes.gpt2 import GPT2, Gpt2Configuration
from assay.frontends.checkpoint.recipes.llama import LLAMA, LlamaConfiguration
from assay.frontends.checkpoint.recipes.neox import NEOX, NeoxConfiguration
from assay.frontends.checkpoint.recipes.phi3 import PHI3, Phi3Configuration
from assay.frontends.checkpoint.recipes.qwen import QWEN, QwenConfiguration
from assay.frontends.checkpoint.recipes.rotary import (
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    Rotary,
    YarnScaling,
)
from assay.frontends.checkpoint.recipes.rwkv4 import RWKV4, Rwkv4Configuration
from assay.frontends.checkpoint.recipes.rwkv7 import RWKV7, Rwkv7Configuration
from assay.frontends.checkpoint.recipes.t5 import T5, T5Configuration
from assay.frontends.checkpoint.recipes.vit import VIT, VitConfiguration
from assay.frontends.checkpoint.recipes.whisper import WHISPER, WhisperConfiguration

FAMILIES: tuple[Family, ...] = (
    LLAMA,
    GPT2,
    QWEN,
    BERT,
    WHISPER,
    GEMMA,
    PHI3,
    NEOX,
    T5,
    VIT,
    CLIP,
    RWKV4,
    RWKV7,
)

CONFIGURATIONS: Mapping[str, type[Any]] = {
    each.__name__: each
    for each in (
        BertConfiguration,
        ClipConfiguration,
        ClipSide,
        GemmaConfiguration,
        Gpt2Configuration,
        LlamaConfiguration,
        NeoxConfiguration,
        Phi3Configuration,
        QwenConfiguration,
        Rwkv4Configuration,
        Rwkv7Configuration,
        T5Configuration,
        VitConfiguration,
        WhisperConfiguration,
        Rotary,
        LinearScaling,
        Llama3Scaling,
        LongScaling,
        YarnScaling,
    )
}
"""The types of configurations and of their parts, by name."""
