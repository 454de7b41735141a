"""The data that a model keeps in files beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from assay.errors import ImportFailed
from assay.ir.dtypes import Array


class ExternalData:
    """The files within `folder`, each mapped into memory when it is first asked for; None for a model without one."""

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
            self._files[location] = _mapped(self._inside(location, where))
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
        if not location or os.path.isabs(location):
            raise ImportFailed(f"the data file '{location}' is no path relative to the model", where=where)
        root = Path(os.path.realpath(self._folder))
        path = Path(os.path.realpath(root / location))
        if not path.is_relative_to(root):
            raise ImportFailed(
                f"the data file '{location}' lies outside of the model's folder",
                where=where,
                hint="keep external data beside the model file",
            )
        if not path.is_file():
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


def _mapped(path: Path) -> Array:
    return np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)


def _number(entries: Mapping[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key)
    if text is None or text == "":
        return default
    if not text.isdigit() or len(text) > 18:
        raise ImportFailed(f"the external data has the {key} '{text}'", where=where)
    return int(text)
