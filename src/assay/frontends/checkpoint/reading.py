"""Which reader a checkpoint needs: told by its first bytes, or by what a folder holds."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from assay.errors import AssayError, ImportFailed, LimitExceeded, missing_model
from assay.frontends.checkpoint.gguf import MAGIC, read_gguf
from assay.frontends.checkpoint.safetensors import read_safetensors
from assay.frontends.checkpoint.stored import Checkpoint, StoredTensor
from assay.limits import DEFAULT, Limits

Reader = Callable[[Path, Limits], Checkpoint]


def _read_torch_archive(path: Path, limits: Limits) -> Checkpoint:
    # Imported here, as below, since other files take nothing of pickles.
    from assay.frontends.checkpoint.torch_files import read_torch_archive

    return read_torch_archive(path, limits)


def _read_old_torch_file(path: Path, limits: Limits) -> Checkpoint:
    from assay.frontends.checkpoint.torch_files import read_old_torch_file

    return read_old_torch_file(path, limits)


_BY_FIRST_BYTES: Mapping[bytes, Reader] = {
    MAGIC: read_gguf,
    b"PK\x03\x04": _read_torch_archive,
    b"\x80\x02": _read_old_torch_file,
}
"""Safetensors files begin with a number."""
_SUFFIXES = frozenset({".gguf", ".safetensors", ".pt", ".pth", ".bin"})
_CONFIG, _WHOLE, _INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


def is_checkpoint(path: Path) -> bool:
    """Whether a path is named as checkpoints are, or is a folder with weights."""
    return path.suffix.lower() in _SUFFIXES or any(os.path.isfile(path / name) for name in (_WHOLE, _INDEX))


def open_checkpoint(path: str | Path, limits: Limits = DEFAULT) -> Checkpoint:
    """The tensors and facts in a GGUF file, a safetensors file, a file of `torch.save`, or a folder of Hugging Face's
    form. Weights stay in their file. Nothing in a file is run; ImportFailed if it is damaged or is more than data."""
    given = Path(path)
    reader = _read_folder if os.path.isdir(given) else _read_file
    if not os.path.exists(given):
        raise missing_model(given)
    try:
        return reader(given, limits)
    except AssayError as error:
        raise _at(error, given) from None
    except (OSError, EOFError, zipfile.BadZipFile, UnicodeError, NotImplementedError) as error:
        raise ImportFailed(f"it cannot be read: {type(error).__name__} {error}", where=str(given)) from None


def _at(error: AssayError, path: Path) -> AssayError:
    """The error with the file in front of what it names."""
    where = f"{path}: {error.where}" if error.where and str(path) not in error.where else error.where or str(path)
    return type(error)(error.message, where=where, hint=error.hint)


def _read_file(path: Path, limits: Limits) -> Checkpoint:
    with path.open("rb") as file:
        start = file.read(8)
    return _reader_for(start)(path, limits)


def _reader_for(start: bytes) -> Reader:
    found = (reader for first, reader in _BY_FIRST_BYTES.items() if start.startswith(first))
    return next(found, read_safetensors)


def _read_folder(path: Path, limits: Limits) -> Checkpoint:
    """A `config.json` beside weights in one file or in several with an index."""
    described = [path / _CONFIG] if (path / _CONFIG).is_file() else []
    config = _json(path / _CONFIG, limits) if described else {}
    names = _shards(path, limits)
    parts = [read_safetensors(path / name, limits) for name in names]
    tensors: dict[str, StoredTensor] = {}
    for part in parts:
        if twice := tensors.keys() & part.tensors.keys():
            raise ImportFailed(f"'{min(twice)}' is in two files")
        tensors |= part.tensors
    facts = {f"config.{key}": value for key, value in config.items()}
    return Checkpoint("folder", (*described, *(file for part in parts for file in part.files)), tensors, facts)


def _shards(path: Path, limits: Limits) -> list[str]:
    if (path / _WHOLE).is_file():
        return [_WHOLE]
    if not (path / _INDEX).is_file():
        raise ImportFailed(f"the folder has neither {_WHOLE} nor {_INDEX}", hint="give the folder of a model")
    listed: Any = _json(path / _INDEX, limits).get("weight_map")
    names = set(cast(Mapping[str, Any], listed).values()) if isinstance(listed, dict) else set[Any]()
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise ImportFailed("the index names no files beside it", where=_INDEX)
    missing = [name for name in sorted(names) if not (path / name).is_file()]
    if missing:
        raise ImportFailed(f"'{missing[0]}' is missing", where=_INDEX, hint="fetch all files of the model")
    return sorted(names)


def _json(path: Path, limits: Limits) -> dict[str, Any]:
    if path.stat().st_size > limits.text_bytes:
        raise LimitExceeded(f"'{path.name}' has too much text", hint="raise Limits.text_bytes")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ImportFailed(f"'{path.name}' is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ImportFailed(f"'{path.name}' is no table")
    return cast(dict[str, Any], found)
