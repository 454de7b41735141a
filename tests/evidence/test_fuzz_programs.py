"""Random torch programs and ONNX models: a few of them run, and what is wrong is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest
import torch

from assay.evidence.fuzz import onnx_verdict, torch_run, torch_verdict
from assay.evidence.fuzz.onnx_cases import cut, random_case, unconnected
from assay.evidence.fuzz.onnx_deviations import ORT, REFERENCE, Deviation, PeerFault
from assay.evidence.fuzz.onnx_verdict import deviating, judged_outputs, refusal_counts
from assay.evidence.fuzz.report import FuzzJob
from assay.evidence.fuzz.torch_plain import PLAIN
from assay.evidence.fuzz.torch_program import ProgramInput, RandomProgram, Statement, Turn
from assay.evidence.fuzz.torch_story import InParts
from assay.evidence.fuzz.torch_verdict import TRACING_FAULTS, judge
from assay.ops import CORE
from assay.runtime.targets import probe_target


def test_a_run_in_a_process_of_its_own_ends_quietly() -> None:
    """No process leaves semaphores behind, of which Python would warn in the end."""
    script = (
        "from assay.evidence.fuzz.torch_run import run_torch\n"
        "if __name__ == '__main__':\n"
        "    report = run_torch(2, 1, ('reference',), processes=1)\n"
        "    print(report.statuses['reference'].total(), len(report.findings))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.stdout.strip(), done.stderr) == ("2 0", "")


def test_models_and_programs_depend_on_their_numbers_alone() -> None:
    from assay.evidence.fuzz.torch_random import random_program

    for index in range(5):
        assert random_program(3, index).source() == random_program(3, index).source()
        assert random_case(3, index).proto() == random_case(3, index).proto()


@pytest.fixture
def off_by_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sum of the oracle is a thousandth too large."""
    right = CORE["add"]
    wrong = replace(right, reference=lambda *xs, **attrs: right.reference(*xs, **attrs) * 1.001)
    monkeypatch.setitem(CORE.table, "add", wrong)


def statuses(runner: Any, count: int) -> set[str]:
    return {row[1] for index in range(count) for row in runner.run(FuzzJob(5, index, ("reference",))).rows}


@pytest.mark.usefixtures("off_by_a_little")
def test_a_wrong_op_shows_in_programs() -> None:
    assert "wrong" in statuses(torch_run.ProgramRunner(shrunk=0), 12)


@pytest.mark.usefixtures("off_by_a_little")
def test_a_wrong_op_shows_in_models() -> None:
    """In one that adds: not all others are safe to ask onnxruntime about in this process."""
    case = random_case(5, 7)
    assert "Sum" in case.ops
    assert onnx_verdict.judge(case, ("reference",))["reference"].status in ("wrong", "split")


# --- what eager itself might as well have given


def judged(text: str, leaf: str, target: str = "cpu", *, grad: bool = True) -> str:
    """The verdict on a program of one argument and one statement."""
    program = RandomProgram(
        (ProgramInput("x0", "argument", f"{leaf}.requires_grad_()" if grad else leaf),),
        (Statement(f"v1 = {text}", ("v1",)),),
        ("v1",),
        grad=grad,
    )
    return judge(program, target).status


def test_what_eager_gives_for_nan_depends_on_where_it_lies() -> None:
    """The last elements of a tensor go through another loop than the first."""
    assert judged("F.elu(x0)", 'torch.full((35,), float("nan"))') == "pass"


@pytest.mark.parametrize("name", ["elu", "selu", "celu"])
def test_what_eager_gives_as_a_gradient_at_nan_depends_on_where_it_lies(name: str) -> None:
    """Also of what no argument holds, but a result on the way."""
    assert judged(f"F.{name}(x0 * 1)", 'torch.full((35,), float("nan"))') == "pass"


def test_the_rounding_of_a_sum_is_relative_to_its_terms() -> None:
    assert judged("torch.reciprocal(F.group_norm(x0, 4))", "torch.randn(2, 4, 5, 5)") == "pass"


