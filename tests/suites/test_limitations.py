"""What a target does not take is a row of its table: each refusal has one, and each row is met."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

from suites.census import census, counted

from assay.ir.graph import Node
from assay.targets.base import Limitation, Limitations, Support, Target
from assay.targets.reference import ReferenceTarget

ROOT = Path(__file__).parent.parent.parent


def test_refusals_are_limitations_and_limitations_are_met(target: Target) -> None:
    found = counted(target.name)
    assert found.disagreements[:10] == []
    assert [(row.ops, row.reason) for row in target.limitations().rows if row not in found.met] == []


def test_the_page_of_targets_is_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "targetpage.py"))
    assert (ROOT / "docs" / "targets.md").read_text() == tool["page"](), "run python tools/targetpage.py"


# --- the census finds what it is there for


class Careless(ReferenceTarget):
    """Refuses a node that its table does not name, and names one that it takes."""

    def limitations(self) -> Limitations:
        return Limitations((Limitation("no sums", ops=("add",)), Limitation("nothing", lambda node: False)))

    def support(self, node: Node) -> Support:
        return replace(super().support(node), ok=node.op != "mul", reason="")


def test_what_a_table_does_not_say_is_found() -> None:
    found = census(Careless())
    told = {line.split()[0] for line in found.disagreements}
    assert {"add", "mul"} <= told
    assert "sub" not in told
    assert [row.reason for row in found.met] == ["no sums"]
