"""Where the numbers of a run come from: the card, or where there is none a model of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from assay.errors import NotFound, hint_for
from assay.targets.base import Device
from assay.targets.ttnn.card import CardExecutable, CardMemory
from assay.targets.ttnn.device_model import ModelledCard, ModelledExecutable
from assay.targets.ttnn.executable import MakeExecutable
from assay.targets.ttnn.library import has_card
from assay.targets.ttnn.uncomputed import UncomputedCard, UncomputedExecutable

ENVIRONMENT = "ASSAY_TTNN_NUMBERS"
"""The variable that says whether numbers are computed."""


@dataclass(frozen=True, slots=True)
class NumberSource:
    """Who computes: the card's memory, what runs programs, and how a reader is told. Only what is `measured` has times
    that say something about a card."""

    card: Callable[[], Device]
    executable: MakeExecutable
    words: str
    measured: bool = False


NUMBERS: Mapping[str, NumberSource] = {
    "card": NumberSource(CardMemory, CardExecutable, "device", measured=True),
    "model": NumberSource(ModelledCard, ModelledExecutable, "device model"),
    "none": NumberSource(UncomputedCard, UncomputedExecutable, "none: all results are zeros"),
}
"""The card, the device model, and nobody: then the library is asked about programs, and results are zeros."""


def chosen_numbers(environment: Mapping[str, str] = os.environ) -> NumberSource:
    """Who computes: `$ASSAY_TTNN_NUMBERS`, else the card, and where there is none the device model. NotFound if nobody
    has that name."""
    name = environment.get(ENVIRONMENT, "") or ("card" if has_card() else "model")
    if name not in NUMBERS:
        raise NotFound(f"numbers cannot come from '{name}' ({ENVIRONMENT})", hint=hint_for(name, NUMBERS))
    return NUMBERS[name]
