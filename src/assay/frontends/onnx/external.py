"""The data that a model keeps in files beside it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from assay.errors import ImportFailed
from assay.ir.dtypes import Array
from assay.memory import has_room

_READY_PAGES = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE


class ExternalData:
    """The files within `folder`, each read when it is first asked for; None for a model without one.

    A file is read into memory and not mapped: a mapped file that somebody cuts off later ends the process (SIGBUS),
    whatever a program checks before. Only one that would take more than half of the memory that is left is mapped.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files: dict[str, Array] = {}

    def read(self, entries: Mapping[str, str], length: int, where: str) -> Array:
        """The `length` bytes that the entries of a tensor point to; ImportFailed if they are not there."""
        location = entries.get("location", "")
        offset = _number(entries, "offset", 0, where)
        declared = _number(entries, "length", length, where)
        expect(declared, length, where)
        if location not in self._files:
            try:
                self._files[location] = _content(self._inside(location, where))
            except OSError as error:
                raise ImportFailed(f"the data file cannot be read: {error.strerror}", where=where) from error
        data = self._files[location]
        if offset + length > data.size:
            place = f"{offset}…{offset + length} lies past the end of '{Path(location).name}' ({data.size} bytes)"
            raise ImportFailed(f"the data at {place}", where=where)
        return data[offset : offset + length]

    def _inside(self, location: str, where: str) -> Path:
        """The file `location`; links that lead out of the folder are followed and refused."""
        if self._folder is None:
            raise ImportFailed(
                "the model keeps data in other files but was not loaded from a file",
                where=where,
                hint="load the model by its path",
            )
        if not location or os.path.isabs(location) or "\0" in location:
            raise ImportFailed(f"the data file '{location}' is no path relative to the model", where=where)
        root = Path(os.path.realpath(self._folder))
        path = Path(os.path.realpath(root / location))
        if not path.is_relative_to(root):
            raise ImportFailed(
                f"the data file '{location}' lies outside of the model's folder",
                where=where,
                hint="keep external data beside the model file",
            )
        if not os.path.isfile(path):
            raise ImportFailed(f"the data file '{location}' does not exist", where=where)
        return path


def expect(got: int, wanted: int, where: str) -> None:
    """ImportFailed unless a tensor's data has as many bytes as it needs."""
    if got != wanted:
        raise ImportFailed(
            f"the data has {got} bytes where its shape and type need {wanted}",
            where=where,
            hint="the model file is damaged or was written wrongly",
        )


def _open_plain(path: str, flags: int) -> int:
    """Open what was found to be a file within the folder, unless it has become a link or a pipe since."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _content(path: Path) -> Array:
    """The bytes of a file, read-only."""
    with open(path, "rb", opener=_open_plain) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return np.zeros(0, np.uint8)
        if not has_room(size):
            return np.memmap(file, np.uint8, mode="r")
        memory = mmap.mmap(-1, size, flags=_READY_PAGES)  # begins at a page, as mapped files do
        left = memoryview(memory)
        while left and (count := file.readinto(left)):
            left = left[count:]
        if left:
            raise ImportFailed(f"the data file '{path.name}' was cut off while it was read", where=str(path))
    content = np.frombuffer(memory, np.uint8)
    content.flags.writeable = False
    return content


def _number(entries: Mapping[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key)
    if text is None or text == "":
        return default
    if not text.isdigit() or len(text) > 18:
        raise ImportFailed(f"the external data has the {key} '{text}'", where=where)
    return int(text)
