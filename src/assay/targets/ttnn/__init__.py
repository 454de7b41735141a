"""The Tenstorrent target: segments become programs of the library ttnn.

The library checks every call of a program on a stand-in for a card. Then the card runs it. Where there is none, the
numbers come from a model of it, the oracle with the card's rounding, and no time is told.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from assay.errors import CompileFailed, NotFound
from assay.ir.dtypes import bf16
from assay.ir.graph import Graph, Node
from assay.limits import Limits
from assay.targets.base import (
    Bodies,
    Buckets,
    Device,
    Executable,
    Limitations,
    NamedPass,
    Probe,
    Support,
    Traits,
    TransferCost,
)
from assay.targets.shared.limitations import other_mode
from assay.targets.threads import Threads, available_threads
from assay.targets.ttnn.card import open_card
from assay.targets.ttnn.cards import chosen_card
from assay.targets.ttnn.executable import Setting, compiled
from assay.targets.ttnn.formats import chosen_weights
from assay.targets.ttnn.heads import fuse_heads
from assay.targets.ttnn.library import LibraryFailed, open_library
from assay.targets.ttnn.linear import fuse_linear
from assay.targets.ttnn.numbers import chosen_numbers
from assay.targets.ttnn.parallel import chosen_way
from assay.targets.ttnn.resident import keep_weights
from assay.targets.ttnn.table import TABLE
from assay.targets.ttnn.whole import bound_infinities


class TtnnTarget:
    """Tenstorrent cards, through their library; without one, as the library and a model of the card know them."""

    name = "ttnn"

    def __init__(self, mode: str, limits: Limits, threads: Threads = available_threads) -> None:
        self._mode, self._limits = mode, limits

    def probe(self) -> Probe:
        """Whether the library is there, which card stands in, and who computes; else what is missing, or which variable
        says what cannot be."""
        try:
            _check_variables()
            library = open_library()
        except NotFound as error:
            return Probe(False, f"{error.message}; {error.hint}")
        if isinstance(library, str):
            return Probe(False, library)
        try:
            about, numbers = library.about(), chosen_numbers()
            if numbers.measured:
                open_card()
        except (LibraryFailed, CompileFailed) as error:
            return Probe(False, error.message.partition("\n")[0])
        cores = "×".join(map(str, about.grid))
        kind = "" if numbers.measured else "mock "
        details = {
            "ttnn": about.version,
            "card": f"{kind}{library.mock.name} ({about.chips} × {about.arch}, {cores} cores)",
            "numbers": numbers.words,
        }
        return Probe(True, details=details)

    @property
    def traits(self) -> Traits:
        """Memory of its own, programs for fixed sizes, bf16; rough figures of a card on PCIe."""
        return Traits(
            TransferCost(5e-5, 1e10),
            sizes="specialised",
            buckets=_BUCKETS,
            rounds_to=bf16,
            modelled=not chosen_numbers().measured,
            operations_per_second=1e13,
        )

    def limitations(self) -> Limitations:
        """What the op table says."""
        return _LIMITATIONS if self._mode == "exact" else other_mode(self._mode)

    def support(self, node: Node) -> Support:
        """What the op table says."""
        return self.limitations().support(node)

    def passes(self) -> Sequence[NamedPass]:
        """Heads and layers are one call each; infinities are no whole numbers; weights stay on the card."""
        return (
            NamedPass("whole", bound_infinities),
            NamedPass("heads", fuse_heads),
            NamedPass("linear", fuse_linear),
            NamedPass("resident", keep_weights),
        )

    def open(self) -> Device:
        """The memory of the card, or of what stands in for it."""
        return chosen_numbers().card()

    def compile(
        self, segment: Graph, bodies: Bodies, disabled: Collection[str] = (), device: Device | None = None
    ) -> Executable:
        """The segment as a program that the library has taken. CompileFailed, in its own words, if it takes it not."""
        library = open_library()
        if isinstance(library, str):
            raise CompileFailed(library)
        setting = Setting(segment, library, self._limits, bodies, chosen_weights(), chosen_way())
        numbers = chosen_numbers()
        return compiled(setting, device or numbers.card(), numbers.executable)


_LIMITATIONS = TABLE.limitations()
_BUCKETS = Buckets.powers_of_two(1 << 16)


def _check_variables() -> None:
    """NotFound if a variable of the target has a value that there is not."""
    for chosen in (chosen_card, chosen_numbers, chosen_weights, chosen_way):
        chosen()
