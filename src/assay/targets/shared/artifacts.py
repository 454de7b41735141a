"""Artifacts: what a compiler makes of kernels' sources, made once and kept by the hash of all that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from assay.errors import CompileFailed
from assay.store import Store, digest

Loaded = TypeVar("Loaded")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's source. Equal sources are one kernel."""

    source: str
    entry: str = "kernel"
    """The function that the artifact is looked up for."""


class Artifacts(Generic[Loaded]):
    """Kernels that are ready to be called; what was made before, by any process, is taken from the store."""

    def __init__(self, identity: str, store: Store | None, load: Callable[[bytes, Kernel], Loaded]) -> None:
        """`identity` stands for all that artifacts depend on but their sources: compiler, flags, headers, device.
        `load` makes a kernel's artifact ready; CompileFailed if it is none, or none for here."""
        self._identity, self._store, self._load = identity, store, load
        self._loaded: dict[Kernel, Loaded] = {}

    def ready(self, kernels: Sequence[Kernel], make: Callable[[Sequence[Kernel]], Sequence[Loaded]]) -> list[Loaded]:
        """The kernels, in order. `make` compiles those that are nowhere yet and hands each one to `keep`."""
        missing = [kernel for kernel in dict.fromkeys(kernels) if kernel not in self._loaded]
        found = {kernel: self._stored(kernel) for kernel in missing}
        fresh = [kernel for kernel in missing if found[kernel] is None]
        if fresh:
            found.update(zip(fresh, make(fresh), strict=True))
        for kernel, loaded in found.items():
            if loaded is not None:
                self._loaded.setdefault(kernel, loaded)
        return [self._loaded[kernel] for kernel in kernels]

    def keep(self, kernel: Kernel, content: bytes) -> Loaded:
        """A new artifact made ready; only then is it worth to be kept."""
        loaded = self._load(content, kernel)
        if self._store is not None:
            self._store.put(self.key(kernel), content)
        return loaded

    def _stored(self, kernel: Kernel) -> Loaded | None:
        content = None if self._store is None else self._store.get(self.key(kernel))
        try:
            return None if content is None else self._load(content, kernel)
        except CompileFailed:  # made under a loader that was another one
            return None

    def key(self, kernel: Kernel) -> str:
        """Under which the store has a kernel's artifact."""
        return digest(self._identity, kernel.source)
