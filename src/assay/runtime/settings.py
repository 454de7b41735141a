"""How a model is compiled, and what is known of how it will be called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.limits import DEFAULT, Limits
from assay.store import Store
from assay.targets.base import Target


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is compiled, whatever it came from.

    `chain` are the targets, the oracle last. `disabled` names passes that are switched off. Without `optimize`, only
    the passes run that a target requires. `store` keeps lowered graphs, under keys that depend on `versions`, too.
    """

    chain: tuple[Target, ...]
    mode: str = "exact"
    limits: Limits = DEFAULT
    optimize: bool = True
    decomposed: bool = False
    disabled: frozenset[str] = frozenset()
    store: Store | None = None
    versions: tuple[str, ...] = ()

    @property
    def oracle(self) -> Target:
        """The last target of the chain."""
        return self.chain[-1]


@dataclass(frozen=True, slots=True)
class Interface:
    """What is known of how a program will be called.

    The inputs at the places `static` change rarely: what depends on them alone is computed when they do. Those at
    `orders` are given with their axes in another order, as they lie in memory. `refused` is a reason to run all on
    the oracle. The program may be `watched` while it runs: then an observer is called for the nodes in bodies, too.
    """

    static: Sequence[int] = ()
    orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    refused: str = ""
    watched: bool = False


PLAIN = Interface()
