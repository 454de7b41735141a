"""The ops that only jobs hold, beside core ops. They run on the host, by their references."""

from __future__ import annotations

from assay.ir.facts import Fact
from assay.ir.types import LinkType
from assay.ops import OPS

JOB_OPS = OPS.owned_by("job")


def check_link(fact: Fact, kind: str, what: str) -> None:
    """TypeError unless an input is a link of this kind."""
    if not isinstance(fact.type, LinkType) or fact.type.kind != kind:
        raise TypeError(f"'{what}' must be a {kind}, got {fact.type}")
