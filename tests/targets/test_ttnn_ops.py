"""The op table of the Tenstorrent target: the library is asked about every row, and must say what the table says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from assay.errors import CompileFailed
from assay.ir.graph import Graph
from assay.ops import OPS
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.lowering import accepted, planned
from assay.targets.ttnn.probing import RULES, LibraryRule, cases, refused, taken
from assay.targets.ttnn.table import TABLE

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("op", TABLE.rows)
def test_the_library_takes_what_the_table_takes(library: Library, op: str) -> None:
    count = 0
    for told, graph in cases(op):
        if taken(graph):
            assert complaint_about(graph, library) == "", told
            count += 1
    assert count, "no case of this row reaches the library"


def complaint_about(graph: Graph, library: Library) -> str:
    """What the library or the planner says against a graph."""
    try:
        accepted(planned(graph), library)
    except CompileFailed as error:
        return error.message
    return ""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.sentence)
def test_the_library_still_refuses_what_the_table_leaves_out(library: Library, rule: LibraryRule) -> None:
    assert refused(rule, library), "the library takes this now: the table may too"


def test_rows_are_of_ops_that_exist() -> None:
    assert [op for op in TABLE.rows if op not in OPS] == []


@pytest.mark.parametrize("op", TABLE.rows)
def test_a_row_states_the_calls_that_it_makes(op: str) -> None:
    stated = {*TABLE.rows[op].calls, "to_layout", "typecast", "permute", "reshape"}
    for told, graph in cases(op):
        if taken(graph):
            assert {step.op for step in planned(graph).steps} <= stated, told


def test_the_page_of_the_library_s_answers_is_up_to_date(library: Library) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "ttnntable.py"))
    assert (ROOT / "docs" / "ttnn-ops.md").read_text() == tool["table"](library), "run python tools/ttnntable.py"
