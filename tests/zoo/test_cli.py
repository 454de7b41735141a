"""`assay zoo`."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from assay.cli import app
from assay.cli.output import OK
from assay.errors import NotFound
from assay.zoo.torch import MODELS
from assay.zoo.torch.model import Model


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["zoo", *arguments])


@pytest.fixture(autouse=True)
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*args: Any) -> None:
        raise AssertionError("a model was built")

    monkeypatch.setattr(Model, "empty", build)


def test_list_has_every_model_once() -> None:
    result = invoke("list", "--json", "-")
    assert result.exit_code == OK
    listed = json.loads(result.stdout)["models"]
    assert [each["name"] for each in listed] == list(MODELS)
    bert = next(each for each in listed if each["name"] == "BERT")
    assert bert == {
        "name": "BERT",
        "library": "transformers",
        "family": "bert",
        "modes": ["eval", "train"],
        "parameters": 332531714,
        "dtype": "f32",
        "inputs": {"input_ids": [1, 128], "attention_mask": [1, 128]},
        "trained": False,
    }


def test_list_of_one_library() -> None:
    result = invoke("list", "--library", "ultralytics")
    assert result.exit_code == OK
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["YOLOv3", "YOLOv5"]
    assert "2 models" in result.stdout
    assert "resnet50" not in result.stdout


def test_show_by_another_name() -> None:
    result = invoke("show", "MobileNetV2")
    assert result.exit_code == OK
    for part in ("mobilenet_v2", "3,504,872", "width_mult=0.25", "x=[1, 3, 224, 224]", "x=[2, 3, 64, 64]"):
        assert part in result.stdout
    facts = json.loads(invoke("show", "MobileNetV2", "--json", "-").stdout)
    assert facts["aliases"] == ["MobileNetV2"]
    assert facts["small settings"] == {"name": "mobilenet_v2", "width_mult": 0.25, "num_classes": 10}


@pytest.mark.parametrize(
    ("arguments", "hint"), [(("show", "resnet51"), "resnet50"), (("list", "--library", "tim"), "timm")]
)
def test_what_does_not_exist(arguments: tuple[str, ...], hint: str) -> None:
    result = invoke(*arguments)
    assert isinstance(result.exception, NotFound)
    assert hint in result.exception.hint
