"""`load_model`: a checkpoint as graphs that can be run, its weights left in their files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadArgument, ImportFailed, LimitExceeded
from assay.frontends.checkpoint.bundle import is_bundle, read_bundle
from assay.frontends.checkpoint.fields import fields_below
from assay.frontends.checkpoint.imported import ImportedModel, TokenizerSource
from assay.frontends.checkpoint.reading import open_checkpoint
from assay.frontends.checkpoint.recipes import FAMILIES
from assay.frontends.checkpoint.recipes.family import GGUF, HUGGING_FACE, TORCH, Family, FileLayout
from assay.frontends.checkpoint.recipes.network import GraphOptions, Tensors
from assay.frontends.checkpoint.stored import Checkpoint
from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.limits import DEFAULT, Limits

_POSITIONS = ("all", "last")
_TOKENIZER = "tokenizer."
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
    "rwkv_vocab_v20230424.txt",
)
"""What may lie beside weights and says how text, sound or images become their inputs."""


def load_model(
    path: str | Path, *, logits: str = "all", dtype: DType = dtypes.f32, limits: Limits = DEFAULT
) -> ImportedModel:
    """The model in a folder of Hugging Face's form, a GGUF file, a file of `torch.save`, or a bundle (its graphs are as
    they were saved).

    `logits` are those of `all` positions of a call, [batch, step, vocabulary], or of the `last`, [batch, vocabulary].
    Weights are computed with in `dtype`, and stay in their file as long as they are of it. ImportFailed if no recipe
    knows the architecture, if the configuration does not make sense, or if a tensor is missing, of other sizes, or of
    no use.
    """
    _check_options(logits, dtype)
    if is_bundle(Path(path)):
        return read_bundle(Path(path), limits)
    return import_checkpoint(open_checkpoint(path, limits), Path(path), logits=logits, dtype=dtype, limits=limits)


def _check_options(logits: str, dtype: DType) -> None:
    if logits not in _POSITIONS:
        raise BadArgument(f"the logits are those of '{logits}' positions", hint=f"choose from {', '.join(_POSITIONS)}")
    if not dtype.is_float:
        raise BadArgument(f"models do not compute in {dtype}", hint="choose f32, bf16 or f16")


def import_checkpoint(
    checkpoint: Checkpoint,
    path: Path,
    *,
    logits: str = "all",
    dtype: DType = dtypes.f32,
    limits: Limits = DEFAULT,
) -> ImportedModel:
    """The model of a checkpoint that was read from a path; see `load_model`."""
    _check_options(logits, dtype)
    where = str(path)
    family, layout, prefix = _layout_of(checkpoint, where)
    tensors = Tensors(checkpoint, where, layout.naming)
    try:
        configuration = layout.read(fields_below(checkpoint.facts, prefix, where), tensors)
        graphs = family.build(tensors, configuration, GraphOptions(logits, dtype, limits))
        tensors.check_all_taken(layout.ignored)
    except AssayError as error:
        raise error.located(where) from None
    except MemoryError as error:
        raise LimitExceeded("there is not enough memory to load this", where=where) from error
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ImportFailed(f"the configuration does not make sense: {error}", where=where) from error
    return ImportedModel(family.name, configuration, graphs, tokenizer_source(checkpoint, path), checkpoint)


def _layout_of(checkpoint: Checkpoint, where: str) -> tuple[Family, FileLayout, str]:
    """The family and layout of a checkpoint, and what its facts begin with."""
    if checkpoint.kind == TORCH:
        found = [(family, each) for family, each in _layouts(TORCH) if each.mark in checkpoint.tensors]
        if not found:
            raise ImportFailed(
                "these are the tensors of no model that is known", where=where, hint=_known(TORCH, "models of")
            )
        return *found[0], ""
    key = {HUGGING_FACE: "config.model_type", GGUF: "general.architecture"}.get(checkpoint.kind)
    if key is None:
        raise ImportFailed("weights alone do not tell the model", where=where, hint="give the folder with config.json")
    architecture: Any = checkpoint.facts.get(key)
    for family, layout in _layouts(checkpoint.kind):
        if architecture in layout.architectures:
            return family, layout, "config." if checkpoint.kind == HUGGING_FACE else f"{architecture}."
    message = f"the architecture {str(architecture)[:100]!r} is not known" if architecture else f"'{key}' is missing"
    raise ImportFailed(message, where=where, hint=_known(checkpoint.kind, "there are recipes for"))


def _layouts(kind: str) -> Iterator[tuple[Family, FileLayout]]:
    return ((family, layout) for family in FAMILIES for layout in family.layouts if layout.kind == kind)


def _known(kind: str, words: str) -> str:
    listed = [name for family, layout in _layouts(kind) for name in layout.architectures or (family.name,)]
    return f"{words} {', '.join(listed)}"


def tokenizer_source(checkpoint: Checkpoint, path: Path) -> TokenizerSource:
    """What says how text becomes tokens, of a checkpoint that was read from a path."""
    folder = path if os.path.isdir(path) else path.parent
    files = {name: folder / name for name in _TOKENIZER_FILES if os.path.isfile(folder / name)}
    return TokenizerSource(files, fields_below(checkpoint.facts, _TOKENIZER, "").values)
