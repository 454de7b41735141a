"""Files of `torch.save` (`.pt`, `.pth`): a pickle of containers and tensors, and the memory that these lie in.

Today's are archives with a record for each piece of memory. Before torch 1.6 they were five pickles in a row: the
fourth is the content, the fifth the order of the pieces of memory that follow.
"""

from __future__ import annotations

import io
import pickletools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from assay.errors import ImportFailed
from assay.frontends.archives import ArchiveRecords
from assay.frontends.checkpoint.flat import FlatContent
from assay.frontends.checkpoint.plain_pickle import PickledName, PickleMachine
from assay.frontends.checkpoint.stored import Checkpoint, FileMemory, StoredTensor, check_sizes, elements
from assay.ir.dtypes import Array, DType, by_name
from assay.limits import Limits

_PICKLE, _BYTE_ORDER = "data.pkl", "byteorder"
_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_COUNT = 8
"""Bytes of the number of elements in front of a piece of memory in an old file."""

_STORAGES: Mapping[str, DType] = {
    f"{name}Storage": by_name(dtype)
    for name, dtype in {
        "Double": "f64",
        "Float": "f32",
        "Half": "f16",
        "BFloat16": "bf16",
        "Long": "i64",
        "Int": "i32",
        "Short": "i16",
        "Char": "i8",
        "Byte": "u8",
        "Bool": "bool",
        "ComplexFloat": "c64",
        "ComplexDouble": "c128",
    }.items()
}

Memory = Callable[[str, DType], Array]
"""The elements of a piece of memory, by its key."""


def read_torch_archive(path: Path, limits: Limits) -> Checkpoint:
    """The checkpoint in an archive. ImportFailed if it is damaged, or holds more than tensors, numbers, texts and
    containers of these."""
    file = FileMemory(path, limits)
    with path.open("rb") as opened:
        records = ArchiveRecords(opened, limits)
        order = records.text(_BYTE_ORDER) if _BYTE_ORDER in records.names() else sys.byteorder
        _check_order(order)
        pickle = records.text_bytes(_PICKLE)

        def memory(key: str, dtype: DType) -> Array:
            start, size = records.place(f"data/{key}")
            return elements(file.part(start, size - size % dtype.numpy.itemsize), dtype)

        return _checkpoint(path, pickle, memory, limits)


def read_old_torch_file(path: Path, limits: Limits) -> Checkpoint:
    """The same of a file from before there were archives."""
    file = FileMemory(path, limits)
    pickles = _Pickles(file)
    magic, protocol, machine = (_plain(pickles.next()) for _ in range(3))
    if magic != _MAGIC or protocol != _PROTOCOL or not isinstance(machine, dict):
        raise ImportFailed("this is no file of torch.save")
    _check_order("little" if cast(dict[str, Any], machine).get("little_endian") is True else "big")
    content, keys = pickles.next(), _plain(pickles.next())
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in cast(list[Any], keys)):
        raise ImportFailed("the list of pieces of memory is none")
    widths: dict[str, int] = {}
    _machine(lambda key, dtype: _noted(widths, key, dtype), limits).run(content)
    places = _places(file, pickles.at, cast(list[str], keys), widths)

    def memory(key: str, dtype: DType) -> Array:
        if key not in places:
            raise ImportFailed(f"there is no piece of memory '{key}'")
        return elements(places[key], dtype)

    return _checkpoint(path, content, memory, limits)


def _check_order(order: str) -> None:
    if order != sys.byteorder:
        raise ImportFailed("the file was written on a machine of another byte order", hint="save it again here")


def _checkpoint(path: Path, pickle: bytes, memory: Memory, limits: Limits) -> Checkpoint:
    found = FlatContent(limits.nodes)
    found.add("", _machine(memory, limits).run(pickle))
    return Checkpoint("torch", (path,), found.tensors, found.facts)


# --- old files


