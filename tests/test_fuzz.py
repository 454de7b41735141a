"""Fuzzing: a small share of what `make fuzz` runs, and that it can fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.errors import NotFound
from assay.evidence.compare.arrays import closeness
from assay.evidence.compare.noise import noise_of
from assay.evidence.fuzz.graph_cases import GraphCase, GraphGrower, NotComputed, alone, with_constants, without
from assay.evidence.fuzz.graph_deviations import DEVIATIONS, REFUSALS, GraphDeviation
from assay.evidence.fuzz.graph_peers import OnnxRuntimePeer
from assay.evidence.fuzz.graph_run import GraphFuzzReport, make_case, run_fuzz, shrink
from assay.evidence.fuzz.graph_targets import ELSEWHERE, SYMBOLIC
from assay.ir import dtypes
from assay.ir.parser import parse_graph
from assay.ir.printer import print_graph
from assay.ir.verify import verify
from assay.ops import CORE
from assay.ops.registry import Sample
from assay.runtime.targets import is_modelled, own_target_names, probe_target
from assay.targets.reference import ReferenceTarget

DOCS = Path(__file__).parent.parent / "docs" / "fuzzing.md"


def test_oracle_and_peers_agree() -> None:
    report = run_fuzz(100, seed=20)
    assert report.ok, str(report)
    assert report.graphs == 100
    assert len(report.ops) > 60
    for name, tally in report.peers.items():
        assert tally.whole + tally.part + tally.none == 100, name
        assert tally.elements > 20 * tally.undecided, name
    assert report.peers["onnxruntime"].whole > 15


@pytest.mark.parametrize("target", own_target_names())
def test_targets_agree_with_the_oracle(target: str) -> None:
    probe = probe_target(target)
    if not probe.present or is_modelled(target):
        pytest.skip(probe.reason or "it rounds to fewer digits than ops state")
    names = (target, target + SYMBOLIC)
    report = run_fuzz(20, seed=33, peers=names)
    assert report.ok, str(report)
    for name in names:
        tally = report.peers[name]
        assert tally.whole + tally.part == 20, name
        assert tally.whole >= 5, str(report)


def test_what_a_target_did_not_compute_is_told() -> None:
    report = run_fuzz(8, seed=33, peers=("cpu",), ops=["det", "add"])
    told = report.peers["cpu"].left_out[ELSEWHERE]
    assert set(told) == {"det: there is no kernel"}
    assert "nodes elsewhere" in str(report)


def test_graphs_are_valid_and_depend_on_the_seed_alone() -> None:
    for index in range(25):
        case = make_case(3, index)
        verify(case.graph)
        assert print_graph(case.graph) == print_graph(make_case(3, index).graph)
        for value, expected in zip(case.graph.outputs, run(case), strict=True):
            assert closeness(case.values[value], expected).ok


def run(case: GraphCase) -> tuple[Any, ...]:
    return ReferenceTarget().compile(case.graph).run(case.inputs)


def test_a_report_is_plain_data() -> None:
    data = run_fuzz(3, seed=1, peers=("decomposed",)).as_dict()
    assert data["graphs"] == 3
    assert data["ok"] is True
    assert data["findings"] == []
    assert data["peers"]["decomposed"]["whole"] == 3


def test_a_peer_that_does_not_exist() -> None:
    with pytest.raises(NotFound, match="no peer 'nobody'"):
        run_fuzz(1, peers=("nobody",))


def test_nothing_compared_is_not_ok() -> None:
    assert not run_fuzz(0, peers=("decomposed",)).ok


# --- it can fail


def scaled(op: str) -> Callable[..., Any]:
    """The reference of `op`, a thousandth too large."""
    right = CORE[op].reference
    return lambda *inputs, **attrs: right(*inputs, **attrs) * 1.001


def found(monkeypatch: pytest.MonkeyPatch, op: str, peer: str, **changes: Any) -> GraphFuzzReport:
    monkeypatch.setitem(CORE.table, op, replace(CORE[op], **changes))
    return run_fuzz(12, seed=4, peers=(peer,), ops=[op, "add", "transpose", "reduce_sum"])


@pytest.mark.parametrize("peer", ["decomposed", "symbolic", "onnxruntime", "cpu", "cpu:symbolic"])
def test_a_wrong_reference_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch, peer: str) -> None:
    report = found(monkeypatch, "sigmoid", peer, reference=scaled("sigmoid"))
    assert not report.ok
    assert {finding.ops for finding in report.findings} == {("sigmoid",)}
    assert {finding.peer for finding in report.findings} == {peer}


@pytest.mark.parametrize("peer", ["decomposed", "symbolic"])
def test_a_wrong_decomposition_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch, peer: str) -> None:
    report = found(monkeypatch, "relu", peer, parts=lambda b, x: b.abs(x))
    assert {finding.ops for finding in report.findings} == {("relu",)}


def test_a_wrong_milli_op_is_found_by_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    report = found(monkeypatch, "round", "onnxruntime", reference=lambda x: np.floor(x + 0.5))
    assert {finding.ops for finding in report.findings} == {("round",)}


def test_a_wrong_shape_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = CORE["flip"].shape
    assert rule is not None
    monkeypatch.setitem(CORE.table, "flip", replace(CORE["flip"], reference=lambda x, *, axes: x[:0]))
    report = run_fuzz(10, seed=2, peers=("decomposed",), ops=["flip"])
    assert any("flip" in finding.ops for finding in report.findings)


def test_a_failing_reference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(x: Any) -> Any:
        raise IndexError("out of bounds")

    report = found(monkeypatch, "exp", "decomposed", reference=fails)
    assert any(f.peer == "oracle" and "out of bounds" in f.message for f in report.findings)


def test_a_finding_is_text_that_shows_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CORE["sigmoid"]
    report = found(monkeypatch, "sigmoid", "decomposed", reference=scaled("sigmoid"))
    graph = parse_graph(report.findings[0].text)
    assert not graph.inputs
    wrong = ReferenceTarget().compile(graph).run([])
    monkeypatch.setitem(CORE.table, "sigmoid", right)
    for a, b in zip(wrong, ReferenceTarget().compile(graph).run([]), strict=True):
        np.testing.assert_allclose(np.float64(a), np.float64(b) * 1.001, rtol=1e-2)
        assert not np.array_equal(a, b)


def test_shrinking_keeps_what_is_needed_only() -> None:
    """A property of two nodes together is shown by two nodes."""
    case = next(c for i in range(100) if has((c := make_case(9, i)), "concat") and has(c, "reshape"))
    least = shrink(case, lambda smaller: has(smaller, "concat") and has(smaller, "reshape"))
    assert sorted(node.op for node in least.graph.nodes) == ["concat", "reshape"]
    assert all(not case.values[v].size or not np.any(least.values[v]) for v in least.graph.inputs)


def has(case: GraphCase, op: str) -> bool:
    return any(node.op == op for node in case.graph.nodes)


# --- cutting and noise


def test_parts_of_a_graph_stand_alone() -> None:
    for index in range(10):
        case = make_case(6, index)
        for node in case.graph.nodes:
            for part in (alone(case, node), without(case, [node])):
                verify(part.graph)
                for value, got in zip(part.graph.outputs, run(part), strict=True):
                    assert closeness(got, case.values[value]).ok
        closed = with_constants(case, case.graph.inputs)
        assert not closed.inputs
        assert len(run(closed)) == len(case.graph.outputs)


def chain(text: str) -> GraphCase:
    graph = parse_graph(text)
    values = dict(graph.constants)
    for node in graph.nodes:
        with np.errstate(all="ignore"):
            values[node.outputs[0]] = CORE[node.op].reference(*(values[v] for v in node.inputs if v), **node.attrs)
    return GraphCase(graph, values)


def test_noise_grows_where_digits_cancel() -> None:
    case = chain(
        """graph "g" core () {
          const %0: f32[2] = [1.0, 1000.0]
          const %1: f32[2] = [1.0, 999.9999]
          %2: f32[2] = exp(%1) from "t"
          %3: f32[2] = add(%0, %1) from "t"
          %4: f32[2] = sub(%3, %0) from "t"
          return %2, %4
        }
        """
    )
    allowed: Any = noise_of(case.graph, case.values, 0)[case.graph.outputs[1]].allowed
    assert 1e-7 < allowed[0] < 1e-5
    assert 1e-4 < allowed[1] < 1e-2


def test_what_rounding_decides_is_undecided() -> None:
    case = chain(
        """graph "g" core () {
          const %0: f32[2] = [3.0, 3.5]
          const %1: f32[] = 1.0
          %2: f32[2] = mul(%0, %1) from "t"
          %3: f32[2] = floor(%2) from "t"
          %4: bool[2] = lt(%2, %0) from "t"
          return %3, %4
        }
        """
    )
    noise = noise_of(case.graph, case.values, 0)
    whole, less = (noise[value] for value in case.graph.outputs)
    far, near = np.asarray(whole.allowed)
    assert far > 1
    assert near < 1e-5
    assert less.undecided is not None
    assert less.undecided.tolist() == [True, True]


# --- what is known of onnxruntime


def test_the_docs_list_every_deviation_and_refusal() -> None:
    text = DOCS.read_text()
    listed = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    rows = [(", ".join(f"`{op}`" for op in row.ops), row.reason) for row in DEVIATIONS]
    assert [row for row in listed if row[0].startswith("`")] == rows
    assert [line[2:] for line in text.splitlines() if line.startswith("- ")] == list(dict.fromkeys(REFUSALS.values()))


def test_every_deviation_names_ops_that_exist() -> None:
    assert [op for row in DEVIATIONS for op in row.ops if op not in CORE] == []


@pytest.mark.parametrize("row", [row for row in DEVIATIONS if "aborts" not in row.reason], ids=lambda row: row.reason)
def test_every_deviation_still_shows(row: GraphDeviation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that onnxruntime no longer needs must go."""
    others = tuple(other for other in DEVIATIONS if other is not row)
    monkeypatch.setattr("assay.evidence.fuzz.graph_peers.DEVIATIONS", others)
    assert any(differs(case) for op in row.ops for case in single_nodes(op) if applies(row, case))


