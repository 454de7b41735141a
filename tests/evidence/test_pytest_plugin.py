"""The pytest plugin in suites of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.evidence.records import read

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]

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
    options = ("-p", "no:cacheprovider", *options)
    return pytester.runpytest_subprocess(*options)  # torch cannot be imported twice in one process


def recorded(name: str, model: str, inputs: str, key: str = "assay", marker: str = "") -> str:
    return f"""
{marker}
def test_{name}(record_property):
    record_property("model_name", "{name}")
    model, inputs = {model}, {inputs}
    record_property("{key}", (model, inputs, None))
"""


def test_the_example_in_the_documentation_passes_as_written(pytester: pytest.Pytester, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "evidence.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text.split("## In a test suite: the pytest plugin")[1], re.DOTALL)
    path = tmp_path / "records.jsonl"
    pytester.makepyfile(example)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "--assay-records", str(path)).assert_outcomes(passed=1)
    assert [(record.case.name, record.status) for record in read(path).records] == [("My model", "pass")]
    marked = example.replace("def test_my_model", "import pytest\n\n@pytest.mark.compilation_xfail\ndef test_my_model")
    pytester.makepyfile(marked)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(failed=1)


XFAIL = "@pytest.mark.compilation_xfail(reason='it adds')"


@pytest.mark.parametrize(("key", "target"), [("assay", "cpu"), ("torch_ttnn", "reference")])
def test_models_are_recorded(pytester: pytest.Pytester, tmp_path: Path, key: str, target: str) -> None:
    path, junit = tmp_path / "records.jsonl", tmp_path / "junit.xml"
    inputs = {"one": "x", "a_tuple": "(x,)", "a_list": "[x, 2.0]", "a_mapping": '{"x": x, "scale": 0.5}'}
    bodies = [recorded(name, "Doubled().eval()", given, key) for name, given in inputs.items()]
    bodies += [recorded("writer", "Doubled().eval().generate", '{"x": x, "steps": 3}', key)]
    bodies += [recorded("trainee", "Doubled().train()", "x", key).replace("inputs, None", "inputs, model(inputs)")]
    options = ["--assay-records", path, "--assay-target", target, "--assay-iteration", "2", "--junitxml", junit]
    run(pytester, "".join(bodies), *map(str, options)).assert_outcomes(passed=6)
    records = {record.case.name: record for record in read(path).records}
    assert records.keys() == {*inputs, "writer", "trainee"}
    assert {(record.case.target, record.status, record.speed.runs) for record in records.values()} == {
        (target, "pass", 2)
    }
    assert all(output.ok for record in records.values() for output in record.outputs)
    generated = {use.op for use in records["writer"].ops}
    assert generated >= {"aten.addmm.default", "aten.relu.default"}
    assert "aten.cat.default" not in generated, "the loop around the model is not compiled"
    trainee = records["trainee"]
    assert (trainee.case.mode, trainee.gradient_count, trainee.gradients_right) == ("train", 2, 2)
    text = junit.read_text()
    assert 'name="assay_status" value="pass"' in text
    assert "Linear" not in text, "a model got into a report"


def test_failures(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    bodies = [
        recorded("wrong", "Broken()", "x"),
        recorded("wrong_as_expected", "Broken()", "x", marker=XFAIL),
        recorded("right_unexpectedly", "Doubled().eval()", "x", marker=XFAIL),
        recorded("body", "Doubled()", "x", marker=XFAIL) + "    assert False\n",
        "\ndef test_no_tuple(record_property):\n    record_property('assay', 3)\n",
    ]
    result = run(pytester, "".join(bodies), "--assay-records", str(path), "-rfx")
    result.assert_outcomes(failed=4, xfailed=1)
    told = result.stdout
    told.fnmatch_lines(["*the model on reference: fail_accuracy at accuracy*"])
    told.fnmatch_lines(["*though it is marked compilation_xfail*"])
    told.fnmatch_lines(["*record a tuple (model, inputs, outputs)*"])
    told.fnmatch_lines(["XFAIL*test_wrong_as_expected*it adds*"])
    statuses = {record.case.name: record.status for record in read(path).records}
    assert statuses == {
        "wrong": "fail_accuracy",
        "wrong_as_expected": "fail_accuracy",
        "right_unexpectedly": "pass",
    }


def test_what_was_not_tried_is_no_expected_failure(pytester: pytest.Pytester) -> None:
    result = run(pytester, recorded("model", "Broken()", "x", marker=XFAIL), "--assay-target", "slate")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the model on slate: unsupported*"])


def test_half_width_is_told(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    body = recorded("narrow", "Doubled().eval().bfloat16()", "x.bfloat16()")
    run(pytester, body, "--assay-records", str(path)).assert_outcomes(passed=1)
    assert [record.case.dtype for record in read(path).records] == ["bf16"]


def test_switched_off(pytester: pytest.Pytester) -> None:
    run(pytester, recorded("wrong", "Broken()", "x"), "--assay-off").assert_outcomes(passed=1)


@pytest.mark.parametrize("target", ["reference", "cpu,reference"])
def test_the_environment_names_the_target(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    path = tmp_path / "records.jsonl"
    monkeypatch.setenv("ASSAY_TARGET", target)
    run(pytester, recorded("model", "Doubled().eval()", "x"), "--assay-records", str(path)).assert_outcomes(passed=1)
    (record,) = read(path).records
    assert (record.case.target, record.status) == (target, "pass")
    assert {name for use in record.ops for name in use.targets} == {target.partition(",")[0]}