@pytest.fixture
def card() -> str:
    """The target whose floats have eight bits, as the judge must know."""
    found = probe_target("ttnn")
    if not found.present:
        pytest.skip(found.reason)
    return "ttnn"


STEEP = ("torch.exp(x0 * 3.0)", "torch.sin(x0 * 4.0)", "torch.cumsum(x0, 0) - x0.sum(0)")


@pytest.mark.parametrize("text", STEEP)
def test_what_a_target_rounds_to_is_known_to_the_judge(card: str, text: str) -> None:
    assert judged(text, "torch.randn(9, 7)", card, grad=False) == "pass"


def test_a_wrong_op_shows_on_a_target_that_rounds(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off by four times what such rounding is."""
    right = CORE["exp"]
    wrong = replace(right, reference=lambda x: right.reference(x) * np.float32(1 + 2**-4))
    monkeypatch.setitem(CORE.table, "exp", wrong)
    assert judged("torch.exp(x0)", "torch.randn(9, 7)", card, grad=False) == "wrong"


OUT_OF_RANGE = "torch.zeros_like(F.nll_loss(F.log_softmax(x0, 1), torch.tensor([-1, 0]), ignore_index=0)) + x0.sum()"


def test_what_torchs_decompositions_leave_out_raises_nothing() -> None:
    """Of a loss whose shape alone is read they leave nothing, and aot_eager, which does not decompose, raises."""
    assert judged(OUT_OF_RANGE, "torch.randn(2, 3)") == "torch"


def test_an_error_that_they_keep_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss itself is read here, and its index is made one that there is."""
    right = CORE["gather_elements"]
    wrong = replace(right, reference=lambda x, at, *, axis: right.reference(x, np.clip(at, 0, 1), axis=axis))
    monkeypatch.setitem(CORE.table, "gather_elements", wrong)
    text = OUT_OF_RANGE.removeprefix("torch.zeros_like")
    assert judged(text, "torch.randn(2, 3)", "reference") == "wrong"


def test_errors_that_are_eagers_own_are_no_ones_fault() -> None:
    """The program that shows one: the same numbers in another layout are fine with eager, and are what Assay gives."""
    text = "F.conv_transpose2d(x0, torch.ones(2, 2, 1, 3).requires_grad_(), groups=2, dilation=2, output_padding=1)"
    assert judged(text, "torch.ones(1, 1, 2, 1).permute(0, 2, 1, 3)") == "torch"
    assert judged(text, "torch.ones(1, 2, 1, 1)") == "pass"


def test_errors_that_are_tracings_own_are_no_ones_fault() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = torch.nn.functional.max_pool1d(x, 2, 2, padding=1, dilation=2)
        return found, found.detach()

    given = torch.randn(2, 1, 1).requires_grad_()
    assert function(given)[1].shape == (2, 1, 1)
    for backend in ("aot_eager", "assay"):
        with pytest.raises(AssertionError, match=TRACING_FAULTS[0]):
            torch.compile(function, backend=backend)(given)
    text = "(lambda found: (found, found.detach()))(stepping_pool(x0, 2, 2))"
    assert judged(text, "torch.randn(2, 1, 1)", grad=True) == "torch"


WRITES_AND_RAISES = RandomProgram(
    (ProgramInput("x0", "argument", "torch.randn(1, 1, n)"), ProgramInput("p1", "parameter", "torch.ones(2)")),
    (Statement("self.p1.data.mul_(0.5)", ()), Statement("v2 = F.conv1d(x0, torch.ones(1, 1, 3)).exp()", ("v2",))),
    ("v2",),
    (Turn({"n": 1}), Turn({"n": 5})),
)
"""A program whose first call raises after it has written to the state; a trace of it raises before."""


def test_what_eager_wrote_before_it_raised_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_verdict, "_same_fault", lambda *given: False)
    found = judge(WRITES_AND_RAISES, "reference")
    assert (found.status, found.found and found.found.turn) == ("torch", 1)