def single_nodes(op: str) -> Iterator[GraphCase]:
    """Every sample of an op as a case of one node; also with an odd element in one of its inputs."""
    for dtype in CORE[op].main_dtypes:
        for sample in CORE[op].samples(np.random.default_rng(0), dtype):
            for inputs in (sample.inputs, *varied(sample)):
                grower = GraphGrower(np.random.default_rng(0))
                made = [(grower.constant if i in sample.fixed else grower.input) for i in range(len(inputs))]
                arguments = [None if x is None else make(x) for make, x in zip(made, inputs, strict=True)]
                try:
                    grower.emit(op, *arguments, **sample.attrs)
                except NotComputed:
                    continue
                if grower.builder.nodes:
                    yield grower.case()


def varied(sample: Sample) -> Iterator[tuple[Any, ...]]:
    odd = {"float": (np.nan, 1.0, 1e9), "int": (0,), "string": ("",)}
    for index, array in enumerate(sample.inputs):
        if array is None or index in sample.fixed or not array.size:
            continue
        for element in odd.get(dtypes.of(array).kind, ()):
            changed = array.copy()
            with np.errstate(over="ignore"):
                changed.reshape(-1)[0] = element
            yield (*sample.inputs[:index], changed, *sample.inputs[index + 1 :])


def applies(row: GraphDeviation, case: GraphCase) -> bool:
    node = case.graph.nodes[0]
    return row.applies(node, [None if value is None else case.values[value] for value in node.inputs])


def differs(case: GraphCase) -> bool:
    answer = OnnxRuntimePeer().ask(case)
    noise = noise_of(case.graph, case.values, 0)
    return bool(answer.failure) or any(not noise[v].judge(x, case.values[v]).ok for v, x in answer.values.items())
