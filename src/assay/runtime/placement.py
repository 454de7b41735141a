"""Where a node runs, and what each target before that one in the chain had against it."""

from __future__ import annotations

from typing import NamedTuple

from assay.ir.graph import Node


class Refusal(NamedTuple):
    """Why a target does not run a node."""

    target: str
    reason: str


class Placement(NamedTuple):
    """Where one node runs; `refusals` are those of the targets that come before, `note` says more about the node."""

    node: Node
    target: str
    refusals: tuple[Refusal, ...] = ()
    note: str = ""

    @property
    def reason(self) -> str:
        """Why the node does not run on the first target of the chain, or what is to be said about it."""
        if not self.refusals:
            return self.note
        if len({each.reason for each in self.refusals}) == 1:
            return self.refusals[0].reason
        return "; ".join(f"{each.target}: {each.reason}" for each in self.refusals)
