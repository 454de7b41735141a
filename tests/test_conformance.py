"""The conformance harness: its strict comparison, its records, peers that crash or hang, the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from deadly_peer import deadly, die_at_once

from assay.errors import NotFound
from assay.evidence.attempts import Attempt, IsolatedAttempts
from assay.evidence.conformance.page import page, write_page
from assay.evidence.conformance.run import CaseResult, ConformanceRun, excuse, judged, mismatch, run_conformance
from assay.evidence.conformance.suite import KINDS, Content, DataSet, SuiteCase, official_cases
from assay.evidence.engines import engine
from assay.evidence.peers import peer_names, peer_version

F = np.float32
NAN, INF = np.nan, np.inf


def f32(*items: float) -> Any:
    return np.array(items, F)


def objects(*items: str) -> Any:
    return np.array(items, object)


AGREE: dict[str, tuple[Any, Any]] = {
    "equal": (f32(1, 2), f32(1, 2)),
    "within tolerance": (f32(1.0005), f32(1)),
    "NaN is NaN": (f32(NAN), f32(NAN)),
    "the same Inf": (f32(INF, -INF), f32(INF, -INF)),
    "empty": (f32(), f32()),
    "scalar of NumPy": (F(3), np.array(3, F)),
    "bf16 within two units": (np.array([1.0078125], ml_dtypes.bfloat16), np.array([1], ml_dtypes.bfloat16)),
    "strings": (objects("a", "é"), np.array(["a", "é"])),
    "sequence": ([f32(1), f32(2, 3)], [f32(1), f32(2, 3)]),
    "nothing": (None, None),
    "map": ({"a": f32(1)}, {"a": f32(1)}),
}
DIFFER: dict[str, tuple[Any, Any]] = {
    "value": (f32(1.002), f32(1)),
    "NaN in one": (f32(NAN), f32(1)),
    "NaN expected": (f32(1), f32(NAN)),
    "other Inf": (f32(INF), f32(-INF)),
    "Inf for a large number": (f32(INF), f32(3e38)),
    "dtype": (np.array([1], np.float64), f32(1)),
    "integer dtype": (np.array([1], np.int32), np.array([1])),
    "shape": (f32(1), f32(1).reshape(1, 1)),
    "rank 0": (f32(1), np.array(1, F)),
    "empty of another shape": (np.zeros((0, 2), F), np.zeros((0, 3), F)),
    "bf16": (np.array([1.03125], ml_dtypes.bfloat16), np.array([1], ml_dtypes.bfloat16)),
    "string": (objects("a"), objects("b")),
    "string for number": (objects("1"), f32(1)),
    "bool": (np.array([True]), np.array([False])),
    "longer sequence": ([f32(1), f32(1)], [f32(1)]),
    "item": ([f32(1), f32(9)], [f32(1), f32(1)]),
    "tensor for sequence": (f32(1), [f32(1)]),
    "sequence for tensor": ([f32(1)], f32(1)),
    "nothing for tensor": (None, f32(1)),
    "tensor for nothing": (f32(1), None),
    "keys": ({"a": f32(1)}, {"b": f32(1)}),
    "value in a map": ({"a": f32(1)}, {"a": f32(2)}),
}


@pytest.mark.parametrize(("actual", "expected"), AGREE.values(), ids=AGREE.keys())
def test_what_agrees(actual: Any, expected: Any) -> None:
    assert mismatch(actual, expected, 1e-3, 1e-7) is None


@pytest.mark.parametrize(("actual", "expected"), DIFFER.values(), ids=DIFFER.keys())
def test_what_differs(actual: Any, expected: Any) -> None:
    reason = mismatch(actual, expected, 1e-3, 1e-7)
    assert reason
    assert "\n" not in reason


# --- cases and records


def case(*expected: Any) -> tuple[SuiteCase, Content]:
    content = Content(b"", (DataSet({}, expected),))
    return SuiteCase("test_made_up", "node", 1e-3, 1e-7, lambda: content), content


def test_a_record_says_what_is_wrong() -> None:
    given, content = case(f32(1))
    right = judged(given, content, "reference", Attempt("pass", "run", "", 0.5, ({"y": f32(1)},)))
    wrong = judged(given, content, "reference", Attempt("pass", "run", "", 0.5, ({"y": f32(2)},)))
    fewer = judged(given, content, "reference", Attempt("pass", "run", "", 0.5, ({},)))
    failed = judged(given, content, "reference", Attempt("fail_lower", "lower", "no such op", 0.5))
    assert (right.status, right.stage, right.reason, right.passed) == ("pass", "compare", "", True)
    assert (wrong.status, wrong.stage) == ("fail_accuracy", "compare")
    assert wrong.reason.startswith("'y': max abs 1")
    assert fewer.reason == "0 outputs instead of 1"
    assert (failed.status, failed.stage, failed.reason, failed.seconds) == ("fail_lower", "lower", "no such op", 0.5)
    assert failed.as_dict()["record"] == "case"


def test_a_case_without_data_does_not_pass() -> None:
    given, _ = case()
    assert not judged(given, Content(b"", ()), "reference", Attempt("pass", "run", "", 0.0, ())).passed


def test_a_limitation_excuses_another_result_but_no_failure() -> None:
    def record(name: str, status: str) -> CaseResult:
        return CaseResult(name, "node", "reference", status, "", "", 0.0)

    assert excuse(record("test_bernoulli_seed_expanded", "fail_accuracy"))
    assert not excuse(record("test_bernoulli", "fail_lower"))
    assert not excuse(record("test_bernoulli_more", "fail_accuracy"))
    assert not excuse(record("test_add", "fail_accuracy"))
    statuses = {"test_add": "pass", "test_bernoulli": "fail_accuracy", "test_sub": "fail_run"}
    outcome = ConformanceRun({"reference": "0"}, [record(name, status) for name, status in statuses.items()])
    assert [r.name for r in outcome.surprises()] == ["test_sub"]
    assert outcome.counts("reference") == {"node": (1, 3)}


def test_the_suite_is_complete() -> None:
    found = {kind: sum(c.kind == kind for c in official_cases()) for kind in KINDS}
    assert found == {"node": 1884, "simple": 23, "pytorch-converted": 82, "pytorch-operator": 35, "light": 9}


def test_every_engine_gets_its_record() -> None:
    seen: list[tuple[str, int, int]] = []
    outcome = run_conformance(
        ["reference", "reference:decomposed", "onnx-reference", "onnxruntime"],
        "test_clip",
        watch=lambda record, done, total: seen.append((record.name, done, total)),
    )
    total = len(official_cases("test_clip"))
    assert total > 10
    assert seen[-1][1:] == (4 * total, 4 * total)
    assert outcome.surprises() == []
    for name in outcome.engines:
        assert outcome.counts(name) == {"node": (total, total)}
        assert outcome.seconds(name)["node"] > 0


@pytest.mark.parametrize(
    ("spec", "kinds"), [("reference", KINDS[:-1]), ("reference:decomposed", KINDS)], ids=["composites", "decomposed"]
)
def test_every_case_passes_strictly(spec: str, kinds: tuple[str, ...]) -> None:
    """All of the suite but the known limitations; the light models with composites are in test_backend_suite."""
    outcome = run_conformance([spec], kinds=kinds)
    assert [(record.name, record.status, record.reason) for record in outcome.surprises()] == []
    passed, of = outcome.counts(spec)["node"]
    assert of - 6 <= passed <= of == 1884  # six cases are random draws, which may be those of the standard
    assert len(outcome.records) == 2033 - 9 * ("light" not in kinds)


def test_engines_that_do_not_exist() -> None:
    with pytest.raises(NotFound, match="there is no target or peer 'onnxrt'") as caught:
        engine("onnxrt")
    assert "onnxruntime" in caught.value.hint
    with pytest.raises(NotFound, match="there is no configuration 'fast'"):
        engine("reference:fast")
    with pytest.raises(NotFound, match="there is no target or peer 'nothing'"):
        run_conformance(["nothing"])


@pytest.mark.parametrize("name", peer_names())
def test_versions_of_peers(name: str) -> None:
    assert peer_version(name)[0].isdigit()


# --- peers that die


def test_a_crash_or_a_hang_costs_one_case() -> None:
    with IsolatedAttempts("deadly", 5.0, deadly) as worker:
        found = {name: worker.attempt(name.encode(), [{}]) for name in ("good", "crash", "hang", "lack", "fine")}
    assert {name: tried.status for name, tried in found.items()} == {
        "good": "pass",
        "crash": "crash",
        "hang": "timeout",
        "lack": "unsupported",
        "fine": "pass",
    }
    assert found["crash"].reason == "the process died with signal 6"
    assert found["hang"].reason == "took longer than 5 s"
    assert found["lack"].reason == "NotImplementedError: no such op"
    assert found["fine"].outputs is not None
    assert found["fine"].outputs[0]["y"] == 4


def test_a_peer_that_cannot_start_is_a_crash() -> None:
    with IsolatedAttempts("deadly", service=die_at_once) as worker:
        tried = worker.attempt(b"", [{}])
    assert (tried.status, tried.reason) == ("crash", "the process died with exit code 3")


# --- the page


def outcome() -> ConformanceRun:
    records = [
        CaseResult("test_a", "node", "reference", "pass", "compare", "", 0.25),
        CaseResult("test_bernoulli", "node", "reference", "fail_accuracy", "compare", "'y': max abs 1", 0.25),
        CaseResult("test_b", "light", "reference", "fail_run", "run", "a | b\nc", 1.0),
        CaseResult("test_a", "node", "onnxruntime", "crash", "run", "the process died with signal 11", 0.0),
        CaseResult("test_bernoulli", "node", "onnxruntime", "pass", "compare", "", 0.0),
        CaseResult("test_b", "light", "onnxruntime", "pass", "compare", "", 0.0),
    ]
    return ConformanceRun({"reference": "0.1", "onnxruntime": "1.2"}, records)


def test_the_page_lists_every_case_that_does_not_pass() -> None:
    text = page(outcome(), "assay conformance --peer onnxruntime")
    assert "assay conformance --peer onnxruntime" in text
    assert "| reference 0.1 | 1 of 2 | 0 of 1 | 1 of 3 |" in text
    assert "| onnxruntime 1.2 | 1 of 2 | 1 of 1 | 2 of 3 |" in text
    assert "| test_bernoulli | node | fail_accuracy | random:" in text
    assert "| test_b | light | fail_run | a \\| b c |" in text
    assert "| test_a | node | crash | the process died with signal 11 |" in text
    times = text.index("## Times of the run of ")
    assert "0.5" in text[times:]
    assert "0.5" not in text[:times]


def test_the_page_counts_the_cases_that_leave_floats_to_the_oracle() -> None:
    left = ("lstm: there is no kernel", "lstm: there is no kernel")
    records = [
        CaseResult("test_a", "node", "cpu", "pass", "compare", "", 0.1),
        CaseResult("test_b", "node", "cpu", "pass", "compare", "", 0.1, left),
        CaseResult("test_c", "node", "cpu", "fail_accuracy", "compare", "'y': max abs 1", 0.1),
    ]
    text = page(ConformanceRun({"cpu": "0.1"}, records), "assay conformance -t cpu")
    assert "no op on floats left to the oracle: node 1 of 3." in text
    assert "| lstm: there is no kernel | 1 |" in text
    assert "Left to the oracle" not in page(outcome(), "assay conformance")


def test_records_tell_which_floats_a_target_left_to_the_oracle() -> None:
    native = run_conformance(["cpu"], "test_add_bcast").records
    assert [record.fallbacks for record in native] == [()]
    (left,) = run_conformance(["cpu"], "test_det_2d").records
    assert left.passed
    assert left.fallbacks == ("det: there is no kernel",)


def test_the_page_and_the_readme_are_written(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    begin, end = "<!-- conformance: begin (written by `assay conformance`) -->", "<!-- conformance: end -->"
    readme.write_text(f"top\n{begin}\nold\n{end}\nrest\n")
    for _ in range(2):
        write_page(tmp_path / "docs" / "conformance.md", outcome(), "assay conformance")
    before = readme.read_text()
    write_page(tmp_path / "build" / "conformance.md", ConformanceRun({}), "assay conformance")
    assert readme.read_text() == before, "a page elsewhere is nobody's business"
    text = readme.read_text()
    assert text.startswith("top\n")
    assert text.endswith("rest\n")
    assert "old" not in text
    assert text.count(begin) == text.count(end) == text.count("1 of 3") == 1
    assert (tmp_path / "docs" / "conformance.md").read_text().startswith("# Conformance\n")
