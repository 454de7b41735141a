"""Handing out results: what a caller gets is the caller's alone, whatever is done to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from assay.ir.dtypes import Array, is_array


def handed_out(results: Sequence[Any]) -> list[Any]:
    """The results of a run, none of them in memory that anything else reads: copies where they would be.

    What programs keep from run to run, and what they are fed, is read-only, and so are views of it.
    """
    owners: set[int] = set()
    return [_own(result, owners) for result in results]


def _own(result: Any, owners: set[int]) -> Any:
    if isinstance(result, list):
        return [_own(item, owners) for item in cast("list[Any]", result)]
    if not is_array(result):
        return result
    owner = _owner(result)
    if result.flags.writeable and owner.base is None and id(owner) not in owners:
        owners.add(id(owner))
        return result
    return result.copy()


def _owner(array: Array) -> Array:
    while is_array(array.base):
        array = array.base
    return array