class _Pickles:
    """Pickles that lie one after the other."""

    def __init__(self, file: FileMemory) -> None:
        self._file, self.at = file, 0

    def next(self) -> bytes:
        """The next one, told by its last instruction."""
        size = min(len(self._file.bytes) - self.at, self._file.limits.text_bytes)
        stream = io.BytesIO(memoryview(self._file.part(self.at, size)))  # pyright: ignore[reportArgumentType]
        try:
            for _ in pickletools.genops(stream):
                pass
        except (ValueError, OverflowError) as error:
            raise ImportFailed(f"what is pickled is damaged: {error}") from None
        found = self._file.part(self.at, stream.tell()).tobytes()
        self.at += len(found)
        return found


def _plain(pickle: bytes) -> Any:
    """What a pickle without tensors holds."""
    return PickleMachine({}, _nothing).run(pickle)


def _nothing(reference: Any) -> Any:
    raise ImportFailed("a tensor where none is due")


def _noted(widths: dict[str, int], key: str, dtype: DType) -> Array:
    """Note how wide the elements of a piece of memory are; stands in for it, as its place is not known yet."""
    widths[key] = dtype.numpy.itemsize
    return np.broadcast_to(np.zeros((), dtype.numpy), (sys.maxsize // dtype.numpy.itemsize,))


def _places(file: FileMemory, at: int, keys: list[str], widths: Mapping[str, int]) -> dict[str, Array]:
    """The bytes of each piece of memory: a count of elements, then these, in the order of the keys."""
    found: dict[str, Array] = {}
    for key in keys:
        if key not in widths or key in found:
            raise ImportFailed(f"the piece of memory '{key}' is there twice, or belongs to no tensor")
        size = int.from_bytes(file.part(at, _COUNT).tobytes(), "little") * widths[key]
        found[key] = file.part(at + _COUNT, size)
        at += _COUNT + size
    return found


# --- tensors


@dataclass(frozen=True, eq=False)
class _Piece:
    """A piece of memory that tensors lie in."""

    elements: Array
    dtype: DType


def _machine(memory: Memory, limits: Limits) -> PickleMachine:
    """A machine for which the names that a state dict mentions have a meaning; others are refused."""
    calls: Mapping[tuple[str, str], Callable[..., Any]] = {
        ("collections", "OrderedDict"): dict,
        ("torch._utils", "_rebuild_tensor_v2"): partial(_tensor, limits),
        ("torch._utils", "_rebuild_parameter"): _parameter,
        ("torch", "Size"): tuple,
    }
    return PickleMachine(calls, partial(_piece, memory))


def _piece(memory: Memory, reference: Any) -> _Piece:
    """What a reference stands for: ('storage', kind, key, device, count), in old files with a view of another piece."""
    match reference:
        case ("storage", PickledName(_, str() as kind), str() as key, str(), int(), *rest) if (
            kind in _STORAGES and rest in ([], [None])
        ):
            return _Piece(memory(key, _STORAGES[kind]), _STORAGES[kind])
        case _:
            raise ImportFailed(f"a piece of memory is given as {str(reference)[:100]}")


def _tensor(limits: Limits, piece: Any, offset: Any, sizes: Any, strides: Any, *_: Any) -> StoredTensor:
    """What `_rebuild_tensor_v2` is called with; whether it needs gradients and has hooks does not matter."""
    if not isinstance(piece, _Piece) or not all(map(_are_counts, ((offset,), sizes, strides))):
        raise ImportFailed("a tensor is given in another form")
    shape = check_sizes(sizes, limits)
    if len(strides) != len(shape):
        raise ImportFailed(f"a tensor has the sizes {list(shape)} and the strides {list(strides)}")
    if 0 in shape:
        return StoredTensor(shape, piece.dtype, np.zeros(shape, piece.dtype.numpy))
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if last >= len(piece.elements):
        raise ImportFailed(f"a tensor reaches to element {last} of {len(piece.elements)}")
    steps = [stride * piece.dtype.numpy.itemsize for stride in strides]
    found = np.lib.stride_tricks.as_strided(piece.elements[offset:], shape, steps, writeable=False)
    return StoredTensor(shape, piece.dtype, found)


def _are_counts(given: Any) -> bool:
    return isinstance(given, tuple) and all(type(each) is int and each >= 0 for each in cast(tuple[Any, ...], given))


def _parameter(tensor: Any, *_: Any) -> StoredTensor:
    if not isinstance(tensor, StoredTensor):
        raise ImportFailed("a parameter is no tensor")
    return tensor
