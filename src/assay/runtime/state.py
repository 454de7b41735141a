"""What a model keeps from run to run, where it is: in arrays, or on the device that made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from assay.runtime.device_tensors import DeviceTensor


class KeptState(MutableMapping[str, Any]):
    """Contents by name. Who reads one gets an array: it is fetched from the device that holds it, and what becomes of
    the array counts from then on."""

    def __init__(self, initial: Mapping[str, Any]) -> None:
        """Copies of the first contents."""
        self._contents = {name: np.array(content) for name, content in initial.items()}

    def __getitem__(self, name: str) -> Any:
        found = self._contents[name]
        if isinstance(found, DeviceTensor):
            self._contents[name] = found = np.array(found)
        return found

    def __setitem__(self, name: str, content: Any) -> None:
        self._contents[name] = content

    def __delitem__(self, name: str) -> None:
        del self._contents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, name: object) -> bool:
        return name in self._contents

    def where_it_is(self) -> Mapping[str, Any]:
        """The contents where they are."""
        return self._contents
