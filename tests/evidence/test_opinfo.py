"""OpInfo through `torch.compile(backend="assay")`: verdicts, processes that die, resuming, the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

import torch
from deadly_opinfo import deadly
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import BadFeed, NotFound
from assay.evidence.json_lines import written
from assay.evidence.opinfo import unit as opinfo_run
from assay.evidence.opinfo.cases import _DATABASE, fresh, samples, tolerance
from assay.evidence.opinfo.messages import Settled, UnitJob
from assay.evidence.opinfo.page import page
from assay.evidence.opinfo.records import SELF, OpInfoRun, OpUnit, SampleResult, UnitResults, read
from assay.evidence.opinfo.run import check_resumed, list_units, run_units
from assay.evidence.opinfo.summary import Fraction, failures, opaque_ops, summary
from assay.evidence.opinfo.unit import run_unit
from assay.evidence.opinfo.verdicts import CallOutcome, difference, no_farther
from assay.evidence.opinfo.workers import OpInfoSettings, UnitRunner
from assay.frontends.torch import registry


def verdicts(unit: OpUnit, *, limit: int | None = 4, **more: Any) -> dict[str, dict[int, SampleResult]]:
    """What a unit's samples come to, in this process."""
    found: dict[str, dict[int, SampleResult]] = {}
    for message in run_unit(UnitJob(unit, "reference", limit=limit, **more)):
        if isinstance(message, Settled):
            found.setdefault(message.backend, {}).update(message.verdicts)
    return found


def statuses(unit: OpUnit, **more: Any) -> set[str]:
    return {verdict.status for verdict in verdicts(unit, **more)[SELF].values()}


@pytest.mark.parametrize("unit", [OpUnit("add", "f32"), OpUnit("sum", "bf16"), OpUnit("mul", "f32", True)], ids=str)
def test_samples_pass(unit: OpUnit) -> None:
    assert statuses(unit) == {"pass"}


def test_a_peer_runs_the_same_samples() -> None:
    found = verdicts(OpUnit("mul", "i64"), peers=("aot_eager",))
    assert set(found["aot_eager"]) == set(found[SELF])
    assert {verdict.status for verdict in found["aot_eager"].values()} == {"pass"}


def test_a_wrong_lowering_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE, "aten.neg.default", lambda b, n, x: b.abs(x))
    assert statuses(OpUnit("neg", "f32")) == {"wrong"}
    assert statuses(OpUnit("neg", "f32"), limit=1) == {"wrong"}


