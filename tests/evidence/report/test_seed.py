"""The published analysis of nine models, from records: its three tables, row by row, and what it did not say."""

from __future__ import annotations

import pytest
from evidence.report import seed_records as seed

from assay.evidence.records import Records
from assay.evidence.records.causes import normalised
from assay.evidence.report import Report, make_report
from assay.evidence.report.cells import Link, Table, written
from assay.evidence.report.markdown import as_markdown
from assay.evidence.report.pages import Remark

M, W, T = seed.MUSICGEN, seed.WHISPER, seed.TURBO

FAILURES = [
    ("Forge-Fe", seed.OUTPUT_DTYPE, 8, {*M.values(), *W.values()}),
    ("Forge-Fe", seed.UINT8, 3, set(M.values())),
    ("Forge-Fe", seed.UINT32, 3, set(M.values())),
    ("Metalium", seed.DATA, 6, {*M.values(), W["large"], W["medium"], W["small"]}),
    ("Metalium", seed.BROADCAST, 3, set(M.values())),
    ("Metalium", seed.CONV2D, 2, {W["tiny"], W["base"]}),
]
FORGE = [
    (M["large"], 89), (M["medium"], 90), (M["small"], 90), (W["large"], 98), (W["medium"], 98), (W["base"], 99),
    (W["small"], 99), (W["tiny"], 99), (T, 100),
]  # fmt: skip
METALIUM = [
    (M["large"], 82), (M["medium"], 83), (M["small"], 83), (W["base"], 97), (W["large"], 97), (W["medium"], 97),
    (W["tiny"], 97), (W["small"], 98), (T, 100),
]  # fmt: skip
COMPONENTS = [("Forge-Fe", 96, FORGE), ("MLIR", 96, FORGE), ("Metalium", 93, METALIUM)]
OPS = [
    ("Reshape", {*M.values(), *W.values()}),
    ("Conv2d", set(W.values())),
    *((op, set(M.values())) for op in ("Add", "Cast", "Embedding", "Greater", "Index", "Layernorm")),
    *((op, set(M.values())) for op in ("RepeatInterleave", "Unsqueeze")),
    ("Matmul", {M["large"]}),
]


@pytest.fixture(scope="module")
def report() -> Report:
    return make_report(Records(tuple(seed.records())), "Nine models")


def names(cell: object) -> set[str]:
    assert isinstance(cell, tuple)
    return {link.text for link in cell if isinstance(link, Link)}


def shown(table: Table, key: str) -> list[str]:
    kind = table.columns[table.place(key)].kind
    return [written(cell, kind) for cell in table.column(key)]


def test_there_are_nine_models(report: Report) -> None:
    assert len(report.tables["models"].rows) == 9


def test_component_failures(report: Report) -> None:
    table = report.tables["component_failures"]
    found = list(
        zip(
            shown(table, "component"),
            shown(table, "failure"),
            table.column("count"),
            map(names, table.column("models")),
            strict=True,
        )
    )
    assert found == [(component, normalised(text), count, models) for component, text, count, models in FAILURES]


def test_component_statistics(report: Report) -> None:
    table = report.tables["components"]
    assert shown(table, "component") == [component for component, _, _ in COMPONENTS]
    assert shown(table, "passed") == ["1/9 (11 %)"] * 3
    for (_, average, lowest), told, blocked in zip(
        COMPONENTS, shown(table, "average"), table.column("lowest"), strict=True
    ):
        assert told.startswith(f"{average} % (")
        assert isinstance(blocked, tuple)
        stuck = [(name, rate) for name, rate in lowest if rate < 100]
        assert [link.text for link in blocked] == [f"{name} ({rate}/100, {rate} %)" for name, rate in stuck]


def test_op_failures(report: Report) -> None:
    table = report.tables["op_failures"]
    found = zip(shown(table, "op"), table.column("count"), map(names, table.column("models")), strict=True)
    assert list(found) == [(op, len(models), models) for op, models in OPS]


def test_the_top_failure_fixed_alone_unlocks_no_model(report: Report) -> None:
    table = report.tables["component_failures"]
    assert max(row[table.place("count")] for row in table.rows) == table.column("count")[0] == 8
    assert table.column("unlocks")[0] == 0
    for page in report.pages[:2]:
        remarks = [block for block in page.blocks if isinstance(block, Remark)]
        assert [remark.text for remark in remarks] == [
            "The failure that impacts most models on forge (8), fixed alone, unlocks no model: "
        ]
        assert remarks[0].link == table.column("failure")[0]
        assert "unlocks no model" in as_markdown(page)


def test_the_fix_plan(report: Report) -> None:
    table = report.tables["fix_plan"]
    found = list(zip(table.column("fixes"), shown(table, "unlocked"), table.column("method"), strict=True))
    assert found == [
        (2, "3/8 (38 %)", "exact"),
        (3, "5/8 (63 %)", "exact"),
        (12, "7/8 (88 %)", "exact"),
        (13, "8/8 (100 %)", "exact"),
    ]
    assert names(table.column("models")[0]) == {W["small"], W["medium"], W["large"]}


def test_the_report_agrees_with_itself(report: Report) -> None:
    assert [check for check in report.checks if not check.ok] == []