def test_that_excuses_nothing_else_behind_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CORE["exp"]
    monkeypatch.setitem(CORE.table, "exp", replace(right, reference=lambda x: right.reference(x) * 1.01))
    assert judge(WRITES_AND_RAISES, "reference").status == "wrong"


ATTENTION = "F.scaled_dot_product_attention(x0 * 2, torch.ones_like(x0), torch.ones_like(x0))"
SOME_NAN = 'torch.randn(2, 3, 4, 8).index_fill(1, torch.tensor(1), float("nan"))'


@pytest.mark.parametrize("grad", [False, True])
def test_what_eager_gives_for_scores_of_nan_depends_on_its_kernel(grad: bool) -> None:
    assert judged(ATTENTION, SOME_NAN, grad=grad) == "pass"


def test_that_excuses_no_other_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CORE["sdpa"]
    wrong = replace(right, reference=lambda *xs, **attrs: np.nan_to_num(right.reference(*xs, **attrs), nan=0.5))
    monkeypatch.setitem(CORE.table, "sdpa", wrong)
    assert judged(ATTENTION, SOME_NAN, "reference") == "wrong"


SOME_INFINITE = 'torch.randn(3, 4).index_fill(1, torch.tensor(1), float("inf"))'


@pytest.mark.parametrize("dims", ["1", "(0, 1)"])
def test_what_eager_gives_for_infinite_means_depends_on_where_they_lie(dims: str) -> None:
    assert judged(f"torch.std_mean(x0, {dims})[1]", SOME_INFINITE) == "pass"


def test_that_excuses_no_other_means(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CORE["reduce_mean"]
    wrong = replace(right, reference=lambda *xs, **attrs: np.nan_to_num(right.reference(*xs, **attrs), posinf=0.5))
    monkeypatch.setitem(CORE.table, "reduce_mean", wrong)
    assert judged("torch.std_mean(x0, 1)[1]", SOME_INFINITE, "reference") == "wrong"


PARALLEL = "torch.cross(x0, x0 + 1, dim=1) != 0"


def test_what_eager_leaves_of_products_that_cancel_is_rounding() -> None:
    """Eager rounds one of the two products alone, and the program asks whether anything is left."""
    assert judged(PARALLEL, "torch.randn(5, 1).expand(-1, 3)") == "pass"


def test_that_excuses_no_other_products(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CORE["sub"]
    monkeypatch.setitem(CORE.table, "sub", replace(right, reference=lambda *xs: right.reference(*xs) + 1))
    assert judged(PARALLEL.replace("!= 0", "> 0.5"), "torch.randn(5, 1).expand(-1, 3)", "reference") == "wrong"


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: torch.cross(x, y, dim=1),
        lambda x, y: torch.linalg.cross(x, y[:1]),
        lambda x, y: torch.addcmul(x, y, y[:1], value=0.3),
        lambda x, y: torch.var_mean(x, (0, 1)),
        lambda x, y: torch.std_mean(x, 1, keepdim=True),
        lambda x, y: torch.sort(x, 0, descending=True),
        lambda x, y: torch.topk(x, 2, 0, largest=False),
        lambda x, y: torch.topk(x[0, 0], 1),
        lambda x, y: torch.median(x, 1, keepdim=True),
        lambda x, y: torch.nanmedian(y, 0),
        lambda x, y: torch.nn.functional.interpolate(x[:, None], size=5, mode="linear"),
        lambda x, y: torch.nn.functional.interpolate(x[:, None], scale_factor=2.3, mode="linear"),
        lambda x, y: torch.nn.functional.interpolate(x[:, None, :1], size=4, mode="linear"),
        lambda x, y: torch.nn.functional.interpolate(
            x[None, None], scale_factor=(1.7, 1.2), mode="bilinear", align_corners=True
        ),
    ],
)
def test_ops_in_parts_are_the_ops(call: Callable[..., Any]) -> None:
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    with InParts():
        found = call(x, y)
    torch.testing.assert_close(found, call(x, y))


EQUALS = "torch.randn(8, 40).round()"


