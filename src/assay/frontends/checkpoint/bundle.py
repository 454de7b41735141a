"""Bundles: the graphs of a model as text beside its weights and its tokenizer, in a folder that needs no recipe.

A graph's text takes its weights as inputs, called `weights/` and the tensor's name in the file of weights.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from assay.errors import AssayError, BadArgument, ImportFailed, LimitExceeded
from assay.frontends.checkpoint.imported import ImportedModel, TokenizerSource
from assay.frontends.checkpoint.recipes import CONFIGURATIONS
from assay.frontends.checkpoint.safetensors import read_safetensors, write_safetensors
from assay.frontends.checkpoint.stored import Checkpoint
from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ir.graph import Graph
from assay.ir.parser import parse_graph
from assay.ir.printer import print_graph
from assay.ir.types import TensorType
from assay.ir.verify import verify
from assay.limits import Limits
from assay.ops.levels import core_level

_TABLE, _WEIGHTS, _FACTS = "bundle.json", "weights.safetensors", "tokenizer.facts.json"
_FORMAT, _VERSION = "assay bundle", 1
_PREFIX, _TYPE = "weights/", "type"


def is_bundle(path: Path) -> bool:
    """Whether a folder is a bundle."""
    return os.path.isfile(path / _TABLE)


def save_bundle(model: ImportedModel, folder: str | Path) -> None:
    """Write a model to a folder, which must be new or empty. A folder that lacks `bundle.json` was not finished."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise BadArgument(f"'{place}' is not empty", hint="give a new folder")
    weights: dict[str, Array] = {}
    for name, graph in model.graphs.items():
        opened, own = _without_weights(graph)
        (place / _file_of(name)).write_text(print_graph(opened), "utf-8")
        weights |= own
    write_safetensors(place / _WEIGHTS, weights)
    for name, path in model.tokenizer.files.items():
        shutil.copyfile(path, place / name)
    if model.tokenizer.facts:
        (place / _FACTS).write_text(json.dumps(model.tokenizer.facts, default=np.ndarray.tolist), "utf-8")
    table = {
        "format": _FORMAT,
        "version": _VERSION,
        "family": model.family,
        "source": model.digest,
        "configuration": _as_table(model.configuration),
        "graphs": list(model.graphs),
        "tokenizer": list(model.tokenizer.files),
    }
    (place / _TABLE).write_text(json.dumps(table, indent=2), "utf-8")


def read_bundle(folder: Path, limits: Limits) -> ImportedModel:
    """The model in a bundle, its weights left in their file. ImportFailed if it is damaged."""
    try:
        return _read(folder, limits)
    except AssayError as error:
        raise error.located(str(folder)) from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ImportFailed(f"the bundle is damaged: {type(error).__name__} {error}", where=str(folder)) from None


def _read(folder: Path, limits: Limits) -> ImportedModel:
    table = _table(_text(folder / _TABLE, limits))
    if (table.get("format"), table.get("version")) != (_FORMAT, _VERSION):
        raise ImportFailed(f"'{_TABLE}' is of no version that is known", where=str(folder / _TABLE))
    stored = read_safetensors(folder / _WEIGHTS, limits)
    names, beside = _names(table, "graphs"), _names(table, "tokenizer")
    graphs = {name: _with_weights(parse_graph(_text(folder / _file_of(name), limits)), stored) for name in names}
    facts = _table(_text(folder / _FACTS, limits)) if (folder / _FACTS).is_file() else {}
    files = (folder / _TABLE, *(folder / _file_of(name) for name in names), *stored.files)
    return ImportedModel(
        str(table["family"]),
        _from_table(table["configuration"]),
        graphs,
        TokenizerSource({name: folder / name for name in beside if (folder / name).is_file()}, facts),
        Checkpoint("bundle", files, stored.tensors, table),
    )


def _table(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ImportFailed("a file of the bundle holds no table")
    return cast(dict[str, Any], found)


def _names(table: Mapping[str, Any], key: str) -> list[str]:
    """Names of files, none of which lies elsewhere."""
    listed = table[key]
    if not isinstance(listed, list) or not all(type(n) is str and Path(n).name == n for n in cast(list[Any], listed)):
        raise ImportFailed(f"'{key}' is no list of names")
    return cast(list[str], listed)


def _file_of(graph: str) -> str:
    return f"{graph}.graph"


def _text(path: Path, limits: Limits) -> str:
    if path.stat().st_size > limits.text_bytes:
        raise LimitExceeded(f"'{path.name}' has too much text", hint="raise Limits.text_bytes")
    return path.read_text("utf-8")


# --- graphs


def _without_weights(graph: Graph) -> tuple[Graph, dict[str, Array]]:
    """The graph with its named constants as further inputs, and these."""
    named = {value: name for name, value in graph.names.items() if value in graph.constants}
    opened = replace(
        graph,
        inputs=(*graph.inputs, *named),
        input_names=(*graph.input_names, *(f"{_PREFIX}{name}" for name in named.values())),
        constants={value: array for value, array in graph.constants.items() if value not in named},
    )
    return opened, {name: graph.constants[value] for value, name in named.items()}


def _with_weights(graph: Graph, stored: Checkpoint) -> Graph:
    """The opposite. ImportFailed if a tensor is missing or of another type, or if the graph breaks a rule."""
    pairs = dict(zip(graph.input_names, graph.inputs, strict=True))
    bound = {value: _weight(name, value.type, stored) for name, value in pairs.items() if name.startswith(_PREFIX)}
    left = {name: value for name, value in pairs.items() if value not in bound}
    closed = replace(
        graph,
        inputs=tuple(left.values()),
        input_names=tuple(left),
        constants={**graph.constants, **bound},
    )
    verify(closed, core_level)
    return closed


def _weight(name: str, kind: Any, stored: Checkpoint) -> Array:
    tensor = stored.tensors.get(name.removeprefix(_PREFIX))
    if tensor is None:
        raise ImportFailed("the file has no such tensor", where=f"'{name}'")
    found = tensor.array()
    if TensorType(dtypes.of(found), found.shape) != kind:
        raise ImportFailed(
            f"it is {dtypes.of(found)}{list(found.shape)}, and the graph takes {kind}", where=f"'{name}'"
        )
    return found


# --- configurations


def _as_table(value: Any) -> Any:
    """A configuration as a table that tells its type, so that it can be read again."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: _as_table(getattr(value, each.name)) for each in fields(value)}
        return {_TYPE: type(value).__name__, **parts}
    if isinstance(value, Mapping):
        return {key: _as_table(each) for key, each in cast(Mapping[str, Any], value).items()}
    return [_as_table(each) for each in cast(tuple[Any, ...], value)] if isinstance(value, tuple) else value


def _from_table(table: Any) -> Any:
    if isinstance(table, list):
        return tuple(map(_from_table, cast(list[Any], table)))
    if not isinstance(table, dict):
        return table
    parts = {key: _from_table(value) for key, value in cast(dict[str, Any], table).items()}
    kind = parts.pop(_TYPE, None)
    if kind is None:
        return parts
    if kind not in CONFIGURATIONS:
        raise ImportFailed(f"there is no configuration {str(kind)[:100]!r}")
    return CONFIGURATIONS[kind](**parts)