def test_a_gradient_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward of exp multiplies; here that gives its first factor."""
    monkeypatch.setitem(registry._TABLE, "aten.mul.Tensor", lambda b, n, x, y, **_: b.abs(x))
    found = verdicts(OpUnit("exp", "f32", True), limit=1)[SELF]
    assert found[0].status == "wrong"
    assert found[0].reason.startswith("gradient 0")


def test_what_fails_on_the_backend_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise OSError("no such thing")

    monkeypatch.setattr(opinfo_run, "recording", failing)
    found = verdicts(OpUnit("neg", "f32"), limit=2)[SELF]
    assert {(verdict.status, verdict.reason) for verdict in found.values()} == {("error", "OSError: no such thing")}


def test_memory_that_nobody_writes_is_nondeterministic() -> None:
    assert statuses(OpUnit("empty_like", "f32")) <= {"nondeterministic", "pass"}
    assert "nondeterministic" in statuses(OpUnit("empty_like", "bool"))


def test_no_graph_is_no_pass() -> None:
    assert statuses(OpUnit("equal", "f32")) == {"no_graph"}


def test_random_draws_follow_the_seed() -> None:
    assert statuses(OpUnit("bernoulli", "f32"), limit=2) == {"pass"}


def test_what_eager_refuses_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    info = _DATABASE["neg"]

    def refusing(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not today")

    monkeypatch.setattr(info, "op", refusing)
    found = verdicts(OpUnit("neg", "f32"))[SELF]
    assert {verdict.reason for verdict in found.values()} == {"eager fails: ValueError: not today"}


def test_an_input_changed_in_place_is_compared() -> None:
    x = torch.ones(3)
    left = CallOutcome([x], "leaf", [x + 1], [])
    assert "input after the call 0" in str(difference(left, CallOutcome([x], "leaf", [x], []), (0.0, 0.0)))
    assert difference(left, left, (0.0, 0.0)) is None


F32, F64 = torch.float32, torch.float64
DIFFERENCES: dict[str, tuple[Any, Any]] = {
    "value": (torch.tensor([1.0]), torch.tensor([1.1])),
    "NaN": (torch.tensor([1.0]), torch.tensor([float("nan")])),
    "infinity": (torch.tensor([3e38]), torch.tensor([float("inf")])),
    "dtype": (torch.ones(1), torch.ones(1, dtype=F64)),
    "shape": (torch.ones(1), torch.ones(())),
    "requires_grad": (torch.ones(1), torch.ones(1, requires_grad=True)),
    "number": (1.0, 2.0),
    "kind": (1, torch.tensor(1)),
    "nothing": (None, torch.tensor(1)),
}


@pytest.mark.parametrize(("actual", "expected"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_what_differs(actual: Any, expected: Any) -> None:
    assert difference(_outcome(actual), _outcome(expected), (0.0, 0.0)) is not None


def test_nan_is_nan_and_the_tolerance_may_be_raised() -> None:
    nan, off = torch.tensor([float("nan")]), torch.tensor([1.001])
    assert difference(_outcome(nan), _outcome(nan.clone()), (0.0, 0.0)) is None
    assert difference(_outcome(off), _outcome(torch.tensor([1.0])), (1e-2, 0.0)) is None


def test_rounding_is_told_from_a_wrong_result() -> None:
    exact = _outcome(torch.tensor([1.0], dtype=F64))
    eager, nearer, farther = (_outcome(torch.tensor([x])) for x in (1.1, 0.95, 1.2))
    assert no_farther(nearer, eager, exact, (0.0, 0.0))
    assert not no_farther(farther, eager, exact, (0.0, 0.0))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("mine", "eager", "exact", "fine"),
    [
        ([0.95, NAN, -INF], [1.1, NAN, -INF], [1.0, NAN, -INF], True),
        ([0.95, 0.0, -INF], [1.1, NAN, -INF], [1.0, NAN, -INF], False),
        ([0.95, NAN, INF], [1.1, NAN, -INF], [1.0, NAN, -INF], False),
        ([0.95, INF], [1.1, INF], [1.0, 1e39], True),
        ([0.5, INF], [1.1, INF], [1.0, 1e39], False),
        ([0.95, NAN], [1.1, 3.0], [1.0, 3.0], False),
    ],
)
def test_rounding_does_not_excuse_other_nans_and_infinities(
    mine: list[float], eager: list[float], exact: list[float], fine: bool
) -> None:
    outcomes = [_outcome(torch.tensor(each)) for each in (mine, eager)]
    assert no_farther(*outcomes, _outcome(torch.tensor(exact, dtype=F64)), (0.0, 0.0)) is fine


def test_results_of_integers_are_judged_by_f64_too() -> None:
    found = verdicts(OpUnit("fft.hfft2", "i64"), limit=None)[SELF].values()
    assert {verdict.status for verdict in found} <= {"pass", "rounding"}


def _outcome(*leaves: Any) -> CallOutcome:
    return CallOutcome(leaves, len(leaves), (), ())


def test_copies_share_nothing_and_keep_strides() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    inputs = (base.t(), (base[:1].expand(3, 4), base, base), {"s": torch.tensor(1.0, requires_grad=True)})
    copy = fresh(inputs)
    flat, others = torch.utils._pytree.tree_leaves(inputs), torch.utils._pytree.tree_leaves(copy)
    for mine, theirs in zip(others, flat, strict=True):
        assert torch.equal(mine, theirs)
        assert mine.stride() == theirs.stride()
        assert mine.requires_grad == theirs.requires_grad
        assert mine.data_ptr() != theirs.data_ptr()
    assert copy[1][1] is copy[1][2]


def test_samples_are_the_same_each_time_and_evenly_spaced() -> None:
    first, again = samples(OpUnit("sum", "f32"), 3), samples(OpUnit("sum", "f32"))
    assert [sample.index for sample in first] == [0, len(again) // 3, 2 * len(again) // 3]
    for sample in first:
        assert torch.equal(sample.inputs[0], again[sample.index].inputs[0])


def test_the_op_infos_own_tolerances_count() -> None:
    assert tolerance(OpUnit("add", "f32")) == (0.0, 0.0)
    assert tolerance(OpUnit("cholesky_inverse", "f32")) == (1e-4, 5e-3)


def test_units_by_name() -> None:
    assert list_units(["neg"], ["f32", "bool"], True) == [OpUnit("neg", "f32"), OpUnit("neg", "f32", True)]
    assert {unit.op for unit in list_units(["softmax"], ["f32"], False)} == {"softmax", "softmax.with_dtype"}
    with pytest.raises(NotFound, match="did you mean 'softmax'"):
        list_units(["sofmax"], ["f32"], False)
    with pytest.raises(NotFound, match="no dtype 'f23'"):
        list_units(["neg"], ["f23"], False)


@pytest.mark.parametrize(("how", "status", "reason"), [("dies", "crash", "signal 6"), ("hangs", "timeout", "2 s")])
def test_a_process_that_dies_or_hangs_costs_one_sample(how: str, status: str, reason: str) -> None:
    def make(settings: OpInfoSettings) -> UnitRunner:
        return UnitRunner(settings, deadly)

    todo = [OpUnit(how, "f32"), OpUnit("works", "f32")]
    found = {each.unit: each for each in run_units(todo, OpInfoSettings(timeout=2), 1, make)}
    assert {i: verdict.status for i, verdict in found[todo[0]].verdicts[SELF].items()} == {
        **dict.fromkeys((0, 1, 3), "pass"),
        2: status,
    }
    assert reason in found[todo[0]].verdicts[SELF][2].reason
    assert {verdict.status for verdict in found[todo[1]].verdicts[SELF].values()} == {"pass"}
    assert set(found[todo[1]].opaque["inference"]) == {"aten.x"}


def test_a_defect_outside_of_samples_ends_the_unit_and_is_told() -> None:
    with UnitRunner(OpInfoSettings(timeout=2), deadly) as runner:
        found = runner.run(OpUnit("fails", "f32"))
    assert found.failure == "error outside of any sample: ValueError: a defect"
    assert len(found.verdicts[SELF]) == 4


RUN = OpInfoRun(
    {
        "record": "run",
        "command": "assay opinfo",
        "date": "2026-01-01",
        "versions": {"torch": "9"},
        "target": "reference",
        "peers": ["aot_eager"],
        "samples": None,
        "units": 3,
    },
    [
        UnitResults(
            OpUnit("add", "f32"),
            4,
            {
                SELF: {
                    0: SampleResult("pass"),
                    1: SampleResult("wrong", "far | off"),
                    2: SampleResult("no_graph"),
                    3: SampleResult("pass"),
                },
                "aot_eager": dict.fromkeys((0, 1, 3), SampleResult("pass")) | {2: SampleResult("no_graph")},
            },
            graphs={"inference": 2},
        ),
        UnitResults(
            OpUnit("exp", "bf16"),
            3,
            {
                SELF: {
                    0: SampleResult("rounding", "near"),
                    1: SampleResult("crash", "signal 6"),
                    2: SampleResult("error", "no"),
                },
                "aot_eager": {0: SampleResult("pass"), 1: SampleResult("pass"), 2: SampleResult("error")},
            },
            graphs={"inference": 1},
            opaque={"inference": {"aten.exp.default": "has no lowering"}},
            tolerance=(0.0, 0.5),
        ),
        UnitResults(
            OpUnit("add", "f32", True),
            3,
            {
                SELF: {0: SampleResult("pass"), 1: SampleResult("wrong", "gradient 0"), 2: SampleResult("pass")},
                "aot_eager": dict.fromkeys(range(3), SampleResult("pass")),
            },
            differentiable={0, 1},
            graphs={"forward": 1, "backward": 1},
        ),
    ],
)


def test_figures_are_counted_from_the_records(tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text(written([RUN.header, *(line for each in RUN.findings for line in each.lines())]) + '{"cut sho')
    facts = summary(read(file))
    assert facts == summary(RUN)
    assert facts.peer == {"aot_eager": Fraction(2, 5)}
    assert facts.gradients == Fraction(1, 2)
    assert facts.clean == facts.clean_inference == Fraction(1, 2)
    assert facts.failed == {"wrong": 2, "error": 1, "crash": 1, "timeout": 0}
    assert facts.shared["error"] == 1
    text = page(read(file))
    assert (
        "| samples that aot_eager passes and Assay passes too | at least 97 % | 2 of 5 (40.00 %) | **not reached** |"
        in text
    )
    assert "| add | f32 | wrong | 1: 1 | no | far \\| off |" in text
    assert "| exp | bf16 | crash | 1: 1 | no | signal 6 |" in text
    assert "| aten.exp.default | inference | 1: exp | has no lowering |" in text
    assert "| exp | bf16 | 0 | 0.5 |" in text
    assert set(opaque_ops(RUN)) == {"aten.exp.default"}
    assert len(list(failures(RUN))) == 4


def test_a_fraction_is_never_rounded_into_a_pass() -> None:
    almost = Fraction(96_999, 100_000)
    assert not almost.reaches(97)
    assert almost.percent == "96.99 %"
    assert not Fraction(0, 0).reaches(0)


def test_another_run_is_not_resumed() -> None:
    with pytest.raises(BadFeed, match="target"):
        check_resumed(RUN.header, OpInfoSettings("cpu", ("aot_eager",)))
    check_resumed(RUN.header, OpInfoSettings("reference", ("aot_eager",)))


def test_the_command_runs_resumes_and_writes_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, docs = tmp_path / "f.jsonl", tmp_path / "opinfo.md"
    words = ["opinfo", "--op", "neg", "--samples", "2", "--workers", "1", "--no-grad", "--docs", str(docs)]
    first = CliRunner().invoke(app, [*words, "--dtype", "f32", "--json", str(file)])
    assert first.exit_code == 0, first.output
    before = file.read_text()
    assert json.loads(before.splitlines()[0])["record"] == "run"
    file.write_text(before + '{"record": "sam')
    monkeypatch.setattr("assay.evidence.opinfo.run.run_units", lambda todo, *_: [found_all(unit, 2) for unit in todo])
    again = CliRunner().invoke(app, [*words, "--dtype", "f32", "--dtype", "i64", "--json", str(file), "--resume"])
    assert again.exit_code == 0, again.output
    assert file.read_text().startswith(before)
    found = read(file)
    assert [each.unit for each in found.findings] == [OpUnit("neg", "f32"), OpUnit("neg", "i64")]
    assert "\n| f32 | 1 | 1 |" in docs.read_text()
    assert "\n| i64 | 2 | 2 |" in docs.read_text()


def found_all(unit: OpUnit, count: int) -> UnitResults:
    return UnitResults(unit, count, {SELF: dict.fromkeys(range(count), SampleResult("pass"))}, graphs={"inference": 1})
