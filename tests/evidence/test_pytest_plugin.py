"""The pytest plugin in suites of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.evidence.records import read

pytest_plugins = ["pytester"]

MODEL = """
import pytest
import torch
from torch import nn

class Broken(nn.Module):
    def forward(self, x):
        if torch.compiler.is_compiling():
            return x + 1
        return x.relu()

class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x, scale=1.0):
        return self.layer(x).relu() * scale
    def generate(self, x, steps):
        for _ in range(steps):
            x = torch.cat([x, self(x)])
        return x

torch.manual_seed(0)
x = torch.randn(3, 4)
"""


def run(pytester: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(MODEL + body)
    options = ("-p", "assay.evidence.pytest_plugin", "-p", "no:cacheprovider", *options)
    return pytester.runpytest_subprocess(*options)  # torch cannot be imported twice in one process


def recorded(name: str, model: str, inputs: str, key: str = "assay", marker: str = "") -> str:
    return f"""
{marker}
def test_{name}(record_property):
    record_property("model_name", "{name}")
    model, inputs = {model}, {inputs}
    record_property("{key}", (model, inputs, None))
"""


@pytest.mark.parametrize(("key", "target"), [("assay", "cpu"), ("torch_ttnn", "reference")])
def test_a_model_is_recorded(pytester: pytest.Pytester, tmp_path: Path, key: str, target: str) -> None:
    path = tmp_path / "records.jsonl"
    body = recorded("whole", "Doubled().eval()", "x", key)
    result = run(pytester, body, "--assay-records", str(path), "--assay-target", target, "--assay-iteration", "2")
    result.assert_outcomes(passed=1)
    (record,) = read(path).records
    assert (record.case.name, record.case.target, record.status) == ("whole", target, "pass")
    assert record.speed.runs == 2
    assert record.outputs[0].ok


def test_every_kind_of_inputs(pytester: pytest.Pytester) -> None:
    kinds = ["x", "(x,)", "[x, 2.0]", '{"x": x, "scale": 0.5}']
    bodies = [recorded(f"kind_{index}", "Doubled().eval()", inputs) for index, inputs in enumerate(kinds)]
    run(pytester, "".join(bodies)).assert_outcomes(passed=4)


def test_a_wrong_model_fails_its_test(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    result = run(pytester, recorded("wrong", "Broken()", "x"), "--assay-records", str(path))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the model on cpu: fail_accuracy at accuracy*"])
    assert read(path).records[0].status == "fail_accuracy"


def test_an_expected_failure(pytester: pytest.Pytester) -> None:
    marker = "@pytest.mark.compilation_xfail(reason='it adds')"
    result = run(pytester, recorded("wrong", "Broken()", "x", marker=marker), "-rx")
    result.assert_outcomes(xfailed=1)
    result.stdout.fnmatch_lines(["*it adds*"])


def test_an_unexpected_pass_fails(pytester: pytest.Pytester) -> None:
    marker = "@pytest.mark.compilation_xfail"
    result = run(pytester, recorded("whole", "Doubled().eval()", "x", marker=marker))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*though it is marked compilation_xfail*"])


def test_a_body_that_fails_stays_a_failure_of_the_test(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    body = recorded("whole", "Doubled()", "x", marker="@pytest.mark.compilation_xfail") + "    assert False\n"
    run(pytester, body, "--assay-records", str(path)).assert_outcomes(failed=1)
    assert not path.exists()


def test_generate_compiles_what_it_calls(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    body = recorded("writer", "Doubled().eval().generate", '{"x": x, "steps": 3}')
    run(pytester, body, "--assay-records", str(path)).assert_outcomes(passed=1)
    (record,) = read(path).records
    assert record.status == "pass"
    assert {use.op for use in record.ops} >= {"aten.addmm.default", "aten.relu.default"}
    assert "aten.cat.default" not in {use.op for use in record.ops}


def test_a_model_that_trains_is_judged_by_its_gradients(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    body = recorded("trainee", "Doubled().train()", "x").replace("inputs, None", "inputs, model(inputs)")
    run(pytester, body, "--assay-records", str(path)).assert_outcomes(passed=1)
    (record,) = read(path).records
    assert record.case.mode == "train"
    assert record.gradients_right == record.gradient_count == 2


def test_models_do_not_get_into_reports(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    run(pytester, recorded("whole", "Doubled().eval()", "x"), "--junitxml", str(path)).assert_outcomes(passed=1)
    text = path.read_text()
    assert "Linear" not in text
    assert 'name="assay_status" value="pass"' in text


def test_switched_off(pytester: pytest.Pytester) -> None:
    run(pytester, recorded("wrong", "Broken()", "x"), "--assay-off").assert_outcomes(passed=1)


def test_a_property_of_another_shape(pytester: pytest.Pytester) -> None:
    body = "\ndef test_it(record_property):\n    record_property('assay', 3)\n"
    result = run(pytester, body)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*record a tuple (model, inputs, outputs)*"])
