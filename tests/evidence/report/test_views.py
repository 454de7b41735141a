"""What tables say: cells, names of files, clusters, unlock analysis, and the views of small records."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from evidence.report.samples import SMALL, VIEW, cause, failed, model, op, output, synthetic
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadFeed
from assay.evidence.records import Records, append
from assay.evidence.report import Report, gathered, make_report, markdown, write
from assay.evidence.report.cells import (
    Column,
    DistinctCount,
    Link,
    Ratio,
    Table,
    bounded,
    figure,
    natural,
    part,
    percent,
    size,
    written,
)
from assay.evidence.report.clusters import clusters
from assay.evidence.report.names import file_names
from assay.evidence.report.unlock import freed, shortest_fixes


@pytest.fixture(scope="module")
def report() -> Report:
    return make_report(SMALL, "Small")


def rows(report: Report, name: str, *keys: str) -> list[tuple[str, ...]]:
    """Some columns of a table as a reader sees them."""
    table = report.tables[name]
    places = [table.place(key) for key in keys]
    return [tuple(written(row[place], table.columns[place].kind) for place in places) for row in table.rows]


@given(st.integers(0, 2000), st.integers(1, 2000))
def test_a_percentage_is_100_only_for_all_and_0_only_for_none(count: int, whole: int) -> None:
    found = Fraction(min(count, whole), whole)
    text = percent(found)
    assert (text == "100 %") == (found == 1)
    assert (text == "0 %") == (found == 0)
    if text != "<1 %":
        assert abs(Fraction(int(text.removesuffix(" %")), 100) - found) <= Fraction(1, 100)


def test_percentages_are_rounded_to_the_nearest() -> None:
    assert [percent(Fraction(n, 1000)) for n in (4, 5, 114, 115, 994, 996, 999)] == [
        "<1 %", "1 %", "11 %", "12 %", "99 %", "99 %", "99 %",
    ]  # fmt: skip


def test_figures_never_flatter() -> None:
    assert (bounded(1.0001), bounded(1.0), bounded(0.999999)) == (">1", "1.00", "1.00")
    assert (part(0.99999999), part(1.0), part(0.5)) == ("0.999999", "1.0", "0.5")
    assert written(Ratio(129, 141), "ratio") == "129/141 (91 %)"
    assert written(Ratio(9999, 10000), "ratio") == "9999/10000 (99 %)"
    assert written(Ratio(0, 0), "ratio") == "0/0"


def test_figures_are_readable() -> None:
    assert [figure(value) for value in (0, 12.3456, 57168.09, 0.012345, 1.5e-7, float("inf"))] == [
        "0", "12.3", "57,168", "0.0123", "1.50e-07", "∞",
    ]  # fmt: skip
    assert [size(count) for count in (12, 2048, 3 << 20)] == ["12 B", "2.0 KiB", "3.0 MiB"]
    assert written(DistinctCount(1393, 21), "counted") == "1,393 (21)"
    assert [written(cell, "links") for cell in (None, "", ())] == ["–"] * 3
    assert sorted(["UInt32", "UInt8", "a10b2", "a10b10"], key=natural) == ["a10b2", "a10b10", "UInt8", "UInt32"]


def test_tables_are_grouped_by_links_and_say_once_what_is_everywhere_the_same() -> None:
    columns = (Column("model", "Model", "link"), Column("mode", "Mode"), Column("n", "N", "count"))
    a, b = Link("a", "models/a"), Link("b", "models/b")
    table = Table("t", "T", columns, ((a, "eval", 1), (b, "eval", 2), (a, "eval", 3)))
    assert {page: found.column("n") for page, found in table.by("model").items()} == {
        "models/a": [1, 3],
        "models/b": [2],
    }
    plain = table.plain("mode", "n")
    assert [column.key for column in plain.columns] == ["model", "n"]
    assert plain.note == "All of it: mode eval."


def test_names_of_files_are_safe_unique_and_readable() -> None:
    things = [
        "albert/albert-base-v2",
        "Mnist train",
        "mnist train",
        "a/b",
        "a-b",
        "../../etc/passwd",
        "",
        "ä",
        "x" * 300,
    ]
    found = file_names([*things, "aten.add.Tensor", "U-Net (conv) eval", "CON", ".hidden", "a\0b", "a//b"])
    assert len({name.lower() for name in found.values()}) == len(found)
    assert all(len(name) < 100 and name.strip(".-") == name for name in found.values())
    assert all(
        set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") for name in found.values()
    )
    assert found["albert/albert-base-v2"] == "albert-albert-base-v2"
    assert found["aten.add.Tensor"] == "aten.add.Tensor"
    assert found["U-Net (conv) eval"] == "U-Net-conv-eval"


@given(st.lists(st.text(max_size=12), max_size=8))
def test_no_two_things_share_a_file(things: list[str]) -> None:
    found = file_names(things)
    assert len({name.lower() for name in found.values()}) == len(set(things))


def test_messages_that_say_nearly_the_same_are_together() -> None:
    messages = ["worker # ended", "worker # ended early", "no such file: #", "worker # ended too early", "zero"]
    found = clusters(messages)
    assert found[0] == ("worker # ended", "worker # ended early", "worker # ended too early")
    assert sorted(text for each in found for text in each) == sorted(messages)
    assert clusters(reversed(messages)) == found


def most(blocked: dict[str, frozenset[int]], count: int) -> int:
    """The most models that any so many fixes free, by trying all."""
    causes = sorted({each for causes in blocked.values() for each in causes})
    choices = itertools.combinations(causes, min(count, len(causes)))
    return max(len(freed(blocked, frozenset(choice))) for choice in choices)


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_is_the_best_there_is(seed: int) -> None:
    dice = random.Random(seed)
    blocked = {
        f"m{place}": frozenset(dice.sample(range(8), dice.randint(1, 4))) for place in range(dice.randint(1, 12))
    }
    found = shortest_fixes(blocked)
    assert all(step.exact for step in found)
    assert found[-1].models == tuple(sorted(blocked))
    reached = {len(step.fixes): len(step.models) for step in found}
    best = 0
    for count in range(1, 9):
        best = reached.get(count, best)
        assert best == most(blocked, count)
    for step in found:
        assert step.models == freed(blocked, frozenset(step.fixes))


def test_a_plan_without_a_budget_is_greedy_and_says_so() -> None:
    dice = random.Random(1)
    blocked = {f"m{place}": frozenset(dice.sample(range(40), dice.randint(2, 9))) for place in range(80)}
    found = shortest_fixes(blocked, budget=50)
    assert not found[-1].exact
    assert found[-1].models == tuple(sorted(blocked))
    counts = [(len(step.fixes), len(step.models)) for step in found]
    assert counts == sorted(counts)
    assert all(step.models == freed(blocked, frozenset(step.fixes)) for step in found)
    assert shortest_fixes({}) == []


def test_a_plan_for_many_models_with_a_cause_each_is_found() -> None:
    found = shortest_fixes({f"m{place}": frozenset([place]) for place in range(1200)}, budget=1_000)
    assert [len(step.fixes) for step in found] == list(range(1, 1201))
    assert [len(step.models) for step in found] == list(range(1, 1201))


@pytest.mark.parametrize("budget", [1, 5, 20, 60])
def test_a_step_is_called_exact_only_where_the_search_came_to_its_end(budget: int) -> None:
    dice = random.Random(4)
    blocked = {f"m{place}": frozenset(dice.sample(range(12), dice.randint(2, 5))) for place in range(25)}
    found = shortest_fixes(blocked, budget)
    assert not all(step.exact for step in found)
    assert [step.exact for step in found] == sorted((step.exact for step in found), reverse=True)
    assert all(len(step.models) == most(blocked, len(step.fixes)) for step in found if step.exact)


def test_the_models_table_has_what_the_records_say(report: Report) -> None:
    keys = ("model", "target", "status", "ops_before", "ops_remain", "transfers", "transfer_bytes")
    assert rows(report, "models", *keys)[0] == (
        "albert/albert-base v2", "cpu", "pass_with_fallback", "7 (2)", "1 (1)", "2", "4.0 KiB",
    )  # fmt: skip
    keys = ("eager_time", "time", "speed_up", "worst_error", "pcc", "top1", "configurations")
    assert rows(report, "models", *keys)[0] == ("50.0", "20.0", "2.50×", "1.00", "0.999999", "0.9999", "1/1 (100 %)")
    assert rows(report, "models", "model", "target", "status")[1:] == [
        ("gpt", "cpu", "fail_lower"),
        ("gpt", "ttnn", "fail_lower"),
        ("musicgen", "cpu", "skipped"),
        ("t5", "cpu", "fail_lower"),
        ("t6", "cpu", "fail_lower"),
    ]


def test_a_model_known_by_its_ops_alone_is_a_row_without_a_status() -> None:
    found = make_report(Records((op("aten.a", "x", ("m",)), op("aten.a", "y", ("m",), cause()))), "Ops")
    assert rows(found, "models", "model", "status", "configurations") == [("m", "–", "1/2 (50 %)")]
    assert rows(found, "unlocks", "unlocks", "models") == [("1", "m")]


def test_history_holds_every_run_the_latest_first(report: Report) -> None:
    found = [row for row in rows(report, "history", "model", "date", "time") if row[0].startswith("albert")]
    assert [row[1:] for row in found] == [("2026-11-02T00:00:00Z", "20.0"), ("2026-10-01T00:00:00Z", "40.0")]


def test_ops_and_their_variations(report: Report) -> None:
    assert rows(report, "input_variations", "model", "op", "configuration", "count", "alone") == [
        ("albert/albert-base v2", "aten.view", VIEW.text, "3", "cpu pass")
    ]
    found = rows(report, "op_variations", "op", "configuration", "models", "remaining", "status", "worst_error", "pcc")
    assert found == [
        ("aten.foo", "f32[3]", "gpt", "–", "fail_lower", "–", "–"),
        ("aten.view", VIEW.text, "albert/albert-base v2", "cpu 1", "pass", "0.300", "0.999999"),
    ]
    assert ("aten.foo", "cpu", "1", "1", "0/1 (0 %)", "1") in rows(
        report, "ops", "op", "target", "models", "nodes", "alone", "failed"
    )
    assert rows(report, "fallbacks", "model", "op", "fallback", "reasons")[0] == (
        "albert/albert-base v2", "aten.view", "1", "strides",
    )  # fmt: skip


def test_a_model_is_blocked_by_its_own_causes_and_those_of_its_ops(report: Report) -> None:
    assert rows(report, "unlocks", "target", "cause", "impacted", "unlocks") == [
        ("cpu", "Killed: worker # ended", "1", "1"),
        ("cpu", "Killed: worker # ended early", "1", "1"),
        ("cpu", "aten.foo: LowerFailed: another thing", "1", "0"),
        ("cpu", "aten.foo: LowerFailed: no rule for #", "1", "0"),
        ("ttnn", "aten.foo: LowerFailed: no rule for #", "1", "1"),
    ]
    assert rows(report, "fix_plan", "target", "fixes", "unlocked", "method") == [
        ("cpu", "1", "1/3 (33 %)", "exact"),
        ("cpu", "2", "2/3 (67 %)", "exact"),
        ("cpu", "4", "3/3 (100 %)", "exact"),
        ("ttnn", "1", "1/1 (100 %)", "exact"),
    ]


def test_a_model_that_passes_is_not_blocked_by_an_op_that_fails_alone() -> None:
    found = make_report(Records((model("m"), op("aten.a", "x", ("m",), cause()))), "Ops")
    assert found.tables["fix_plan"].rows == ()
    assert rows(found, "component_failures", "count", "unlocks") == [("1", "0")]


def test_unknown_causes_are_shown_in_clusters(report: Report) -> None:
    assert rows(report, "unknown_causes", "cluster", "failure", "models") == [
        ("1", "Killed: worker # ended", "t5"),
        ("1", "Killed: worker # ended early", "t6"),
    ]
    assert ("unknown", "1", "t5") in rows(report, "component_failures", "component", "count", "models")


def test_what_was_not_tried_is_no_pass_and_no_failure(report: Report) -> None:
    assert rows(report, "not_tried", "name", "status", "cause") == [("musicgen", "skipped", "LowerFailed: too large")]
    assert rows(report, "statuses", "kind", "target", "cases", "green", "skipped") == [
        ("model", "cpu", "5", "1/5 (20 %)", "1"),
        ("model", "ttnn", "1", "0/1 (0 %)", "0"),
        ("op", "cpu", "2", "1/2 (50 %)", "0"),
    ]
    assert all("too large" not in str(row) for row in rows(report, "component_failures", "failure"))


def test_faults_that_were_injected_are_by_themselves(report: Report) -> None:
    assert rows(report, "faults", "fault", "name") == [("kill the worker", "gpt")]
    assert len(rows(report, "history", "model")) == 7


def test_component_rates_count_own_runs_and_configurations(report: Report) -> None:
    found = {row[:3]: row[3] for row in rows(report, "component_rates", "component", "target", "model", "passed")}
    assert found["lower", "cpu", "gpt"] == "0/2 (0 %)"
    assert found["lower", "ttnn", "gpt"] == "0/1 (0 %)"
    assert found["compile", "cpu", "albert/albert-base v2"] == "2/2 (100 %)"
    lower = [row for row in rows(report, "components", "target", "component", "passed", "average") if row[1] == "lower"]
    assert lower == [("cpu", "lower", "1/4 (25 %)", "25 % (1/4)"), ("ttnn", "lower", "0/1 (0 %)", "0 % (0)")]


def test_no_records_are_an_error() -> None:
    with pytest.raises(BadFeed, match="no records"):
        make_report(Records(()), "Nothing")


def test_only_faults_are_no_report_of_models() -> None:
    found = make_report(Records((failed("m", case={"fault": "kill"}), model("m"))), "One")
    assert rows(found, "models", "model", "status") == [("m", "pass")]


def test_reproducers_are_seen_from_the_report(tmp_path: Path) -> None:
    file = tmp_path / "run" / "records.jsonl"
    append(file, failed("m", reproducer="reproducers/a b.py", reproduced=True))
    found = make_report(gathered([file], tmp_path / "out" / "report"), "One")
    link = found.tables["cases"].column("reproducer")[0]
    assert link == Link("a%20b.py (fails in the same way)", "../../run/reproducers/a%20b.py", file=True)


def test_made_up_records_give_a_report_that_agrees_with_itself() -> None:
    found = make_report(synthetic(24), "Made up")
    assert [check for check in found.checks if not check.ok] == []
    assert {row[0] for row in rows(found, "fix_plan", "target")} == {"cpu", "ttnn"}


def test_an_output_beyond_what_is_allowed_is_told_with_its_figures() -> None:
    wrong = output("logits", error=2e-6, complaint="too far")
    why = cause("aten.a", "far off", stage="accuracy")
    found = make_report(
        Records((failed("m", why, status="fail_accuracy", stage="accuracy", outputs=(wrong,)),)), "Wrong"
    )
    assert rows(found, "outputs", "name", "ok", "part_of_allowed", "complaint") == [
        ("logits", "wrong", "2.00", "too far")
    ]


def test_models_that_come_past_a_component_are_not_among_the_blocked() -> None:
    table = make_report(synthetic(40), "Made up").tables["components"]
    listed = [link.text for cell in table.column("lowest") if isinstance(cell, tuple) for link in cell]
    assert len(listed) > 10
    assert [text for text in listed if "100 %" in text] == []
    for row in table.rows:
        passed = row[table.place("passed")]
        assert isinstance(passed, Ratio)
        assert len(row[table.place("lowest")] or ()) == min(passed.whole - passed.part, 10)  # pyright: ignore


def test_rows_that_are_too_many_for_a_file_go_on_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "ROWS", 10)
    report = make_report(synthetic(16), "Made up")
    write(tmp_path, report, ["markdown"])
    for page in report.pages:
        most = max((len(block.rows) for block in page.blocks if isinstance(block, Table)), default=0)
        names = [page.path, *(f"{page.path}.{n}" for n in range(2, max(math.ceil(most / 10), 1) + 1))]
        assert not (tmp_path / f"{page.path}.{len(names) + 1}.md").exists()
        texts = [(tmp_path / f"{name}.md").read_text() for name in names]
        lines = Counter(line for text in texts for line in text.splitlines())
        for block in page.blocks:
            if isinstance(block, Table) and block.rows:
                whole = list(markdown.table_lines(block, "../" * page.path.count("/")))
                assert lines >= Counter(whole[2:]), f"{page.path}: {block.name}"
        for text in texts:
            linked = re.findall(r"\(<(.*?)>\)", "".join(re.findall(r"Parts of this page: (.*)", text)))
            assert len(linked) == len(names) - 1
            assert all(((tmp_path / page.path).parent / name).is_file() for name in linked)
            tables = itertools.groupby(text.splitlines(), lambda line: line.startswith("|"))
            assert max((len(list(rows)) for is_row, rows in tables if is_row), default=0) <= 10 + 2
