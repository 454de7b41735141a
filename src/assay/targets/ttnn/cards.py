"""Cards that the library can be shown in place of a real one: what a cluster description says of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assay.errors import NotFound, hint_for

ENVIRONMENT = "ASSAY_TTNN_CARD"
"""The variable with the card that stands in where there is none."""
DEFAULT = "n150"


@dataclass(frozen=True, slots=True)
class Chip:
    """A kind of chip: its architecture, and which of its parts are switched off, as bit masks."""

    arch: str
    harvest: int
    ethernet: int = 0
    pcie: int = 0


@dataclass(frozen=True, slots=True)
class Card:
    """Boards of one kind and their chips. The first chip of a board is reached by PCIe, others through it.

    `mesh` is the shape that the chips are opened in, `links` are pairs of (chip, channel) joined by Ethernet.
    """

    name: str
    chip: Chip
    board: str
    board_code: int
    mesh: tuple[int, int] = (1, 1)
    boards: tuple[tuple[int, ...], ...] = ((0,),)
    links: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = ()

    @property
    def chips(self) -> tuple[int, ...]:
        """The numbers of all chips, in order."""
        return tuple(sorted(chip for board in self.boards for chip in board))

    def description(self) -> str:
        """The cluster description, in YAML."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        rows, columns = self.mesh
        yield "arch:"
        yield from (f"  {chip}: {self.chip.arch}" for chip in self.chips)
        yield "chips:"
        yield from (f"  {chip}: [{chip % columns}, {chip // columns % rows}, 0, 0]" for chip in self.chips)
        yield "ethernet_connections:" if self.links else "ethernet_connections: []"
        for (one, channel), (other, there) in self.links:
            yield "  -"
            yield f"    - chip: {one}\n      chan: {channel}"
            yield f"    - chip: {other}\n      chan: {there}"
        yield "chips_with_mmio:"
        yield from (f"  - {board[0]}: {at}" for at, board in enumerate(self.boards))
        yield "harvesting:"
        for chip in self.chips:
            yield f"  {chip}:"
            yield f"    noc_translation: true\n    harvest_mask: {self.chip.harvest}\n    dram_harvesting_mask: 0"
            yield f"    eth_harvesting_mask: {self.chip.ethernet}\n    pcie_harvesting_mask: {self.chip.pcie}"
        yield "boards:"
        for at, board in enumerate(self.boards):
            yield f"  -\n    - board_id: {(self.board_code << 36) + at}\n    - board_type: {self.board}\n    - chips:"
            yield from (f"        - {chip}" for chip in board)


_WORMHOLE = Chip("wormhole_b0", harvest=1 << 6)
_BLACKHOLE = Chip("blackhole", harvest=0b11 << 6, ethernet=0b100100000, pcie=0b10)


def _pair(one: int, other: int, channels: tuple[int, int]) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Two links between two chips, from these channels on."""
    return tuple(((one, channels[0] + lane), (other, channels[1] + lane)) for lane in range(2))


def _eight() -> Card:
    """Four boards of two chips in a mesh of 2 × 4: a row of first chips above a row of second ones."""
    across = [_pair(chip, chip + 4, (8, 0)) for chip in range(4)]
    first = [_pair(chip, chip + 1, lanes) for chip, lanes in zip(range(3), ((0, 0), (6, 6), (0, 0)), strict=True)]
    second = [_pair(chip, chip + 1, lanes) for chip, lanes in zip(range(4, 7), ((6, 6), (8, 8), (6, 6)), strict=True)]
    links = tuple(link for pair in (*across, *first, *second) for link in pair)
    return Card("t3000", _WORMHOLE, "n300", 0x14, (2, 4), tuple((chip, chip + 4) for chip in range(4)), links)


CARDS: Mapping[str, Card] = {
    card.name: card
    for card in (
        Card("n150", _WORMHOLE, "n150", 0x18),
        Card("p150", _BLACKHOLE, "p150", 0x40),
        Card("n300", _WORMHOLE, "n300", 0x14, (1, 2), ((0, 1),), _pair(0, 1, (8, 0))),
        _eight(),
    )
}
"""Wormhole with one chip, Blackhole with one, and Wormhole with two and with eight."""


def chosen_card(environment: Mapping[str, str] = os.environ) -> Card:
    """The card that stands in where there is none: `$ASSAY_TTNN_CARD`, else an n150. NotFound if there is no such."""
    name = environment.get(ENVIRONMENT, "") or DEFAULT
    if name not in CARDS:
        raise NotFound(f"there is no card '{name}' ({ENVIRONMENT})", hint=hint_for(name, CARDS))
    return CARDS[name]
