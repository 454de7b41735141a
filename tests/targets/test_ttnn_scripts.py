"""Scripts against the library alone: one for each op, which run without this package, with what torch says is right."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from assay.limits import DEFAULT
from assay.targets.ttnn.cards import CARDS
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.mock import mock_environment
from assay.targets.ttnn.probing import cases, taken
from assay.targets.ttnn.pythons import installed
from assay.targets.ttnn.scripts import ENVIRONMENT, write_scripts
from assay.targets.ttnn.table import TABLE


@pytest.fixture(scope="module")
def scripts(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("scripts")
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 48), nn.GELU(), nn.LayerNorm(48)]
    model = nn.Sequential(*layers, nn.Linear(48, 48)).eval().requires_grad_(False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT, str(place))
        options = {"target": "ttnn,cpu", "frozen": True}
        torch.compile(model, backend="assay", options=options)(torch.zeros(1, 3, 8, 8))
    return next(each for each in place.iterdir() if any(each.glob("*conv*")))


def made(number: int, *shape: int) -> torch.Tensor:
    """An input as scripts make it."""
    return torch.from_numpy(np.random.RandomState(number).standard_normal(shape)).float()


def test_each_op_has_a_script_and_what_is_right_is_what_torch_says(scripts: Path) -> None:
    ops = [path.stem.partition("_")[2] for path in sorted(scripts.glob("*.py"))]
    assert ops == ["conv", "relu", "reshape", "ttnn_linear", "layer_norm", "ttnn_linear"]
    arrays = np.load(next(scripts.glob("*_layer_norm.npz")))
    right = nn.functional.layer_norm(made(0, 1, 48), [48], made(1, 48), made(2, 48))
    np.testing.assert_allclose(arrays["right0"], right, rtol=1e-4, atol=1e-5)
    arrays = np.load(max(scripts.glob("*_linear.npz")))
    right = nn.functional.linear(made(0, 1, 48), made(1, 48, 48), made(2, 48))
    np.testing.assert_allclose(arrays["right0"], right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["conv", "layer_norm"])
def test_a_script_runs_with_the_library_alone(scripts: Path, op: str) -> None:
    """On a mock every call is taken, shapes fit, and the script says that nothing was computed."""
    found = installed()
    kept = {name: each for name, each in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**kept, **mock_environment(found.folder, CARDS["n150"])}
    command = [found.python, str(next(scripts.glob(f"*_{op}.py")))]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=scripts, timeout=300, check=False
    )
    assert "result 0: correlation 0.000000" in done.stdout, done.stderr
    assert "a mock computes nothing" in done.stdout
    assert done.returncode == 1
    assert "assay" not in Path(command[1]).read_text().replace("Made by Assay", "").lower()


@pytest.mark.parametrize("op", sorted(TABLE.rows))
def test_every_op_can_be_written(op: str, tmp_path: Path) -> None:
    """Of the first sample that the table takes."""
    graph = next(graph for _, graph in cases(op) if taken(graph))
    for path in write_scripts(graph, "", DEFAULT, tmp_path):
        compile(path.read_text(), str(path), "exec")
        arrays: Any = np.load(path.with_suffix(".npz"))
        assert [name for name in arrays.files if name.startswith("right")] == [
            f"right{at}" for at in range(len(graph.outputs))
        ]


def test_a_script_judges_by_correlation(scripts: Path) -> None:
    text = next(scripts.glob("*_layer_norm.py")).read_text()
    body = text[text.index("def correlation") :].partition("\n\n\n")[0]
    names: dict[str, Any] = {"np": np}
    exec(body, names)
    rng = np.random.default_rng(0)
    right = rng.standard_normal(1000)
    near, far = right + 0.01 * rng.standard_normal(1000), rng.standard_normal(1000)
    judged = [names["correlation"](each, right) for each in (right, near, far, np.zeros(1000))]
    assert judged[0] == 1.0
    assert 0.999 < judged[1] < 1.0
    assert abs(judged[2]) < 0.2
    assert judged[3] == 0.0
    assert names["correlation"](np.array([1.0, np.nan, 2.0]), np.array([1.0, 5.0, 2.0])) == 1.0
