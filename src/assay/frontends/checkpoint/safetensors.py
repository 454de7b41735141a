"""Safetensors files: a header in JSON, then data.

The library of that name reads them too, but not bf16 and 8-bit floats into NumPy, and it has no limits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from assay.errors import AssayError, ImportFailed, LimitExceeded
from assay.frontends.checkpoint.stored import Checkpoint, FileMemory, StoredTensor
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType, by_name
from assay.limits import Limits

_LENGTH = 8
_FACTS = "__metadata__"

_OTHER_NAMES = {"F8_E4M3": "f8e4m3fn", "F8_E5M2": "f8e5m2", "F8_E8M0": "f8e8m0"}
_SAME_NAMES = ["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "C64"]
DTYPES: Mapping[str, DType] = {
    **{name: by_name(name.lower()) for name in _SAME_NAMES},
    **{name: by_name(other) for name, other in _OTHER_NAMES.items()},
}


def read_safetensors(path: Path, limits: Limits) -> Checkpoint:
    """The checkpoint in a file. ImportFailed if it is damaged: data must follow the header without gaps."""
    memory = FileMemory(path, limits)
    header, start = _header(memory)
    said = header.pop(_FACTS, {})
    if not _is_texts(said):
        raise ImportFailed("what the header says of the file is no table of texts", where=_FACTS)
    entries = [(name, *_entry(name, entry)) for name, entry in header.items()]
    _check_gaps([(begin, end) for _, _, _, begin, end in entries], len(memory.bytes) - start)
    tensors = {
        name: _tensor(memory, name, start, dtype, shape, begin, end) for name, dtype, shape, begin, end in entries
    }
    return Checkpoint("safetensors", (path,), tensors, said)


def write_safetensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """A file of tensors, in the order in which they come."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    header: dict[str, Any] = {}
    end = 0
    for name, array in tensors.items():
        begin, end = end, end + array.nbytes
        entry = {"dtype": names[dtypes.of(array)], "shape": list(array.shape), "data_offsets": [begin, end]}
        header[name] = entry
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _LENGTH)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH, "little") + text)
        for array in tensors.values():
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(file)


def _header(memory: FileMemory) -> tuple[dict[str, Any], int]:
    """The header, and where data begins."""
    length = int.from_bytes(memory.part(0, _LENGTH).tobytes(), "little")
    if length > memory.limits.text_bytes:
        raise LimitExceeded(f"the header has {length} bytes", hint="raise Limits.text_bytes")
    text = memory.part(_LENGTH, length).tobytes()
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ImportFailed(f"the header is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ImportFailed("the header is no table")
    return cast(dict[str, Any], found), _LENGTH + length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _is_texts(said: Any) -> bool:
    return isinstance(said, dict) and all(isinstance(text, str) for text in cast(dict[str, Any], said).values())


def _entry(name: str, entry: Any) -> tuple[DType, list[int], int, int]:
    """Dtype, sizes, and where data begins and ends."""
    given: dict[str, Any] = entry if isinstance(entry, dict) else {}  # pyright: ignore[reportUnknownVariableType]
    shape, offsets = given.get("shape"), given.get("data_offsets")
    if (
        given.keys() != {"dtype", "shape", "data_offsets"}
        or not _are_integers(shape)
        or not _are_integers(offsets)
        or len(cast(list[int], offsets)) != 2
    ):
        raise ImportFailed("what the header says of it has another form", where=f"tensor '{name}'")
    if not isinstance(given["dtype"], str) or given["dtype"] not in DTYPES:
        hint = f"convert it to one of {', '.join(DTYPES)}"
        raise ImportFailed(f"its dtype is {given['dtype']!r}", where=f"tensor '{name}'", hint=hint)
    begin, end = cast(list[int], offsets)
    return DTYPES[given["dtype"]], cast(list[int], shape), begin, end


def _are_integers(given: Any) -> bool:
    return isinstance(given, list) and all(type(each) is int for each in cast(list[Any], given))


def _check_gaps(places: list[tuple[int, int]], size: int) -> None:
    at = 0
    for begin, end in sorted(places):
        if begin != at or end < begin:
            raise ImportFailed(f"data from {begin} to {end} does not follow what ends at {at}")
        at = end
    if at != size:
        raise ImportFailed(f"there are {size} bytes of data, and tensors have {at}")


def _tensor(
    memory: FileMemory, name: str, start: int, dtype: DType, shape: list[int], begin: int, end: int
) -> StoredTensor:
    try:
        found = memory.tensor(start + begin, shape, dtype)
        if found.nbytes != end - begin:
            raise ImportFailed(f"its sizes {shape} take {found.nbytes} bytes, and it has {end - begin}")
    except AssayError as error:
        raise error.located(f"tensor '{name}'") from None
    return found
