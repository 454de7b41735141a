"""The page on jobs names every op."""

from __future__ import annotations

import re

from pages import ROOT

from assay.jobs import definitions as definitions
from assay.jobs.registry import JOB_OPS


def test_the_page_names_every_op_and_no_other() -> None:
    text = (ROOT / "docs" / "jobs.md").read_text()
    listed = set(re.findall(r"`(job\.\w+)`", text.split("## Ops", 1)[1].split("\n## ", 1)[0]))
    assert listed == {each.name for each in JOB_OPS}