@pytest.mark.parametrize("call", ["torch.topk(x0, 3)", "torch.sort(x0, 1, descending=True)", "torch.sort(x0.long())"])
def test_which_of_equal_elements_comes_first_is_anybodys(call: str) -> None:
    assert judged(f"{call}[1]", EQUALS) == "pass"
    assert judged(f"{call}[0]", EQUALS) == "pass"


def test_that_excuses_no_other_places(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CORE["topk"]

    def next_places(*xs: Any, **attrs: Any) -> Any:
        values, places = right.reference(*xs, **attrs)
        return values, (places + 1) % xs[0].shape[-1]

    monkeypatch.setitem(CORE.table, "topk", replace(right, reference=next_places))
    assert judged("torch.topk(x0, 3)[1]", EQUALS, "reference") == "wrong"


@pytest.mark.parametrize("median", ["torch.median", "torch.nanmedian"])
def test_medians_of_elements_that_lie_over_each_other_are_those_of_a_copy(median: str) -> None:
    """Eager reads other memory there; should it no longer do so, `_median` can go."""
    x = torch.randn(3, 1, 5)
    assert not torch.equal(eval(median)(x.expand(-1, 3, -1), 1)[0], x[:, 0])
    assert judged(f"{median}(x0.expand(-1, 3, -1), 1)[0]", "torch.randn(3, 1, 5)", "cpu") == "pass"


def test_an_infinity_stays_where_an_axis_keeps_its_size() -> None:
    call = "torch.nn.functional.interpolate(x0, size=(5, 5), mode='bilinear')"
    assert judged(call, "torch.randn(1, 1, 5, 8).index_fill_(3, torch.tensor([4]), torch.inf)", "cpu") == "pass"


@pytest.mark.parametrize(("size", "old", "at"), [(2, 1, 0), (16, 8, 1), (16, 8, 6)])
def test_an_infinity_stays_out_of_places_beyond_the_edge(size: int, old: int, at: int) -> None:
    call = f"torch.nn.functional.interpolate(x0, size=({size}, 3), mode='bilinear')"
    x = f"torch.randn(1, 2, {old}, 3).index_fill_(2, torch.tensor([{at}]), -torch.inf)"
    assert judged(call, x, "cpu") == "pass"


def test_none_excuses_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CORE["exp"]
    wrong = replace(right, reference=lambda x: right.reference(x) * 1.0001)
    monkeypatch.setitem(CORE.table, "exp", wrong)
    assert judged("torch.exp(x0)", "torch.randn(35)", "reference") == "wrong"


@pytest.mark.parametrize("dilation", [2, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_that_are_cut_out_are_those_of_a_pool(stride: int, dilation: int) -> None:
    """Eager's own pool is right as far as no gradient is asked for."""
    for sizes in ((dilation - 1,), (3, dilation - 1), (dilation - 1, 4, 2)):
        x = torch.randn(2, 1, *sizes)
        pool = getattr(torch.nn.functional, f"max_pool{len(sizes)}d")
        assert torch.equal(
            PLAIN["stepping_pool"](x, dilation, stride), pool(x, 2, stride, padding=1, dilation=dilation)
        )


def test_torchs_compiler_is_asked_about_windows_that_are_cut_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager's kernel, which it would call for the gradient, may end the process."""
    right = CORE["scatter_elements"]
    wrong = replace(right, reference=lambda *xs, **attrs: right.reference(*xs, **attrs) + 1)
    monkeypatch.setitem(CORE.table, "scatter_elements", wrong)
    assert judged("stepping_pool(x0, 3, 2)", "torch.randn(1, 2, 2, 2)", "reference") == "wrong"


# --- whose answer counts for what


def two_parts() -> Any:
    """A model of which some outputs do not follow from its first node."""
    for index in range(400):
        case = random_case(11, index)
        first = case.nodes[0]
        apart = [name for name in case.outputs if name not in first.outputs]
        read = {name for node in case.nodes[1:] for name in node.inputs}
        if len(case.nodes) > 1 and apart and not read & set(first.outputs):
            return case
    raise AssertionError("no such model")


def test_a_deviation_leaves_alone_what_does_not_follow_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    case = two_parts()
    first, growth = case.nodes[0], case.growths[0]
    row = Deviation((ORT,), (first.op,), PeerFault.ANSWERS, "a reason", lambda attrs, inputs: True)
    monkeypatch.setattr(onnx_verdict, "DEVIATIONS", (row,))
    assert deviating(case, growth) == {ORT: {"a reason"}, REFERENCE: set()}
    outputs = judged_outputs(case, growth)
    assert outputs[REFERENCE] == list(case.outputs)
    others = [node for node in case.nodes if node.op != first.op]
    assert set(outputs[ORT]) == {name for name in case.outputs if any(name in node.outputs for node in others)}


def test_a_wrong_answer_explains_a_refusal_only_if_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    case = two_parts()
    growth = case.growths[0]
    for fault, counts in ((PeerFault.ANSWERS, True), (PeerFault.REFUSES, False), (PeerFault.EITHER, False)):
        row = Deviation((ORT,), (case.nodes[0].op,), fault, "a reason")
        monkeypatch.setattr(onnx_verdict, "DEVIATIONS", (row,))
        alone = cut(case, [case.nodes[0]])
        assert refusal_counts(alone, growth, ORT) is counts
        assert refusal_counts(alone, growth, REFERENCE)
        assert bool(judged_outputs(alone, growth)[ORT]) is (fault is PeerFault.REFUSES)


def test_the_parts_of_a_model_that_do_not_read_each_other() -> None:
    case = two_parts()
    parts = unconnected(case)
    assert len(parts) > 1
    assert sorted(name for part in parts for name in part.outputs) == sorted(case.outputs)
    for part in parts:
        made = {name for node in part.nodes for name in node.outputs}
        others = {name for other in case.nodes if other not in part.nodes for name in other.inputs}
        assert not made & others


def test_what_rounding_may_do_is_a_share_of_the_largest_element() -> None:
    case = random_case(0, 0)
    name = case.outputs[0]
    value = np.array([1.0, 1000.0], np.float32)
    near, far = value + np.float32(0.01), value + np.float32(1.0)
    assert not onnx_verdict.difference(case, {name: near}, {name: value}, [name])
    assert onnx_verdict.difference(case, {name: far}, {name: value}, [name])


class NearlyEqual:
    """A model whose difference is all rounding, fed once."""

    ops = ("Mul", "Sub")
    outputs = ("y",)
    feeds = ({"x": np.array([1 / 3, 1.0], np.float32)},)

    def proto(self) -> Any:
        body = "t = Mul (x, a) u = Sqrt (t) v = Mul (u, u) y = Sub (v, t)"
        text = f"g (float[2] x) => (float[2] y) <float[1] a = {{3}}> {{ {body} }}"
        return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>{text}')


def test_results_may_differ_by_what_rounding_moves() -> None:
    case: Any = NearlyEqual()
    noise = onnx_verdict.noise_floors(case, 0)
    floor = noise["y"]
    assert 0 < floor.max() < 1e-6
    exact, rare = {"y": np.zeros(2, np.float32)}, np.array([1e-3, 1e-3])
    for times, agree in ((8, True), (100, False)):
        off = {"y": (times * rare).astype(np.float32)}
        assert (onnx_verdict.difference(case, off, exact, noise={"y": rare}) == "") is agree
    assert onnx_verdict.difference(case, off, exact)


def test_where_rounding_decides_whether_there_is_a_number_nothing_is_said() -> None:
    case: Any = NearlyEqual()
    found, exact = {"y": np.array([np.nan, 1], np.float32)}, {"y": np.ones(2, np.float32)}
    assert onnx_verdict.difference(case, found, exact)
    assert not onnx_verdict.difference(case, found, exact, noise={"y": np.array([np.inf, 0])})
    assert onnx_verdict.difference(case, found, exact, noise={"y": np.array([0, np.inf])})
