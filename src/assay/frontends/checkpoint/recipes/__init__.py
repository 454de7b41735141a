"""Recipes: families of models whose graphs are made of their weights and a configuration. One file a family."""

from __future__ import annotations

from assay.frontends.checkpoint.recipes.bert import BERT
from assay.frontends.checkpoint.recipes.clip import CLIP
from assay.frontends.checkpoint.recipes.family import Family
from assay.frontends.checkpoint.recipes.gemma import GEMMA
from assay.frontends.checkpoint.recipes.gpt2 import GPT2
from assay.frontends.checkpoint.recipes.llama import LLAMA
from assay.frontends.checkpoint.recipes.neox import NEOX
from assay.frontends.checkpoint.recipes.phi3 import PHI3
from assay.frontends.checkpoint.recipes.qwen import QWEN
from assay.frontends.checkpoint.recipes.rwkv4 import RWKV4
from assay.frontends.checkpoint.recipes.rwkv7 import RWKV7
from assay.frontends.checkpoint.recipes.t5 import T5
from assay.frontends.checkpoint.recipes.vit import VIT
from assay.frontends.checkpoint.recipes.whisper import WHISPER

FAMILIES: tuple[Family, ...] = (LLAMA, GPT2, QWEN, BERT, WHISPER, GEMMA, PHI3, NEOX, T5, VIT, CLIP, RWKV4, RWKV7)
